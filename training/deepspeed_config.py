"""Does DeepSpeed take what a recipe adds to its config? Asked before any process is started."""

import contextlib
import copy
import sys
from typing import Any

from remask.models.config import override
from remask.training.recipe import EngineConfig


def check_deepspeed(engine: EngineConfig) -> None:
    """Raise ValueError, naming `engine.deepspeed`, for keys that DeepSpeed would stumble over."""
    if not engine.deepspeed:
        return
    ours = {
        "train_micro_batch_size_per_gpu": 1,
        "steps_per_print": 1,
        "zero_optimization": {"stage": engine.zero_stage},
        "bf16": {"enabled": engine.precision == "bf16"},
    }
    try:
        plain = _parsed(ours)
        _parsed(override(ours, engine.deepspeed))
    except Exception as error:  # pydantic's, its own, and what comes of numbers taken for sections
        reason = " ".join(str(error).split())
        raise ValueError(f"engine.deepspeed: DeepSpeed does not take it: {reason}") from error
    for key, value in engine.deepspeed.items():  # what it reads without looking
        usual = getattr(plain, key, None)
        if isinstance(usual, bool | int | float | str) and not _is_like(value, usual):
            raise ValueError(
                f"engine.deepspeed: {key} must be {type(usual).__name__}, got {value!r}"
            )


def _parsed(values: dict[str, Any]) -> Any:
    with contextlib.redirect_stdout(sys.stderr):  # where it logs what it finds
        from deepspeed.runtime.config import DeepSpeedConfig

        return DeepSpeedConfig(copy.deepcopy(values))


def _is_like(value: Any, usual: bool | float | str) -> bool:
    if isinstance(usual, bool) or isinstance(value, bool):
        return type(value) is type(usual)
    return isinstance(value, int | float if isinstance(usual, int | float) else str)
