"""The size of a checkpoint, and the error message of a full disk."""

import shutil

from safetensors import SafetensorError

from remask.models import Backbone
from remask.training.dry_run import make_outline
from remask.training.memory_estimate import MASTER, optimizer_bytes, size_text
from remask.training.plan import TrainingPlan
from remask.training.recipe import TrainRecipe
from remask.training.run.folder import RunFolder


def checkpoint_bytes(backbone: Backbone, recipe: TrainRecipe) -> int:
    """Size of a checkpoint: the model, DeepSpeed's own copy of it, and the optimizer state.

    Args:
        backbone: The model, with its adapter if there is one; may be on the meta device.
        recipe: Settings of engine and optimizer.
    """
    trained = [x for x in backbone.parameters() if x.requires_grad]
    saved = trained if recipe.lora else list(backbone.parameters())
    width = 2 if recipe.engine.precision == "bf16" else 4
    count = sum(x.numel() for x in trained)
    model = width * sum(x.numel() for x in saved)
    states = optimizer_bytes(backbone, trained, recipe.optimizer)
    stage = recipe.engine.zero_stage
    return model + states + (width * count if stage < 3 else 0) + (MASTER * count if stage else 0)


def is_write_error(error: BaseException) -> bool:
    """Whether a write failed; torch's writer raises a RuntimeError without the system's reason."""
    if isinstance(error, OSError):
        return not isinstance(error, ConnectionError)
    is_torch = isinstance(error, RuntimeError) and "inline_container" in str(error)
    return is_torch or isinstance(error, SafetensorError)


def describe(error: BaseException, plan: TrainingPlan, folder: RunFolder) -> str:
    """The message of a failed write: the reason, the space needed, and what to do."""
    newest = folder.newest()
    needed = newest.size if newest else checkpoint_bytes(make_outline(plan.recipe), plan.recipe)
    free = shutil.disk_usage(folder.path).free
    reason = (isinstance(error, OSError) and error.strerror) or str(error).splitlines()[0]
    after = f"resumes from step {newest.state.step}" if newest else "starts from the beginning"
    return (
        f"cannot write to {folder.path} ({reason}): a checkpoint takes about {size_text(needed)}, "
        f"and {size_text(free)} are free there; free more and give the same command again, which "
        f"{after}"
    )
