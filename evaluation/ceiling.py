"""The share of the Sudoku suite's boards that the best possible reviser would solve exactly.

Each further wrong cell makes a board hundreds of times less likely, so the best answer is the valid
board nearest to the given one. If another valid board is nearer than the solution, that answer is
not exact; if n valid boards are at the same distance, it is exact with probability 1/n.

Valid boards are assumed to be equally likely, and the reviser is not told the number of wrong
cells. One that knew the number, or which boards are held out, could distinguish more boards.

    python -m remask.evaluation.ceiling                       # 1,000 boards, 4 to 20 wrong cells
    python -m remask.evaluation.ceiling --boards 8000 --seed 1 --workers 2
    python -m remask.evaluation.ceiling --side 4 --wrong 1 4 --workers 0     # without Ray

Beyond 25 wrong cells a board can take seconds.
"""

import argparse
from functools import partial

import numpy as np

from remask.evaluation.stats.intervals import bootstrap_ratio, wilson
from remask.evaluation.suites.sudoku import SudokuSuite
from remask.pipeline.judges.nearest import Outlook, outlook
from remask.pipeline.runtime.jobs import JobError, run_tasks
from remask.pipeline.runtime.progress import Meter
from remask.pipeline.runtime.terminal import fail

WRONG = {4: (1, 4), 9: (4, 20)}
"""Default fewest and most wrong cells, by side."""
CHUNK = 50
"""Boards per task, which take about a second."""


def main(argv: list[str] | None = None) -> None:
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        low, high = arguments.wrong or WRONG[arguments.side]
        if arguments.workers is not None and arguments.workers < 0:
            raise ValueError(f"workers must be 0 or more, got {arguments.workers}")
        suite = SudokuSuite(
            side=arguments.side, boards=arguments.boards, wrong=(low, high), seed=arguments.seed
        )
        outlooks = find_outlooks(suite, arguments.workers)
    except ValueError as error:
        fail(parser.prog, 2, error)
    except JobError as error:
        fail(parser.prog, 1, error)
    print(describe(outlooks, low, high))


def find_outlooks(suite: SudokuSuite, workers: int | None) -> list[Outlook]:
    """The outlook of every sample of a suite, in any order."""
    count = suite.num_samples
    chunks = [range(i, min(i + CHUNK, count)) for i in range(0, count, CHUNK)]
    outlooks: list[Outlook] = []
    with Meter("ceiling", len(chunks)) as meter:
        for chunk in run_tasks(partial(outlooks_of, suite), chunks, workers=workers):
            outlooks += chunk
            meter.add(len(chunk), len(chunk) * suite.side**2)
    return outlooks


def outlooks_of(suite: SudokuSuite, samples: range) -> list[Outlook]:
    """The unit of work: the outlooks of a range of samples."""
    return [outlook(*suite.sample(index)) for index in samples]


def describe(outlooks: list[Outlook], low: int, high: int) -> str:
    """The ceiling and its reasons, for all boards and for each number of wrong cells."""
    cells = f"{low} to {high} wrong cells" if low < high else f"{low} wrong cell" + "s" * (low != 1)
    nearer, as_near = _shares(outlooks)
    lines = [
        f"{len(outlooks):,} boards with {cells}: {_ceiling(outlooks)} for any reviser "
        f"not told how many; {nearer} have a nearer valid board, {as_near} one as near"
    ]
    for wrong in sorted({x.wrong for x in outlooks}):
        same = [x for x in outlooks if x.wrong == wrong]
        nearer, as_near = _shares(same)
        lines.append(
            f"  {wrong:2} wrong: {_ceiling(same)}, {nearer} nearer, {as_near} as near, "
            f"{len(same):,} boards"
        )
    return "\n".join(lines)


def _ceiling(outlooks: list[Outlook]) -> str:
    count = len(outlooks)
    chances = [x.chance for x in outlooks]
    total = sum(chances)
    is_mixed = 0 < total < count  # otherwise every resample would give the same value
    low, high = bootstrap_ratio(chances, np.ones(count)) if is_mixed else wilson(total, count)
    return f"at most {_percent(total / count)} exact [{100 * low:.1f}, {100 * high:.1f}]"


def _shares(outlooks: list[Outlook]) -> tuple[str, str]:
    """The shares of boards with a nearer valid board, and with one at the same distance."""
    nearer = np.mean([x.is_nearer for x in outlooks])
    as_near = np.mean([x.is_as_near for x in outlooks])
    return _percent(nearer), _percent(as_near)


def _percent(share: float | np.floating) -> str:
    return f"{100 * share:.1f} %"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m remask.evaluation.ceiling",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--boards", type=int, default=1000, metavar="N", help="number of boards (1000)"
    )
    parser.add_argument(
        "--wrong",
        type=int,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="fewest and most wrong cells (4 20, and 1 4 on 4×4 boards)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the suite (0)")
    parser.add_argument("--side", type=int, choices=sorted(WRONG), default=9, help="(9)")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="W",
        help="cores to use (all); 0 runs in this process, without Ray",
    )
    return parser


if __name__ == "__main__":
    main()
