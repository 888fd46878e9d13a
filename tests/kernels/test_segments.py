"""The run-length code against plain loops over steps, rows and positions."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remask.kernels import Segments, state_at
from tests.kernels.conftest import MASK, draw_segments

KINDS = {"numpy": np.array, "torch": torch.tensor}
kinds = st.sampled_from(list(KINDS))


@st.composite
def recordings(draw):
    """states [K, B, N], target [B, N] and lengths [B], as lists, from few tokens."""
    steps, batch, positions = (draw(st.integers(1, limit)) for limit in (7, 3, 3))
    token = st.integers(MASK, 2)
    row = st.lists(token, min_size=positions, max_size=positions)
    grid = st.lists(row, min_size=batch, max_size=batch)
    states = draw(st.lists(grid, min_size=steps, max_size=steps))
    lengths = draw(st.lists(st.integers(0, steps), min_size=batch, max_size=batch))
    return states, draw(grid), lengths


def runs_of(states, target, b, n, length):
    """(token, first step) of each run of one position, the target's last."""
    path = [state[b][n] for state in states[:length]] + [target[b][n]]
    return [(token, k) for k, token in enumerate(path) if k == 0 or token != path[k - 1]]


def encode(kind, recording, **settings):
    states, target, lengths = map(KINDS[kind], recording)
    return Segments.from_states(states, target=target, lengths=lengths, **settings)


def positions_of(recording):
    _, target, lengths = recording
    return [(b, n, length) for b, length in enumerate(lengths) for n in range(len(target[b]))]


@given(kinds, recordings())
def test_decoding_gives_the_recorded_states_then_the_target(kind, recording):
    states, target, _ = recording
    segments, num_dropped = encode(kind, recording)
    decoded = segments.states(len(states)).tolist()
    for b, n, length in positions_of(recording):
        expected = [state[b][n] for state in states[:length]]
        expected += [target[b][n]] * (len(states) + 1 - length)
        assert [state[b][n] for state in decoded] == expected
    assert not num_dropped.any()
    assert segments.step.tolist() == [max(length - 1, 0) for length in recording[2]]
    segments.check(vocab_size=3, horizon=len(states))


@given(kinds, recordings(), st.one_of(st.none(), st.integers(1, 4)))
def test_the_code_lists_the_newest_runs_of_each_position(kind, recording, max_segments):
    states, target, _ = recording
    segments, num_dropped = encode(kind, recording, max_segments=max_segments)
    runs = {
        (b, n): runs_of(states, target, b, n, length) for b, n, length in positions_of(recording)
    }
    size = min(max(map(len, runs.values())), max_segments or 99)
    assert segments.num_segments == size
    dropped = [0] * len(target)
    for (b, n), path in runs.items():
        kept = path[-size:]
        filler = size - len(kept)
        tokens = [target[b][n]] * filler + [token for token, _ in kept]
        ends = [0] * filler + [first for _, first in kept[1:]]
        assert segments.tokens[:, b, n].tolist() == tokens
        assert segments.ends[:, b, n].tolist() == ends
        dropped[b] += len(path) - len(kept)
    assert num_dropped.tolist() == dropped


@given(kinds, recordings())
def test_encoding_the_decoded_states_gives_the_same_code(kind, recording):
    segments, _ = encode(kind, recording)
    again, _ = Segments.from_states(
        segments.states(len(recording[0])), target=segments.target, step=segments.step
    )
    assert again.tokens.tolist() == segments.tokens.tolist()
    assert again.ends.tolist() == segments.ends.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_segments", [1, 2, 3, 6])
def test_a_segment_shows_from_its_predecessors_end_to_its_own(kind, num_segments):
    tokens, ends, step = (x.tolist() for x in draw_segments(4, 5, 9, 6, num_segments))
    shapes = (num_segments, 4, 5), (num_segments - 1, 4, 5), (4,)
    arrays = (
        KINDS[kind](x).reshape(shape) for x, shape in zip((tokens, ends, step), shapes, strict=True)
    )
    segments = Segments(*arrays)
    for k in range(8):
        state = segments.state_at(k).tolist()
        current = segments.state_at(segments.step).tolist()
        for b in range(4):
            for n in range(5):
                starts = [0] + [end[b][n] for end in ends]
                shown = max(s for s, start in enumerate(starts) if start <= k)
                assert state[b][n] == tokens[shown][b][n]
                if k == step[b]:
                    assert current[b][n] == tokens[shown][b][n]


