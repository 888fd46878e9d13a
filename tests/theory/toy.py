"""A space small enough to list: every trajectory, with its exact probability.

Two positions, three tokens, three steps. Written from the paper's sampling order, without the
sampler, which is then tested against it.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import product

MASK = 0
TOKENS = (1, 2, 3)
POSITIONS, HORIZON = 2, 3
WRONG_SHARE = Fraction(1, 2)
CLEAN = {(1, 1): Fraction(1, 2), (1, 2): Fraction(1, 4), (3, 2): Fraction(1, 4)}
"""p(x*)."""


@dataclass(frozen=True)
class Outcome:
    """One draw of everything random."""

    probability: Fraction
    clean: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]
    """Tokens over steps 0 .. T-1, for each position."""
    step: int

    @property
    def state(self):
        return tuple(path[self.step] for path in self.paths)

    @property
    def past(self):
        return tuple(path[: self.step] for path in self.paths)

    def label(self, i):
        """τ, as the paper prints it."""
        token = self.state[i]
        return MASK if token not in (MASK, self.clean[i]) else self.clean[i]


def uniform(clean):
    """ν: every other token alike."""
    others = [w for w in TOKENS if w != clean]
    return {w: Fraction(1, len(others)) for w in others}


def outcomes(proposal=uniform):
    """All outcomes. `proposal` maps a token to {wrong: probability}."""
    for clean, p_clean in CLEAN.items():
        moves = [list(position_paths(token, proposal)) for token in clean]
        for choice in product(*moves):
            probability = p_clean
            for _, p in choice:
                probability *= p
            for step in range(HORIZON):
                paths = tuple(path for path, _ in choice)
                yield Outcome(probability / HORIZON, clean, paths, step)


def position_paths(clean, proposal):
    """(path, probability) of one position."""
    for wrong, p_wrong in proposal(clean).items():
        for beta in range(1, HORIZON):
            for mu in range(beta + 1, HORIZON + 1):
                boundaries = Fraction(1, HORIZON - 1) * Fraction(1, HORIZON - beta)
                yield path(wrong, beta, mu, clean), WRONG_SHARE * p_wrong * boundaries
    for mu in range(1, HORIZON + 1):
        yield path(MASK, 0, mu, clean), (1 - WRONG_SHARE) * Fraction(1, HORIZON)


def path(wrong, beta, mu, clean):
    return tuple(wrong if k < beta else MASK if k < mu else clean for k in range(HORIZON))


def sees_state(outcome):
    return outcome.state


def sees_all(outcome):
    return outcome.state, outcome.past


def label_law(see, proposal=uniform):
    """P*: for each position and thing seen, ({label: probability}, probability of seeing it)."""
    joint = {}
    for outcome in outcomes(proposal):
        for i in range(POSITIONS):
            labels = joint.setdefault((i, see(outcome)), {})
            label = outcome.label(i)
            labels[label] = labels.get(label, 0) + outcome.probability
    law = {}
    for key, labels in joint.items():
        total = sum(labels.values())
        law[key] = ({label: p / total for label, p in labels.items()}, total)
    return law
