"""The baseline decoders against plain loops written from their descriptions."""

import math

import pytest
import torch

from remask.models import P2, Absorbing, Action, ReMDM, Sampling, revise
from tests.models.toys import Scripted

M, V = 0, 6


def static_beliefs(batch, positions, seed=0):
    """A model whose beliefs depend on the position only, so a decode can be worked out by hand."""
    logits = torch.randn(positions, V, generator=torch.Generator().manual_seed(seed))
    return Scripted([logits], V), logits, torch.full((batch, positions), M)


def llada_order(logits, positions, steps, block_length):
    """Which positions LLaDA's low-confidence sampler reveals at each step: a set per step."""
    probs = logits[:, 1:].softmax(-1).amax(-1).tolist()  # MASK suppressed
    num_blocks = math.ceil(positions / block_length)
    per_block = steps // num_blocks
    plan = []
    for block in range(num_blocks):
        left = list(range(block * block_length, min(positions, (block + 1) * block_length)))
        masks = len(left)
        for step in range(per_block):
            budget = masks // per_block + (step < masks % per_block)
            chosen = sorted(left, key=lambda i: -probs[i])[:budget]
            left = [i for i in left if i not in chosen]
            plan.append(set(chosen))
    return plan


@pytest.mark.parametrize(
    ("positions", "steps", "block_length"),
    [(12, 12, 12), (12, 6, 4), (12, 5, 12), (10, 4, 5), (12, 24, 6), (7, 3, 7), (8, 4, 2)],
)
def test_absorbing_reveals_what_llada_does(positions, steps, block_length):
    backbone, logits, tokens = static_beliefs(1, positions)
    policy = Absorbing(block_length=block_length)
    out = revise(backbone, tokens, policy=policy, max_steps=steps)
    actual = [
        set((action[0] == Action.REVEAL).nonzero().flatten().tolist()) for action in out.actions
    ]
    plan = llada_order(logits, positions, steps, block_length)
    while plan and not plan[-1]:
        plan.pop()  # we stop when nothing is masked
    assert actual == plan
    assert torch.equal(out.tokens[0], logits[:, 1:].argmax(-1) + 1)
    assert out.stats.remasked.tolist() == [0]


def test_absorbing_rows_with_different_numbers_of_blocks_all_finish():
    backbone, _, tokens = static_beliefs(2, 9)
    editable = torch.ones_like(tokens, dtype=torch.bool)
    editable[1, 4:] = False
    tokens = torch.where(editable, M, 1)
    out = revise(backbone, tokens, editable, policy=Absorbing(block_length=3), max_steps=7)
    assert (out.tokens != M).all()
    assert out.stats.left_masked.tolist() == [0, 0]


def test_absorbing_needs_a_step_per_block():
    backbone, _, tokens = static_beliefs(1, 9)
    with pytest.raises(ValueError, match="3 blocks of 3 need at least as many steps, .* 2"):
        revise(backbone, tokens, policy=Absorbing(block_length=3), max_steps=2)


def test_absorbing_orders_differ_in_what_goes_first():
    # Position 0: high top probability, little lead; 1: the other way round in entropy.
    probs = torch.tensor(
        [[1e-9, 0.5, 0.48, 0.02, 1e-9, 1e-9], [1e-9, 0.45, 0.14, 0.14, 0.14, 0.13]]
    )
    first = {}
    for order in ("low_confidence", "entropy", "margin"):
        backbone = Scripted([probs.log()], V)
        tokens = torch.zeros(1, 2, dtype=torch.long)
        out = revise(backbone, tokens, policy=Absorbing(order=order), max_steps=2)
        first[order] = int((out.actions[0, 0] == Action.REVEAL).nonzero()[0])
    assert first == {"low_confidence": 0, "entropy": 0, "margin": 1}


def remdm_rates(policy, step, steps):
    """(σ, reveal probability) at a step from ReMDM's description, for the kinds without memory."""

    def alpha(t):
        if policy.kind != "loop":
            return 1 - t
        if t > policy.turn_on:
            return (1 - t) * policy.alpha_on / (1 - policy.turn_on)
        if t > policy.turn_off:
            return policy.alpha_on
        return 1 - t * (1 - policy.alpha_on) / policy.turn_off

    t, s = (steps - step) / steps, (steps - step - 1) / steps
    at, as_ = alpha(t), alpha(s)
    largest = 1.0 if at == 0 else min(1.0, (1 - as_) / at)
    if policy.kind == "cap":
        sigma = min(policy.eta, largest)
    elif policy.kind == "rescale":
        sigma = policy.eta * largest
    else:
        sigma = min(policy.eta, largest) if policy.turn_off < t <= policy.turn_on else 0.0
    return sigma, (as_ - (1 - sigma) * at) / (1 - at)


