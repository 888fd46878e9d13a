"""Train on this machine or on the hosts of a hostfile, through DeepSpeed's launcher.

Kill it at any time and start it again: it resumes from its last checkpoint. SIGTERM and Ctrl-C save
one first.

    remask train training/recipes/sudoku.yaml
    remask train training/recipes/sudoku.yaml batch_size=32 optimizer.lr=0.01
    remask train RECIPE --ranks 2
    remask train RECIPE --hostfile hosts        # lines like: node1 slots=8
    remask train RECIPE --verbose               # with the lines that DeepSpeed logs
    deepspeed --module remask.training.train RECIPE              # the launcher by itself
    remask train RECIPE --dry-run --ranks 2 --gpu-memory 80    # what it needs, and whether it fits
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

from remask.models.checkpoints.hub import pinned
from remask.models.checkpoints.hub_name import is_hub_name
from remask.models.checkpoints.shipped import checkpoint_folder
from remask.pipeline.format.manifest import MANIFEST, ROWS
from remask.pipeline.runtime.command import plain
from remask.pipeline.runtime.ending import after_model, say_next
from remask.pipeline.runtime.plain_yaml import write_yaml
from remask.pipeline.runtime.recipes import load_recipe
from remask.pipeline.runtime.storage import Storage, StorageError
from remask.pipeline.runtime.terminal import fail, say
from remask.training.deepspeed_config import check_deepspeed
from remask.training.plan import make_plan
from remask.training.recipe import TrainRecipe
from remask.training.run.folder import RunFolder
from remask.training.run.lifeline import COMMAND
from remask.training.train import FAILURE, add_arguments, dry_run, refuse_planning
from remask.training.world import TrainingError, World

QUIET = "--quiet"
"""Option of `deepspeed` with which its launcher logs errors alone."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
ENDING_S = 10
"""How long to wait for killed ranks to end."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask train", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--ranks", type=int, help="processes on this machine (default: its GPUs)")
    parser.add_argument("--hostfile", type=Path, help="machines to train on, in DeepSpeed's format")
    parser.add_argument("--verbose", action="store_true", help="show what DeepSpeed logs")
    arguments = parser.parse_intermixed_args(argv)
    if arguments.ranks is not None and arguments.ranks < 1:
        parser.error(f"--ranks must be at least 1, got {arguments.ranks}")
    if arguments.hostfile and (arguments.ranks or not arguments.hostfile.is_file()):
        parser.error("--hostfile must be a file; its slots take the place of --ranks")
    ranks = arguments.ranks or default_ranks()
    if arguments.dry_run:
        return dry_run(arguments, ranks)
    refuse_planning(arguments)
    where = ["--hostfile", str(arguments.hostfile)] if arguments.hostfile else local(ranks)
    where += [] if arguments.verbose else [QUIET]
    settings = dict(os.environ) if arguments.hostfile else environment(ranks)
    try:  # before any process is started
        recipe = load_recipe(TrainRecipe, arguments.recipe, arguments.overrides)
        words = [arguments.recipe, *arguments.overrides, *fetch_start(recipe)]
        command = [*where, "--module", "remask.training.train", *words]
        beside = words if recipe.rounds else None
        here = 0 if arguments.hostfile else ranks
        check_request(recipe, here or 1)
        status = launch(command, settings, RunFolder(recipe.output), rollouts=beside, ranks=here)
    except ValueError as error:
        fail("remask train", 2, error)
    except (StorageError, TrainingError) as error:
        fail("remask train", 1, error)
    if status == 0:
        outcome, model = RunFolder(recipe.output).outcome(), Path(recipe.output) / "model"
        is_finished = outcome is not None and outcome.is_finished
        say_next(after_model(model) if is_finished else "the same command, to continue")
    raise SystemExit(status)


def check_request(recipe: TrainRecipe, ranks: int) -> None:
    """Check data and model before any process is started, as every rank will do again.

    Args:
        recipe: What to train.
        ranks: Number of ranks; 1 if a hostfile decides.

    Raises ValueError for a wrong request, StorageError for data that cannot be read.
    """
    check_deepspeed(recipe.engine)
    for shards in recipe.shard_sets:
        storage = Storage(shards.uri)
        if not storage.exists(MANIFEST) and not storage.names(ROWS):
            raise ValueError(
                f"shards: there is no data set at {storage.uri}; build one with `remask build`, or "
                "name another: shards=URI"
            )
    make_plan(recipe, World(rank=0, size=ranks, local_rank=0, local_size=ranks))


def run(recipe: TrainRecipe, ranks: int | None = None) -> RunFolder:
    """Train a recipe on this machine to its last step, and return its folder.

    Args:
        recipe: What to train.
        ranks: Processes. Defaults to `default_ranks`.

    Raises ValueError for a wrong request, StorageError if a checkpoint cannot be fetched from the
    hub, TrainingError if the run failed or was stopped.
    """
    if ranks is not None and ranks < 1:
        raise ValueError(f"ranks must be at least 1, got {ranks}")
    recipe = recipe.with_pinned_start()
    fetch_start(recipe)
    check_request(recipe, ranks or default_ranks())
    ranks, folder = ranks or default_ranks(), RunFolder(recipe.output)
    with tempfile.TemporaryDirectory(prefix="remask-train-") as aside:
        path, failure = Path(aside, "recipe.yaml"), Path(aside, "failure")
        path.write_text(write_yaml(plain(recipe)), "utf-8")
        command = [*local(ranks), QUIET, "--module", "remask.training.train", str(path)]
        beside = [str(path)] if recipe.rounds else None
        settings = environment(ranks) | {FAILURE: str(failure)}
        status = launch(command, settings, folder, rollouts=beside, ranks=ranks)
        reason = failure.read_text("utf-8") if failure.exists() else ""
    if status:
        error = ValueError if status == 2 else TrainingError
        raise error(reason or f"the launcher of {folder.path} ended with status {status}")
    outcome = folder.outcome()
    if outcome is None or not outcome.is_finished:
        raise TrainingError(f"{outcome or folder.path}; train again to continue")
    return folder


def fetch_start(recipe: TrainRecipe) -> list[str]:
    """Fetch a checkpoint on the hub that a run starts from, once for all ranks of this machine.

    Returns:
        The override that names its commit, so that all ranks, on all hosts, start from the same
        weights; empty for any other start.
    """
    if recipe.start is None or not is_hub_name(recipe.start):
        return []
    start = pinned(recipe.start, "model")
    checkpoint_folder(start)
    return [f"start={start}"]


def default_ranks() -> int:
    """A rank per GPU; on CPUs one rank with all cores, which is faster than a rank per core."""
    return max(1, torch.cuda.device_count())


def local(ranks: int) -> list[str]:
    return ["--num_gpus", str(ranks), "--master_addr", "127.0.0.1", "--master_port", free_port()]


def free_port() -> str:
    """A port of the loopback interface that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def environment(ranks: int) -> dict[str, str]:
    """The launcher's environment: the process that ranks end with and, on CPUs, the accelerator and
    the threads of each rank."""
    variables = os.environ | {COMMAND: str(os.getpid())}
    if not torch.cuda.is_available():
        variables.setdefault("DS_ACCELERATOR", "cpu")
        cores = len(os.sched_getaffinity(0))  # fewer than the machine's where they are assigned
        variables.setdefault("OMP_NUM_THREADS", str(max(1, cores // ranks)))
    return variables


def free_gpus(ranks: int) -> dict[str, str]:
    """The variable that shows a process only the GPUs without a rank; empty if all have one.

    DeepSpeed's launcher puts ranks on the machine's first GPUs, whatever is visible here.
    """
    names = os.environ.get(VISIBLE, "").split(",")
    if names == [""]:
        names = [str(x) for x in range(torch.cuda.device_count())]
    free = [x for x in names if x not in {str(rank) for rank in range(ranks)}]
    return {VISIBLE: ",".join(free)} if free else {}


def launch(
    command: list[str],
    environment: dict[str, str],
    folder: RunFolder,
    *,
    rollouts: list[str] | None = None,
    ranks: int = 0,
) -> int:
    """Run `deepspeed` and return an exit status; on a signal the ranks save and end.

    DeepSpeed's own status is also 0 if a signal ended its launcher. So success means that the run
    has recorded its outcome: it is finished, or was asked to stop and has saved.

    Args:
        command: Arguments of `deepspeed`.
        environment: Environment variables.
        folder: The run's folder.
        rollouts: Recipe and overrides of a run with rounds, whose rollouts run beside it. If they
            fail, the ranks save and end, and the status is that of the rollouts.
        ranks: Ranks on this machine, whose GPUs the rollouts leave to them if there are others.
    """
    beside = Path(sys.executable).with_name("deepspeed")
    deepspeed = str(beside) if beside.exists() else shutil.which("deepspeed")
    if deepspeed is None:
        raise TrainingError("there is no `deepspeed` command; install deepspeed")
    if rollouts:
        make_log_folder(folder)
    before = folder.last_ended()
    # A session of its own: Ctrl-C must not reach the launcher, which would give its ranks half a
    # minute to end. Here they get the time they need.
    process = subprocess.Popen(
        [sys.executable, deepspeed, *command], env=environment, start_new_session=True
    )

    def pass_on(signum: int = signal.SIGTERM, frame: object = None) -> None:
        ranks = ranks_of(os.getpid())
        for rank in ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.send_signal(signal.SIGTERM)
        if not ranks and COMMAND in environment:  # nothing has begun that could be saved
            process.terminate()
        elif not ranks and folder.path.is_dir():  # on other machines
            folder.stop.touch()

    failed = 0
    with (
        handling((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), pass_on),
        _rollouts_beside(rollouts, environment | free_gpus(ranks), folder) as decoding,
    ):
        while process.poll() is None:
            time.sleep(0.2)
            if decoding and not failed and decoding.poll():
                failed = 2 if decoding.returncode == 2 else 1
                pass_on()
    left = ranks_of(os.getpid())  # of a launcher that was killed; they would end by themselves soon
    for rank in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            rank.kill()
    psutil.wait_procs(left, timeout=ENDING_S)
    if failed:
        return failed
    if folder.last_ended() != before:
        return 0
    if process.returncode > 0:
        return process.returncode
    print(
        "remask train: the launcher was killed before the run was done; give the same command "
        "again to resume",
        file=sys.stderr,
    )
    return 128 - process.returncode if process.returncode else 1


def rollouts_log(folder: RunFolder) -> Path:
    """Where the rollouts of a run with rounds print to."""
    return folder.path / "rounds" / "rollouts.log"


def make_log_folder(folder: RunFolder) -> None:
    """Raise ValueError if the rollouts could not write their log."""
    try:
        rollouts_log(folder).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"cannot write to output {folder.path}: {error.strerror}; choose another folder"
        ) from error


@contextlib.contextmanager
def _rollouts_beside(
    arguments: list[str] | None, environment: dict[str, str], folder: RunFolder
) -> Iterator[subprocess.Popen[bytes] | None]:
    """Run the rollouts of a run with rounds, if it has any, and end them with the run.

    What they print goes to OUTPUT/rounds/rollouts.log; if they fail, its last line is repeated.
    """
    if arguments is None:
        yield None
        return
    path = rollouts_log(folder)
    with path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "remask.training.round_rollouts", *arguments],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        elif process.returncode:
            lines = path.read_text(errors="replace").splitlines() or [f"see {path}"]
            say(lines[-1], to_stderr=True)
        if path.stat().st_size == 0:  # a refused run leaves nothing behind
            path.unlink()
            with contextlib.suppress(OSError):  # not empty
                path.parent.rmdir()
                folder.path.rmdir()


@contextlib.contextmanager
def handling(signals: Iterable[int], handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handle signals that are not ignored, as nohup ignores SIGHUP. Only the main thread can."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in signals:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def ranks_of(command: int) -> list[psutil.Process]:
    """The ranks on this machine that belong to the `remask train` of this process id."""
    return [
        x
        for x in psutil.process_iter()
        if (variables := _environment(x)).get(COMMAND) == str(command) and "RANK" in variables
    ]


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


if __name__ == "__main__":
    main()
