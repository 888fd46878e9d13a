"""Checkers of Sudoku: every valid board with the fixed cells of an example is right."""

from dataclasses import dataclass

from remask.pipeline.checkers import Checker, ListedAnswers
from remask.pipeline.format.examples import Example
from remask.pipeline.moves import Ints
from remask.pipeline.sources.sudoku_rules import Boards, all_boards, is_valid


def sudoku_checker(side: int, mask_id: int) -> Checker:
    """The checker of boards with a side: all 4×4 boards can be listed."""
    return ListedAnswers(_list_answers, mask_id) if side == 4 else ValidBoards()


@dataclass(frozen=True)
class ValidBoards:
    """The checker of boards too large to be listed.

    The nearest known answer is the given board, unless the decode itself ends right. The exact
    search of `pipeline/judges/nearest.py` does not help: it needs a full board with few mistakes,
    while most states have many blanks and therefore countless nearest boards.
    """

    def check_machine(self) -> None:
        """Nothing is needed."""

    def is_right(self, example: Example, answer: Ints) -> bool:
        has_fixed = (answer == example.target)[~example.editable].all()
        return bool(has_fixed and is_valid(answer[None])[0])

    def nearest(self, example: Example, state: Ints, end: Ints) -> Ints:
        return example.target


def _list_answers(example: Example) -> Boards:
    """The 4×4 boards with an example's fixed cells, [A, 16]."""
    boards, fixed = all_boards(4), ~example.editable
    return boards[(boards[:, fixed] == example.target[fixed]).all(1)]
