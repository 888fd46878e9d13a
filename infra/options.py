"""How a reviser decodes, as a person or a program says it."""

from dataclasses import dataclass
from typing import Annotated

from remask.models import RevisionPolicy
from remask.models.decoding import POLICIES
from remask.models.ranges import Range, check_fields

MAX_STEPS = 32
"""Default limit of steps."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to decode."""

    policy: str = "revision"
    """`revision` is the paper's rule; the others are for comparison."""
    history: bool = True
    """False leaves out the past states (`variant: none`)."""
    margin: Annotated[float | None, Range("(-inf, inf)", "it is a number of nats")] = None
    """Re-mask only if MASK leads by this many nats. If neither this nor `pace` is set, the settings
    that `remask tune` chose for the checkpoint are used, if there are any; otherwise 0, as the rule
    is printed."""
    pace: Annotated[float | None, Range("(0, 1]")] = None
    """Spread the reveals over this share of the steps. Without it the printed rule reveals at once
    what the start leaves open; a text or picture that starts from MASKs alone takes half of the
    steps."""
    max_steps: Annotated[int | None, Range("[1, inf)")] = None
    """Limit of steps, not counting a closing one. Defaults to the tuned limit, or else to 32."""
    seed: Annotated[int, Range("[0, 2^63)")] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.policy not in POLICIES:
            raise ValueError(f"policy must be one of {list(POLICIES)}, got {self.policy!r}")
        if self.policy != RevisionPolicy.name:
            for name in ("margin", "pace"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is a setting of policy revision, not of {self.policy}; leave it "
                        "out"
                    )
