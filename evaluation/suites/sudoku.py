"""Sudoku revision: held-out boards with wrong cells. SPEC §7; the figures are `sudoku_scores.py`.

A sample is a solved held-out board with some cells changed to other digits. Given that board, the
model must find the changed cells and correct them.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.evaluation.decode.paths import Ints, Paths, path_columns, stack
from remask.evaluation.decoder import Decoder
from remask.evaluation.player import PlayerSample
from remask.evaluation.stats.scores import AS_GIVEN
from remask.evaluation.suite import Outcome, Score
from remask.evaluation.suites.sudoku_scores import GLOSSARY, sudoku_scores
from remask.evaluation.suites.sudoku_showcase import busiest, player_board, shown
from remask.models import Backbone, SudokuMDM
from remask.models.history import HistoryState
from remask.models.ranges import Range, check_fields
from remask.pipeline.runtime.storage import absolute, file_hash
from remask.pipeline.sources.sudoku import SudokuSource, read_boards


@dataclass(frozen=True, kw_only=True)
class SudokuSuite:
    """Held-out boards with wrong cells."""

    kind: ClassVar[str] = "sudoku"
    version: ClassVar[int] = 1
    glossary: ClassVar[Mapping[str, str]] = GLOSSARY
    outcome: ClassVar[Outcome] = Outcome(
        metric="exact",
        samples="boards",
        success="are solved",
        before=AS_GIVEN,
        ceiling="ceiling",
    )

    side: Literal[4, 9] = 9
    boards: Annotated[int | None, Range("[1, inf)")] = None
    """Number of boards. Defaults to 1,000, or to all boards of `file`."""
    wrong: tuple[int, int] = (4, 20)
    """Fewest and most wrong cells of a board."""
    balanced: bool = False
    """Give the same number of boards to each number of wrong cells; false draws the number."""
    seed: Annotated[int, Range("[0, inf)")] = 0
    file: str | None = None
    """A file of solved boards, one line of digits each, which are used in order. Defaults to
    generated boards."""

    def __post_init__(self) -> None:
        check_fields(self)
        low, high = self.wrong
        if not 0 <= low <= high <= self.side**2:
            raise ValueError(f"wrong must be 0 <= low <= high <= {self.side**2}, got {low}, {high}")

    @property
    def num_samples(self) -> int:
        if self.file is None:
            return self.boards or 1000
        in_file = len(read_boards(self.file, self.side))
        if self.boards is not None and self.boards > in_file:
            raise ValueError(f"{self.file} holds {in_file} boards, {self.boards} are asked for")
        return self.boards or in_file

    def identity(self) -> dict[str, Any]:
        hashed = None if self.file is None else file_hash(self.file)
        return dataclasses.asdict(self) | {"file": hashed}

    def with_absolute_paths(self) -> "SudokuSuite":
        return dataclasses.replace(self, file=absolute(self.file))

    def check(self, backbone: Backbone) -> None:
        check_board_model(backbone, self.side)

    def sample(self, index: int) -> tuple[Ints, Ints]:
        """A solved board and the same board with wrong cells, [N] each, as a function of the
        suite's settings and the index."""
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
        shift = rng.integers(1, self.side, count)  # modulo the side, so the digit always changes
        start[cells] = (start[cells] - 1 + shift) % self.side + 1
        return solution, start

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        drawn = [self.sample(i) for i in samples]
        solution, start = (torch.from_numpy(np.stack(x)).long() for x in zip(*drawn, strict=True))
        first = start
        if decoder.start == "oracle":
            first = start.masked_fill(start != solution, backbone.mask_id)
        elif decoder.start == "blank":
            first = torch.full_like(start, backbone.mask_id)
        revision = decoder.revise(backbone, first, row_ids=torch.tensor(list(samples)))
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
        column = predictions["mask_beliefs"]
        beliefs = None if column.null_count else stack(column, np.float16).astype(np.float64)
        return sudoku_scores(Paths.read(predictions), beliefs)

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """The boards with the most re-masks: half of them solved, half of them not."""
        boards = Paths.read(predictions)
        wrong = (boards.start != boards.solution).sum(-1)
        return [shown(boards, row, f"{wrong[row]} wrong cells") for row in busiest(boards)]

    @classmethod
    def player_sample(cls, sample: dict[str, Any]) -> PlayerSample:
        return player_board(sample)


def check_board_model(backbone: Backbone, side: int) -> None:
    """Raise ValueError if the model is not for boards of this size."""
    if not isinstance(backbone, SudokuMDM):
        raise ValueError(f"the Sudoku suite needs a Sudoku model, got {backbone.kind}")
    if backbone.config.side != side:
        raise ValueError(
            f"the suite has {side}×{side} boards, the model is for "
            f"{backbone.config.side}×{backbone.config.side}"
        )


@torch.inference_mode()
def mask_beliefs(backbone: Backbone, boards: Tensor, batch_size: int) -> NDArray[np.float16]:
    """p(MASK) at every cell of boards without a history, [B, N]."""
    beliefs = []
    for ids in boards.split(batch_size):
        embeds = HistoryState(backbone.history, backbone.token_embedding).update(ids)
        logits = backbone.logits(embeds.to(backbone.token_embedding.dtype)).float()
        beliefs.append(logits.softmax(-1)[..., backbone.mask_id].half().numpy())
    return np.concatenate(beliefs)
