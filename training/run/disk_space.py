"""What a run writes when it saves, and what to say if the disk does not take it."""

import shutil

from safetensors import SafetensorError

from remask.models import Backbone
from remask.training.dry_run import make_outline
from remask.training.estimate import MASTER, optimizer_bytes, size_text
from remask.training.plan import Plan
from remask.training.recipe import TrainRecipe
from remask.training.run.folder import RunFolder


def checkpoint_bytes(backbone: Backbone, recipe: TrainRecipe) -> int:
    """Size of a checkpoint: the model, DeepSpeed's own copy of it, and the optimiser's states.

    Args:
        backbone: The model, with its adapter if there is one; the meta device will do.
        recipe: Engine and optimiser.
    """
    trained = [x for x in backbone.parameters() if x.requires_grad]
    saved = trained if recipe.lora else list(backbone.parameters())
    wide = 2 if recipe.engine.precision == "bf16" else 4
    count = sum(x.numel() for x in trained)
    model = wide * sum(x.numel() for x in saved)
    states = optimizer_bytes(backbone, trained, recipe.optimizer)
    stage = recipe.engine.zero_stage
    return model + states + (wide * count if stage < 3 else 0) + (MASTER * count if stage else 0)


def is_write_error(error: BaseException) -> bool:
    """Did the disk refuse? torch's writer fails without the system's reason."""
    if isinstance(error, OSError):
        return not isinstance(error, ConnectionError)
    is_torch = isinstance(error, RuntimeError) and "inline_container" in str(error)
    return is_torch or isinstance(error, SafetensorError)


def describe(error: BaseException, plan: Plan, folder: RunFolder) -> str:
    """Why a run cannot go on, what it needs, and what to do."""
    newest = folder.newest()
    needed = newest.size if newest else checkpoint_bytes(make_outline(plan.recipe), plan.recipe)
    free = shutil.disk_usage(folder.path).free
    reason = (isinstance(error, OSError) and error.strerror) or str(error).splitlines()[0]
    after = f"goes on from step {newest.state.step}" if newest else "begins anew"
    return (
        f"cannot write to {folder.path} ({reason}): a checkpoint takes about {size_text(needed)}, "
        f"and {size_text(free)} are free there; make room and give the same command again, which "
        f"{after}"
    )
