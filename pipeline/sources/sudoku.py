"""Solved Sudoku boards, generated or read from a file."""

import functools
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from remask.models.ranges import Range, check_fields
from remask.pipeline.checkers import Checker
from remask.pipeline.format.examples import Examples, Vocabulary, hash_share
from remask.pipeline.runtime.places import PLACE
from remask.pipeline.runtime.storage import absolute, file_hash, read_file
from remask.pipeline.sources.sudoku_checker import sudoku_checker
from remask.pipeline.sources.sudoku_rules import (
    Boards,
    all_boards,
    is_valid,
    parse_board,
    random_boards,
)
from remask.pipeline.sources.sudoku_symmetry import orbit_invariant, random_images

BAD_LINES_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class SudokuSource:
    """Solved boards, every cell editable.

    No held-out 9×9 board is a symmetric image of a training board: a board's split depends only on
    numbers that all its images share. All 4×4 boards are images of two boards, so they are assigned
    one by one.
    """

    kind: Literal["sudoku"] = "sudoku"
    side: Literal[4, 9] = 9
    train: Annotated[int, Range("[0, inf)")] = 10_000
    """Training boards to generate; ignored if `file` is given, whose boards are all used."""
    held_out: Annotated[int, Range("[0, inf)")] = 1_000
    images: Annotated[int, Range("[1, inf)")] = 16
    """Random symmetric images taken of each 9×9 board that is generated."""
    held_out_share: Annotated[float, Range("[0.01, 0.99]")] = 0.2
    """Share of all boards that is held out of training."""
    file: str | None = field(default=None, metadata=PLACE)
    """File of solved boards, a line of digits each, to use unchanged. By default boards are
    generated."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.train + self.held_out == 0:
            raise ValueError("train and held_out are both 0; at least one split needs boards")

    def own_proposals(self) -> tuple[str, ...]:
        return ("wrong_digit",)

    def tokenizer_hash(self) -> str:
        return "digits"

    def data_hash(self) -> str | None:
        """Hash of the file's bytes; None if boards are generated."""
        return None if self.file is None else file_hash(self.file)

    def with_absolute_paths(self) -> "SudokuSource":
        return replace(self, file=absolute(self.file))

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.side + 1, mask_id=0)

    def checker(self) -> Checker:
        """Knows every valid board with an example's fixed cells."""
        return sudoku_checker(self.side, self.vocabulary().mask_id)

    def num_records(self) -> dict[str, int]:
        """Boards to generate for each split, or to look through in the file."""
        if self.file is not None:
            return dict.fromkeys(("train", "held_out"), len(read_boards(self.file, self.side)))
        return {"train": self.train, "held_out": self.held_out}

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Boards first .. first+count-1 of a split."""
        boards = self._boards(split, first, count, rng)
        return Examples(
            example_ids=[f"sudoku{self.side}-{split}-{first + i:09d}" for i in range(len(boards))],
            target=boards,
            editable=np.ones(boards.shape, np.bool_),
            lengths=np.full(len(boards), self.side**2),
            prompt_lengths=np.zeros(len(boards), np.int32),
            vocabulary=self.vocabulary(),
        )

    def _boards(self, split: str, first: int, count: int, rng: np.random.Generator) -> Boards:
        wants_held_out = split == "held_out"
        if self.file is not None:
            boards = read_boards(self.file, self.side)[first : first + count]
            return boards[self._is_held_out(boards) == wants_held_out]
        if self.side == 4:
            boards = _small_boards(self.held_out_share, wants_held_out)
            return boards[rng.integers(0, len(boards), count)]
        parts: list[Boards] = []
        missing = count
        while missing > 0:
            board = random_boards(1, self.side, rng)
            if self._is_held_out(board)[0] == wants_held_out:
                parts.append(random_images(np.repeat(board, min(missing, self.images), 0), rng))
                missing -= len(parts[-1])
        return np.concatenate([*parts, np.zeros((0, self.side**2), np.uint8)])

    def _is_held_out(self, boards: Boards) -> NDArray[np.bool_]:
        return _shares(boards) < self.held_out_share


@functools.lru_cache(maxsize=2)
def read_boards(path: str, side: int) -> Boards:
    """The solved boards of a file, a line of digits each, [B, N].

    Raises:
        ValueError: Some lines are not solved boards; the message names the first of them.
    """
    data = read_file(path)
    try:
        lines = [(n, x) for n, x in enumerate(data.decode().splitlines(), 1) if x.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file of boards: {error}") from error
    boards, bad = [], []
    for number, line in lines:
        try:
            board = parse_board(line)
            if board.size != side**2 or not is_valid(board[None])[0]:
                raise ValueError(f"{line.strip()!r} is not a solved {side}×{side} board")
            boards.append(board)
        except ValueError as error:
            bad.append(f"line {number}: {error}")
    if bad:
        shown = "; ".join(bad[:BAD_LINES_SHOWN])
        more = f"; and {len(bad) - BAD_LINES_SHOWN} more" if len(bad) > BAD_LINES_SHOWN else ""
        raise ValueError(f"{path}: {len(bad)} of {len(lines)} lines are not boards: {shown}{more}")
    if not boards:
        raise ValueError(f"{path} holds no boards")
    return np.stack(boards)


@functools.cache
def _small_boards(held_out_share: float, is_held_out: bool) -> Boards:
    """The 4×4 boards of a split."""
    boards = all_boards(4)
    return boards[(_shares(boards) < held_out_share) == is_held_out]


def _shares(boards: Boards) -> NDArray[np.floating]:
    """A number in [0, 1) that decides a board's split, [B]; images of a 9×9 board share it."""
    keys = boards if boards.shape[1] == 16 else orbit_invariant(boards)
    return np.array([hash_share(key.tobytes()) for key in keys.astype(np.uint8)])