@pytest.mark.parametrize(
    "policy",
    [ReMDM(kind="cap", eta=0.1), ReMDM(kind="rescale", eta=0.2), ReMDM(kind="loop", eta=0.1)],
    ids=lambda policy: policy.kind,
)
def test_remdm_remasks_and_reveals_at_its_rates(policy):
    backbone, _, tokens = static_beliefs(300, 40)
    steps = 8
    out = revise(backbone, tokens, policy=policy, max_steps=steps)
    for step, (state, action) in enumerate(zip(out.trajectory, out.actions, strict=False)):
        sigma, reveal = remdm_rates(policy, step, steps)
        for rate, of, did in (
            (sigma, state != M, action == Action.REMASK),
            (reveal, state == M, action == Action.REVEAL),
        ):
            count = int(of.sum())
            spread = 5 * math.sqrt(max(rate * (1 - rate), 1e-9) * max(count, 1))
            assert abs(int(did.sum()) - rate * count) <= spread + 1e-6, (step, rate)
    assert out.stats.left_masked.sum() == 0


@pytest.mark.parametrize(
    ("policy", "shares"),
    [
        (ReMDM(kind="cap", eta=0.1), [0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0]),
        (ReMDM(kind="rescale", eta=0.2), [0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0]),
        (ReMDM(kind="loop", eta=0.1), [0.25, 0.5, 0.75, 0.9, 0.9, 0.9, 0.9, 1.0]),
    ],
    ids=["cap", "rescale", "loop"],
)
def test_remdm_keeps_to_the_share_its_schedule_says_is_visible(policy, shares):
    """Re-masking and revealing must balance: worked out by hand from α at each step's end."""
    backbone, _, tokens = static_beliefs(300, 40)
    out = revise(backbone, tokens, policy=policy, max_steps=8)
    actual = [(state != M).double().mean().item() for state in out.trajectory[1:]]
    assert actual == pytest.approx(shares, abs=0.025)  # five standard errors at n = 12,000


@pytest.mark.parametrize("steps", [20, 40, 60, 100, 200])
def test_remdm_loops_between_its_two_times_exactly(steps):
    backbone, _, tokens = static_beliefs(40, 40)
    out = revise(backbone, tokens, policy=ReMDM(kind="loop", eta=0.3), max_steps=steps)
    looped = [k for k, action in enumerate(out.actions) if (action == Action.REMASK).any()]
    times = [(steps - k) / steps for k in looped]
    assert min(times) > 0.05
    assert max(times) <= 0.55
    assert len(looped) == steps // 2


def test_remdm_conf_remasks_what_was_revealed_with_little_confidence():
    sure, unsure = torch.tensor([-9.0, 5, 0, 0, 0, 0]), torch.tensor([-9.0, 0.3, 0.2, 0.1, 0, 0])
    backbone = Scripted([torch.stack([sure, unsure] * 10)], V)
    tokens = torch.zeros(400, 20, dtype=torch.long)
    policy = ReMDM(kind="conf", sampling=Sampling(temperature=1.0))
    out = revise(backbone, tokens, policy=policy, max_steps=6)
    remasked = (out.actions == Action.REMASK).sum((0, 1))
    assert remasked[1::2].sum() > 1.5 * remasked[::2].sum() > 0
    # The shares of σ_max add up to σ_max over the visible: about one re-mask in all at most a step.
    for step, (state, action) in enumerate(zip(out.trajectory, out.actions, strict=False)):
        visible = (state != M).any(-1).sum()
        t = 1 - step / 6
        largest = 1.0 if t == 1 else min(1.0, (5 - step) / step)
        expected = float(largest * visible)
        assert abs(float((action == Action.REMASK).sum()) - expected) <= 5 * expected**0.5 + 1e-6


def test_p2_keeps_the_best_share_at_each_step():
    backbone, logits, tokens = static_beliefs(1, 10)
    out = revise(backbone, tokens, policy=P2(sampling=Sampling()), max_steps=4)
    best = logits[:, 1:].softmax(-1).amax(-1).argsort(descending=True).tolist()
    for step, state in enumerate(out.trajectory[1:]):
        num_masked = math.floor((1 - (step + 1) / 4) * 10)
        assert set((state[0] != M).nonzero().flatten().tolist()) == set(best[: 10 - num_masked])


def test_p2_remasks_what_falls_behind():
    first = torch.tensor([[-9.0, 3, 0], [-9.0, 1, 0]])
    second = torch.tensor([[-9.0, 0, 0.1], [-9.0, 5, 0]])
    third = torch.tensor([[-9.0, 0, 4], [-9.0, 5, 0]])
    out = revise(
        Scripted([first, second, second, third], 3),
        torch.zeros(1, 2, dtype=torch.long),
        policy=P2(sampling=Sampling()),
        max_steps=4,
    )
    assert out.trajectory[:, 0].tolist() == [[M, M], [1, M], [M, 1], [2, 1], [2, 1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Absorbing(order="best"), "order must be one of .* got 'best'"),
        (lambda: Absorbing(block_length=0), "block_length must be at least 1, got 0"),
        (lambda: ReMDM(kind="max"), "kind must be one of .* got 'max'"),
        (lambda: ReMDM(eta=2.0), r"eta must lie in \[0, 1\], got 2.0"),
        (lambda: ReMDM(turn_on=0.01), "turn_off must lie below turn_on, got 0.05 and 0.01"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
