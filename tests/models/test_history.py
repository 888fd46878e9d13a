"""History Reference: training's closed form, decoding's recurrence, and the sum both stand for."""

import math
from itertools import product

import pytest
import torch

import kernels
from models import HistoryConfig
from models.history import HistoryState, encode_rows, normalise
from tests.kernels.conftest import draw_rows

MASK, VOCAB, WIDTH, HORIZON = 0, 7, 8, 6
VARIANTS = ["none", "hr", "hr+decay", "hr+decay+her", "absolute"]


@pytest.fixture
def weight():
    return torch.randn(VOCAB, WIDTH, generator=torch.Generator().manual_seed(1))


def expected_sum(weight, states, variant, decay, window):
    """Σ_k γ^(t-k) R wte(x^(k)) over the states [K, N], as complex numbers and plain loops."""
    t = len(states) - 1
    theta = [10000 ** (-2 * j / WIDTH) for j in range(WIDTH // 2)]
    total = torch.zeros(states.shape[1], WIDTH // 2, dtype=torch.complex128)
    for k, state in enumerate(states):
        lag = t - k
        if (variant == "none" and lag > 0) or (window is not None and lag > window):
            continue
        fade = 1.0 if variant == "hr" else decay**lag
        turn = {"hr+decay+her": k - t, "absolute": k}.get(variant, 0)
        factor = torch.tensor(
            [fade * complex(math.cos(turn * a), math.sin(turn * a)) for a in theta]
        )
        pairs = weight[state].double().unflatten(-1, (-1, 2)).contiguous()
        total += factor * torch.view_as_complex(pairs)
    return torch.view_as_real(total).flatten(-2)


def rms_normalised(x):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("window", [None, 0, 2])
def test_training_and_decoding_equal_the_sum(weight, variant, window):
    config = HistoryConfig(variant=variant, decay=0.7, window=window)
    rows = draw_rows(4, 5, VOCAB, HORIZON)
    trained = encode_rows(weight, *rows, mask_id=MASK, horizon=HORIZON, config=config)
    for b, step in enumerate(rows[4].tolist()):
        row = [x[b : b + 1] for x in rows[:4]]
        states = torch.cat([kernels.state_at(*row, k, MASK) for k in range(step + 1)])
        expected = rms_normalised(expected_sum(weight, states, variant, 0.7, window))
        running = HistoryState(config, weight)
        for state in states:
            decoded = running.update(state[None])
        torch.testing.assert_close(trained[b].double(), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(decoded[0].double(), expected, rtol=1e-4, atol=1e-5)


def test_a_window_stays_exact_over_many_steps(weight):
    config = HistoryConfig(decay=0.95, window=6)
    running = HistoryState(config, weight)
    states = torch.randint(0, VOCAB, (300, 4), generator=torch.Generator().manual_seed(2))
    for state in states:
        decoded = running.update(state[None])
    expected = rms_normalised(expected_sum(weight, states, config.variant, 0.95, 6))
    torch.testing.assert_close(decoded[0].double(), expected, rtol=1e-4, atol=1e-5)


def test_a_window_does_not_mind_ids_changed_in_place(weight):
    config = HistoryConfig(window=1)
    ids = torch.tensor([[1, 2]])
    careful, careless = HistoryState(config, weight), HistoryState(config, weight)
    for token in (3, 4, 5, 6):
        expected = careful.update(ids.clone())
        assert torch.equal(careless.update(ids), expected)
        ids[0, 0] = token


def test_history_is_kept_in_float32_whatever_the_model(weight):
    running = HistoryState(HistoryConfig(), weight.bfloat16())
    for _ in range(3):
        out = running.update(torch.tensor([[1, 2]]))
    assert out.dtype == torch.float32


@pytest.mark.parametrize("variant", VARIANTS)
def test_match_without_history_is_exactly_the_backbones_own_input(weight, variant):
    config = HistoryConfig(variant=variant, norm="match")
    ids = torch.tensor([[1, 4, 6, 0]])
    first = HistoryState(config, weight).update(ids)
    assert torch.equal(first, weight[ids])
    rows = (ids.clamp(min=1), ids.clamp(min=1), torch.zeros_like(ids), torch.zeros_like(ids))
    at_start = encode_rows(
        weight, *rows, torch.tensor([0]), mask_id=MASK, horizon=HORIZON, config=config
    )
    assert torch.equal(at_start, weight[rows[0]])


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_match_scales_to_the_rms_of_the_current_embedding(weight, scale):
    weight = weight * scale
    running = HistoryState(HistoryConfig(norm="match"), weight)
    running.update(torch.tensor([[1, 2, 3]]))
    out = running.update(torch.tensor([[4, 5, 6]]))
    torch.testing.assert_close(
        out.square().mean(-1), weight[[4, 5, 6]].square().mean(-1)[None], rtol=1e-4, atol=0
    )


def test_rms_gives_unit_rms_and_survives_zero():
    out = normalise(torch.randn(3, 8) * 50, torch.empty(0), "rms")
    torch.testing.assert_close(out.square().mean(-1), torch.ones(3))
    assert normalise(torch.zeros(1, 8), torch.zeros(1, 8), "match").isfinite().all()


def test_gradient_reaches_the_embedding_in_every_variant(weight):
    rows = draw_rows(3, 4, VOCAB, HORIZON)
    for variant, norm in product(VARIANTS, ["rms", "match"]):
        leaf = weight.clone().requires_grad_()
        config = HistoryConfig(variant=variant, norm=norm)
        out = encode_rows(leaf, *rows, mask_id=MASK, horizon=HORIZON, config=config)
        out.pow(3).sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.abs().sum() > 0


def test_no_variant_has_parameters():
    assert not hasattr(HistoryState(HistoryConfig(), torch.zeros(2, 2)), "parameters")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": 0.0}, r"history.decay must lie in \(0, 1\], got 0.0; 1.0 keeps all"),
        ({"decay": 1.1}, r"history.decay must lie in \(0, 1\], got 1.1"),
        ({"window": -1}, "history.window must be 0 or more past states, got -1"),
        ({"variant": "gamma"}, "history.variant must be one of .* got 'gamma'"),
        ({"norm": "layer"}, "history.norm must be one of .* got 'layer'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        HistoryConfig(**settings)