@given(kinds, recordings(), st.data())
def test_the_last_rejected_token_is_the_last_wrong_one_that_was_replaced(kind, recording, data):
    states, target, _ = recording
    segments, _ = encode(kind, recording)
    step = [data.draw(st.integers(0, len(states))) for _ in target]
    segments = Segments(segments.tokens, segments.ends, KINDS[kind](step))
    rejected = segments.last_rejected(MASK).tolist()
    for b, n, length in positions_of(recording):
        seen = [state[b][n] for state in states[:length]]
        seen += [target[b][n]] * (len(states) + 1 - length)
        expected = target[b][n]
        for k in range(step[b]):
            if seen[k] not in (MASK, target[b][n]) and seen[k + 1] != seen[k]:
                expected = seen[k]
        assert rejected[b][n] == expected


def test_examples_by_hand():
    # wrong 7, MASK, target 4; then keep; then a relapse, MASK, 5, MASK, target 6.
    tokens = torch.tensor([[[4, 3, 0]], [[7, 3, 5]], [[0, 3, 0]], [[4, 3, 6]]])
    ends = torch.tensor([[[0, 0, 1]], [[3, 0, 2]], [[5, 0, 4]]])
    segments = Segments(tokens, ends, torch.tensor([3]))
    assert segments.states(6)[:, 0].T.tolist() == [
        [7, 7, 7, 0, 0, 4, 4],
        [3, 3, 3, 3, 3, 3, 3],
        [0, 5, 0, 0, 6, 6, 6],
    ]
    assert segments.target.tolist() == [[4, 3, 6]]
    assert segments.moves.tolist() == [[True, False, True]]
    assert segments.num_segments == 4
    assert segments.last_rejected(MASK).tolist() == [[7, 3, 5]]
    before = Segments(tokens, ends, torch.tensor([1]))
    assert before.last_rejected(MASK).tolist() == [[4, 3, 6]], "5 shows and is not given up yet"
    encoded, num_dropped = Segments.from_states(
        segments.states(4), target=segments.target, max_segments=2
    )
    assert encoded.tokens[:, 0].tolist() == [[0, 3, 0], [4, 3, 6]]
    assert encoded.ends[:, 0].tolist() == [[5, 0, 4]]
    assert encoded.step.tolist() == [4]
    assert num_dropped.tolist() == [3]


@given(kinds, recordings(), st.integers(0, 3))
def test_widening_and_trimming_change_no_state(kind, recording, added):
    segments, _ = encode(kind, recording)
    wide = segments.widen(segments.num_segments + added)
    assert wide.num_segments == segments.num_segments + added
    assert wide.tokens[:added].tolist() == [segments.target.tolist()] * added
    assert not wide.ends[:added].any()
    last = len(recording[0])
    assert wide.states(last).tolist() == segments.states(last).tolist()
    assert wide.last_rejected(MASK).tolist() == segments.last_rejected(MASK).tolist()
    assert wide.moves.tolist() == segments.moves.tolist()
    # The encoder's S is that of the longest path, so no leading segment of its code is empty.
    trimmed = wide.trim()
    assert trimmed.tokens.tolist() == segments.tokens.tolist()
    assert trimmed.ends.tolist() == segments.ends.tolist()


def test_one_segment_never_moves():
    segments = Segments(np.array([[[3, 4]]]), np.zeros((0, 1, 2), np.int32), np.array([0]))
    assert segments.moves.tolist() == [[False, False]]
    assert segments.states(2).tolist() == [[[3, 4]]] * 3
    assert segments.last_rejected(MASK).tolist() == [[3, 4]]
    assert segments.trim().num_segments == 1


@pytest.mark.parametrize("kind", KINDS)
def test_no_recorded_state_leaves_the_target(kind):
    states = KINDS[kind]([[[5, 6]]])[:0]
    segments, num_dropped = Segments.from_states(states, target=KINDS[kind]([[1, 2]]))
    assert segments.tokens.tolist() == [[[1, 2]]]
    assert segments.step.tolist() == num_dropped.tolist() == [0]


def test_unsigned_lengths_of_zero_do_not_wrap():
    states, target = np.array([[[5], [5]]]), np.array([[1], [1]])
    segments, _ = Segments.from_states(states, target=target, lengths=np.array([0, 1], np.uint8))
    assert segments.step.tolist() == [0, 0]
    assert segments.states(1).tolist() == [[[1], [5]], [[1], [1]]]


