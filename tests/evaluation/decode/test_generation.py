"""Answers decoded from MASKs: the same in any batch, with ends and budgets as asked for."""

import dataclasses
import itertools

import pytest
import torch

from remask.evaluation.decode.generation import (
    fit_to_masks,
    generate,
    milestones,
    padded_length,
)
from remask.evaluation.decoder import Decoder
from remask.models import LladaConfig, LladaMDM, revise
from tests.text_folders import MASK, VOCABULARY, lively

DECODERS = {
    "absorbing": Decoder(policy="absorbing", settings={"block_length": 4}, max_steps=6),
    "rm": Decoder(settings={"reveal_count": 2, "margin": 0.0}, max_steps=9),
    "rm-blocks": Decoder(settings={"reveal_threshold": 0.5, "block_length": 4}, max_steps=9),
    "remdm": Decoder(policy="remdm", settings={"kind": "cap", "eta": 0.3}, max_steps=6, seed=5),
    "p2": Decoder(policy="p2", max_steps=5),
}
PROMPTS = [[1, 2, 3], list(range(40)), [9], list(range(30, 55)), [7, 8, 9]]


@pytest.fixture(scope="module")
def model():
    shape = {"d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 4, "mlp_hidden_size": 32}
    config = LladaConfig(
        **shape, vocab_size=VOCABULARY, mask_token_id=MASK, max_sequence_length=70, rope_theta=1e4
    )
    return lively(LladaMDM(config), 3)


@pytest.mark.parametrize("name", DECODERS)
def test_an_answer_is_the_same_in_any_batch_and_order(name, model):
    decoder = DECODERS[name]
    together = generate(model, PROMPTS, 12, decoder, passes=[1, 3])
    alone = [generate(model, [p], 12, decoder, row_ids=[i])[0] for i, p in enumerate(PROMPTS)]
    assert [a.ids for a in alone] == [a.ids for a in together]
    order = [3, 0, 4, 2, 1]
    turned = generate(
        model,
        [PROMPTS[i] for i in order],
        12,
        dataclasses.replace(decoder, batch_size=2),
        row_ids=order,
        passes=[1, 3],
    )
    assert turned == [together[i] for i in order]
    assert all(MASK not in a.ids and len(a.ids) == 12 for a in together)
    assert len({token for a in together for token in a.ids}) > 5, "a model of one word shows little"


def test_padding_changes_nothing_but_rounding(model):
    (answer,) = generate(model, [[1, 2, 3]], 12, DECODERS["absorbing"])
    tokens = torch.tensor([[1, 2, 3] + [MASK] * 12])
    policy = DECODERS["absorbing"].make_policy()
    bare = revise(model, tokens, tokens == MASK, policy=policy, max_steps=6)
    assert answer.ids == bare.tokens[0, 3:].tolist()


def test_lengths_are_shared_and_never_beyond_the_model():
    assert [padded_length(n, None) for n in (1, 32, 33)] == [32, 32, 64]
    assert [padded_length(n, 40) for n in (1, 33, 40)] == [32, 40, 40]


def test_what_happened_is_counted(model):
    """By a plain walk along the trajectory, for answers in which much was re-masked."""
    decoder = Decoder(settings={"reveal_count": 3}, max_steps=12)
    answers = generate(model, PROMPTS[:1], 12, decoder, passes=range(1, 14))
    (answer,) = answers
    walk = [[MASK] * 12, *answer.states]
    remasked = sum(
        a != MASK and b == MASK
        for x, y in itertools.pairwise(walk)
        for a, b in zip(x, y, strict=True)
    )
    columns = list(zip(*walk, strict=True))
    firsts = [next(token for token in column if token != MASK) for column in columns]
    replaced = sum(a != b for a, b in zip(firsts, answer.ids, strict=True))
    again = [MASK in column[column.index(f) :] for column, f in zip(columns, firsts, strict=True)]
    kept = [a == b for a, b in zip(firsts, answer.ids, strict=True)]
    assert remasked > 0
    assert (answer.remasked, answer.replaced) == (remasked, replaced)
    assert answer.restored == sum(a and k for a, k in zip(again, kept, strict=True))
    assert answer.revealed - answer.remasked == 12
    assert answer.forward_passes <= 13


def test_milestones_end_with_the_last_step_and_a_closing_one():
    assert milestones(16) == [2, 4, 6, 8, 10, 12, 14, 16, 17]
    assert milestones(3) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("policy", "settings", "steps"),
    [
        ("absorbing", {}, 8),
        ("remdm", {}, 8),
        ("p2", {}, 8),
        ("two_phase", {}, 7),
        ("revision", {"reveal_count": 1}, 7),
    ],
)
def test_a_policy_that_may_leave_masks_keeps_a_pass_for_the_closing_step(policy, settings, steps):
    decoder = Decoder(policy=policy, settings=settings)
    assert fit_to_masks(decoder, 8).max_steps == steps
    assert fit_to_masks(dataclasses.replace(decoder, max_steps=5), 8).max_steps == 5
