"""Which checkpoint a run resumes from: the newest whose every byte is as it was written."""

from remask.pipeline.runtime.terminal import complain
from remask.training.run.checkpoint import Checkpoint
from remask.training.run.folder import RunFolder
from remask.training.world import TrainingError, World


def find_newest(folder: RunFolder, world: World) -> Checkpoint | None:
    """The checkpoint to resume from, the same on all ranks, which share the verification.

    Returns:
        The newest undamaged checkpoint; None if the run has none yet.

    Raises:
        TrainingError: All checkpoints are damaged, or ranks see different folders.
    """
    checkpoints, faults = folder.survey()
    steps = world.gather([x.state.step for x in checkpoints])
    if any(x != steps[0] for x in steps):
        raise TrainingError(
            f"ranks see different checkpoints in {folder.path} (steps {steps}); output must be on "
            "a file system that all ranks share"
        )
    while checkpoints:
        newest = checkpoints.pop()
        by_rank = world.gather(newest.faults(world.rank, world.size))
        damage = [fault for part in by_rank for fault in part]
        if not damage:
            _warn(faults, newest, world)
            return newest
        faults[newest.path.name] = damage[0]
    if faults:
        raise TrainingError(
            f"no undamaged checkpoint is left ({'; '.join(faults.values())}); restore one, or "
            "remove them to start from the beginning"
        )
    return None


def _warn(faults: dict[str, str], newest: Checkpoint, world: World) -> None:
    """Name the damaged checkpoints that are newer than the one used."""
    newer = [fault for name, fault in faults.items() if name > newest.path.name]
    if newer and world.is_first:
        complain(
            "remask train", f"{'; '.join(newer)}: resuming from step {newest.state.step} instead"
        )
