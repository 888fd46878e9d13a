"""Checkpoints appear whole or not at all, and the right ones are kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remask.training.run.checkpoint import State, files_of, seal
from remask.training.run.folder import BusyError, RunFolder, RunOutcome


def write(folder, step, exact=None, keep=2):
    folder.begin(step)
    aside = folder.aside(step)
    (aside / "deepspeed").mkdir()
    (aside / "deepspeed" / "states.pt").write_bytes(bytes(100))
    (aside / "weights").write_bytes(b"w" * step)
    scores = None if exact is None else {"exact": exact, "loss": 1.0}
    return commit(folder, State(step, 1, scores=scores), keep)


def commit(folder, state, keep):
    aside = folder.aside(state.step)
    return folder.commit(state, seal(aside, files_of(aside)), keep=keep)


def steps(folder):
    return [x.state.step for x in folder.checkpoints()]


def test_what_is_not_whole_is_not_there(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.newest() is None
    for step in (10, 20, 30):
        write(folder, step, keep=9)
    last = tmp_path / "checkpoints" / "step-00000030"
    (last / "weights").write_bytes(b"w" * 29)  # truncated
    assert folder.newest().state.step == 20
    (tmp_path / "checkpoints" / "step-00000020" / "deepspeed" / "states.pt").unlink()
    assert folder.newest().state.step == 10
    state = tmp_path / "checkpoints" / "step-00000010" / "state.json"
    state.write_text(state.read_text()[:-3])
    assert folder.newest() is None
    folder.begin(40)  # killed before it was whole
    (folder.aside(40) / "weights").write_bytes(b"w")
    assert folder.newest() is None
    write(folder, 30)  # the damaged one is replaced
    assert folder.newest().state.step == 30
    assert not list((tmp_path / "checkpoints").glob(".*"))


def test_going_back_keeps_what_is_written_then(tmp_path):
    """Step 30 is damaged in a way that only reading it shows, so the run goes back to 10."""
    folder = RunFolder(tmp_path)
    for step in (10, 30):
        write(folder, step, exact=0.1 * step / 10, keep=9)
    assert write(folder, 20, exact=0.15, keep=1).is_dir()
    assert steps(folder) == [20]
    write(folder, 30, keep=1)
    assert steps(folder) == [20, 30]  # the best, and the newest


def test_a_checkpoint_in_the_folder_of_another_step_is_not_taken(tmp_path):
    folder = RunFolder(tmp_path)
    final = write(folder, 10)
    final.rename(final.with_name("step-00000099"))
    whole, faults = folder.survey()
    assert whole == []
    assert "holds step 10" in faults["step-00000099"]


def test_an_outcome_comes_back_and_tells_that_it_is_new(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.outcome() is None
    assert folder.last_ended() is None
    ended = []
    for outcome in (RunOutcome(3, 6, None, "a"), RunOutcome(6, 6, {"exact": 0.5}, "b")):
        folder.record(outcome)
        assert folder.outcome() == outcome
        ended.append(folder.last_ended())
    assert ended[0] != ended[1]
    assert folder.outcome().is_finished
    (tmp_path / "outcome.json").write_text('{"step": "6"}')
    assert folder.outcome() is None


@settings(max_examples=30)
@given(scores=st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=8), keep=st.integers(1, 3))
def test_the_newest_and_the_best_are_kept(tmp_path_factory, scores, keep):
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    for i, exact in enumerate(scores, 1):
        write(folder, i, exact, keep)
    wanted = set(range(1, len(scores) + 1)[-keep:])
    scored = {i: x for i, x in enumerate(scores, 1) if x is not None}
    if scored:
        best = max(scored.values())
        first, last = (pick(i for i, x in scored.items() if x == best) for pick in (min, max))
        assert max(folder.checkpoints(), key=lambda x: x.quality).state.scores["exact"] == best
        wanted |= set(steps(folder)) & {first, last}
    assert set(steps(folder)) == wanted


def test_a_state_comes_back_as_it_was(tmp_path):
    state = State(7, 4, 2, (0.1, 1 / 3, 1e-300), (1.0,), {"exact": 0.123456789012345678})
    folder = RunFolder(tmp_path)
    folder.begin(7)
    commit(folder, state, keep=1)
    assert folder.newest().state == state


def test_a_folder_is_held_by_one_run(tmp_path):
    with (
        RunFolder(tmp_path / "a").locked(),
        pytest.raises(BusyError, match=r"another run \(process \d+ on .*\) is training in"),
        RunFolder(tmp_path / "a").locked(),
    ):
        pass
    with RunFolder(tmp_path / "a").locked():
        pass
