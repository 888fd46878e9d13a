"""The method as a whole: a few seconds of training teach a model to mend boards it never saw."""

import numpy as np
import pytest
import torch
from rich.console import Console

from evaluation.suites.sudoku import score
from infra.tour import SIDE, corrupt, main, train_step
from models import HistoryConfig, SudokuConfig, SudokuMDM, load, revise
from pipeline import TrajectoryConfig
from pipeline.sources.sudoku import all_boards


@pytest.mark.slow
def test_a_few_hundred_steps_learn_to_revise():
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    held_out, seen = np.split(rng.permutation(all_boards(SIDE)), 2)
    config = SudokuConfig(side=SIDE, layers=2, width=48, heads=4, feed_forward=96)
    model = SudokuMDM(config, HistoryConfig(decay=0.5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    law = TrajectoryConfig(noisy_count=(0, 6))
    solution, start = corrupt(held_out, 1, 3, rng)
    before = score(solution, revise(model, start, max_steps=10))
    for _ in range(400):
        boards = seen[rng.integers(0, len(seen), 128)]
        loss = train_step(model, optimizer, boards, law, rng)
    after = score(solution, revise(model, start, max_steps=10))
    # Left alone no board is exact; an untrained model's are not either.
    assert before.exact < 0.05
    assert after.exact > 0.4
    assert after.valid > 0.4
    assert after.conflicts < before.conflicts
    assert loss.keep.num_correct / loss.keep.count > 0.9


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--minutes", "nan"], "minutes above 0"),
        (["--wrong", "5", "3"], "need 1 <= LOW <= HIGH <= 16"),
        (["--out", "{full}"], "is more than a checkpoint (notes.txt); choose another folder"),
    ],
)
def test_bad_requests_are_refused_before_training(argv, message, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(SystemExit, match="2"):
        main([x.format(full=tmp_path) for x in argv])
    assert message in capsys.readouterr().err


def test_the_tour_runs_and_leaves_a_checkpoint(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("infra.tour.Console", lambda: Console(force_terminal=False, width=200))
    main(["--minutes", "0.03", "--out", str(tmp_path / "run")])
    out = capsys.readouterr().out
    assert "576 held-out boards with 1 to 4 wrong cells" in out
    assert f"remask revise --checkpoint {tmp_path}/run" in out
    assert isinstance(load(tmp_path / "run"), SudokuMDM)
