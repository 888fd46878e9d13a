"""The way of an answer through its states: nothing lost when packed, the telling steps kept."""

import numpy as np
import pytest

from remask.evaluation.decode.text_path import MAX_STATES, TextPath, make_path

MASK = 99


def walk(steps, length=40, seed=0):
    """States in which one position at a time is revealed or re-masked, [K+1, G]."""
    rng = np.random.default_rng(seed)
    states = [np.full(length, MASK)]
    for _ in range(steps):
        state = states[-1].copy()
        place = rng.integers(length)
        state[place] = MASK if state[place] != MASK else rng.integers(50_000, 60_000)
        states.append(state)
    return np.stack(states)


def test_a_packed_path_is_read_as_it_was_and_is_small():
    path = make_path(walk(400, length=300), MASK)
    packed = path.pack()
    assert TextPath.unpack(packed) == path
    assert len(packed) < 2_000 < 4 * 300 * MAX_STATES


def test_a_short_decode_is_kept_whole():
    states = walk(MAX_STATES - 1)
    assert make_path(states, MASK).states == states.tolist()


def test_of_a_long_decode_the_ends_and_steps_around_remasks_are_kept():
    states = walk(500, seed=1)
    states[:, :2] = 1
    path = make_path(states, MASK)
    assert len(path.steps) == MAX_STATES
    assert (path.steps[0], path.steps[-1]) == (0, 500)
    assert path.states == states[path.steps].tolist()
    remasking = [k for k in range(500) if ((states[k] != MASK) & (states[k + 1] == MASK)).any()]
    kept = [k for k in remasking if k in path.steps and k + 1 in path.steps]
    assert len(kept) >= MAX_STATES // 4
    assert max(np.diff(path.steps)) < 60, "the others are spread"


@pytest.mark.parametrize("damage", ["", "cut", "noise", "huge", "empty"])
def test_anything_else_is_refused(damage):
    packed = make_path(walk(10), MASK).pack()
    bad = {
        "": b"",
        "cut": packed[:-9],
        "noise": packed[:8] + b"\x00" * 50,
        "huge": b"\xff" * 8 + packed[8:],
        "empty": b"\x00" * 8 + packed[8:],
    }
    with pytest.raises(ValueError, match="the states of an answer"):
        TextPath.unpack(bad[damage])
