"""Own decodes on the toy space: every decode of a snapshot, with its exact probability.

A snapshot is a table of weights. Written from SPEC §1 and §3, without the decoder and the rollout,
which are then tested against it.
"""

import math
import random
from collections import defaultdict
from fractions import Fraction
from itertools import product

from tests.theory.toy import CLEAN, MASK, POSITIONS, TOKENS, Outcome

STEPS, TEMPERATURES = (2, 3), (Fraction(1, 2), Fraction(1))
"""A decode draws one of each. Reveals are spread over all steps; margin is 0 and patience 1."""
STATES = tuple(product((MASK, *TOKENS), repeat=POSITIONS))
BLANK = (MASK,) * POSITIONS


def make_snapshot(seed):
    """Weights of MASK and of each token, by state and position; those of a state all differ."""
    chance, size = random.Random(seed), 1 + len(TOKENS)
    snapshot = {}
    for state in STATES:
        weights = [Fraction(x) for x in chance.sample(range(1, 100), POSITIONS * size)]
        snapshot[state] = tuple(weights[i * size : (i + 1) * size] for i in range(POSITIONS))
    return snapshot


def starts(clean, start):
    """(first state, probability): MASKs, or the target with errors and MASKs."""
    if start == "blank":
        yield BLANK, Fraction(1)
        return
    for state in STATES:
        shares = (
            Fraction(1, 2) if token == x else Fraction(1, 4 if token == MASK else 8)
            for token, x in zip(state, clean, strict=True)
        )
        yield state, math.prod(shares)


def decodes(snapshot, past, max_steps, temperature):
    """(states, probability) of every decode that begins with some states."""
    step, state = len(past) - 1, past[-1]
    is_idle = step > 0 and state == past[-2]
    if MASK not in state and (step >= max_steps or is_idle):
        yield past, 1
        return
    for following, probability in moves(snapshot, state, step, max_steps, temperature).items():
        for states, rest in decodes(snapshot, (*past, following), max_steps, temperature):
            yield states, probability * rest


def moves(snapshot, state, step, max_steps, temperature):
    """{next state: probability} of one step; the one after the last only reveals."""
    beliefs, is_closing = snapshot[state], step == max_steps
    masked = [i for i in range(POSITIONS) if state[i] == MASK]
    due = math.ceil(Fraction(POSITIONS * (step + 1), max_steps))
    count = len(masked) if is_closing else max(1, due - (POSITIONS - len(masked)))
    law = defaultdict(int)
    for drawn in product(TOKENS, repeat=len(masked)):
        candidate, probability = dict(zip(masked, drawn, strict=True)), 1
        for i, token in candidate.items():
            tempered = {x: beliefs[i][x] ** int(1 / temperature) for x in TOKENS}
            probability *= tempered[token] / sum(tempered.values())
        confidence = {i: beliefs[i][x] / sum(beliefs[i][1:]) for i, x in candidate.items()}
        assert len({*confidence.values()}) == len(confidence), "a tie, which rounding would decide"
        revealed = sorted(masked, key=confidence.get, reverse=True)[:count]
        following = list(state)
        for i in range(POSITIONS):
            if i in revealed:
                following[i] = candidate[i]
            elif i not in masked and not is_closing and beliefs[i][MASK] > beliefs[i][state[i]]:
                following[i] = MASK
        law[tuple(following)] += probability
    return law


def own_outcomes(snapshot, *, start="given", targets="given"):
    """All outcomes: x*, its first state, a decoder, its decode, and a look at one of the states."""
    decoders = list(product(STEPS, TEMPERATURES))
    for clean, p_clean in CLEAN.items():
        for first, p_first in starts(clean, start):
            for decoder in decoders:
                for states, p_states in decodes(snapshot, (first,), *decoder):
                    probability = p_clean * p_first * p_states / (len(decoders) * len(states))
                    paths = tuple(zip(*states, strict=True))
                    for step, state in enumerate(states):
                        target = clean
                        if targets == "nearest_right":
                            target = nearest_right(clean, state, states[-1])
                        yield Outcome(probability, target, paths, step)


def nearest_right(clean, state, end):
    """The decode's end if it is right, else the right sequence that changes least of the state."""
    if end in CLEAN:
        return end

    def rank(answer):
        changes = [x for x, token in zip(answer, state, strict=True) if token not in (MASK, x)]
        away = [x for x, token in zip(answer, end, strict=True) if token != x]
        return len(changes), len(away), answer != clean

    return min(CLEAN, key=rank)
