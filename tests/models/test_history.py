"""History Reference: training's closed form, decoding's recurrence, and the sum both stand for."""

import math
from itertools import product

import pytest
import torch

from remask.kernels import Segments
from remask.models import HistoryConfig
from remask.models.config import from_mapping
from remask.models.history import HistoryState, encode_rows, normalise
from tests.kernels.conftest import draw_segments

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
    segments = Segments(*draw_segments(4, 5, VOCAB, HORIZON, num_segments=5))
    trained = encode_rows(weight, segments, horizon=HORIZON, config=config)
    for b, step in enumerate(segments.step.tolist()):
        states = segments[b : b + 1].states(step)[:, 0]
        expected = rms_normalised(expected_sum(weight, states, variant, 0.7, window))
        running = HistoryState(config, weight)
        for state in states:
            decoded = running.update(state[None])
        torch.testing.assert_close(trained[b].double(), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(decoded[0].double(), expected, rtol=1e-4, atol=1e-5)


def by_definition(weight, states, editable, config):
    """The model's input at the last of states [K, N], position by position, in float64."""
    theta = [10000 ** (-2 * j / WIDTH) for j in range(WIDTH // 2)]
    half, t = WIDTH // 2, len(states) - 1
    out = []
    for i in range(states.shape[1]):
        current, past = weight[states[t, i]].double(), torch.zeros(WIDTH, dtype=torch.float64)
        for k in range(max(0, t - config.window), t if editable[i] else 0):
            lag, x = t - k, weight[states[k, i]].double()
            turned = torch.empty(WIDTH, dtype=torch.float64)
            for j, a in enumerate(theta):
                if config.rotation == "released":
                    one, two, angle = j, j + half, lag * a
                else:
                    one, two, angle = 2 * j, 2 * j + 1, -lag * a
                turned[one] = x[one] * math.cos(angle) - x[two] * math.sin(angle)
                turned[two] = x[one] * math.sin(angle) + x[two] * math.cos(angle)
            past += config.decay ** (lag - (config.fade_from == "previous")) * turned
        centred = past - past.mean()
        out.append(
            {
                "none": current + past,
                "residual": current + centred / (centred.square().mean() + 1e-5).sqrt(),
                "rms": rms_normalised(current + past),
            }[config.norm]
        )
    return torch.stack(out)


@pytest.mark.parametrize("norm", ["none", "residual", "rms"])
@pytest.mark.parametrize("rotation", ["paper", "released"])
@pytest.mark.parametrize("fade_from", ["current", "previous"])
def test_released_switches_equal_their_definition_in_training_and_decoding(
    weight, norm, rotation, fade_from
):
    config = HistoryConfig(
        decay=0.7, window=3, norm=norm, rotation=rotation, fade_from=fade_from, positions="editable"
    )
    segments = Segments(*draw_segments(4, 5, VOCAB, HORIZON))
    editable = torch.arange(20).view(4, 5) % 3 > 0
    trained = encode_rows(weight, segments, horizon=HORIZON, config=config, editable=editable)
    for b, step in enumerate(segments.step.tolist()):
        states = segments[b : b + 1].states(step)[:, 0]
        expected = by_definition(weight, states, editable[b], config)
        running = HistoryState(config, weight, editable[b : b + 1])
        for state in states:
            decoded = running.update(state[None])
        torch.testing.assert_close(trained[b].double(), expected, rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(decoded[0].double(), expected, rtol=1e-4, atol=2e-5)


def test_prompts_get_exactly_their_embedding_and_the_rest_exactly_the_same(weight):
    segments = Segments(*draw_segments(6, 5, VOCAB, HORIZON))
    editable = torch.arange(30).view(6, 5) % 2 > 0
    part, whole = (
        encode_rows(
            weight,
            segments,
            horizon=HORIZON,
            config=HistoryConfig(norm="match", positions=p),
            editable=editable,
        )
        for p in ("editable", "all")
    )
    state = segments.state_at(segments.step)
    assert torch.equal(part[~editable], weight[state][~editable])
    assert torch.equal(part[editable], whole[editable])
    assert not torch.equal(part[~editable], whole[~editable])
    config = HistoryConfig(norm="match", positions="editable")
    running, everywhere = HistoryState(config, weight, editable), HistoryState(config, weight)
    for _ in range(2):
        ids = state.roll(1, 0)
        out, free = running.update(ids), everywhere.update(ids)
        assert torch.equal(out[~editable], weight[ids][~editable])
        assert torch.equal(out[editable], free[editable])
    kept = torch.tensor([True, False, True, False, False, True])
    running.select(kept)
    assert torch.equal(
        running.update(ids[kept])[~editable[kept]], weight[ids[kept]][~editable[kept]]
    )


def test_presets_are_values_that_given_ones_are_put_over():
    read = from_mapping(HistoryConfig, {"preset": "released", "window": 2}, "history")
    assert read == HistoryConfig(
        decay=1.0,
        window=2,
        norm="residual",
        positions="editable",
        fade_from="previous",
        rotation="released",
    )
    assert from_mapping(HistoryConfig, {"preset": "paper"}, "history") == HistoryConfig()
    with pytest.raises(ValueError, match=r"preset must be one of \['paper', 'released'\], got 'x'"):
        from_mapping(HistoryConfig, {"preset": "x"}, "history")


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


OWN_INPUT = [{"variant": v, "norm": "match"} for v in VARIANTS] + [
    dict(HistoryConfig.PRESETS["released"]),
    {"norm": "none"},
]


@pytest.mark.parametrize("settings", OWN_INPUT, ids=str)
def test_without_history_pretrained_backbones_get_exactly_their_own_input(weight, settings):
    config = HistoryConfig(**settings)
    ids = torch.tensor([[1, 4, 6, 0]])
    first = HistoryState(config, weight).update(ids)
    assert torch.equal(first, weight[ids])
    still = Segments(ids[None], ids.new_zeros(0, *ids.shape), torch.tensor([0]))
    at_start = encode_rows(weight, still, horizon=HORIZON, config=config)
    assert torch.equal(at_start, weight[ids])


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
    segments = Segments(*draw_segments(3, 4, VOCAB, HORIZON))
    plain = [{"variant": v, "norm": n} for v, n in product(VARIANTS, ["rms", "match", "none"])]
    for settings in (*plain, HistoryConfig.PRESETS["released"]):
        leaf = weight.clone().requires_grad_()
        config = HistoryConfig(**settings)
        out = encode_rows(leaf, segments, horizon=HORIZON, config=config)
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
        ({"window": -1}, "history.window must be 0 or more, got -1"),
        ({"variant": "gamma"}, "history.variant must be one of .* got 'gamma'"),
        ({"norm": "layer"}, "history.norm must be one of .* got 'layer'"),
        ({"rotation": "left"}, "history.rotation must be one of .* got 'left'"),
        (
            {"variant": "absolute", "norm": "residual"},
            "absolute also rotates the current state, so it needs",
        ),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        HistoryConfig(**settings)
