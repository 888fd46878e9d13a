"""The revision rule and its options, on scripted beliefs. SPEC §1."""

import math

import pytest
import torch

from remask.models import Absorbing, Action, RevisionPolicy, Sampling, revise
from tests.models.toys import Scripted, decode, log_probs

M = 0  # MASK
KEEP, REMASK, REVEAL, WAIT = Action


def test_wrong_visible_token_is_remasked_then_revealed():
    doubt = log_probs([[0.6, 0.3, 0.1]])  # p(MASK) > p(token 1)
    reveal = log_probs([[0.5, 0.1, 0.4]])  # MASK is likeliest, yet never revealed
    keep = log_probs([[0.1, 0.1, 0.8]])
    out = decode([doubt, reveal, keep], [1], vocab_size=3, max_steps=5)
    assert out.trajectory[:, 0, 0].tolist() == [1, M, 2, 2]
    assert out.actions[:, 0, 0].tolist() == [REMASK, REVEAL, KEEP]
    assert out.tokens.tolist() == [[2]]


def test_visible_token_stays_though_another_token_is_likelier():
    out = decode([log_probs([[0.1, 0.2, 0.7]])], [1], vocab_size=3)
    assert out.tokens.tolist() == [[1]]


def test_a_tie_keeps():
    out = decode([log_probs([[0.4, 0.4, 0.2]])], [1], vocab_size=3)
    assert out.actions[0, 0].tolist() == [KEEP]


@pytest.mark.parametrize(("mask", "token"), [(0.6, 0.3), (0.3, 0.6)])
def test_margin_is_in_nats(mask, token):
    beliefs = [log_probs([[mask, token, 0.1]])]  # log 2 ≈ 0.693 nats of doubt, or of trust
    doubt = math.log(mask / token)
    just_below, just_above = (RevisionPolicy(margin=doubt + x) for x in (-1e-3, 1e-3))
    assert decode(beliefs, [1], 3, policy=just_below).actions[0, 0].tolist() == [REMASK]
    assert decode(beliefs, [1], 3, policy=just_above).actions[0, 0].tolist() == [KEEP]


def test_positions_outside_editable_never_change():
    doubt = log_probs([[0.9, 0.05, 0.05]] * 3)
    editable = torch.tensor([[True, False, True]])
    out = decode([doubt], [1, 1, 1], 3, editable=editable)
    assert out.actions[0, 0].tolist() == [REMASK, KEEP, REMASK]


def test_remask_cap_takes_the_most_doubted():
    beliefs = [log_probs([[0.5, 0.4, 0.1], [0.8, 0.1, 0.1], [0.7, 0.2, 0.1]])]
    out = decode(beliefs, [1, 1, 1], 3, policy=RevisionPolicy(remask_cap=2))
    assert out.actions[0, 0].tolist() == [KEEP, REMASK, REMASK]


def test_a_position_keeps_its_token_after_max_remasks():
    def script(call, tokens):  # doubts whatever is visible, reveals 1 in the first place
        doubt, sure = torch.tensor([0.8, 0.1, 0.1]), torch.tensor([0.1, 0.8, 0.1])
        return torch.where((tokens == M)[..., None], sure, doubt).log()

    policy = RevisionPolicy(max_remasks=2)
    out = decode(script, [1, M], 3, policy=policy, max_steps=9)
    actions = out.actions[:, 0].T.tolist()
    assert actions[0] == [REMASK, REVEAL, REMASK, REVEAL, KEEP, KEEP]
    assert actions[1] == [REVEAL, REMASK, REVEAL, REMASK, REVEAL, KEEP]
    never = decode(script, [1, M], 3, policy=RevisionPolicy(max_remasks=0), max_steps=9)
    assert never.actions[:, 0].T.tolist() == [[KEEP, KEEP], [REVEAL, KEEP]]


def test_abstaining_waits_while_mask_is_likeliest():
    beliefs = [log_probs([[0.5, 0.1, 0.4], [0.4, 0.4, 0.2]]), log_probs([[0.3, 0.3, 0.4]] * 2)]
    out = decode(beliefs, [M, M], 3, policy=RevisionPolicy(abstain=True), max_steps=5)
    assert out.trajectory[:, 0].tolist() == [[M, M], [M, 1], [2, 1], [2, 1]]  # a tie reveals


def test_positions_that_never_stop_abstaining_are_revealed_at_the_end():
    beliefs = [log_probs([[0.5, 0.1, 0.4]])]
    out = decode(beliefs, [M], 3, policy=RevisionPolicy(abstain=True), max_steps=3)
    assert out.actions[:, 0, 0].tolist() == [WAIT, WAIT, WAIT, REVEAL]
    assert out.tokens.tolist() == [[2]]


CONFIDENCES = log_probs([[0.1, 0.5, 0.4], [0.1, 0.8, 0.1], [0.5, 0.05, 0.45], [0.1, 0.3, 0.6]])
# Over V, without MASK: 5/9, 8/9, 9/10, 2/3.


def test_reveal_count_takes_the_most_confident_without_mask():
    out = decode([CONFIDENCES], [M] * 4, 3, policy=RevisionPolicy(reveal_count=2))
    assert out.actions[0, 0].tolist() == [WAIT, REVEAL, REVEAL, WAIT]
    assert out.trajectory[1, 0].tolist() == [M, 1, 2, M]


