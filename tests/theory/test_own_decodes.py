"""Theorem 1 for rows that are decodes of a frozen snapshot, by listing the toy space. SPEC §3, §6.

The listing is exact: target, first state, decoder, decode, and the state that is looked at.
"""

import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch

from remask.pipeline.checkers import ListedAnswers
from remask.pipeline.decodes import decode_examples, make_draws
from remask.pipeline.format.examples import Examples, Vocabulary
from remask.pipeline.rollout_recipe import DecodeSpread
from remask.training import ObjectiveConfig, oracle_loss
from tests.models.toys import Scripted
from tests.theory.own_decodes import (
    STATES,
    STEPS,
    TEMPERATURES,
    make_snapshot,
    own_outcomes,
    starts,
)
from tests.theory.toy import CLEAN, MASK, POSITIONS, TOKENS, outcomes, sees_all

VOCAB = len(TOKENS) + 1
SNAPSHOT = make_snapshot(1)
SPREAD = DecodeSpread(
    steps=STEPS,
    reveal_within=(1.0,),
    margin=(0.0,),
    temperature=tuple(map(float, TEMPERATURES)),
    patience=1,
)
RIGHT = ListedAnswers(lambda example: np.array(list(CLEAN)), MASK)
KINDS = [("blank", "given"), ("given", "given"), ("given", "nearest_right")]


def as_model(snapshot):
    """A backbone whose beliefs are the snapshot's."""
    logits = torch.tensor([[[math.log(x) for x in y] for y in snapshot[s]] for s in STATES])
    return Scripted(lambda _, tokens: logits[number_of(tokens)], VOCAB)


def number_of(states):
    """Indices into STATES of some states, [..., N]."""
    return (states * VOCAB ** torch.arange(POSITIONS - 1, -1, -1)).sum(-1)


@pytest.mark.parametrize(("start", "targets"), KINDS)
def test_rollout_rows_follow_the_listed_law(start, targets):
    """Draws of the rollout against the exact law of (target, state, past)."""
    expected = defaultdict(float)
    for o in own_outcomes(SNAPSHOT, start=start, targets=targets):
        expected[o.clean, o.state, o.past] += float(o.probability)
    assert sum(expected.values()) == pytest.approx(1, abs=1e-12)
    draws, rng = 50_000, np.random.default_rng(0)
    clean = np.array(list(CLEAN))[rng.choice(len(CLEAN), draws, p=[*map(float, CLEAN.values())])]
    examples = Examples(
        example_ids=[str(i) for i in range(draws)],
        target=clean,
        editable=np.ones(clean.shape, np.bool_),
        lengths=np.full(draws, POSITIONS),
        prompt_lengths=np.zeros(draws, np.int64),
        vocabulary=Vocabulary(VOCAB, MASK),
    )
    rows = decode_examples(
        as_model(SNAPSHOT),
        examples,
        draw_starts(clean, start, rng),
        SPREAD,
        make_draws(SPREAD, draws, rng),
        checker=RIGHT if targets == "nearest_right" else None,
        max_segments=16,
        tokens_per_batch=1 << 20,
    )
    segments = rows.moves.over(rows.target)
    shown = [segments.state_at(k) for k in range(SPREAD.horizon)]
    observed = Counter()
    for row, step in enumerate(rows.moves.step.tolist()):
        states = [tuple(shown[k][row].tolist()) for k in range(step + 1)]
        past = tuple(zip(*states[:-1], strict=True)) or ((),) * POSITIONS
        observed[tuple(rows.target[row].tolist()), states[-1], past] += 1
    assert observed.keys() <= expected.keys()
    # Rare outcomes are pooled, for the statistic needs some draws in each cell.
    cells = defaultdict(lambda: [0.0, 0])
    for key, p in expected.items():
        cell = cells[key if draws * p >= 5 else None]
        cell[0] += draws * p
        cell[1] += observed[key]
    statistic = sum((seen - mean) ** 2 / mean for mean, seen in cells.values())
    freedom = len(cells) - 1
    assert freedom > 50
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


def draw_starts(clean, start, rng):
    """First states of some targets, [B, N], drawn by their listed law."""
    first = np.empty_like(clean)
    for target in CLEAN:
        rows = np.flatnonzero((clean == target).all(1))
        states, shares = zip(*starts(target, start), strict=True)
        chosen = rng.choice(len(states), len(rows), p=[*map(float, shares)])
        first[rows] = np.array(states)[chosen]
    return first


@pytest.mark.parametrize(("start", "targets"), KINDS)
def test_theorem_1_holds_on_the_support_of_own_decodes(start, targets):
    """A table of free logits, fitted by our own loss, against the posterior of the target."""
    listed = list(own_outcomes(SNAPSHOT, start=start, targets=targets))
    posteriors = listed_posteriors(listed)
    support = {sees_all(o) for o in listed}
    unseen = (TOKENS[:POSITIONS], (TOKENS[:POSITIONS],) * POSITIONS)
    assert unseen not in support
    fitted = fit(listed, [*support, unseen])
    assert (fitted[unseen] == 1 / VOCAB).all(), "nothing is learned outside the support"
    for seen in support:
        for i, token in enumerate(seen[0]):
            expected = torch.zeros(VOCAB)
            for target, probability in posteriors[seen].items():
                if token == MASK or token == target[i]:
                    expected[target[i]] += float(probability)
            if token != MASK:  # the atoms {token, MASK}
                expected[MASK] = 1 - expected[token]
            assert (fitted[seen][i] - expected).abs().max() < 0.005


