"""The loop's promises, on scripted beliefs and on a real small model."""

import math

import pytest
import torch

from remask.models import (
    P2,
    Absorbing,
    Action,
    HistoryConfig,
    ReMDM,
    RevisionPolicy,
    Sampling,
    SudokuConfig,
    SudokuMDM,
    revise,
)
from tests.models.toys import Scripted, decode, log_probs

M = 0  # MASK
KEEP, REMASK, REVEAL, WAIT = Action

POLICIES = {
    "all": RevisionPolicy(),
    "top_k": RevisionPolicy(reveal_count=2, remask_cap=1),
    "threshold in blocks": RevisionPolicy(reveal_threshold=0.5, block_length=5, margin=0.1),
    "released": RevisionPolicy(**RevisionPolicy.PRESETS["released"]),
    "sampled": RevisionPolicy(sampling=Sampling(temperature=0.7, top_p=0.9), patience=3),
    "low confidence": Absorbing(),
    "random in blocks": Absorbing(order="random", block_length=4),
    "entropy": Absorbing(order="entropy"),
    "margin": Absorbing(order="margin", sampling=Sampling(temperature=1.0)),
    "remdm cap": ReMDM(kind="cap", eta=0.2),
    "remdm rescale": ReMDM(kind="rescale", eta=0.3),
    "remdm conf": ReMDM(kind="conf"),
    "remdm loop": ReMDM(kind="loop", eta=0.2),
    "p2": P2(),
}


@pytest.fixture(scope="module")
def starts():
    return torch.randint(0, 5, (9, 16), generator=torch.Generator().manual_seed(1))


# Ending -----------------------------------------------------------------------------------------


def test_masks_left_at_the_end_are_revealed_in_a_closing_step():
    script = [log_probs([[0.1, 0.5, 0.4]] * 3)]
    policy = RevisionPolicy(reveal_count=1)
    out = decode(script, [M, M, M], 3, policy=policy, max_steps=2)
    assert out.tokens.tolist() == [[1, 1, 1]]
    assert out.stats.left_masked.tolist() == [1]
    assert out.stats.forward_passes.tolist() == [3]
    assert out.actions[-1, 0].tolist() == [KEEP, KEEP, REVEAL]


@pytest.mark.parametrize("patience", [1, 2, 4])
def test_a_row_ends_after_patience_idle_steps(patience):
    policy = RevisionPolicy(patience=patience)
    out = decode([log_probs([[0.1, 0.9]])], [1], 2, policy=policy, max_steps=10)
    assert out.stats.forward_passes.tolist() == [patience]


def test_finished_rows_leave_the_batch():
    def script(call, tokens):  # reveal at once; doubt token 2 at every step
        doubted = (tokens == 2).float()
        return torch.stack([5 * doubted, 1 - doubted, torch.full_like(doubted, 0.9)], -1)

    backbone = Scripted(script, 3)
    out = revise(backbone, torch.tensor([[1], [2], [1]]), max_steps=4)
    assert backbone.batch_sizes == [3, 1, 1]
    assert out.stats.forward_passes.tolist() == [1, 3, 1]
    assert out.trajectory[:, 0, 0].tolist() == [1] * 4


def test_nothing_editable_costs_nothing_and_changes_nothing(model, starts):
    tokens = starts.clamp(min=1)
    editable = torch.zeros_like(tokens, dtype=torch.bool)
    editable[0] = True
    out = revise(model, tokens, editable, max_steps=3)
    assert torch.equal(out.tokens[1:], tokens[1:])
    assert out.stats.forward_passes[1:].tolist() == [0] * 8


def test_empty_batch_gives_an_empty_result(model):
    out = revise(model, torch.zeros(0, 16, dtype=torch.long), max_steps=3)
    assert out.tokens.shape == (0, 16)
    assert out.trajectory.shape == (1, 0, 16)
    assert out.actions.shape == (0, 0, 16)


