"""decoding.json: the decoding settings that `remask tune` chose for a checkpoint.

For each budget of forward passes the file has the settings that solved the most held-out rows, and
the results of all settings that were tried. It is part of no fingerprint, since the weights are the
same with and without it. Saving a model again drops it, since other weights need other settings.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from remask.models.checkpoints.folder import (
    DECODING,
    CheckpointError,
    check_sums,
    reads_folder,
    write_sealed,
)
from remask.models.checkpoints.shipped import checkpoint_folder
from remask.models.config import from_mapping
from remask.models.decoding import RevisionPolicy
from remask.models.ranges import Range, check_fields

VERSION = 1
Steps = Annotated[int, Range("[1, 2^15]")]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Settings of the revision rule, and what they gave on the held-out rows."""

    settings: dict[str, Any]
    """Settings of `RevisionPolicy`."""
    max_steps: Steps
    solved: Annotated[float, Range("[0, 1]")]
    """Share of the rows that were solved."""
    mean_passes: Annotated[float, Range("[0, inf)")]
    """Mean number of forward passes of a row."""

    def __post_init__(self) -> None:
        check_fields(self)
        self.make_policy()  # checks the settings

    def make_policy(self) -> RevisionPolicy:
        return from_mapping(RevisionPolicy, self.settings, "settings")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The best trial within a budget."""

    budget: Annotated[int, Range("[2, 2^15]")]
    """Maximum number of forward passes of a row, the closing step included."""
    trial: Trial

    def __post_init__(self) -> None:
        check_fields(self)
        if self.trial.max_steps >= self.budget:
            raise ValueError(
                f"max_steps must be below the budget of {self.budget} passes, since the closing "
                f"step needs one, got {self.trial.max_steps}"
            )


@dataclass(frozen=True, kw_only=True)
class TunedDecoding:
    """What decoding.json holds."""

    version: int = VERSION
    model: str
    """Fingerprint of the checkpoint that was tuned."""
    source: str
    """Kind of the source of the held-out rows."""
    recipe: str
    """Digest of the recipe that named the source, and of its tokenizer and data."""
    start: Literal["blank", "given"]
    """What the rows were decoded from: MASKs alone, or tokens to revise."""
    rows: Annotated[int, Range("[1, inf)")]
    """Number of held-out rows."""
    seed: Annotated[int, Range("[0, 2^63)")]
    chosen: tuple[Choice, ...]
    """One per budget, ascending."""
    grid: tuple[Trial, ...]
    """All settings that were tried."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.version != VERSION:
            raise ValueError(f"version {self.version} is not {VERSION}; run `remask tune` again")
        budgets = [choice.budget for choice in self.chosen]
        if not budgets or budgets != sorted(set(budgets)):
            raise ValueError(f"chosen must have ascending budgets, got {budgets}")

    def within(self, max_steps: int) -> Choice | None:
        """The choice for the largest budget that needs at most `max_steps` steps and a closing one;
        None if all budgets are larger."""
        fitting = [choice for choice in self.chosen if choice.budget <= max_steps + 1]
        return fitting[-1] if fitting else None


@reads_folder
def read_decoding(path_or_name: str | os.PathLike[str]) -> TunedDecoding | None:
    """The settings tuned for a checkpoint; None if it was not tuned.

    Raises CheckpointError if decoding.json is damaged or holds anything else.
    """
    path = checkpoint_folder(path_or_name, needs_weights=False) / DECODING
    if not path.is_file():
        return None
    check_sums(path.parent, [path])
    try:
        return from_mapping(TunedDecoding, json.loads(path.read_text()), "settings")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def write_decoding(folder: Path, tuned: TunedDecoding) -> Path:
    """Write decoding.json into a checkpoint's folder, atomically, and return its path."""
    text = json.dumps(dataclasses.asdict(tuned), indent=2) + "\n"
    return write_sealed(folder / DECODING, text)
