"""The state of DeepSpeed's engine on disk: optimizer, counters, its copy of the weights.

DeepSpeed writes pickles, which can execute any code when they are loaded. Here they are loaded as
plain data: torch's restricted unpickler creates tensors, numbers, containers and the few classes
named below, and refuses everything else. So a downloaded run can be resumed safely.

    python -m remask.training.run.engine_state SOURCE TARGET    # merges the states of several ranks
"""

import argparse
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.serialization import add_safe_globals

from remask.training.run.checkpoint import Checkpoint
from remask.training.run.lifeline import end_with_parent
from remask.training.world import TrainingError, World

TAG, UNIVERSAL = "deepspeed", "universal"


def save_state(engine: Any, folder: Path) -> None:
    """Write the engine's state; all ranks must call this."""
    engine.save_checkpoint(str(folder), tag=TAG, save_latest=False, exclude_frozen_parameters=True)


def load_state(engine: Any, newest: Checkpoint, world: World, *, universal: bool) -> None:
    """Load what `save_state` wrote; with `universal`, for another number of ranks."""
    folder, tag = newest.path, TAG
    if universal:
        # The states of all ranks are merged, to be partitioned again.
        folder, tag = newest.path.with_name(f".{newest.path.name}.{UNIVERSAL}"), UNIVERSAL
        if world.is_first:
            _merge_states(newest.path / TAG, folder / tag)
        world.wait()
    read_data_only()
    try:
        path, _ = engine.load_checkpoint(
            str(folder), tag=tag, load_lr_scheduler_states=False, load_module_strict=False
        )
    except pickle.UnpicklingError as error:
        raise TrainingError(_refusal(folder / tag, str(error))) from error
    if path is None:
        raise TrainingError(f"DeepSpeed could not read {folder / tag}; remove that checkpoint")
    if universal:  # all parameters share one counter, which each of them would advance
        for state in engine.optimizer.optimizer.state.values():
            if isinstance(state.get("step"), Tensor):
                state["step"] = state["step"].clone()


def read_data_only() -> None:
    """Restrict `torch.load` to plain data in this process, whoever calls it."""
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    # DeepSpeed passes `weights_only=False` everywhere; the first variable overrides that.
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    add_safe_globals([LossScaler, ZeroStageEnum, fragment_address])


def _refusal(folder: Path, reason: str) -> str:
    unsafe = re.search(r"GLOBAL (\S+)", reason)
    what = (
        f"names {unsafe[1]}, which could execute code" if unsafe else "is not what DeepSpeed writes"
    )
    return f"{folder} {what}; only plain data is loaded: remove that checkpoint"


def _merge_states(source: Path, target: Path) -> None:
    """Merge in a new process: DeepSpeed forks, and a fork of a rank would keep the run's lock."""
    shutil.rmtree(target, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "remask.training.run.engine_state", str(source), str(target)],
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise TrainingError(f"DeepSpeed could not merge the states in {source}: {reason}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask.training.run.engine_state",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("source", help="folder with the state of each rank")
    parser.add_argument(
        "target", help="folder for the merged state, in DeepSpeed's universal format"
    )
    arguments = parser.parse_args(argv)
    end_with_parent()
    from deepspeed.checkpoint import ds_to_universal

    folders = ["--input_folder", arguments.source, "--output_folder", arguments.target]
    sys.argv = ["ds_to_universal", *folders, "--inject_missing_state"]
    read_data_only()
    try:
        ds_to_universal.main(ds_to_universal.parse_arguments())
    except pickle.UnpicklingError as error:
        parser.exit(1, f"{_refusal(Path(arguments.source), str(error))}\n")


if __name__ == "__main__":
    main()
