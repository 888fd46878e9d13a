"""The Sudoku metrics on decodes made by hand."""

import pytest
import torch

from evaluation.suites.sudoku import replays, score
from models import Action, Revision
from models.revision import RevisionStats

K, X, R = Action.KEEP, Action.REMASK, Action.REVEAL
SOLUTION = [int(c) for c in "1234341221434321"]


def revision(*states):
    """A decode through the given boards, [K+1, 16] each; actions follow from them."""
    trajectory = torch.tensor(states)[:, None]
    actions = torch.full((len(states) - 1, 1, 16), int(K), dtype=torch.int8)
    for k in range(len(states) - 1):
        before, after = trajectory[k], trajectory[k + 1]
        actions[k][(before > 0) & (after == 0)] = int(X)
        actions[k][(before == 0) & (after > 0)] = int(R)
    steps = torch.tensor([len(states) - 1])
    return Revision(trajectory[-1], trajectory, actions, RevisionStats(*[steps] * 5))


def board(**cells):
    changed = list(SOLUTION)
    for name, digit in cells.items():
        changed[int(name[1:])] = digit
    return changed


def test_a_mended_board_is_exact_and_valid():
    out = score(torch.tensor([SOLUTION]), revision(board(c0=3), board(c0=0), board()))
    assert (out.exact, out.valid, out.replay, out.conflicts) == (1.0, 1.0, 0.0, 0.0)


def test_another_valid_board_is_valid_but_not_exact():
    swapped = [{1: 2, 2: 1}.get(d, d) for d in SOLUTION]
    out = score(torch.tensor([SOLUTION]), revision(swapped))
    assert (out.exact, out.valid, out.conflicts) == (0.0, 1.0, 0.0)


def test_conflicts_count_every_cell_that_breaks_a_rule():
    out = score(torch.tensor([SOLUTION]), revision(board(c0=2)))
    # The 2 at cell 0 meets those of its row (cell 1, also its box) and its column (cell 8).
    assert (out.exact, out.valid, out.conflicts) == (0.0, 0.0, 3.0)


def test_replay_counts_wrong_cells_revealed_as_before():
    path = revision(
        board(c0=3, c5=1, c9=3),
        board(c0=0, c5=0, c9=0),  # three wrong cells re-masked
        board(c0=3, c5=3, c9=1),  # 0 replays; 5 is wrong in a new way; 9 is right
        board(c0=3, c5=0, c9=0),
        board(c0=3, c5=1, c9=1),  # 5 replays its first mistake; 9, re-masked while right, returns
    )
    remasked, replayed = replays(torch.tensor([SOLUTION]), path)
    assert remasked[0].nonzero().flatten().tolist() == [0, 5, 9]
    assert replayed[0].nonzero().flatten().tolist() == [0, 5]
    assert score(torch.tensor([SOLUTION]), path).replay == pytest.approx(2 / 3)
