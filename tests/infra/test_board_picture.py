import numpy as np
import pytest
import torch
from PIL import Image

from remask.infra import board_picture
from remask.infra.board_picture import draw_revision, wrong_board
from remask.models import load, revise
from remask.pipeline.sources.sudoku_rules import is_valid


def test_a_board_has_as_many_wrong_cells_as_asked_for():
    board, solution = wrong_board(12, seed=3)
    assert is_valid(solution[None].numpy())[0]
    assert int((board != solution).sum()) == 12
    assert set(board.tolist()) <= set(range(1, 10))


def test_there_is_a_frame_for_every_state_until_nothing_changes():
    board, solution = wrong_board(26, seed=26)
    revision = revise(load("sudoku"), board[None], max_steps=32)
    states = [tuple(state) for state in revision.trajectory[:, 0].tolist()]
    assert len(draw_revision(revision, solution)) == len(dict.fromkeys(states)) > 3


def test_what_changes_in_the_board_changes_in_the_picture():
    board, solution = wrong_board(1, seed=0)
    (wrong,) = torch.nonzero(board != solution)[0].tolist()
    first, second, *_ = draw_revision(revise(load("sudoku"), board[None], max_steps=8), solution)
    height = board_picture.MARGIN + 9 * board_picture.CELL  # without the caption
    changed = (np.asarray(first) != np.asarray(second)).any(-1)[:height]
    rows, columns = changed.nonzero()
    top, left = (board_picture.MARGIN + x * board_picture.CELL for x in divmod(wrong, 9))
    assert top <= rows.min() <= rows.max() <= top + board_picture.CELL
    assert left <= columns.min() <= columns.max() <= left + board_picture.CELL


def test_the_command_writes_an_endless_gif(tmp_path, capsys):
    board_picture.main([str(tmp_path / "board.gif"), "--wrong", "4", "--seed", "1"])
    with Image.open(tmp_path / "board.gif") as picture:
        assert picture.n_frames >= 3
        assert picture.info["loop"] == 0
    assert "frames" in capsys.readouterr().out


def test_a_wrong_number_of_cells_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        board_picture.main([str(tmp_path / "board.gif"), "--wrong", "40"])
    assert "--wrong must lie in [1, 30], got 40" in capsys.readouterr().err
    assert not (tmp_path / "board.gif").exists()
