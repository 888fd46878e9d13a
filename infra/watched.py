"""A policy that is watched: each decision is handed over with the beliefs behind it.

The decoding loop needs no hook for that, since a policy sees every state and decides on it. Only
the closing step, which reveals what the last step left masked, takes no decision and is not seen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from remask.models import DecodeState, Observation, Policy
from remask.models.decoding.beliefs import Ranking

Watch = Callable[[Observation, Tensor, Tensor], None]
"""Called with what the policy observed, and what it re-masks and reveals, bool [B, N] each."""


@dataclass(frozen=True, kw_only=True)
class Watched(Policy):
    """Decides as another policy does, and reports every decision."""

    name: ClassVar[str] = "watched"

    inner: Policy
    watch: Watch

    @property
    def ranking(self) -> Ranking:
        return self.inner.ranking

    def reads(self, state: DecodeState) -> Tensor:
        return self.inner.reads(state)

    def act(self, observation: Observation) -> tuple[Tensor, Tensor]:
        remask, reveal = self.inner.act(observation)
        self.watch(observation, remask, reveal)
        return remask, reveal

    def is_finished(self, state: DecodeState) -> Tensor:
        return self.inner.is_finished(state)

    def reveals_all(self, max_steps: int) -> bool:
        return self.inner.reveals_all(max_steps)


def watched(policy: Policy, watch: Watch) -> Watched:
    """The same policy, watched."""
    return Watched(inner=policy, watch=watch, sampling=policy.sampling)
