"""The interface of decoding policies: what a policy observes, decides, and says about itself.

`loop.py` runs every policy. The paper's rule is in `revision_rule.py`, the decoders that it is
compared with are in `baselines.py` and `two_phase.py`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from torch import Tensor

from remask.models.decoding.beliefs import Beliefs, Ranking, Sampling
from remask.models.noise import KeyedNoise
from remask.models.registry import add_to


@dataclass(frozen=True)
class DecodeState:
    """The rows of a batch before the model is run on them; tensors are [B, N] unless noted."""

    tokens: Tensor
    start: Tensor
    """The state that decoding began with."""
    editable: Tensor
    is_masked: Tensor
    """True where a position is editable and holds MASK."""
    is_visible: Tensor
    """True where a position is editable and holds a token."""
    idle_steps: Tensor
    """Number of steps since the last action in the row, [B]."""
    revealed_with: Tensor
    """log p of each token when it was revealed; 0 for tokens of the start state."""
    times_remasked: Tensor
    """How many times each position has been re-masked."""
    step: int
    max_steps: int
    mask_id: int
    noise: KeyedNoise


@dataclass(frozen=True)
class Observation(DecodeState):
    """Everything a policy may base its actions on: the state and what the model predicts for it."""

    beliefs: Beliefs


@dataclass(frozen=True, kw_only=True)
class Policy(ABC):
    """Turns the model's beliefs into actions.

    A policy is a frozen dataclass of settings: whatever changes during a decode is in the state.
    """

    name: ClassVar[str]
    """Name in recipes: `decoder: {policy: revision}`."""
    may_leave_masks: ClassVar[bool] = True
    """Whether MASKs may be left after the last step. They are then revealed in a closing step,
    which costs a forward pass more."""

    sampling: Sampling = field(default_factory=Sampling)

    @property
    def ranking(self) -> Ranking:
        """What the confidence of a candidate means."""
        return "probability"

    @abstractmethod
    def reads(self, state: DecodeState) -> Tensor:
        """Positions whose beliefs this step needs, bool [B, N]."""

    @abstractmethod
    def act(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Visible positions to re-mask and masked positions to reveal, bool [B, N] each."""

    @abstractmethod
    def is_finished(self, state: DecodeState) -> Tensor:
        """Rows that need no further step, bool [B]. A row that holds a MASK continues anyway."""

    def reveals_all(self, max_steps: int) -> bool:
        """Whether the first step reveals every MASK and leaves the other steps to revision. Such a
        policy can revise a given state but cannot write one from MASKs alone."""
        return False


POLICIES: dict[str, type[Policy]] = {}
"""Every registered policy by its name."""

PolicyType = TypeVar("PolicyType", bound=type[Policy])


def register_policy(policy: PolicyType) -> PolicyType:
    """Class decorator: lets recipes select a policy by its `name`."""
    add_to(POLICIES, policy.name, policy)
    return policy