# Promises of the loop, for every policy ---------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_batch_size_and_row_order_do_not_matter(model, starts, policy):
    whole = revise(model, starts, policy=policy, max_steps=8, seed=3)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
    for batch_size in (1, 2, 4):
        part = revise(
            model,
            starts[order],
            policy=policy,
            max_steps=8,
            seed=3,
            row_ids=order,
            batch_size=batch_size,
        )
        assert torch.equal(part.tokens, whole.tokens[order])
        assert torch.equal(part.stats.forward_passes, whole.stats.forward_passes[order])
        assert torch.equal(part.trajectory, whole.trajectory[: len(part.trajectory), order])


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_trajectory_replays_from_the_actions(model, starts, policy):
    editable = torch.rand(starts.shape, generator=torch.Generator().manual_seed(5)) < 0.8
    editable |= starts == M
    out = revise(model, starts, editable, policy=policy, max_steps=8)
    assert torch.equal(out.trajectory[0].long(), starts)
    assert torch.equal(out.trajectory[-1].long(), out.tokens)
    for before, after, action in zip(out.trajectory, out.trajectory[1:], out.actions, strict=False):
        assert torch.equal(before == M, (action == REVEAL) | (action == WAIT))
        assert torch.equal(after == M, (action == REMASK) | (action == WAIT))
        stays = (action == KEEP) | (action == WAIT)
        assert torch.equal(after[stays], before[stays])
        assert (action[~editable] == KEEP).all()
    assert (out.tokens[editable] != M).all()
    assert torch.equal(out.tokens[~editable], starts[~editable])
    assert torch.equal(out.stats.remasked, (out.actions == REMASK).sum((0, 2)))
    assert torch.equal(out.stats.revealed, (out.actions == REVEAL).sum((0, 2)))
    for row, steps in enumerate(out.stats.steps.tolist()):
        assert (out.actions[steps:, row] == KEEP).all()


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_seeds_repeat_and_differ(model, policy):
    masked = torch.zeros(4, 16, dtype=torch.long)
    first = revise(model, masked, policy=policy, max_steps=8, seed=1)
    again = revise(model, masked, policy=policy, max_steps=8, seed=1)
    other = revise(model, masked, policy=policy, max_steps=8, seed=2)
    assert torch.equal(first.trajectory, again.trajectory)
    draws = policy.sampling.temperature > 0 or getattr(policy, "order", "") == "random"
    assert torch.equal(first.trajectory, other.trajectory) != draws


@pytest.mark.parametrize("variant", ["none", "hr", "hr+decay", "hr+decay+her", "absolute"])
@pytest.mark.parametrize("window", [None, 2])
def test_every_history_survives_rows_leaving(model, starts, variant, window):
    history = HistoryConfig(variant=variant, window=window)
    policy = RevisionPolicy(margin=0.6)  # some rows settle, others do not
    whole = revise(model, starts, history=history, policy=policy, max_steps=10)
    assert len(set(whole.stats.steps.tolist())) > 1, "rows must end at different steps"
    alone = revise(model, starts, history=history, policy=policy, max_steps=10, batch_size=1)
    assert torch.equal(alone.tokens, whole.tokens)


def test_padding_is_neither_attended_to_nor_changed(model, starts):
    tokens = starts.clamp(min=1)
    attention = torch.ones_like(tokens, dtype=torch.bool)
    attention[:, 12:] = False
    other = tokens.clone()
    other[:, 12:] = 1
    policy = RevisionPolicy(block_length=5)
    first = revise(model, tokens, attention_mask=attention, policy=policy, max_steps=6)
    second = revise(model, other, attention_mask=attention, policy=policy, max_steps=6)
    assert torch.equal(first.tokens[:, :12], second.tokens[:, :12])
    assert torch.equal(first.tokens[:, 12:], tokens[:, 12:])


def test_results_can_be_used_in_training(model, starts):
    out = revise(model, starts, max_steps=2)
    model.logits(model.embed(out.tokens)).sum().backward()
    out.tokens[0, 0] = 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_of_other_types_revise(starts, dtype):
    torch.manual_seed(0)
    config = SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)
    out = revise(SudokuMDM(config).to(dtype), starts, max_steps=4)
    assert (out.tokens > 0).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int32])
def test_narrow_tokens_give_the_same_and_keep_their_type(model, starts, dtype):
    out = revise(model, starts.to(dtype), max_steps=4)
    assert out.tokens.dtype == dtype
    assert torch.equal(out.tokens.long(), revise(model, starts, max_steps=4).tokens)


