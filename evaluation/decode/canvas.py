"""Image edits decoded on a canvas of codes: the pairs read, the decode, the cells of the canvas."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remask.evaluation.decoder import Decoder
from remask.models import Backbone, Revision
from remask.models.images.tokens import ImageLayout
from remask.pipeline.edits import EditPair
from remask.pipeline.format.examples import pad
from remask.pipeline.sources.image_edit import SAME_TOKENS, ImageEditSource


@dataclass(frozen=True)
class EncodedPair:
    """A pair that can be used, with the codes of its pictures, [h, w] each."""

    number: int
    pair: EditPair
    source: Tensor
    target: Tensor


def read_pairs(
    edits: ImageEditSource, samples: range, max_length: int | None, reasons: list[str]
) -> list[EncodedPair]:
    """The usable pairs among some samples.

    Args:
        edits: The source of held-out pairs.
        samples: Numbers of the pairs.
        max_length: Limit on the tokens of a row, in addition to the source's own.
        reasons: The reasons why other pairs cannot be used are appended here.
    """
    limit = min(edits.max_length, max_length or edits.max_length)
    fitting = []
    for number, pair in edits.usable("held_out", samples, reasons):
        length = edits.row_length(pair)
        if length <= limit:
            fitting.append((number, pair))
        else:
            reasons.append(f"{pair.pair_id}: a row of {length} tokens exceeds the limit of {limit}")
    sources = edits.encode([pair.source for _, pair in fitting])
    targets = edits.encode([pair.target for _, pair in fitting])
    usable = []
    for (number, pair), source, target in zip(fitting, sources, targets, strict=True):
        if edits.equal == "skip" and torch.equal(source, target):
            reasons.append(f"{pair.pair_id}: {SAME_TOKENS}")
        else:
            usable.append(EncodedPair(number, pair, source, target))
    return usable


def decode_canvas(
    backbone: Backbone, edits: ImageEditSource, pairs: list[EncodedPair], decoder: Decoder
) -> Revision:
    """The decode, reduced to the cells of the canvas: codes plus 1, 0 for MASK, [K+1, B, cells].
    The cells of smaller pictures are followed by padding."""
    rows = [edits.row(x.pair.instruction, x.source, x.target) for x in pairs]
    start, lengths = (
        torch.from_numpy(x) for x in pad([r.wrong.numpy() for r in rows], np.dtype(np.int64))
    )
    editable = torch.from_numpy(pad([r.editable.numpy() for r in rows], np.dtype(np.bool_))[0])
    if decoder.start != "given":
        source, target = (
            torch.cat([getattr(x, side).flatten() for x in pairs]) for side in ("source", "target")
        )
        is_asked = (source != target) | (decoder.start != "oracle")
        start[editable] = torch.where(is_asked, backbone.mask_id, start[editable])
    is_token = torch.arange(start.shape[1]) < lengths[:, None]
    row_ids = torch.tensor([x.number for x in pairs])
    revision = decoder.revise(backbone, start, editable, is_token=is_token, row_ids=row_ids)
    return canvas_cells(revision, editable, backbone.mask_id, edits.layout.image)


def canvas_cells(
    revision: Revision, editable: Tensor, mask_id: int, image: ImageLayout
) -> Revision:
    """The revision with its trajectory and actions reduced to the editable positions.

    Raises:
        ValueError: The model revealed a token that is not a code.
    """
    counts = editable.sum(1, keepdim=True)
    max_cells = int(counts.max())
    cells = (~editable).byte().argsort(dim=1, stable=True)[:, :max_cells]  # canvas comes first
    is_cell = torch.arange(max_cells) < counts  # [B, cells]
    states, actions = (
        x.gather(2, cells.expand(len(x), -1, -1)) for x in (revision.trajectory, revision.actions)
    )
    is_other = (states != mask_id) & ~image.is_code(states) & is_cell
    if is_other.any():
        raise ValueError(
            f"the model revealed id {int(states[is_other][0])}, which is not a code: codes are "
            f"{image.code_offset} .. {image.code_offset + image.num_codes - 1}"
        )
    return dataclasses.replace(
        revision,
        trajectory=torch.where(states == mask_id, 0, states - image.code_offset + 1),
        actions=actions,
    )
