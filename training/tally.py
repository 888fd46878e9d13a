"""Sums over micro-batches and ranks, and the means that are logged."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from remask.training.batch import Batch
from remask.training.objective import BINS, ObjectiveConfig, OracleLoss, Part

PARTS = ("reveal", "mask", "keep")
_NUM_SCALARS = 6  # weight, rows, tokens; weighted loss, unlikelihood and ordering terms


@dataclass
class Tally:
    """Sums, which add up over micro-batches, steps and ranks."""

    sums: Tensor
    """float64 [Tally.size()]: the six scalars, three sums for each part, the calibration."""

    @staticmethod
    def size() -> int:
        return _NUM_SCALARS + len(fields(Part)) * len(PARTS) + 3 * BINS

    @staticmethod
    def of_batch(loss: OracleLoss, batch: Batch, weight: float) -> "Tally":
        """The sums of one batch, whose loss counts `weight` in the mean."""
        counts = torch.tensor([weight, len(batch.row_ids)], device=loss.total.device)
        means = [loss.total.detach(), loss.unlikelihood, loss.ordering]
        scalars = [*counts, batch.is_token.sum(), *(weight * x for x in means)]
        parts = [getattr(getattr(loss, part), f.name) for part in PARTS for f in fields(Part)]
        values = torch.stack([x.double() for x in [*scalars, *parts]])
        return Tally(torch.cat([values, loss.calibration.flatten()]))

    @property
    def rows(self) -> int:
        return int(self.sums[1])

    @property
    def tokens(self) -> int:
        return int(self.sums[2])

    def summary(self, config: ObjectiveConfig | None = None) -> dict[str, float]:
        """Means by name; parts without positions are left out.

        Args:
            config: Adds, for each optional term whose weight is not 0, the weight and the term's
                share of the loss. Defaults to the terms' means alone.
        """
        values = self.sums.tolist()
        weight, _, _, loss, unlikelihood, ordering = values[:_NUM_SCALARS]
        weight = weight or 1.0
        means = {"loss": loss / weight}
        for i, name in enumerate(PARTS):
            first = _NUM_SCALARS + 3 * i
            loss_sum, count, num_correct = values[first : first + 3]
            if count:
                means |= {
                    f"{name}_loss": loss_sum / count,
                    f"{name}_accuracy": num_correct / count,
                    f"{name}_count": count,
                }
        for name, term in (("unlikelihood", unlikelihood), ("ordering", ordering)):
            term_weight = getattr(config, f"{name}_weight", 0.0)
            if term or term_weight:
                means[name] = term / weight
            if term_weight:
                means[f"{name}_weight"] = term_weight
                means[f"{name}_share"] = term_weight * term / loss if loss else 0.0
        num_visible, p_mask, num_wrong = self.sums[-3 * BINS :].view(3, BINS)
        if num_visible.sum() > 0:
            error = (p_mask - num_wrong).abs().sum() / num_visible.sum()
            means["calibration_error"] = float(error)
        return means
