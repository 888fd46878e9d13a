"""What of a training recipe decides the result: `content`, which a run's folder is claimed with."""

from remask.pipeline.runtime.recipes import digest
from remask.training.objective import ObjectiveConfig, StateWeights
from remask.training.recipe import TrainRecipe

PLAIN = {"shards": "data", "output": "run", "model": {"kind": "sudoku"}, "steps": 1}
CLAIMED = "6dc44c4a77a08ceb"
"""Digest of the content of `PLAIN`; with another one, runs under way would not be resumed."""


def content(**changes):
    return TrainRecipe(**(PLAIN | changes)).content


def test_a_plain_recipe_has_the_content_that_it_always_had():
    assert digest(content()) == CLAIMED
    assert digest(content(shards="elsewhere", output="other")) == CLAIMED


def test_weights_of_states_count_unless_they_are_even():
    even, uneven = StateWeights(), StateWeights(keep=0.5)
    assert content(objective=ObjectiveConfig(state_weights=even)) == content()
    objective = content(objective=ObjectiveConfig(state_weights=uneven))["objective"]
    assert objective["state_weights"] == {"reveal": 1.0, "mask": 1.0, "keep": 0.5}
