"""The reference operators against the method's sum written with explicit rotation matrices."""

import math

import pytest
import torch

from remask.kernels import reference
from tests.kernels.conftest import draw_segments

WIDTH, VOCAB, HORIZON = 6, 7, 6


def rotation_matrix(lag, width):
    """R_lag as RoFormer's block-diagonal matrix: block j turns by lag · 10000^(-2j/d)."""
    matrix = torch.zeros(width, width, dtype=torch.float64)
    for j in range(width // 2):
        angle = lag * 10000 ** (-2 * j / width)
        cos, sin = math.cos(angle), math.sin(angle)
        block = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
        matrix[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = block
    return matrix


def closed_form(weight, segments, *, decay, rotate, window=None):
    """Σ_{k<=t} γ^(t-k) R_{k-t} wte(x^(k)), position by position."""
    tokens, ends, step = (x.tolist() for x in segments)
    batch, positions = segments[0].shape[1:]
    out = torch.zeros(batch, positions, weight.shape[1], dtype=torch.float64)
    for b, t in enumerate(step):
        for n in range(positions):
            for k in range(t + 1):
                if window is not None and t - k > window:
                    continue
                token = tokens[sum(k >= end[b][n] for end in ends)][b][n]
                turn = rotation_matrix(k - t if rotate else 0, weight.shape[1])
                out[b, n] += decay ** (t - k) * turn @ weight[token]
    return out


@pytest.fixture
def weight():
    return torch.randn(
        VOCAB, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


@pytest.mark.parametrize("decay", [1.0, 0.9, 0.3])
@pytest.mark.parametrize("rotate", [True, False])
@pytest.mark.parametrize("num_segments", [1, 2, 3, 5])
def test_recurrence_and_segments_equal_the_sum(weight, decay, rotate, num_segments):
    segments = draw_segments(5, 9, VOCAB, HORIZON, num_segments)
    expected = closed_form(weight, segments, decay=decay, rotate=rotate)
    stepwise = reference.accumulate(weight, *segments, decay=decay, rotate=rotate)
    table = reference.coefficient_table(
        WIDTH, HORIZON, decay, rotate, None, torch.float64, weight.device
    )
    torch.testing.assert_close(stepwise, expected)
    torch.testing.assert_close(reference.history_embed(weight, *segments, table), expected)


@pytest.mark.parametrize("window", [0, 1, 3, 50])
def test_window_drops_older_states(weight, window):
    segments = draw_segments(5, 9, VOCAB, HORIZON)
    table = reference.coefficient_table(
        WIDTH, HORIZON, 0.8, True, window, torch.float64, weight.device
    )
    torch.testing.assert_close(
        reference.history_embed(weight, *segments, table),
        closed_form(weight, segments, decay=0.8, rotate=True, window=window),
    )


def test_table_is_the_geometric_sum():
    table = reference.coefficient_table(4, 3, 0.5, True, None, torch.float64, torch.device("cpu"))
    ratio = [0.5 * complex(math.cos(a), -math.sin(a)) for a in (1.0, 10000**-0.5)]
    for m, row in enumerate(table.tolist()):
        sums = [(1 - z**m) / (1 - z) for z in ratio]
        expected = [part for z in sums for part in (z.real, z.imag)]
        assert row == pytest.approx(expected)


def test_past_states_turn_by_a_negative_angle():
    acc = torch.tensor([[1.0, 0.0]])
    turn = reference.turn(2, 1.0, True, False, torch.float32, acc.device)
    aged = reference.history_step(acc, torch.zeros(1, 2), turn)
    torch.testing.assert_close(aged, torch.tensor([[math.cos(1.0), -math.sin(1.0)]]))