def test_an_empty_batch_has_one_segment():
    segments, num_dropped = Segments.from_states(
        torch.zeros(3, 0, 4, dtype=torch.int32), target=torch.zeros(0, 4, dtype=torch.int32)
    )
    assert segments.tokens.shape == (1, 0, 4)
    assert num_dropped.shape == (0,)


def test_arrays_keep_their_type_and_the_kernels_int32():
    states = np.array([[[7, 3]], [[0, 3]]], np.uint16)
    segments, _ = Segments.from_states(states, target=np.array([[4, 3]], np.uint16))
    assert segments.tokens.dtype == segments.state_at(0).dtype == np.uint16
    assert segments.ends.dtype == segments.step.dtype == np.int32
    moved = segments.map(lambda x: torch.from_numpy(x.astype(np.int64)))
    assert torch.equal(moved.states(2), torch.from_numpy(segments.states(2).astype(np.int64)))


def test_rows_are_selected_by_slice_index_and_bool():
    tokens, ends, step = draw_segments(4, 5, 9, 6)
    segments = Segments(tokens, ends, step)
    for rows in (slice(1, 3), torch.tensor([2, 0]), torch.tensor([True, False, True, True])):
        assert torch.equal(segments[rows].states(6), segments.states(6)[:, rows])
        assert torch.equal(segments[rows].step, step[rows])


def test_the_function_and_the_method_agree():
    tokens, ends, step = draw_segments(4, 5, 9, 6)
    assert torch.equal(state_at(tokens, ends, step), Segments(tokens, ends, step).state_at(step))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("tokens", "ends", "step", "message"),
    [
        ([4, 9, 3], [1, 2], 0, "tokens must be ids in 0 .. 8, got 9 at [1, 0, 0]"),
        ([4, 0, -3], [1, 2], 0, "tokens must be ids in 0 .. 8, got -3 at [2, 0, 0]"),
        ([4, 0, 3], [-1, 2], 0, "ends must lie in 0 .. horizon 6, got -1 at [0, 0, 0]"),
        ([4, 0, 3], [1, 7], 0, "ends must lie in 0 .. horizon 6, got 7 at [1, 0, 0]"),
        ([4, 0, 3], [3, 2], 0, "ends must not decrease from one segment to the next, got 2 at"),
        ([4, 0, 3], [1, 2], 7, "step must lie in 0 .. horizon 6, got 7 at [0]"),
    ],
)
def test_impossible_values_are_named_with_their_place(kind, tokens, ends, step, message):
    make = KINDS[kind]
    segments = Segments(make(tokens).reshape(-1, 1, 1), make(ends).reshape(-1, 1, 1), make([step]))
    with pytest.raises(ValueError, match=re.escape(message)):
        segments.check(vocab_size=9, horizon=6)


def test_bad_shapes_and_settings_are_refused():
    tokens, ends, step = np.zeros((3, 2, 4), int), np.zeros((2, 2, 4), int), np.zeros(2, int)
    with pytest.raises(ValueError, match=r"tokens must be \[S, B, N\] with S >= 1, got \[2, 4\]"):
        Segments(tokens[0], ends, step)
    with pytest.raises(ValueError, match=r"\[S-1, B, N\] = \[2, 2, 4\], got \[3, 2, 4\]"):
        Segments(tokens, tokens, step)
    with pytest.raises(ValueError, match=r"step must be \[B\] = \[2\], got \[1\]"):
        Segments(tokens, ends, step[:1])
    with pytest.raises(ValueError, match="at least the 3 there are, got 2"):
        Segments(tokens, ends, step).widen(2)
    with pytest.raises(ValueError, match=r"states must be \[K, B, N\] and target \[B, N\]"):
        Segments.from_states(tokens, target=tokens)
    with pytest.raises(ValueError, match="max_segments must be at least 1, got 0"):
        Segments.from_states(tokens, target=tokens[0], max_segments=0)
    with pytest.raises(ValueError, match=r"lengths must be \[B\] = \[2\], got \[3\]"):
        Segments.from_states(tokens, target=tokens[0], lengths=np.zeros(3, int))
    with pytest.raises(ValueError, match=r"lengths must lie in 0 .. K = 3, got 4 at \[1\]"):
        Segments.from_states(tokens, target=tokens[0], lengths=np.array([3, 4]))
