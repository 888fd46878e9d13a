"""The command that says how many boards any reviser could end exactly right."""

import numpy as np
import pytest

from remask.evaluation.ceiling import Outlook, describe, main
from remask.evaluation.suites.sudoku import SudokuSuite
from remask.pipeline.sources.sudoku_rules import all_boards


def by_listing(suite):
    """Ceiling, share with a nearer board and share with one as near, from all 288 boards."""
    chances, nearer, as_near = [], [], []
    for index in range(suite.num_samples):
        solution, start = suite.sample(index)
        distances = (all_boards(4) != start).sum(1)
        wrong = (solution != start).sum()
        nearer.append(distances.min() < wrong)
        as_near.append(distances.min() == wrong and (distances == wrong).sum() > 1)
        chances.append(0 if nearer[-1] else 1 / (distances == wrong).sum())
    return [f"{100 * np.mean(x):.1f} %" for x in (chances, nearer, as_near)]


def test_the_command_agrees_with_the_list_of_all_boards(capsys):
    main(["--side", "4", "--boards", "120", "--wrong", "2", "5", "--seed", "3", "--workers", "0"])
    first, *lines = capsys.readouterr().out.splitlines()
    ceiling, nearer, as_near = by_listing(SudokuSuite(side=4, boards=120, wrong=(2, 5), seed=3))
    assert first.startswith(f"120 boards with 2 to 5 wrong cells: at most {ceiling} exact [")
    assert first.endswith(f"{nearer} have a nearer valid board, {as_near} one as near")
    assert [line.split()[0] for line in lines] == ["2", "3", "4", "5"]
    assert sum(int(line.split()[-2]) for line in lines) == 120


def test_one_wrong_cell_can_always_be_fixed(capsys):
    main(["--side", "4", "--boards", "20", "--wrong", "1", "1", "--workers", "0"])
    out = capsys.readouterr().out
    assert out.startswith("20 boards with 1 wrong cell: at most 100.0 % exact [83.9, 100.0]")


def test_a_board_counts_by_what_is_nearest():
    outlooks = [Outlook(5, 5, 1), Outlook(5, 5, 4), Outlook(6, 5, 1), Outlook(6, 6, 2)]
    assert [x.chance for x in outlooks] == [1, 0.25, 0, 0.5]
    first, five, six = describe(outlooks, 4, 20).splitlines()
    assert "at most 43.8 % exact" in first
    assert "25.0 % have a nearer valid board, 50.0 % one as near" in first
    assert five.startswith("   5 wrong: at most 62.5 % exact")
    assert five.endswith("0.0 % nearer, 50.0 % as near, 2 boards")
    assert six.startswith("   6 wrong: at most 25.0 % exact")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--boards", "0"], "boards must be at least 1, got 0"),
        (["--wrong", "5", "4"], "got 5, 4"),
        (["--side", "4", "--wrong", "4", "20"], "got 4, 20"),
        (["--seed", "-1"], "seed must be 0 or more, got -1"),
        (["--workers", "-1"], "workers must be 0 or more, got -1"),
        (["--side", "5"], "argument --side: invalid choice: 5"),
    ],
)
def test_a_wrong_request_is_one_error_and_exit_2(arguments, reason, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert reason in error.splitlines()[-1]
    assert error.count("ceiling: ") == 1
