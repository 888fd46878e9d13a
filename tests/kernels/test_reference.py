"""The reference operators against the method's sum written with explicit rotation matrices."""

import math

import pytest
import torch

from remask.kernels import reference
from tests.kernels.conftest import MASK, draw_rows

WIDTH, VOCAB, HORIZON = 6, 7, 6


def rotation_matrix(lag, width):
    """R_lag as RoFormer's block-diagonal matrix: block j turns by lag · 10000^(-2j/d)."""
    matrix = torch.zeros(width, width, dtype=torch.float64)
    for j in range(width // 2):
        angle = lag * 10000 ** (-2 * j / width)
        cos, sin = math.cos(angle), math.sin(angle)
        matrix[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = torch.tensor([[cos, -sin], [sin, cos]])
    return matrix


def closed_form(weight, rows, *, decay, rotate, window=None):
    """Σ_{k<=t} γ^(t-k) R_{k-t} wte(x^(k)), position by position."""
    target, wrong, masked_at, revealed_at, step = (x.tolist() for x in rows)
    out = torch.zeros(len(target), len(target[0]), weight.shape[1], dtype=torch.float64)
    for b, t in enumerate(step):
        for n in range(len(target[0])):
            for k in range(t + 1):
                if window is not None and t - k > window:
                    continue
                if k < masked_at[b][n]:
                    token = wrong[b][n]
                elif k < revealed_at[b][n]:
                    token = MASK
                else:
                    token = target[b][n]
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
def test_recurrence_and_segments_equal_the_sum(weight, decay, rotate):
    rows = draw_rows(5, 9, VOCAB, HORIZON)
    expected = closed_form(weight, rows, decay=decay, rotate=rotate)
    stepwise = reference.accumulate(weight, *rows, mask_id=MASK, decay=decay, rotate=rotate)
    table = reference.coefficient_table(
        WIDTH, HORIZON, decay, rotate, None, torch.float64, weight.device
    )
    segments = reference.history_embed(weight, *rows, table, MASK)
    torch.testing.assert_close(stepwise, expected)
    torch.testing.assert_close(segments, expected)


@pytest.mark.parametrize("window", [0, 1, 3, 50])
def test_window_drops_older_states(weight, window):
    rows = draw_rows(5, 9, VOCAB, HORIZON)
    table = reference.coefficient_table(
        WIDTH, HORIZON, 0.8, True, window, torch.float64, weight.device
    )
    torch.testing.assert_close(
        reference.history_embed(weight, *rows, table, MASK),
        closed_form(weight, rows, decay=0.8, rotate=True, window=window),
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
