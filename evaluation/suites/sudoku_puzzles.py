"""Sudoku solved from its clues: puzzles with one solution, MASK in every other cell.

Puzzles are generated out of held-out boards or read from a file. Clues are not editable.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from remask.evaluation.decode.paths import Bools, Paths, path_columns, replays
from remask.evaluation.decoder import Decoder
from remask.evaluation.player import PlayerSample
from remask.evaluation.stats.scores import (
    AS_FIRST_WRITTEN,
    FORWARD_PASSES,
    REVISION_GLOSSARY,
    mean,
    ratio,
    share,
)
from remask.evaluation.suite import Outcome, Score
from remask.evaluation.suites.generation_scores import slug
from remask.evaluation.suites.sudoku import check_board_model
from remask.evaluation.suites.sudoku_puzzle_file import Puzzle, count_puzzles, read_puzzles
from remask.evaluation.suites.sudoku_scores import GLOSSARY as SUDOKU_GLOSSARY
from remask.evaluation.suites.sudoku_showcase import busiest, player_board, shown
from remask.models import Backbone
from remask.models.ranges import Range, check_fields
from remask.pipeline.runtime.storage import absolute, file_hash
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.sudoku_rules import conflict_cells, is_valid

GENERATED = 500
"""Number of generated puzzles if the suite does not set one."""


@dataclass(frozen=True, kw_only=True)
class SudokuPuzzlesSuite:
    """Puzzles to solve from their clues."""

    kind: ClassVar[str] = "sudoku_puzzles"
    version: ClassVar[int] = 1
    glossary: ClassVar[Mapping[str, str]] = {
        "solved": "puzzles that end as their solution; `solved_easy` is of the level Easy alone",
        "valid": "boards that break no rule; with one solution and fixed clues, the solved ones",
        "right_cells": "share of the cells without a clue that are right in the end",
        AS_FIRST_WRITTEN: "puzzles that would be solved had every cell kept its first digit",
        "conflicts": SUDOKU_GLOSSARY["conflicts"],
        "replay": SUDOKU_GLOSSARY["replay"],
        **{name: REVISION_GLOSSARY[name] for name in ("remasked", "revealed", "oscillating")},
        **FORWARD_PASSES,
    }
    outcome: ClassVar[Outcome] = Outcome(
        metric="solved",
        samples="puzzles",
        success="are solved",
        before=AS_FIRST_WRITTEN,
        before_label="as first written",
    )

    side: Literal[4, 9] = 9
    puzzles: Annotated[int | None, Range("[1, inf)")] = None
    """Number of puzzles. Defaults to 500, or to all puzzles of `file` from `first` on."""
    clues: tuple[int, int] = (22, 30)
    """Range of the number of clues of generated puzzles; see `SudokuSource.clues`."""
    seed: Annotated[int, Range("[0, inf)")] = 0
    """Seed of generated puzzles."""
    file: str | None = None
    """A file of puzzles (`sudoku_puzzle_file.py`), which are used in order. Defaults to generated
    ones."""
    first: Annotated[int, Range("[0, inf)")] = 0
    """Index of the first puzzle to use of the file."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.first and self.file is None:
            raise ValueError(f"first is for puzzles of a file, got {self.first} without a file")
        if self.file is None:
            self._source()  # checks the clues

    @property
    def num_samples(self) -> int:
        if self.file is None:
            return self.puzzles or GENERATED
        in_file = count_puzzles(self.file)
        end = self.first + (self.puzzles or 1)
        if end > in_file:
            raise ValueError(f"{self.file} has {in_file} puzzles, {end} are needed")
        return self.puzzles or in_file - self.first

    def identity(self) -> dict[str, Any]:
        hashed = None if self.file is None else file_hash(self.file)
        return dataclasses.asdict(self) | {"file": hashed}

    def with_absolute_paths(self) -> "SudokuPuzzlesSuite":
        return dataclasses.replace(self, file=absolute(self.file))

    def check(self, backbone: Backbone) -> None:
        check_board_model(backbone, self.side)

    def adapt(self, decoder: Decoder) -> Decoder:
        if decoder.start != "given":
            raise ValueError(
                f"a puzzle starts with MASK in every cell without a clue; decoder start "
                f"{decoder.start} is for boards with wrong cells"
            )
        return decoder

    def sample(self, index: int) -> Puzzle:
        """A puzzle as a function of the suite's settings and the index."""
        if self.file is not None:
            return read_puzzles(self.file, self.side, self.first, self.puzzles)[index]
        rng = np.random.default_rng([self.seed, self.side, index])
        rows = self._source().examples("held_out", index, 1, rng)
        return Puzzle(np.where(rows.editable, 0, rows.target)[0], rows.target[0])

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        drawn = [self.sample(i) for i in samples]
        solution = torch.from_numpy(np.stack([x.solution for x in drawn])).long()
        is_clue = torch.from_numpy(np.stack([x.clues for x in drawn])) > 0
        start = solution.masked_fill(~is_clue, backbone.mask_id)
        revision = decoder.revise(backbone, start, ~is_clue, row_ids=torch.tensor(list(samples)))
        origin = self.seed if self.file is None else "file"
        return pa.table(
            {
                "sample_id": [f"puzzle{self.side}-{origin}-{self.first + i:06d}" for i in samples],
                **path_columns(solution, start, revision),
                "difficulty": pa.array([x.difficulty for x in drawn], pa.float64()),
                "level": pa.array([x.level for x in drawn], pa.string()),
            }
        )

    def score(self, predictions: pa.Table) -> list[Score]:
        boards = Paths.read(predictions)
        solved = boards.exact(boards.final)
        is_clue = boards.start > 0
        right = ~is_clue & (boards.final == boards.solution)
        rejected, replayed = replays(boards)
        remasks, reveals = boards.remasks(), boards.reveals()  # [K, B, N]
        difficulty = predictions["difficulty"].to_numpy()  # NaN where the file has none
        return [
            share("solved", solved),
            *_by_level(solved, predictions["level"].to_pylist()),
            share(AS_FIRST_WRITTEN, boards.exact(boards.first_written()), better="neither"),
            share("valid", is_valid(boards.final)),
            ratio("right_cells", right.sum(-1), (~is_clue).sum(-1)),
            mean("conflicts", conflict_cells(boards.final).sum(-1), better="lower"),
            ratio("replay", replayed.sum(-1), rejected.sum(-1), better="lower"),
            mean("forward_passes", boards.forward_passes, better="lower"),
            mean("remasked", remasks.sum((0, 2)), better="neither"),
            mean("revealed", reveals.sum((0, 2)), better="neither"),
            mean("oscillating", (remasks.sum(0) > 1).sum(-1), better="lower"),
            *_by_number(solved, is_clue.sum(-1), "clues"),
            *_by_number(solved, np.floor(difficulty), "difficulty"),
            *(
                share("solved", boards.exact(state), by="forward passes", at=passes)
                for passes, state in enumerate(boards.states)
            ),
        ]

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """The puzzles with the most re-masks: half of them solved, half of them not."""
        boards = Paths.read(predictions)
        clues = (boards.start > 0).sum(-1)
        levels = predictions["level"].to_pylist()
        notes = [
            f"{count} clues" if level is None else f"{count} clues, {level}"
            for count, level in zip(clues, levels, strict=True)
        ]
        return [shown(boards, row, notes[row]) for row in busiest(boards)]

    @classmethod
    def player_sample(cls, sample: dict[str, Any]) -> PlayerSample:
        return player_board(sample)

    def _source(self) -> SudokuSource:
        return SudokuSource(side=self.side, train=0, held_out=1, images=1, clues=self.clues)


def _by_level(solved: Bools, levels: Sequence[str | None]) -> list[Score]:
    names = np.array([slug(level or "") for level in levels])
    return [
        share(f"solved_{name}", solved[names == name]) for name in np.unique(names).tolist() if name
    ]


def _by_number(solved: Bools, numbers: NDArray, by: str) -> list[Score]:
    """The share of puzzles solved by a number that they have, [B]; NaN where it is unknown."""
    return [
        share("solved", solved[numbers == number], by=by, at=float(number))
        for number in np.unique(numbers[~np.isnan(numbers)])
    ]
