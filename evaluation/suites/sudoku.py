"""Sudoku revision: how many boards end right, and what revision did on the way. SPEC §7.

A sample is a solved held-out board with some cells changed to other digits. Given that board, the
model must find the cells and mend them.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.evaluation.decode.paths import Bools, Ints, Paths, path_columns, replays, stack
from remask.evaluation.decoder import Decoder
from remask.evaluation.judges.nearest import outlook
from remask.evaluation.stats.intervals import bootstrap
from remask.evaluation.stats.scores import mean, ratio, share, what_revision_did
from remask.evaluation.suite import Score, register
from remask.models import Backbone, SudokuMDM
from remask.models.history import HistoryState
from remask.pipeline.runtime.storage import absolute, file_hash
from remask.pipeline.sources.sudoku import SudokuSource, read_boards
from remask.pipeline.sources.sudoku_rules import conflict_cells, is_valid

BINS = 10
"""Of p(MASK), for its calibration."""
MOST_SEARCHED = 20
"""Wrong cells up to which a board's other answers are looked for; beyond, it can take seconds."""
SHOWN = 8
"""Boards for the player."""


@register
@dataclass(frozen=True, kw_only=True)
class SudokuSuite:
    """Held-out boards with wrong cells."""

    kind: ClassVar[str] = "sudoku"
    version: ClassVar[int] = 1

    side: Literal[4, 9] = 9
    boards: int | None = None
    """How many; 1,000, or all that the file holds, when none."""
    wrong: tuple[int, int] = (4, 20)
    """Least and most wrong cells of a board."""
    balanced: bool = False
    """As many boards of each number of wrong cells, in turn; drawn at random when false."""
    seed: int = 0
    file: str | None = None
    """Take solved boards from this file, a line of digits each, in its order."""

    def __post_init__(self) -> None:
        low, high = self.wrong
        if not 0 <= low <= high <= self.side**2:
            raise ValueError(f"wrong must be 0 <= low <= high <= {self.side**2}, got {low}, {high}")
        if self.boards is not None and self.boards < 1:
            raise ValueError(f"boards must be at least 1, got {self.boards}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")

    @property
    def num_samples(self) -> int:
        if self.file is None:
            return self.boards or 1000
        there = len(read_boards(self.file, self.side))
        if self.boards is not None and self.boards > there:
            raise ValueError(f"{self.file} holds {there} boards, {self.boards} are asked for")
        return self.boards or there

    def identity(self) -> dict[str, Any]:
        found = dataclasses.asdict(self)
        found["file"] = None if self.file is None else file_hash(self.file)
        return found

    def with_absolute_paths(self) -> "SudokuSuite":
        return dataclasses.replace(self, file=absolute(self.file))

    def check(self, backbone: Backbone) -> None:
        if not isinstance(backbone, SudokuMDM):
            raise ValueError(f"the Sudoku suite needs a Sudoku model, got {backbone.kind}")
        if backbone.config.side != self.side:
            raise ValueError(
                f"the suite has {self.side}×{self.side} boards, the model is for "
                f"{backbone.config.side}×{backbone.config.side}"
            )

    def sample(self, index: int) -> tuple[Ints, Ints]:
        """A solved board and the same with wrong cells, [N] each; by seed and number alone."""
        rng = np.random.default_rng([self.seed, self.side, index])
        if self.file is None:
            source = SudokuSource(side=self.side, train=0, held_out=1, images=1)
            solution = source.examples("held_out", index, 1, rng).target[0]
        else:
            solution = read_boards(self.file, self.side)[index]
        low, high = self.wrong
        count = low + index % (high - low + 1) if self.balanced else rng.integers(low, high + 1)
        cells = rng.choice(solution.size, count, replace=False)
        start = solution.copy()
        shift = rng.integers(1, self.side, count)  # on the circle of digits, never all round
        start[cells] = (start[cells] - 1 + shift) % self.side + 1
        return solution, start

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        drawn = [self.sample(i) for i in samples]
        solution, start = (torch.from_numpy(np.stack(x)).long() for x in zip(*drawn, strict=True))
        begin = start
        if decoder.start == "oracle":
            begin = start.masked_fill(start != solution, backbone.mask_id)
        elif decoder.start == "blank":
            begin = torch.full_like(start, backbone.mask_id)
        revision = decoder.revise(backbone, begin, row_ids=torch.tensor(list(samples)))
        beliefs: list[bytes | None] = [None] * len(samples)
        if decoder.policy == "revision" and decoder.start == "given":
            beliefs = [x.tobytes() for x in mask_beliefs(backbone, start, decoder.batch_size)]
        return pa.table(
            {
                "sample_id": [f"sudoku{self.side}-{self.seed}-{i:06d}" for i in samples],
                **path_columns(solution, start, revision),
                "mask_beliefs": pa.array(beliefs, pa.binary()),
            }
        )

    def score(self, predictions: pa.Table) -> list[Score]:
        boards = Paths.read(predictions)
        return [
            *_outcomes(boards),
            *what_revision_did(boards),
            *_localisation(boards, _read_beliefs(predictions)),
            *_by_forward_passes(boards),
            *_by_wrong_cells(boards),
        ]

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """Boards of which most happened: right and wrong ends in turn, the most re-masks first."""
        boards = Paths.read(predictions)
        busy = np.argsort(-boards.remasks().sum((0, 2)), kind="stable")
        exact = boards.exact(boards.final)
        ends = [busy[exact[busy]], busy[~exact[busy]]]
        chosen = [*ends[0][: SHOWN // 2], *ends[1][: SHOWN // 2]]
        return [self._shown(boards, row) for row in chosen]

    def _shown(self, boards: Paths, row: int) -> dict[str, Any]:
        final = boards.final[row]
        wrong = int((boards.start[row] != boards.solution[row]).sum())
        end = "another valid board" if is_valid(final[None])[0] else "not solved"
        if (final == boards.solution[row]).all():
            end = "solved"
        return {
            "sample_id": boards.sample_ids[row],
            "side": self.side,
            "solution": boards.solution[row].tolist(),
            "states": boards.states[: boards.steps[row] + 1, row].tolist(),
            "note": f"{wrong} wrong cells, {end}",
        }


@torch.inference_mode()
def mask_beliefs(backbone: Backbone, boards: Tensor, batch_size: int) -> NDArray[np.float16]:
    """p(MASK) at every cell of boards without a past, [B, N]."""
    found = []
    for ids in boards.split(batch_size):
        embeds = HistoryState(backbone.history, backbone.token_embedding).update(ids)
        logits = backbone.logits(embeds.to(backbone.token_embedding.dtype)).float()
        found.append(logits.softmax(-1)[..., backbone.mask_id].half().numpy())
    return np.concatenate(found)


def _outcomes(boards: Paths) -> list[Score]:
    """The paper's four, answers that are right in another way, and what the best could reach."""
    final = boards.final
    exact, valid = boards.exact(final), is_valid(final)
    rejected, replayed = replays(boards)
    distance = (final != boards.start).sum(-1)
    wrong = (boards.solution != boards.start).sum(-1)
    scores = [
        share("exact", exact),
        share("valid", valid),
        ratio("replay", replayed.sum(-1), rejected.sum(-1), better="lower"),
        mean("conflicts", conflict_cells(final).sum(-1), better="lower"),
        share("as_near", valid & ~exact & (distance <= wrong), better="neither"),
        mean("forward_passes", boards.forward_passes, better="lower"),
    ]
    if wrong.max() <= MOST_SEARCHED:
        pairs = zip(boards.solution, boards.start, strict=True)
        chances = np.array([outlook(*pair).chance for pair in pairs])
        scores += [
            share("ambiguous", chances < 1, better="neither"),
            mean("ceiling", chances, unit="share", better="neither"),
        ]
    return scores


def _read_beliefs(predictions: pa.Table) -> NDArray[np.floating] | None:
    """p(MASK) of the boards as given, [B, N], where it was written down."""
    column = predictions["mask_beliefs"]
    return None if column.null_count else stack(column, np.float16).astype(np.float64)


def _localisation(boards: Paths, beliefs: NDArray[np.floating] | None) -> list[Score]:
    """Does the first step re-mask what is wrong, and does p(MASK) say how likely that is?"""
    if beliefs is None or len(boards.states) < 2:
        return []
    wrong = boards.start != boards.solution
    first = boards.remasks()[0]
    hit = (first & wrong).sum(-1)
    scores = [
        ratio("first_remask_precision", hit, first.sum(-1)),
        ratio("first_remask_recall", hit, wrong.sum(-1)),
    ]
    return [*scores, *_calibration(beliefs, wrong)]


def _calibration(beliefs: NDArray[np.floating], wrong: Bools) -> list[Score]:
    """Over cells in bins of p(MASK): the share that is wrong, and how far it is off on average."""
    bins = np.minimum((beliefs * BINS).astype(int), BINS - 1)
    inside = bins[..., None] == np.arange(BINS)  # [B, N, BINS]
    cells, believed, found = (
        (inside * x[..., None]).sum(1) for x in (np.ones_like(beliefs), beliefs, wrong)
    )  # [B, BINS] each
    points = [
        ratio(
            "wrong_share",
            found[:, i],
            cells[:, i],
            better="neither",
            by="p(MASK)",
            at=float(believed[:, i].sum() / cells[:, i].sum()),
        )
        for i in np.flatnonzero(cells.sum(0))
    ]

    def error(sums: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.abs(sums).sum(-1) / wrong.size

    gaps = found - believed
    low, high = bootstrap(gaps, error)
    total = Score(
        metric="mask_calibration_error",
        value=float(error(gaps.sum(0))),
        low=low,
        high=high,
        count=wrong.size,
        better="lower",
    )
    return [total, *points]


def _by_forward_passes(boards: Paths) -> list[Score]:
    """Boards that are right after so many passes; a MASK still there is not right."""
    by = "forward passes"
    return [
        score
        for passes, state in enumerate(boards.states)
        for score in (
            share("exact", boards.exact(state), by=by, at=passes),
            share("valid", is_valid(state), by=by, at=passes),
        )
    ]


def _by_wrong_cells(boards: Paths) -> list[Score]:
    wrong = (boards.start != boards.solution).sum(-1)
    exact, valid = boards.exact(boards.final), is_valid(boards.final)
    return [
        share(name, right[wrong == count], by="wrong cells", at=int(count))
        for count in np.unique(wrong)
        for name, right in (("exact", exact), ("valid", valid))
    ]
