"""The interface of all objectives, and the registry that `objective.kind` names them in."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from torch import Tensor

from remask.kernels import Segments
from remask.models import Backbone
from remask.models.decoding.policy import Policy
from remask.models.registry import add_to
from remask.training.batch import Batch
from remask.training.objective.result import OracleLoss

if TYPE_CHECKING:  # the config checks its kind against the registry
    from remask.training.objective.config import ObjectiveConfig

Encode = Callable[[Segments[Tensor], int], Tensor]
"""The backbone: trajectories and their horizon to hidden states, [B, N, D]."""


class Objective(ABC):
    """What is learned from a batch of trajectory rows."""

    kind: ClassVar[str]
    """Its name in recipes."""
    purpose: ClassVar[str]
    """What it trains a model for; completes "Trained with remask ..." on the model card."""
    uses_history: ClassVar[bool] = True
    """Whether the model sees past states. If false, it is trained and saved with
    `history.variant: none`."""

    def __init__(
        self,
        backbone: Backbone,
        config: "ObjectiveConfig",
        *,
        horizon: int,
        seed: int,
    ) -> None:
        """Hold what the losses of a run need.

        Args:
            backbone: The model in training.
            config: Settings.
            horizon: T of the trajectories.
            seed: Seed of everything that the objective draws at random.
        """
        self.backbone, self.config = backbone, config
        self.horizon, self.seed = horizon, seed
        self.min_chunks = 1
        """Least number of calls of the head per batch (see `chunks.py`)."""

    @abstractmethod
    def loss(self, batch: Batch, step: int, encode: Encode) -> OracleLoss:
        """The loss of a batch.

        Args:
            batch: Trajectory rows.
            step: Training step; random draws are a function of seed, step and row.
            encode: Computes the hidden states of the trajectories that the model is to see.
        """

    @abstractmethod
    def decode_start(self, batch: Batch) -> tuple[Tensor, Policy]:
        """The state that a held-out decode starts from, [B, N], and the policy that decodes it."""

    def weight(self, batch: Batch) -> float:
        """Weight of a batch's loss in the mean over a step. Defaults to its number of rows."""
        return len(batch.row_ids)

    def check_predictable(self, batch: Batch, where: Tensor) -> None:
        """Raise ValueError if the head has no logit for the target of a position in `where`."""
        impossible = where & ~self.backbone.is_predictable(batch.target)
        if impossible.any():
            row, position = impossible.nonzero()[0].tolist()
            raise ValueError(
                f"row {int(batch.row_ids[row])} is editable at position {position}, where its "
                f"target is {int(batch.target[row, position])}; a {self.backbone.kind} cannot "
                "predict that id: build shards with the model's layout"
            )


OBJECTIVES: dict[str, type[Objective]] = {}
"""All objectives by their kind."""

ObjectiveType = TypeVar("ObjectiveType", bound=type[Objective])


def register_objective(objective: ObjectiveType) -> ObjectiveType:
    """Class decorator: lets recipes name an objective by its `kind`.

    Raises:
        ValueError: Another objective has that kind.
    """
    add_to(OBJECTIVES, objective.kind, objective)
    return objective
