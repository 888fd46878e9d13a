"""The state of DeepSpeed's engine on disk: optimiser, counters, its copy of the weights.

DeepSpeed writes pickles, which can run any code when they are read. Here they are read as data
alone: torch's restricted unpickler makes tensors, numbers, containers and the few plain classes
named below, and refuses everything else. So a run that came from elsewhere may be gone on with.

    python -m remask.training.run.engine_state SOURCE TARGET    # joins the states of several ranks
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
    """Write the engine's state; every rank takes part."""
    engine.save_checkpoint(str(folder), tag=TAG, save_latest=False, exclude_frozen_parameters=True)


def load_state(engine: Any, newest: Checkpoint, world: World, *, universal: bool) -> None:
    """Read what `save_state` wrote; `universal` if among another number of ranks."""
    folder, tag = newest.path, TAG
    if universal:
        # States divided among ranks are first put together, to be divided anew.
        folder, tag = newest.path.with_name(f".{newest.path.name}.{UNIVERSAL}"), UNIVERSAL
        if world.is_first:
            _put_together(newest.path / TAG, folder / tag)
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
    if universal:  # it gives all parameters one counter, which each of them would then advance
        for state in engine.optimizer.optimizer.state.values():
            if isinstance(state.get("step"), Tensor):
                state["step"] = state["step"].clone()


def read_data_only() -> None:
    """Let `torch.load` make data and nothing else in this process, whoever calls it."""
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    # DeepSpeed asks for `weights_only=False` everywhere; the first variable goes over that.
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    add_safe_globals([LossScaler, ZeroStageEnum, fragment_address])


def _refusal(folder: Path, reason: str) -> str:
    unsafe = re.search(r"GLOBAL (\S+)", reason)
    what = f"names {unsafe[1]}, which could run code" if unsafe else "is not what DeepSpeed writes"
    return f"{folder} {what}; its state is read as data alone: remove that checkpoint"


def _put_together(source: Path, target: Path) -> None:
    """In a process of its own: DeepSpeed forks there, and a fork of a rank would keep its lock."""
    shutil.rmtree(target, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "remask.training.run.engine_state", str(source), str(target)],
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise TrainingError(f"DeepSpeed could not put the states in {source} together: {reason}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask.training.run.engine_state",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("source", help="folder with the states of each rank")
    parser.add_argument("target", help="folder for the whole, in DeepSpeed's universal format")
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
