"""Likelihoods by drawing masks, against all of them."""

import itertools
import math

import pytest
import torch

from remask.evaluation.decode.likelihood import (
    Likelihood,
    draw_masks,
    log_likelihood,
    masked_log_probs,
)
from tests.models.toys import Scripted

PREFIX, TARGET = [3, 1], [2, 4, 1, 3]
VOCABULARY = 5


def toy() -> Scripted:
    """Logits that depend on every token there is, and on where it stands."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(len(PREFIX + TARGET), VOCABULARY, VOCABULARY, generator=generator)

    def logits(call: int, tokens: torch.Tensor) -> torch.Tensor:
        seen = mix[torch.arange(tokens.shape[1]), tokens]  # [B, N, V]
        return seen.sum(1, keepdim=True) + seen.roll(1, 1)

    return Scripted(logits, VOCABULARY)


def log_probs_of(model: Scripted, masked: set[int], cfg: float) -> dict[int, float]:
    """log p of the masked tokens by hand: logits, guidance, softmax without MASK."""
    noisy = [0 if i in masked else x for i, x in enumerate(TARGET)]
    logits = [
        model.script(0, torch.tensor([before + noisy]))[0, len(PREFIX) :].tolist()
        for before in (PREFIX, [0] * len(PREFIX))
    ]
    log_probs = {}
    for i in masked:
        row = [u + (cfg + 1) * (c - u) for c, u in zip(logits[0][i], logits[1][i], strict=True)]
        total = math.log(sum(math.exp(x) for x in row[1:]))
        log_probs[i] = row[TARGET[i]] - total
    return log_probs


def exact(model: Scripted, cfg: float) -> float:
    """The mean over every number of masks and every set of that size."""
    length, total = len(TARGET), 0.0
    for k in range(1, length + 1):
        sets = list(itertools.combinations(range(length), k))
        for masked in sets:
            value = sum(log_probs_of(model, set(masked), cfg).values())
            total += length / k * value / len(sets) / length
    return total


@pytest.mark.parametrize("cfg", [0.0, 0.5])
def test_the_estimate_is_that_of_all_masks(cfg):
    model, many = toy(), 4000
    wanted = exact(model, cfg)
    config = Likelihood(mc_num=many, cfg=cfg, seed=1)
    masks = draw_masks(PREFIX, TARGET, config)
    values = masked_log_probs(model, PREFIX, TARGET, masks, cfg).sum(1) * 4 / masks.sum(1)
    value = log_likelihood(model, PREFIX, TARGET, config, batch_size=4000)
    assert value == pytest.approx(float(values.mean()), abs=1e-5)
    assert abs(value - wanted) < 4 * float(values.std()) / many**0.5
    assert float(values.std()) > 0.1, "a toy whose draws are all alike shows nothing"


@pytest.mark.parametrize("cfg", [0.0, 0.5])
def test_each_set_of_masks_is_scored_as_by_hand(cfg):
    model = toy()
    sets = [set(s) for k in range(1, 5) for s in itertools.combinations(range(4), k)]
    masks = torch.tensor([[i in s for i in range(4)] for s in sets])
    log_probs = masked_log_probs(model, PREFIX, TARGET, masks, cfg)
    for row, masked in zip(log_probs.tolist(), sets, strict=True):
        by_hand = log_probs_of(model, masked, cfg)
        assert row == pytest.approx([by_hand.get(i, 0.0) for i in range(4)], abs=1e-5)


def test_one_token_takes_one_pass_and_is_exact():
    model, config = toy(), Likelihood(mc_num=50)
    value = log_likelihood(model, PREFIX + TARGET[:3], TARGET[3:], config)
    noisy = torch.tensor([PREFIX + TARGET[:3] + [0]])
    logits = model.script(0, noisy)[0, -1]
    assert value == pytest.approx(float(logits[1:].log_softmax(0)[TARGET[3] - 1]), abs=1e-6)
    assert config.forward_passes(1) == 1
    assert Likelihood(mc_num=50, cfg=1.0).forward_passes(4) == 100


def test_numbers_of_masks_are_spread_evenly_and_places_fairly():
    masks = draw_masks(PREFIX, TARGET, Likelihood(mc_num=400))
    assert masks.sum(1).bincount().tolist() == [0, 100, 100, 100, 100]
    assert (masks.float().mean(0) - 0.625).abs().max() < 0.1
    few = [draw_masks(PREFIX, TARGET, Likelihood(mc_num=3, seed=s)).sum(1) for s in range(400)]
    assert min(torch.cat(few).bincount()[1:]) > 200, "every number must come, whatever mc_num"


def test_draws_follow_from_seed_and_tokens_alone():
    one = draw_masks(PREFIX, TARGET, Likelihood(mc_num=20))
    assert torch.equal(one, draw_masks(PREFIX, TARGET, Likelihood(mc_num=20)))
    assert not torch.equal(one, draw_masks(PREFIX, TARGET, Likelihood(mc_num=20, seed=1)))
    assert not torch.equal(one, draw_masks([1], TARGET, Likelihood(mc_num=20)))
    model, config = toy(), Likelihood(mc_num=20)
    figures = {log_likelihood(model, PREFIX, TARGET, config, batch_size=b) for b in (1, 7, 20)}
    assert max(figures) - min(figures) < 1e-6


@pytest.mark.parametrize("bad", [{"mc_num": 0}, {"cfg": -1.0}, {"seed": -1}])
def test_bad_settings_are_named(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must"):
        Likelihood(**bad)
