"""Files of Sudoku puzzles, as their suite reads them."""

import json
from random import Random

from remask.evaluation.suites.sudoku_puzzle_file import read_puzzles
from remask.evaluation.suites.sudoku_puzzles import SudokuPuzzlesSuite
from remask.pipeline.sources.sudoku_rules import is_valid
from tests.fuzz.case import Case, Target, ViolationError
from tests.fuzz.mutate import mutate_bytes, mutate_text, mutate_value, to_json

FILE = "puzzles-of-fuzz.jsonl"
SOLUTIONS = {
    4: "1234341221434321",
    9: "534678912672195348198342567859761423426853791713924856961537284287419635345286179",
}
CLUES = {
    4: "1.3.3.1221.343.1",
    9: "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79",
}
PARTS = (
    *("0", ".", "5", "9", "a", " ", "\n", "\r\n", "\x85", "\u2028", "\0", "٣", "²", "-1"),
    *("{", "}", "[", '"puzzle"', '"level": ""', "." * 16, "0" * 81, *CLUES.values()),
)


def make(rng: Random) -> Case:
    """Puzzles, one a line, as digits or as JSON; one of them changed, or the bytes of the file."""
    side = rng.choice((4, 4, 4, 9))
    row = {
        "puzzle": CLUES[side],
        "solution": SOLUTIONS[side],
        "difficulty": 2.5,
        "level": "Medium",
    }
    sound = [json.dumps(row), json.dumps({"puzzle": row["puzzle"]}), row["puzzle"], ""]
    lines = [rng.choice(sound).encode() for _ in range(rng.randint(1, 3))]
    at = rng.randrange(len(lines))
    match rng.choice(("value", "value", "text", "bytes", "digits")):
        case "value":
            changed, notes = mutate_value(row, rng)
            lines[at] = to_json(changed)
        case "text":
            changed, notes = mutate_text(rng.choice(sound), rng, PARTS)
            lines[at] = changed.encode("utf-8", "surrogatepass")
        case "bytes":
            lines[at], notes = mutate_bytes(lines[at], rng)
        case _:  # clues that still are digits
            digits = list(row["puzzle"])
            for _ in range(rng.randint(1, 8)):
                digits[rng.randrange(len(digits))] = rng.choice(".." + "123456789"[:side])
            lines[at], notes = "".join(digits).encode(), ["".join(digits)]
    first, count = rng.choice((*[("0", "")] * 8, ("1", ""), ("0", "1"), ("1", "2")))
    return Case({FILE: b"\n".join(lines)}, (str(side), first, count), tuple(notes), (FILE,))


def run(case: Case) -> None:
    side, first, count = case.arguments
    read_puzzles.cache_clear()
    suite = SudokuPuzzlesSuite(
        side=4 if side == "4" else 9, file=FILE, first=int(first), puzzles=int(count or 0) or None
    )
    for index in range(suite.num_samples):
        puzzle = suite.sample(index)
        is_clue = puzzle.clues > 0
        if not is_valid(puzzle.solution[None]).all():
            raise ViolationError("a solution breaks the rules")
        if is_clue.all() or (puzzle.clues[is_clue] != puzzle.solution[is_clue]).any():
            raise ViolationError("a solution is not that of its clues")


TARGETS = (Target("puzzles", make, run),)
