"""How commands end: durations as people say them, and advice that a run's stages leave out."""

import pytest

from remask.pipeline.runtime.ending import IN_A_RUN, command, duration, say_next


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.0 s"),
        (59.94, "59.9 s"),
        (59.97, "1 min 0 s"),
        (200.4, "3 min 20 s"),
        (3599.6, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (90 * 3600, "90 h 0 min"),
    ],
)
def test_durations(seconds, said):
    assert duration(seconds) == said


def test_advice_goes_to_stderr_unless_a_run_goes_on(monkeypatch, capsys):
    monkeypatch.delenv(IN_A_RUN, raising=False)
    say_next(f"{command('shards', 'my data')} lists it")
    say_next("")
    assert capsys.readouterr() == ("", "next: `remask shards 'my data'` lists it\n")
    monkeypatch.setenv(IN_A_RUN, "1")
    say_next("train")
    assert capsys.readouterr() == ("", "")
