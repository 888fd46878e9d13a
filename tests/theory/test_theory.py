"""The paper's theorems by listing a toy space. SPEC §6; numbering as in the paper's appendix."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remask.models import HistoryConfig
from remask.models.history import HistoryState
from remask.pipeline import (
    TopK,
    TrajectoryConfig,
    objective_shift_bound,
    sample_trajectories,
    wrong_digit,
)
from remask.training import ObjectiveConfig, oracle_loss
from remask.training.objective import StateWeights
from tests.theory.toy import (
    CLEAN,
    HORIZON,
    MASK,
    POSITIONS,
    TOKENS,
    WRONG_SHARE,
    label_law,
    outcomes,
    sees_all,
    sees_state,
    uniform,
)

VOCAB = len(TOKENS) + 1


def accumulated(outcome, weight):
    """What the model gets: the state's accumulated embedding, rounded to be comparable."""
    history = HistoryState(HistoryConfig(decay=0.8), weight)
    for k in range(outcome.step + 1):
        acc = history.update(torch.tensor([[path[k] for path in outcome.paths]]))
    return tuple(acc.flatten().mul(1e4).round().tolist())


def test_probabilities_sum_to_one():
    assert sum(outcome.probability for outcome in outcomes()) == 1


def test_sampler_follows_the_listed_law():
    """Draws of the pipeline's sampler against exact laws of (x*, first state, t, state)."""
    expected = defaultdict(float)
    for o in outcomes():
        first = tuple(path[0] for path in o.paths)
        expected[o.clean, first, o.step, o.state] += float(o.probability)
    rng = np.random.default_rng(0)
    draws = 200_000
    clean = np.array(list(CLEAN))
    target = clean[rng.choice(len(clean), draws, p=[float(p) for p in CLEAN.values()])]
    rules = {"wrong": float(WRONG_SHARE), "mask": 1 - float(WRONG_SHARE)}
    law = TrajectoryConfig(horizon=HORIZON, noisy_rate=(1, 1), rules=rules)
    everywhere, proposal = np.ones(target.shape, np.bool_), wrong_digit(len(TOKENS))
    rows = sample_trajectories(target, everywhere, proposal, law, rng, mask_id=MASK)
    first, state = rows.state_at(0), rows.state_at(rows.step)
    observed = Counter(
        zip(*(map(tuple, x.tolist()) for x in (target, first)), rows.step.tolist(),
            map(tuple, state.tolist()), strict=True)
    )  # fmt: skip
    assert observed.keys() <= expected.keys()
    statistic = sum((observed[k] - draws * p) ** 2 / (draws * p) for k, p in expected.items())
    freedom = len(expected) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


def test_theorem_1_the_oracle_loss_recovers_the_label_law():
    """A table of free logits, fitted by our own loss to the whole space, ends at P*."""
    check_minimiser(ObjectiveConfig(), sees_all, label_law(sees_all))


def test_theorem_1_holds_whatever_masked_positions_weigh():
    """Whether a position is masked can be seen, so its weight cannot favour one of its labels."""
    config = ObjectiveConfig(state_weights=StateWeights(reveal=3.0, mask=0.5, keep=0.5))
    for see in (sees_all, sees_state):
        check_minimiser(config, see, label_law(see))


def test_weights_of_wrong_and_right_tokens_tilt_the_odds_of_mask_by_their_ratio():
    """Whether a visible token is right cannot be seen: the minimiser is P* with other odds."""
    config = ObjectiveConfig(state_weights=StateWeights(mask=3.0, keep=0.5))
    law, largest = {}, 0.0
    for (i, state), (labels, probability) in label_law(sees_state).items():
        if state[i] != MASK:
            weighted = {k: float(p) * (3.0 if k == MASK else 0.5) for k, p in labels.items()}
            tilted = {k: p / sum(weighted.values()) for k, p in weighted.items()}
            largest = max(largest, *(abs(tilted[k] - float(labels[k])) for k in labels))
            labels = tilted
        law[i, state] = labels, probability
    assert largest > 0.2
    check_minimiser(config, sees_state, law)


