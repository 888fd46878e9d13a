"""Solved Sudoku boards and puzzles, generated or read from a file."""

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
from remask.pipeline.sources.sudoku_puzzles import dig_clues
from remask.pipeline.sources.sudoku_rules import (
    Boards,
    all_boards,
    is_valid,
    parse_board,
    random_boards,
)
from remask.pipeline.sources.sudoku_symmetry import Symmetries, orbit_invariant

BAD_LINES_SHOWN = 3
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class SudokuSource:
    """Solved boards. Every cell is editable or, with `clues`, every cell that is not a clue.

    No held-out 9×9 board is a symmetric image of a training board: a board's split depends only on
    numbers that all its images share. All 4×4 boards are images of two boards, so they are assigned
    one by one.
    """

    kind: Literal["sudoku"] = "sudoku"
    side: Literal[4, 9] = 9
    train: Annotated[int, Range("[0, inf)")] = 10_000
    """Training boards to generate; ignored if `file` is given, whose boards are all used."""
    held_out: Annotated[int, Range("[0, inf)")] = 1_000
    """Held-out boards to generate."""
    images: Annotated[int, Range("[1, inf)")] = 16
    """Random symmetric images taken of each 9×9 board that is generated."""
    held_out_share: Annotated[float, Range("[0.01, 0.99]")] = 0.2
    """Share of all boards that is held out of training."""
    file: str | None = field(default=None, metadata=PLACE)
    """File of solved boards, a line of digits each, to use unchanged: a path, a URI, or
    `hf:owner/name/FILE` on the hub. By default boards are generated."""
    clues: tuple[int, int] | None = None
    """Range of the number of clues of puzzles with one solution; a puzzle has more if none of its
    clues can be removed. By default rows are boards without clues."""

    def __post_init__(self) -> None:
        check_fields(self)
        low, high = self.clues or (0, 0)
        if not 0 <= low <= high < self.side**2:
            raise ValueError(f"clues must be 0 <= low <= high < {self.side**2}, got {low}, {high}")
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
        boards, is_clue = self._boards(split, first, count, rng)
        return Examples(
            example_ids=[f"sudoku{self.side}-{split}-{first + i:09d}" for i in range(len(boards))],
            target=boards,
            editable=~is_clue,
            lengths=np.full(len(boards), self.side**2),
            prompt_lengths=np.zeros(len(boards), np.int32),
            vocabulary=self.vocabulary(),
        )

    def _boards(
        self, split: str, first: int, count: int, rng: np.random.Generator
    ) -> tuple[Boards, Bools]:
        """Boards and which of their cells are clues, [B, N] each."""
        wants_held_out = split == "held_out"
        if self.file is None and self.side == 9:
            return self._images(wants_held_out, count, rng)
        if self.file is None:
            boards = _small_boards(self.held_out_share, wants_held_out)
            boards = boards[rng.integers(0, len(boards), count)]
        else:
            boards = read_boards(self.file, self.side)[first : first + count]
            boards = boards[self._is_held_out(boards) == wants_held_out]
        return boards, self._clue_cells(boards, rng)

    def _images(
        self, wants_held_out: bool, count: int, rng: np.random.Generator
    ) -> tuple[Boards, Bools]:
        """Generated boards of a split and their clues, each as some random images of it."""
        boards: list[Boards] = [np.zeros((0, self.side**2), np.uint8)]
        clues: list[Bools] = [np.zeros((0, self.side**2), np.bool_)]
        missing = count
        while missing > 0:
            board = random_boards(1, self.side, rng)
            if self._is_held_out(board)[0] == wants_held_out:
                copies = np.zeros(min(missing, self.images), np.int64)
                is_clue = self._clue_cells(board, rng)
                symmetries = Symmetries.draw(len(copies), self.side, rng)
                boards.append(symmetries.images(board[copies]))
                clues.append(symmetries.moved(is_clue[copies]))
                missing -= len(copies)
        return np.concatenate(boards), np.concatenate(clues)

    def _clue_cells(self, boards: Boards, rng: np.random.Generator) -> Bools:
        """Cells that are clues, [B, N]; none if rows are not puzzles."""
        if self.clues is None:
            return np.zeros(boards.shape, np.bool_)
        return dig_clues(boards, self.clues, rng)

    def _is_held_out(self, boards: Boards) -> Bools:
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