def test_a_policy_cannot_leave_masks_by_giving_up():
    class GivesUp(RevisionPolicy):
        def act(self, observation):
            nowhere = torch.zeros_like(observation.is_masked)
            return nowhere, nowhere

    out = decode([log_probs([[0.1, 0.9]])], [M], 2, policy=GivesUp(), max_steps=3)
    assert out.tokens.tolist() == [[1]]
    assert out.stats.left_masked.tolist() == [1]


def test_history_defaults_to_the_backbones_own(starts):
    torch.manual_seed(0)
    config = SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)
    model = SudokuMDM(config, HistoryConfig(decay=0.3)).eval()
    own = revise(model, starts, max_steps=8)
    named = revise(model, starts, history=HistoryConfig(decay=0.3), max_steps=8)
    other = revise(model, starts, history=HistoryConfig(variant="none"), max_steps=8)
    assert torch.equal(own.trajectory, named.trajectory)
    assert not torch.equal(own.trajectory, other.trajectory)


def test_prompts_have_no_past_where_the_history_says_so(model, starts, monkeypatch):
    seen, hidden = [], model.hidden
    monkeypatch.setattr(model, "hidden", lambda x, **more: seen.append(x) or hidden(x, **more))
    starts = starts.clamp(min=1)
    editable = torch.arange(starts.numel()).view_as(starts) % 2 == 0
    history = HistoryConfig(norm="match", positions="editable")
    out = revise(model, starts, editable, history=history, max_steps=4, batch_size=1)
    assert len(seen) > len(starts)  # some rows took several steps
    row, step = 0, 0
    for embeds in seen:
        if step == out.stats.steps[row]:
            row, step = row + 1, 0
        given = ~editable[row]
        assert torch.equal(embeds[0, given], model.embed(starts[row, given]))
        step += 1


# Bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinite_logits_are_refused(value):
    def script(call, tokens):
        logits = torch.zeros(*tokens.shape, 3)
        logits[tokens == 2] = value if call == 1 else 0.0
        return logits

    tokens = torch.tensor([[M, 1], [M, 2]])
    policy = RevisionPolicy(patience=5)
    with pytest.raises(ValueError, match=r"infinite logits at step 1, row 1, position 1; check"):
        revise(Scripted(script, 3), tokens, policy=policy, max_steps=4)


def test_nothing_to_reveal_is_refused():
    with pytest.raises(ValueError, match="infinite logits at step 0, row 0, position 0"):
        decode([torch.tensor([[0.0, -math.inf, -math.inf]])], [M], 3)


def test_ruled_out_tokens_are_fine():
    out = decode([torch.tensor([[0.0, -math.inf, 1.0]])], [M], 3)
    assert out.tokens.tolist() == [[2]]


def test_bad_starts_are_refused(model, starts):
    def refuse(match, tokens=starts, editable=None, **settings):
        with pytest.raises(ValueError, match=match):
            revise(model, tokens, editable, **({"max_steps": 2} | settings))

    refuse(r"tokens must be integers \[B, N\], got torch.float32", starts.float())
    refuse(r"tokens must be integers \[B, N\]", starts[0])
    refuse(r"tokens must be ids below 5; got 7 at \[0, 0\]", torch.full((1, 16), 7))
    refuse(r"editable must be bool \[9, 16\] like tokens, got torch.int64", editable=starts)
    refuse(r"editable must be bool \[9, 16\]", editable=torch.ones(9, 15, dtype=torch.bool))
    refuse("MASK is allowed only at editable positions", editable=starts > 99)
    refuse("attention_mask must be bool", attention_mask=starts)
    refuse(r"row_ids must be \[9\], got \[3\]", row_ids=torch.arange(3))
    refuse("max_steps must be at least 1, got 0", max_steps=0)
    refuse("batch_size must be at least 1, got 0", batch_size=0)
    refuse(r"seed must lie in \[0, 2\^63\), got -1", seed=-1)
    attention = torch.ones_like(starts, dtype=torch.bool)
    attention[0, 3] = False
    everywhere = torch.ones_like(attention)
    refuse("padding must not be editable", starts, everywhere, attention_mask=attention)
    refuse("board has 16 cells, got 20", torch.ones(2, 20, dtype=torch.long))
