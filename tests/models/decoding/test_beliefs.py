"""Beliefs read off the head, and the noise they are drawn with."""

import math

import pytest
import torch

from remask.models import Sampling
from remask.models.decoding import beliefs
from remask.models.decoding.beliefs import read_beliefs
from remask.models.noise import ORDER, REMASK, KeyedNoise
from tests.models.toys import Scripted

M = 0


def read(logits, tokens, *, ranking="probability", sampling=None, where=None, noise=None):
    backbone = Scripted([logits], logits.shape[-1])
    tokens = torch.tensor(tokens)
    where = torch.ones_like(tokens, dtype=torch.bool) if where is None else torch.tensor(where)
    return read_beliefs(
        backbone,
        logits.expand(*tokens.shape, -1),
        tokens,
        where,
        sampling=sampling or Sampling(),
        ranking=ranking,
        noise=noise or KeyedNoise(0, 0, torch.arange(len(tokens))),
    )


def test_doubt_and_log_prob_are_those_of_the_distribution():
    logits = torch.tensor([[[1.0, 0.0, 2.0]]])
    out = read(logits, [[1]])
    assert out.doubt.tolist() == [[1.0]]
    assert out.candidate.tolist() == [[2]]
    assert out.log_prob[0, 0].exp().item() == pytest.approx(math.e**2 / (math.e**2 + 1))


def test_rankings_are_entropy_and_lead():
    logits = torch.tensor([[[9.0, math.log(0.5), math.log(0.3), math.log(0.2)]]])  # MASK left out
    entropy = -sum(p * math.log(p) for p in (0.5, 0.3, 0.2))
    assert read(logits, [[M]], ranking="entropy").confidence.item() == pytest.approx(-entropy)
    assert read(logits, [[M]], ranking="margin").confidence.item() == pytest.approx(0.2)


def test_unread_positions_stay_out():
    out = read(torch.zeros(1, 3, 4), [[M, 2, M]], where=[[True, False, False]])
    assert out.candidate[0, 1:].tolist() == [2, M]
    assert out.log_prob[0, 1:].tolist() == [-math.inf] * 2
    assert out.doubt[0, 1:].tolist() == [-math.inf] * 2


def test_chunks_change_nothing(monkeypatch):
    logits = torch.randn(1, 7, 5, generator=torch.Generator().manual_seed(0))
    tokens = [[M, 1, 2, M, 3, 4, M]] * 3
    sampling = Sampling(temperature=1.0, top_p=0.8)
    whole = read(logits, tokens, sampling=sampling)
    monkeypatch.setattr(beliefs, "CHUNK_ELEMENTS", 10)  # two positions at a time
    parts = read(logits, tokens, sampling=sampling)
    for name, expected in vars(whole).items():
        assert torch.equal(getattr(parts, name), expected), name


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.8)])
def test_draws_follow_the_tempered_truncated_distribution(temperature, top_p):
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = torch.cat([torch.tensor([3.0]), probs.log()])[None, None]  # MASK first, suppressed
    out = read(logits, [[M] * 100] * 400, sampling=Sampling(temperature=temperature, top_p=top_p))
    expected = probs ** (1 / temperature) * torch.tensor([1, 1, top_p > 0.8, top_p > 0.95])
    expected = expected / expected.sum()
    actual = torch.bincount(out.candidate.flatten(), minlength=5)[1:] / 40_000
    assert (actual - expected).abs().max() < 0.012  # five standard errors at n = 40,000


def test_truncated_probabilities_are_those_drawn_from():
    logits = torch.tensor([9.0, math.log(0.5), math.log(0.3), math.log(0.2)])[None, None]
    out = read(logits, [[M] * 50], sampling=Sampling(temperature=1.0, top_p=0.6))
    expected = torch.tensor([0.0, 0.5 / 0.8, 0.3 / 0.8])[out.candidate]
    torch.testing.assert_close(out.log_prob.exp(), expected)
    assert set(out.candidate.flatten().tolist()) == {1, 2}


def test_noise_depends_on_seed_row_step_and_use_alone():
    base = KeyedNoise(7, 3, torch.tensor([10, 20]))
    numbers = base.uniform(5, ORDER)
    assert torch.equal(numbers[1:], KeyedNoise(7, 3, torch.tensor([20])).uniform(5, ORDER))
    assert torch.equal(numbers[:, :3], base.uniform(3, ORDER))
    for other in (KeyedNoise(8, 3, base.row_ids), KeyedNoise(7, 4, base.row_ids)):
        assert not torch.isclose(other.uniform(5, ORDER), numbers).any()
    assert not torch.isclose(base.uniform(5, REMASK), numbers).any()


def test_noise_is_uniform_and_uncorrelated():
    numbers = KeyedNoise(0, 0, torch.arange(300)).uniform(300, ORDER)
    assert 0 < numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    counts = torch.histc(numbers.flatten(), bins=20, min=0, max=1)
    chi_square = ((counts - 4500) ** 2 / 4500).sum()
    assert chi_square < 43.8  # 99.9 % point at 19 degrees of freedom
    for a, b in ((numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:])):
        assert torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].abs() < 0.015


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature must be 0 or more, got -1.0"),
        ({"temperature": math.inf}, "temperature must be 0 or more, got inf"),
        ({"temperature": math.nan}, "temperature must be 0 or more, got nan"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\], got 0.0"),
    ],
)
def test_bad_sampling_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**settings)
