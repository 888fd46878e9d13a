"""Settings of objectives that are refused, and the registry."""

import math

import pytest

from remask.training import ObjectiveConfig
from remask.training.objective import RevisionObjective, StateWeights, register_objective


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"floor": 0.0}, r"objective.floor must lie in \(0, 1\), got 0.0"),
        ({"edit_weight": math.nan}, "objective.edit_weight must be 0 or more, got nan"),
        ({"edit_weight": -1.0}, "objective.edit_weight must be 0 or more, got -1.0"),
        ({"ordering_margin": -1.0}, "objective.ordering_margin must be 0 or more"),
        ({"text_dropout": -0.1}, r"objective.text_dropout must lie in \[0, 1\], got -0.1"),
        ({"image_dropout": 1.5}, r"objective.image_dropout must lie in \[0, 1\], got 1.5"),
        (
            {"kind": "dpo"},
            r"objective.kind must be one of \['pretrain', 'rm', 'sft'\], got 'dpo'",
        ),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ObjectiveConfig(**settings)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"mask": -0.5}, "objective.state_weights.mask must be 0 or more, got -0.5"),
        ({"keep": math.inf}, "objective.state_weights.keep must be 0 or more, got inf"),
        (
            {"reveal": 0.0, "mask": 0.0, "keep": 0.0},
            "objective.state_weights: reveal, mask and keep are all 0, .* set one of them above 0",
        ),
    ],
)
def test_bad_weights_of_states_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        StateWeights(**weights)


def test_a_kind_is_registered_once():
    class Other(RevisionObjective):
        kind = "rm"

    with pytest.raises(
        ValueError, match="Other cannot be registered as 'rm': .*RevisionObjective; choose"
    ):
        register_objective(Other)
