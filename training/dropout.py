"""Instruction and source left out at random, so that guidance has something to move away from.

Without text the instruction is the unconditional id alone; without image the input at the source's
cells becomes the embedding of MASK after the history's norm. What a row goes without follows from
the seed, its number and the step. SPEC §4.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from remask.models.images.edit_rows import EditLayout
from remask.models.noise import DROP_IMAGE, DROP_TEXT, KeyedNoise
from remask.training.batch import Batch
from remask.training.objective import ObjectiveConfig


@dataclass(frozen=True)
class Given:
    """What the model is given of a batch."""

    batch: Batch
    kept: Tensor | None = None
    """Positions that are there at all, bool [B, N]; all when none."""
    blind: Tensor | None = None
    """Cells whose input is MASK's embedding, bool [B, N]; no cells when none."""


def drop_conditions(
    batch: Batch, layout: EditLayout, config: ObjectiveConfig, noise: KeyedNoise
) -> Given:
    """Leave the instruction out of some rows, and the source image out of some."""
    no_text = noise.uniform(1, DROP_TEXT) < config.text_dropout  # [B, 1]
    no_image = noise.uniform(1, DROP_IMAGE) < config.image_dropout
    ids, kept = layout.without_text(batch.target)
    blind = layout.source_cells(batch.target) & no_image
    # An instruction stands still, so all of its trajectory changes.
    tokens = torch.where(no_text & (ids != batch.target), ids, batch.segments.tokens)
    segments = replace(batch.segments, tokens=tokens)
    return Given(replace(batch, segments=segments), kept | ~no_text, blind)
