"""Conditions dropped at random, which trains the unconditional model that guidance needs. SPEC §4.

Without text, the instruction is the unconditional id alone. Without image, the input at the
source's cells is the embedding of MASK, inserted after the history's norm. Whether a row's
condition is dropped is a function of the seed, the row and the step.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from remask.models.images.edit_rows import EditLayout
from remask.models.noise import DROP_IMAGE, DROP_TEXT, KeyedNoise
from remask.training.batch import Batch
from remask.training.objective import ObjectiveConfig


@dataclass(frozen=True)
class ModelInput:
    """A batch as the model sees it."""

    batch: Batch
    is_present: Tensor | None = None
    """Positions that the model sees, bool [B, N]. Defaults to all."""
    is_blank: Tensor | None = None
    """Positions whose input is the embedding of MASK, bool [B, N]. Defaults to none of them."""


def drop_conditions(
    batch: Batch, layout: EditLayout, config: ObjectiveConfig, noise: KeyedNoise
) -> ModelInput:
    """Drop the instruction of some rows and the source image of some, independently."""
    no_text = noise.uniform(1, DROP_TEXT) < config.text_dropout  # [B, 1]
    no_image = noise.uniform(1, DROP_IMAGE) < config.image_dropout
    ids, is_present = layout.without_text(batch.target)
    is_blank = layout.source_cells(batch.target) & no_image
    # An instruction never moves, so all segments of its trajectory are replaced.
    tokens = torch.where(no_text & (ids != batch.target), ids, batch.segments.tokens)
    segments = replace(batch.segments, tokens=tokens)
    return ModelInput(replace(batch, segments=segments), is_present | ~no_text, is_blank)