def listed_posteriors(listed):
    """Law of the target given state and past, by summing over all decodes."""
    joint = defaultdict(Counter)
    for o in listed:
        joint[sees_all(o)][o.clean] += o.probability
    return {seen: normalised(law) for seen, law in joint.items()}


def normalised(law):
    total = sum(law.values())
    return {x: p / total for x, p in law.items() if p}


def fit(listed, seen, steps=1000, rate=2.0):
    """Minimise the mean of our loss over a law; {seen: probabilities [N, V]}, uniform at first."""
    rows = Counter()
    for o in listed:
        rows[sees_all(o), o.clean] += float(o.probability)
    number = {x: i for i, x in enumerate(seen)}
    index = torch.tensor([number[x] for x, _ in rows])
    state = torch.tensor([x[0] for x, _ in rows])
    target = torch.tensor([clean for _, clean in rows])
    probability = torch.tensor([*rows.values()])
    total = torch.zeros(len(number)).index_add_(0, index, probability).clamp(min=1e-30)
    share = probability / total[index]  # each state and past by itself, or rare ones would be slow
    table = torch.zeros(len(number), POSITIONS, VOCAB)
    for _ in range(steps):
        gradient = row_gradients(table[index], state, target) * share[:, None, None]
        table.index_add_(0, index, gradient, alpha=-rate)
    return {x: table[i].softmax(-1) for x, i in number.items()}


def row_gradients(logits, state, target):
    """Gradient of our loss, summed over positions, with respect to each row's logits, [R, N, V]."""
    logits = logits.detach().requires_grad_()
    everywhere = torch.ones_like(state, dtype=torch.bool)
    mean = oracle_loss(
        lambda x: x,
        logits,
        state=state,
        target=target,
        rejected=target,
        moves=everywhere,
        editable=everywhere,
        mask_id=MASK,
        vocab_size=VOCAB,
        config=ObjectiveConfig(),
    ).total
    return torch.autograd.grad(mean, logits)[0] * state.numel()


@pytest.mark.parametrize("start", ["blank", "given"])
def test_the_past_of_an_own_decode_tells_of_the_target_what_its_start_tells(start):
    """With given targets x* reaches a decoder through the first state alone, so Bayes on that state
    gives the posterior, without any decode."""
    for (state, past), law in listed_posteriors(own_outcomes(SNAPSHOT, start=start)).items():
        first = tuple(path[0] for path in past) if past[0] else state
        joint = {x: p * dict(starts(x, start)).get(first, 0) for x, p in CLEAN.items()}
        assert law == normalised(joint)


def test_under_nearest_right_targets_the_past_tells_more_than_the_start():
    law = listed_posteriors(own_outcomes(SNAPSHOT, start="blank", targets="nearest_right"))
    assert len({tuple(sorted(x.items())) for x in law.values()}) > 3


def test_the_gradient_of_a_round_is_the_mean_of_its_rows_gradients():
    """True of a frozen snapshot. If the decodes followed the weights being trained, the objective
    would also change through the law of its states, which no row's gradient shows."""
    generator = torch.Generator().manual_seed(0)
    shape = (len(STATES), POSITIONS, VOCAB)
    weights = torch.tensor([[[math.log(x) for x in y] for y in SNAPSHOT[s]] for s in STATES])
    weights = weights.double()
    direction = torch.randn(shape, generator=generator).double()

    def decoded_by(weights):
        values = weights.exp().tolist()
        return list(own_outcomes(dict(zip(STATES, values, strict=True))))

    def objective(weights, listed):
        log_probs = weights.log_softmax(-1).tolist()
        return -sum(
            o.probability * log_probs[STATES.index(o.state)][i][o.label(i)]
            for o in listed
            for i in range(POSITIONS)
        )

    def slope(law_of):
        ahead, behind = weights + 1e-4 * direction, weights - 1e-4 * direction
        return (objective(ahead, law_of(ahead)) - objective(behind, law_of(behind))) / 2e-4

    listed = decoded_by(weights)
    state = torch.tensor([o.state for o in listed])
    target = torch.tensor([o.clean for o in listed])
    probability = torch.tensor([float(o.probability) for o in listed]).double()
    number = number_of(state)
    rows = row_gradients(weights[number], state, target) * probability[:, None, None]
    mean = torch.zeros_like(weights).index_add_(0, number, rows)
    expected = float((mean * direction).sum())
    assert slope(lambda _: listed) == pytest.approx(expected, abs=1e-5)
    assert abs(slope(decoded_by) - expected) > 0.01


def test_another_snapshot_has_another_law():
    first, second = Counter(), Counter()
    for law, snapshot in ((first, SNAPSHOT), (second, make_snapshot(2))):
        for o in own_outcomes(snapshot):
            law[sees_all(o), o.clean] += o.probability
    distance = sum(abs(first[x] - second[x]) for x in {*first, *second}) / 2
    assert distance > Fraction(1, 10)


@pytest.mark.parametrize("start", ["blank", "given"])
def test_only_own_decodes_show_that_a_revealed_token_may_be_wrong(start):
    """Under the paper's rules whatever follows a MASK is right, so a model that sees its past
    learns never to doubt its own reveals."""
    assert wrong_reveals(outcomes()) == {Fraction(0)}
    assert min(wrong_reveals(own_outcomes(SNAPSHOT, start=start))) > 0


def wrong_reveals(listed):
    """Probabilities that a token is wrong given state and past, where it was revealed in them."""
    joint = defaultdict(Counter)
    for o in listed:
        for i, token in enumerate(o.state):
            if token != MASK and MASK in o.past[i]:
                joint[i, sees_all(o)][token != o.clean[i]] += o.probability
    assert joint
    return {normalised(law).get(True, Fraction(0)) for law in joint.values()}
