"""Classifier-free guidance of image edits, by text and by source image. SPEC §4.

    l = l_c + s_t (l_c - l_no text) + s_i (l_c - l_no image)

Without text, the instruction is the unconditional id alone. Without image, the input at the cells
of the source is the embedding of MASK, set after the norm of the history. Training drops both
conditions in the same way. For a model that was not trained so, such as the published Lumina-DiMOO,
the source image can be removed from the prompt instead.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from remask.models.backbones.backbone import Backbone
from remask.models.decoding.beliefs import Contrast
from remask.models.history import HistoryState
from remask.models.images.edit_rows import EditLayout
from remask.models.ranges import Range, check_fields

GuidedPositions = Literal["all", "masked"]
NoImage = Literal["masked", "absent"]


@dataclass(frozen=True, kw_only=True)
class Guidance:
    """How strongly an edit follows its instruction and its source image."""

    text: Annotated[float, Range("[0, inf)")] = 0.0
    """s_t; above 0 it costs a forward pass per step."""
    image: Annotated[float, Range("[0, inf)")] = 0.0
    """s_i; above 0 it costs a forward pass per step."""
    at: GuidedPositions = "all"
    """`masked` guides what is revealed but not what is re-masked."""
    no_image: NoImage = "masked"
    """How the source image is left out: `masked` puts MASK into its cells, `absent` removes it from
    the prompt."""

    def __post_init__(self) -> None:
        check_fields(self, "guidance.")


class Guide:
    """Runs the unconditional passes of a batch that is being decoded.

    Args:
        guidance: The settings.
        backbone: The model.
        without_text: An empty history, which will hold the states of the rows without instruction.
    """

    def __init__(self, guidance: Guidance, backbone: Backbone, without_text: HistoryState) -> None:
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
        """The model's outputs for the current state without text, and without image.

        Args:
            tokens: Current state, [B, N].
            embeds: The model's input for it, including history, [B, N, D].
            attention_mask: Bool [B, N], false at padding; None without padding.
            where: Positions whose beliefs are read, bool [B, N].
            is_masked: Editable positions that hold MASK, bool [B, N].
        """
        guided = where & is_masked if self._guidance.at == "masked" else where
        contrasts = []
        if self._guidance.text:
            ids, kept = self._layout.without_text(tokens)
            # Every step enters the history, whether the model is run on it or not.
            no_text = self._history.update(ids).to(embeds.dtype)
            contrasts.append(self._run(no_text, kept, attention_mask, guided, self._guidance.text))
        if self._guidance.image:
            no_image, kept = self._leave_out_image(tokens, embeds, where)
            contrasts.append(
                self._run(no_image, kept, attention_mask, guided, self._guidance.image)
            )
        return contrasts

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self._history.select(rows)

    def _leave_out_image(
        self, tokens: Tensor, embeds: Tensor, where: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The model's input without the source image, and the positions to keep, None for all."""
        if self._guidance.no_image == "masked":
            cells = self._layout.source_cells(tokens)
            return without_image(self._backbone, embeds, cells), None
        image = self._layout.source_image(tokens)
        if (image & where).any():
            raise ValueError(
                "guidance.no_image absent removes the source image from the prompt, but here it is "
                "in the canvas; use masked"
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
    """Final hidden states of rows from which positions are removed, [B, N, D].

    The model sees the kept positions as one contiguous sequence. Their hidden states are returned
    at their original positions; those of removed positions are undefined.

    Args:
        backbone: The model.
        embeds: Its input, [B, N, D].
        kept: Bool [B, N]. Defaults to all positions.
        attention_mask: Bool [B, N], false at padding. Defaults to no padding.
    """
    if kept is None or kept.all():
        return backbone.hidden(embeds, attention_mask=attention_mask)
    order = (~kept).to(torch.uint8).argsort(dim=-1, stable=True)  # [B, N]
    is_attended = kept if attention_mask is None else kept & attention_mask
    index = order[..., None].expand_as(embeds)
    hidden = backbone.hidden(embeds.gather(1, index), attention_mask=is_attended.gather(1, order))
    return torch.zeros_like(hidden).scatter(1, index, hidden)


def without_image(backbone: Backbone, embeds: Tensor, cells: Tensor) -> Tensor:
    """The model's input with the embedding of MASK at these cells, [B, N, D].

    Args:
        backbone: The model.
        embeds: Its input, [B, N, D].
        cells: Bool [B, N].
    """
    mask = backbone.token_embedding[backbone.mask_id].to(embeds.dtype)
    return torch.where(cells[..., None], mask, embeds)


def edit_layout(backbone: Backbone, feature: str) -> EditLayout:
    """The layout of a model of image edits; ValueError, naming the feature, for other models."""
    if backbone.layout is None:
        raise ValueError(
            f"{feature} needs a model of image edits, whose layout says where instruction and "
            f"source are; a {backbone.kind} has none"
        )
    return backbone.layout
