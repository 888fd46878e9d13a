"""The benchmark of text decoding runs and prints what it promises; no time is asserted."""

import pytest

from remask.infra.benches.text import main


def test_bench_prints_speeds_with_and_without_revision(capsys):
    main(["--width", "64", "--layers", "1", "--gen-length", "4", "--answers", "1"])
    out = capsys.readouterr().out
    for name in ("without revision (absorbing): ", "with revision, 2 tokens a step: "):
        assert name in out
    assert out.count("share of the bare forward passes' speed: ") == 2
    assert "tokens/s in 4 passes" in out


def test_a_shape_that_cannot_be_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--width", "0"])
    assert "d_model must lie in [1, 4194304], got 0" in capsys.readouterr().err
