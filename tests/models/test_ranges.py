"""Ranges declared on fields: what is inside, and what the error says."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from remask.models.ranges import Range, check_fields


@dataclass(frozen=True, kw_only=True)
class Settings:
    decay: Annotated[float, Range("(0, 1]", "1.0 keeps all")] = 0.9
    steps: Annotated[int, Range("[1, inf)")] = 1
    wait_s: Annotated[float | None, Range("(0, inf)")] = None
    rates: Annotated[tuple[float, float], Range("[0, 1]")] = (0.0, 1.0)
    seed: Annotated[int, Range("[0, 2^63)")] = 0
    count: Annotated[int, Range("[0, inf)")] = 0
    mode: Literal["clean", "masked"] = "clean"
    norm: Literal["rms"] | None = None
    margin: Annotated[float, Range("(-inf, inf)", "it is a number of nats")] = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        check_fields(self, "history.")


def test_values_within_their_ranges_are_taken():
    Settings()
    Settings(margin=-1e300)
    Settings(decay=1.0, steps=10**9, wait_s=0.1, seed=2**63 - 1, mode="masked", norm="rms")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"decay": 0}, "history.decay must lie in (0, 1], got 0; 1.0 keeps all"),
        ({"decay": 1.1}, "history.decay must lie in (0, 1], got 1.1; 1.0 keeps all"),
        ({"decay": float("nan")}, "history.decay must lie in (0, 1], got nan; 1.0 keeps all"),
        ({"steps": 0}, "history.steps must be at least 1, got 0"),
        ({"wait_s": 0.0}, "history.wait_s must be above 0, got 0.0"),
        ({"wait_s": float("inf")}, "history.wait_s must be above 0, got inf"),
        ({"rates": (0.5, 1.5)}, "history.rates must lie in [0, 1], got 1.5"),
        ({"seed": 2**63}, f"history.seed must lie in [0, 2^63), got {2**63}"),
        ({"count": -1}, "history.count must be 0 or more, got -1"),
        (
            {"count": -(10**5000)},
            "history.count must be 0 or more, got a number of about 5001 digits",
        ),
        (
            {"margin": float("nan")},
            "history.margin must be a finite number, got nan; it is a number of nats",
        ),
        (
            {"margin": float("-inf")},
            "history.margin must be a finite number, got -inf; it is a number of nats",
        ),
        ({"mode": "dirty"}, "history.mode must be one of ['clean', 'masked'], got 'dirty'"),
        ({"norm": "max"}, "history.norm must be one of ['rms', None], got 'max'"),
    ],
)
def test_a_value_outside_is_named_with_its_range(settings, says):
    with pytest.raises(ValueError, match="must") as error:
        Settings(**settings)
    assert str(error.value) == says
