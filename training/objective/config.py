"""The recipe's `objective` section."""

from dataclasses import astuple, dataclass, field
from typing import Annotated

from remask.models.ranges import Range, check_fields
from remask.training.objective.objective import OBJECTIVES

_AT_LEAST_0 = Range("[0, inf)")
_SHARE = Range("[0, 1]")


@dataclass(frozen=True, kw_only=True)
class StateWeights:
    """Weights of positions by what they show now: MASK, a wrong token or their target.

    The model sees whether a position is masked, so `reveal` leaves the minimiser of the loss where
    it is (SPEC §4). It does not see whether a token is wrong: `mask` ≠ `keep` multiplies the odds
    of MASK at visible positions by mask / keep, which the printed rule would also give with a
    margin of -log(mask / keep). A weight of 0 leaves the positions of a state out.
    """

    reveal: Annotated[float, _AT_LEAST_0] = 1.0
    """Weight of positions whose state is MASK."""
    mask: Annotated[float, _AT_LEAST_0] = 1.0
    """Weight of positions whose state is a wrong token."""
    keep: Annotated[float, _AT_LEAST_0] = 1.0
    """Weight of positions whose state is the target."""

    def __post_init__(self) -> None:
        check_fields(self, "objective.state_weights.")
        if not any(astuple(self)):
            raise ValueError(
                "objective.state_weights: reveal, mask and keep are all 0, which leaves nothing to "
                "learn; set one of them above 0"
            )


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is learned, and the weights of the loss and its optional terms."""

    kind: str = "rm"
    """`rm` learns to revise; `sft`, the baseline, to fill in masked positions of E; `pretrain` to
    fill in masked positions anywhere, for training a base model."""
    floor: Annotated[float, Range("(0, 1)")] = 1e-8
    """ε, the lower limit of probabilities: a position costs at most -log ε ≈ 18.4. The gradient is
    that of the loss without the limit, since a pretrained model starts with p(MASK) below ε."""
    edit_weight: Annotated[float, _AT_LEAST_0] = 1.0
    """Weight of positions that move in their trajectory; positions that keep their target have
    weight 1."""
    state_weights: StateWeights = field(default_factory=StateWeights)
    """Weights of positions by their current state, with `rm`; `edit_weight` multiplies them."""
    unlikelihood_weight: Annotated[float, _AT_LEAST_0] = 0.0
    """Weight of -log(1 - p(MASK)) at positions that keep their target; for image edits."""
    ordering_weight: Annotated[float, _AT_LEAST_0] = 0.0
    """Weight of max(0, margin - log p(target) + log p(w)) at masked positions that were wrong,
    where w is the last token that the position rejected."""
    ordering_margin: Annotated[float, _AT_LEAST_0] = 1.0
    """The margin of the ordering term, in nats."""
    text_dropout: Annotated[float, _SHARE] = 0.0
    """Share of rows whose instruction is dropped, for classifier-free guidance of image edits."""
    image_dropout: Annotated[float, _SHARE] = 0.0
    """Share of rows whose source image is dropped."""

    def __post_init__(self) -> None:
        check_fields(self, "objective.")
        if self.kind not in OBJECTIVES:
            raise ValueError(
                f"objective.kind must be one of {sorted(OBJECTIVES)}, got {self.kind!r}"
            )

    @property
    def drops_conditions(self) -> bool:
        """Whether some rows are trained without their instruction or source image."""
        return self.text_dropout > 0 or self.image_dropout > 0