def test_reveal_within_fills_a_row_in_that_share_of_the_steps():
    paced, counted = (
        decode([CONFIDENCES] * 5, [M] * 4, 3, policy=policy, max_steps=4)
        for policy in (RevisionPolicy(reveal_within=0.5), RevisionPolicy(reveal_count=2))
    )
    assert torch.equal(paced.trajectory, counted.trajectory)


@pytest.mark.parametrize(
    ("settings", "max_steps", "expected"),
    [
        ({}, 9, True),
        ({"reveal_count": 1}, 1, False),
        ({"reveal_threshold": 0.9}, 1, False),
        ({"reveal_within": 0.4}, 3, True),
        ({"reveal_within": 1.0}, 3, False),
    ],
)
def test_reveals_all_says_whether_the_first_step_reveals_every_mask(settings, max_steps, expected):
    policy = RevisionPolicy(**settings)
    assert policy.reveals_all(max_steps) == expected
    beliefs = [log_probs([[0.1, 0.5, 0.4]] * 4)] * (max_steps + 1)
    out = decode(beliefs, [M] * 4, 3, policy=policy, max_steps=max_steps)
    assert bool((out.trajectory[1] != M).all()) == expected


def test_reveal_threshold_reveals_the_sure_and_always_one():
    sure = decode([CONFIDENCES], [M] * 4, 3, policy=RevisionPolicy(reveal_threshold=0.66))
    assert sure.actions[0, 0].tolist() == [WAIT, REVEAL, REVEAL, REVEAL]
    none_sure = decode([CONFIDENCES], [M] * 4, 3, policy=RevisionPolicy(reveal_threshold=0.99))
    assert none_sure.actions[0, 0].tolist() == [WAIT, WAIT, REVEAL, WAIT]


def test_blocks_open_from_the_left_and_reopen_when_remasked():
    sure = [0.01, 0.98, 0.01]
    doubt = [0.98, 0.01, 0.01]
    script = [log_probs([sure] * 4), log_probs([doubt, sure, sure, sure]), log_probs([sure] * 4)]
    out = decode(script, [M, M, 2, M], 3, policy=RevisionPolicy(block_length=2), max_steps=9)
    assert out.trajectory[:, 0].tolist() == [
        [M, M, 2, M],  # block 0 is open; position 2, in block 1, may not be doubted yet
        [1, 1, 2, M],  # position 0 is doubted while block 1 reveals
        [M, 1, 2, 1],
        [1, 1, 2, 1],
        [1, 1, 2, 1],
    ]


def test_visible_tokens_of_unopened_blocks_are_left_alone():
    doubt_all = log_probs([[0.9, 0.05, 0.05]] * 4)
    out = decode([doubt_all], [M, 1, 1, 1], 3, policy=RevisionPolicy(block_length=2))
    assert out.actions[0, 0].tolist() == [REVEAL, REMASK, KEEP, KEEP]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reveal_count": 1, "reveal_threshold": 0.5}, "give one of"),
        ({"reveal_within": 1.5}, r"reveal_within must lie in \(0, 1\], got 1.5"),
        ({"reveal_count": 0}, "reveal_count must be at least 1, got 0"),
        ({"reveal_threshold": 0.0}, r"reveal_threshold must lie in \(0, 1\], got 0.0"),
        ({"block_length": 0}, "block_length must be at least 1"),
        ({"margin": math.inf}, "margin must be a finite number, got inf; it is a number of nats"),
        ({"margin": math.nan}, "margin must be a finite number, got nan"),
        ({"remask_cap": -1}, "remask_cap must be 0 or more, got -1"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
    ],
)
def test_bad_policies_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RevisionPolicy(**settings)


ENDING = log_probs([[0.01, 0.01, 0.98], [0.01, 0.59, 0.4], [0.01, 0.79, 0.2]])
"""Three positions over MASK, a word and an end; the first is surest of the end."""


@pytest.mark.parametrize(
    "policy",
    [
        RevisionPolicy(reveal_count=1, sampling=Sampling(late_ids=(2,))),
        RevisionPolicy(reveal_threshold=0.7, sampling=Sampling(late_ids=(2,))),
        Absorbing(sampling=Sampling(late_ids=(2,))),
        Absorbing(order="entropy", sampling=Sampling(late_ids=(2,))),
    ],
)
def test_late_tokens_come_after_all_others(policy):
    out = revise(Scripted([ENDING], 3), torch.zeros(1, 3).long(), policy=policy, max_steps=3)
    assert out.trajectory[1:, 0].tolist() == [[0, 0, 1], [0, 1, 1], [2, 1, 1]]


def test_tokens_that_are_never_revealed_give_way_to_the_next_best():
    policy = RevisionPolicy(reveal_count=1, sampling=Sampling(never_ids=(2,)))
    out = revise(Scripted([ENDING], 3), torch.zeros(1, 3).long(), policy=policy, max_steps=3)
    assert out.tokens.tolist() == [[1, 1, 1]]
    with pytest.raises(ValueError, match="late_ids must be 0 or more, got -1"):
        Sampling(late_ids=(-1,))
