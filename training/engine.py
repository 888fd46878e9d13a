"""The DeepSpeed engine, and how a model's weights leave it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from remask.models import Backbone, save
from remask.models.checkpoints.adapter import AdapterSettings, has_adapter, save_adapter
from remask.models.config import override
from remask.training.learner import Learner
from remask.training.optimizer import OptimizerConfig, make_optimizer, split_parameters
from remask.training.plan import TrainingPlan
from remask.training.recipe import EngineConfig
from remask.training.run.checkpoint import Checkpoint
from remask.training.run.engine_state import load_state
from remask.training.world import World


def engine_config(
    plan: TrainingPlan, world: World, *, load_universal: bool = False
) -> dict[str, Any]:
    """DeepSpeed's config for a plan; `engine.deepspeed` overrides our keys."""
    settings = plan.recipe.engine
    # DeepSpeed's Muon computes its update before clipping, which would then shrink the update.
    uses_deepspeed_muon = plan.recipe.optimizer.kind == "muon" and settings.zero_stage > 0
    zero: dict[str, Any] = {"stage": settings.zero_stage}
    if plan.recipe.optimizer.kind == "muon":
        zero["reduce_scatter"] = False  # Muon needs whole matrices
    if settings.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu"}
    if settings.offload == "all":
        zero["offload_param"] = {"device": "cpu"}
    ours = {
        "train_batch_size": plan.recipe.batch_size,
        "train_micro_batch_size_per_gpu": plan.recipe.batch_size
        // (world.size * plan.micro_batches),
        "gradient_accumulation_steps": plan.micro_batches,
        "gradient_clipping": 0.0 if uses_deepspeed_muon else settings.clip,
        "bf16": {"enabled": settings.precision == "bf16"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,  # Muon, and torch's AdamW where weights are on CPU
        "zero_force_ds_cpu_optimizer": False,  # DeepSpeed's takes minutes to compile
        "steps_per_print": 1 << 40,  # we write our own log
        "checkpoint": {"load_universal": load_universal},
    }
    return override(ours, settings.deepspeed)


def make_engine(
    learner: Learner, plan: TrainingPlan, world: World, newest: Checkpoint | None = None
) -> tuple[Any, list[float]]:
    """Wrap a learner in a DeepSpeed engine, with the state of a checkpoint if one is given.

    Returns:
        The engine, and the peak learning rate of each of the optimizer's groups.
    """
    import deepspeed

    settings = plan.recipe.engine
    universal = is_regrouped(plan, world, newest)
    config = engine_config(plan, world, load_universal=universal)
    if settings.recompute:
        recompute_blocks(learner.backbone)
    if settings.zero_stage < 3:
        learner.to(world.device)
    parameters = [x for x in learner.parameters() if x.requires_grad]
    optimizer = _optimizer(learner.backbone, parameters, plan.recipe.optimizer, settings)
    peaks = [group["lr"] for group in optimizer.param_groups]
    if settings.zero_stage == 3:
        # Partitioned before the engine is made, so that no device has to hold all weights. From
        # here on parameters have lost their shapes, by which the optimizer has sorted them, and
        # keep the dtype that they have now.
        if settings.precision == "bf16":
            for parameter in learner.parameters():
                parameter.data = parameter.data.bfloat16()
        deepspeed.zero.Init(module=learner, config_dict_or_path=config)
        for buffer in learner.buffers():
            buffer.data = buffer.data.to(world.device)
    engine, *_ = deepspeed.initialize(
        model=learner,
        optimizer=optimizer,
        model_parameters=parameters,  # pyright: ignore[reportArgumentType]
        config=config,
        dist_init_required=False,
    )
    if newest is not None:
        load_state(engine, newest, world, universal=universal)
    return engine, peaks


def is_regrouped(plan: TrainingPlan, world: World, newest: Checkpoint | None) -> bool:
    """Whether a checkpoint's states are partitioned among another number of ranks than now.

    Raises ValueError if the optimizer does not allow that.
    """
    recipe = plan.recipe
    if not newest or not recipe.engine.zero_stage or newest.state.world_size == world.size:
        return False
    if recipe.optimizer.kind == "muon":
        raise ValueError(
            f"this run started with {newest.state.world_size} ranks and now has {world.size}; with "
            f"muon and zero_stage {recipe.engine.zero_stage} their number cannot change: continue "
            f"with {newest.state.world_size}"
        )
    return True


def whole_weights(backbone: Backbone, world: World) -> dict[str, Tensor] | None:
    """A model's weights, gathered on the first rank, if ZeRO 3 partitions them; otherwise None."""
    partitioned = [x for x in backbone.parameters() if hasattr(x, "ds_id")]
    if not partitioned:
        return None
    from deepspeed.runtime.zero import GatheredParameters

    weights = {}
    is_adapter = has_adapter(backbone)
    for name, parameter in backbone.named_parameters():
        if is_adapter and not parameter.requires_grad:
            continue  # only the adapter is saved
        with GatheredParameters([parameter]):
            if world.is_first:
                weights[name] = parameter.detach().cpu().clone()
    return weights


def save_model(
    backbone: Backbone,
    path: Path,
    weights: Mapping[str, Tensor] | None,
    card: str,
    plan: TrainingPlan,
) -> None:
    """Write the model, or its adapter if only that was trained."""
    recipe, (inputs, _) = plan.recipe, plan.inputs
    if not (recipe.lora and recipe.start and has_adapter(backbone)):
        return save(backbone, path, tensors=weights, card=card, inputs=inputs)
    settings = AdapterSettings(
        base=str(Path(recipe.start).absolute()),
        base_fingerprint=plan.start or "",
        rank=recipe.lora.rank,
        alpha=recipe.lora.alpha,
        history=backbone.history,
    )
    return save_adapter(
        backbone,
        path,
        settings,
        tensors=dict(weights) if weights else None,
        card=card,
        inputs=inputs,
    )


def recompute_blocks(backbone: Backbone) -> None:
    """Activation checkpointing: save only the input of each block, and recompute the rest."""
    for block in backbone.blocks:
        block.forward = _recomputed(block.forward)


def _recomputed(forward: Any) -> Any:
    def run(*arguments: Any, **named: Any) -> Any:
        return checkpoint(forward, *arguments, use_reentrant=False, **named)

    return run


def _optimizer(
    backbone: Backbone,
    parameters: list[nn.Parameter],
    config: OptimizerConfig,
    settings: EngineConfig,
) -> torch.optim.Optimizer:
    if config.kind == "adamw" or settings.zero_stage == 0:
        return make_optimizer(backbone, parameters, config)
    # ZeRO flattens parameters; DeepSpeed's own Muon updates the matrices before that.
    from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam

    matrices, rest = split_parameters(backbone, parameters)
    for parameter in parameters:
        parameter.use_muon = False  # pyright: ignore[reportAttributeAccessIssue]
    for parameter in matrices:
        parameter.use_muon = True  # pyright: ignore[reportAttributeAccessIssue]
    decay = config.weight_decay
    groups = [
        {"params": matrices, "use_muon": True, "lr": config.lr, "momentum": config.momentum,
         "weight_decay": decay},
        {"params": rest, "use_muon": False, "lr": config.lr * config.adamw_share,
         "betas": config.betas, "eps": 1e-8, "weight_decay": decay},
    ]  # fmt: skip
    return MuonWithAuxAdam([group for group in groups if group["params"]])
