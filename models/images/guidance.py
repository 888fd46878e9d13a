"""Classifier-free guidance of image edits: away from what the model would do unconditionally.

    l = l_c + s_t (l_c - l_no text) + s_i (l_c - l_no image)

Without text, the instruction is the unconditional id alone. Without image, the input at the
source's cells is the embedding of MASK, put there after the history's norm. Training drops them in
the same two ways. SPEC §4. A model that was not so trained, as Lumina-DiMOO is published, goes
without a source image that is not there at all.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from remask.models.backbones.backbone import Backbone
from remask.models.decoding.beliefs import Contrast
from remask.models.history import HistoryState
from remask.models.images.edit_rows import EditLayout

Where = Literal["all", "masked"]
NoImage = Literal["masked", "absent"]


@dataclass(frozen=True, kw_only=True)
class Guidance:
    """How strongly an edit follows its instruction and its source. Each costs a forward pass."""

    text: float = 0.0
    """s_t; 0 needs no pass without text."""
    image: float = 0.0
    """s_i; 0 needs no pass without image."""
    at: Where = "all"
    """Guide every belief, or only those at masked positions: what is revealed, not what is
    re-masked."""
    no_image: NoImage = "masked"
    """Without image, the source's cells are masked, or the source is not there; the latter where
    it lies in the prompt."""

    def __post_init__(self) -> None:
        for name in ("text", "image"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"guidance.{name} must be 0 or more, got {getattr(self, name)}")
        for name, choices in (("at", get_args(Where)), ("no_image", get_args(NoImage))):
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"guidance.{name} must be one of {list(choices)}, got {value!r}")


class Guide:
    """The unconditional passes of a batch being decoded."""

    def __init__(self, guidance: Guidance, backbone: Backbone, without_text: HistoryState) -> None:
        """`without_text` keeps the history of rows without instruction; it begins empty."""
        self._guidance, self._backbone = guidance, backbone
        self._layout = edit_layout(backbone, "guidance")
        self._history = without_text

    def contrasts(
        self,
        tokens: Tensor,
        embeds: Tensor,
        attention_mask: Tensor | None,
        where: Tensor,
        is_masked: Tensor,
    ) -> list[Contrast]:
        """What the current state would be taken for without text, and without image.

        Args:
            tokens: Current state, [B, N].
            embeds: The model's input for it, with its past, [B, N, D].
            attention_mask: Bool [B, N], false at padding.
            where: Positions whose beliefs are read, bool [B, N].
            is_masked: Editable and now MASK, bool [B, N].
        """
        guided = where & is_masked if self._guidance.at == "masked" else where
        contrasts = []
        if self._guidance.text:
            ids, kept = self._layout.without_text(tokens)
            unsaid = self._history.update(ids).to(embeds.dtype)  # in step, whether it is run or not
            contrasts.append(self._run(unsaid, kept, attention_mask, guided, self._guidance.text))
        if self._guidance.image:
            blind, kept = self._blind(tokens, embeds, where)
            contrasts.append(self._run(blind, kept, attention_mask, guided, self._guidance.image))
        return contrasts

    def clear(self) -> None:
        """Forget all states."""
        self._history.clear()

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self._history.select(rows)

    def _blind(self, tokens: Tensor, embeds: Tensor, where: Tensor) -> tuple[Tensor, Tensor | None]:
        """The input without the source image, and what is kept of it."""
        if self._guidance.no_image == "masked":
            cells = self._layout.source_cells(tokens)
            return without_image(self._backbone, embeds, cells), None
        image = self._layout.source_image(tokens)
        if (image & where).any():
            raise ValueError(
                "guidance.no_image absent takes the source image out of the prompt, but here it "
                "lies in the canvas; use masked"
            )
        return embeds, ~image

    def _run(
        self,
        embeds: Tensor,
        kept: Tensor | None,
        attention_mask: Tensor | None,
        guided: Tensor,
        scale: float,
    ) -> Contrast:
        is_run = guided.any(-1)
        hidden = torch.zeros_like(embeds)
        if is_run.any():
            parts = (None if x is None else x[is_run] for x in (kept, attention_mask))
            hidden[is_run] = hidden_of_kept(self._backbone, embeds[is_run], *parts)
        return Contrast(hidden, scale * guided.float(), is_run)


def hidden_of_kept(
    backbone: Backbone,
    embeds: Tensor,
    kept: Tensor | None,
    attention_mask: Tensor | None = None,
) -> Tensor:
    """Final hidden states of rows from which positions were taken out, [B, N, D].

    What is kept moves together, as if the rest had never been there, and its hidden states come
    back to where they belong; those of what was taken out mean nothing.

    Args:
        backbone: The model.
        embeds: Its input, [B, N, D].
        kept: Bool [B, N]; everything when none.
        attention_mask: Bool [B, N], false at padding; none when there is no padding.
    """
    if kept is None or kept.all():
        return backbone.hidden(embeds, attention_mask=attention_mask)
    order = (~kept).to(torch.uint8).argsort(dim=-1, stable=True)  # [B, N]
    is_there = kept if attention_mask is None else kept & attention_mask
    wide = order[..., None].expand_as(embeds)
    hidden = backbone.hidden(embeds.gather(1, wide), attention_mask=is_there.gather(1, order))
    return torch.zeros_like(hidden).scatter(1, wide, hidden)


def without_image(backbone: Backbone, embeds: Tensor, cells: Tensor) -> Tensor:
    """The model's input with MASK's embedding at some cells, [B, N, D]; cells are bool [B, N]."""
    mask = backbone.token_embedding[backbone.mask_id].to(embeds.dtype)
    return torch.where(cells[..., None], mask, embeds)


def edit_layout(backbone: Backbone, what: str) -> EditLayout:
    """How edits lie in a model's rows; ValueError, saying what needs it, if it makes no images."""
    if backbone.layout is None:
        raise ValueError(
            f"{what} needs a model of image edits, whose layout says where instruction and source "
            f"are; a {backbone.kind} has none"
        )
    return backbone.layout
