"""How a command ends: how long it took, and what to do next.

The line with the result goes to stdout, as in `build: 2 of 2 units made, ... in 3 min 20 s: PATH`;
what to do next goes to stderr. Stages of `remask run` leave the latter to the run.
"""

import os
import shlex

from remask.pipeline.runtime.terminal import say

IN_A_RUN = "REMASK_IN_A_RUN"
"""Environment variable that is set for the stages of a run."""


def duration(seconds: float) -> str:
    """A time as people say it: `12.3 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def say_next(advice: str) -> None:
    """Print what to do next, unless `remask run` goes on with its next stage."""
    if advice and IN_A_RUN not in os.environ:
        say(f"next: {advice}", to_stderr=True)


def after_shards(output: str) -> str:
    """What to do next with a data set of shards."""
    train = command("train", "RECIPE", f"shards={output}")
    return f"{train}; {command('shards', output)} lists what was made"


def after_model(folder: object) -> str:
    """What to do next with a model."""
    revise = command("revise", "--checkpoint", folder)
    return f"{revise} or {command('eval', 'RECIPE', f'checkpoints.NAME={folder}')}"


def command(*words: object) -> str:
    """A `remask` command for an advice, quoted as a shell needs it."""
    return f"`remask {shlex.join(str(word) for word in words)}`"
