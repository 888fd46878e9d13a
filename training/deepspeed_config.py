"""Validates the DeepSpeed keys of a recipe before any process starts."""

import contextlib
import copy
import sys
from typing import Any

from remask.models.config import override
from remask.training.recipe import EngineConfig


def check_deepspeed(engine: EngineConfig) -> None:
    """Raise ValueError, naming `engine.deepspeed`, for keys that DeepSpeed would refuse."""
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
    except Exception as error:  # pydantic's, DeepSpeed's, and type errors within it
        reason = " ".join(str(error).split())
        raise ValueError(f"engine.deepspeed: DeepSpeed refuses it: {reason}") from error
    for key, value in engine.deepspeed.items():  # DeepSpeed does not check the types of these
        default = getattr(plain, key, None)
        if isinstance(default, bool | int | float | str) and not _has_type_of(default, value):
            raise ValueError(
                f"engine.deepspeed: {key} must be {type(default).__name__}, got {value!r}"
            )


def _parsed(values: dict[str, Any]) -> Any:
    with contextlib.redirect_stdout(sys.stderr):  # DeepSpeed logs to stdout
        from deepspeed.runtime.config import DeepSpeedConfig

        return DeepSpeedConfig(copy.deepcopy(values))


def _has_type_of(default: bool | float | str, value: Any) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return type(value) is type(default)
    return isinstance(value, int | float if isinstance(default, int | float) else str)
