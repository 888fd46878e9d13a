"""Micro-batches whose loss jumps are skipped."""

import statistics
from collections import deque
from collections.abc import Iterable

from remask.training.recipe import SpikeConfig
from remask.training.world import TrainingError


class SpikeFilter:
    """Compares each loss with the median of recent ones, over all ranks."""

    def __init__(self, config: SpikeConfig | None, recent_losses: Iterable[float] = ()) -> None:
        """Continue from the recent losses of a checkpoint; without a config, nothing is skipped."""
        self._config = config
        self._recent = deque(recent_losses, maxlen=config.window if config else 0)
        self._skipped_in_a_row = 0

    @property
    def recent_losses(self) -> tuple[float, ...]:
        """The losses that the next one is compared with, for a checkpoint."""
        return tuple(self._recent)

    def is_spike(self, loss: float) -> bool:
        """Whether to skip a micro-batch; otherwise its loss is one of the recent losses."""
        if self._config and len(self._recent) == self._config.window:
            limit = self._config.factor * statistics.median(self._recent)
            if loss > limit:
                return True
        self._recent.append(loss)
        return False

    def check_progress(self, step: int, num_skipped: int) -> None:
        """Raise TrainingError if a whole window has been skipped: a lasting rise is no spike.

        Args:
            step: Steps done.
            num_skipped: Micro-batches that the last step skipped.
        """
        self._skipped_in_a_row = self._skipped_in_a_row + num_skipped if num_skipped else 0
        if self._config and self._skipped_in_a_row > self._config.window:
            raise TrainingError(
                f"the loss has stayed above {self._config.factor} times its median for "
                f"{self._skipped_in_a_row} micro-batches up to step {step}; raise spikes.factor, "
                "or lower optimizer.lr and start again from an earlier checkpoint"
            )