def check_minimiser(config, see, law):
    """Fit a table of free logits to the whole space, and compare it with a law of labels."""
    seen = sorted({x for _, x in law})
    index, states, targets, copies = [], [], [], []
    unit = math.lcm(*(o.probability.denominator for o in outcomes()))
    for o in outcomes():
        index.append(seen.index(see(o)))
        states.append(o.state)
        targets.append(o.clean)
        copies.append(int(o.probability * unit))  # so many rows weigh it exactly
    copies = torch.tensor(copies)
    index, state, target = (
        torch.tensor(x).repeat_interleave(copies, 0) for x in (index, states, targets)
    )
    table = torch.zeros(len(seen), POSITIONS, VOCAB, requires_grad=True)
    optimizer = torch.optim.LBFGS([table], lr=1, max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = oracle_loss(
            lambda logits: logits,
            table[index],
            state=state,
            target=target,
            rejected=target,
            moves=torch.ones_like(state, dtype=torch.bool),
            editable=torch.ones_like(state, dtype=torch.bool),
            mask_id=MASK,
            vocab_size=VOCAB,
            config=config,
        ).total
        value.backward()
        return value

    optimizer.step(loss)
    fitted = table.detach().softmax(-1)
    for (i, x), (labels, probability) in law.items():
        expected = torch.tensor([float(labels.get(v, 0)) for v in range(VOCAB)])
        assert (fitted[seen.index(x), i] - expected).abs().max() < 0.02, float(probability)


def test_proposition_2_visible_positions_carry_a_belief_in_the_token():
    for (i, (state, past)), (labels, _) in label_law(sees_all).items():
        if state[i] == MASK:
            continue
        matching = [o for o in outcomes() if sees_all(o) == (state, past)]
        total = sum(o.probability for o in matching)
        alpha = sum(o.probability for o in matching if o.clean[i] == state[i]) / total
        assert labels.keys() <= {state[i], MASK}
        assert labels.get(state[i], 0) == alpha
        assert labels.get(MASK, 0) == 1 - alpha


def test_proposition_3_masked_positions_carry_the_posterior():
    for (i, (state, past)), (labels, _) in label_law(sees_all).items():
        if state[i] != MASK:
            continue
        matching = [o for o in outcomes() if sees_all(o) == (state, past)]
        total = sum(o.probability for o in matching)
        for token in TOKENS:
            posterior = sum(o.probability for o in matching if o.clean[i] == token) / total
            assert labels.get(token, 0) == posterior
        assert MASK not in labels


def bayes_risk(see):
    """Least probability, averaged over positions, of not taking the oracle's action."""
    return sum(p * (1 - max(labels.values())) for labels, p in label_law(see).values()) / POSITIONS


def test_proposition_4_history_never_hurts_and_here_helps():
    weight = torch.randn(VOCAB, 8, generator=torch.Generator().manual_seed(0))
    full, none = bayes_risk(sees_all), bayes_risk(sees_state)
    ours = bayes_risk(lambda o: (o.state, accumulated(o, weight)))
    assert full <= ours <= none
    assert ours < none, "on this space the accumulated embedding tells more than the state"


@given(st.integers(0, 2**32), st.sampled_from([0.1, 0.5, 3.0]))
def test_theorem_2_excess_risk_is_at_most_twice_the_distance(seed, spread):
    rng = np.random.default_rng(seed)
    excess = distance = 0.0
    for labels, probability in label_law(sees_state).values():
        best = np.array([float(labels.get(v, 0)) for v in range(VOCAB)])
        model = rng.dirichlet(np.full(VOCAB, spread))
        excess += float(probability) * (best.max() - best[model.argmax()])
        distance += float(probability) * 0.5 * np.abs(model - best).sum()
    assert excess / POSITIONS <= 2 * distance / POSITIONS + 1e-12


@pytest.mark.parametrize("epsilon", [0.1, 1e-3, 1e-6])
def test_theorem_2_is_tight(epsilon):
    best, model = np.array([1.0, 0.0]), np.array([0.5 - epsilon, 0.5 + epsilon])
    excess = best.max() - best[model.argmax()]
    distance = 0.5 * np.abs(model - best).sum()
    assert excess == 1
    assert excess <= 2 * distance <= 1 + 2 * epsilon + 1e-12


@given(st.integers(0, 2**32))
def test_layer_3_bounds_the_shift_of_the_objective(seed):
    """The exact loss of one model under two proposals differs by no more than the bound."""
    rng = np.random.default_rng(seed)
    guesses = {x: dict(zip(uniform(x), rng.dirichlet([0.3, 0.3]), strict=True)) for x in TOKENS}
    model = defaultdict(lambda: rng.dirichlet(np.full(VOCAB, 0.2)))

    def objective(proposal):
        return sum(
            float(o.probability)
            * sum(-math.log(max(model[i, o.state][o.label(i)], 1e-8)) for i in range(POSITIONS))
            for o in outcomes(proposal)
        )

    # The same guesses as the pipeline caches them.
    clean = np.array(list(CLEAN))
    candidates = np.array([[list(guesses[x]) for x in row] for row in clean.tolist()])
    probs = np.array([[list(guesses[x].values()) for x in row] for row in clean.tolist()])
    proposal = TopK(candidates, np.log(np.maximum(probs, 1e-300)), num_allowed=len(TOKENS))
    row, position = np.nonzero(np.ones(clean.shape))
    distance = proposal.distance(clean[row, position], row, position).reshape(clean.shape).sum(1)
    weights = np.array([float(p) for p in CLEAN.values()]) * len(CLEAN)
    bound = objective_shift_bound(
        np.full(len(clean), POSITIONS), distance * weights, wrong_rate=float(WRONG_SHARE)
    )
    shift = abs(objective(uniform) - objective(guesses.__getitem__))
    assert shift <= bound
    assert bound > 0
