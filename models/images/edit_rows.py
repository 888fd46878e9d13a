"""An image edit as one row of tokens: the instruction, the source image, and the target image.

    canvas   instruction  ANSWER  BOI source→target EOI  END
    prompt   instruction… BOI source EOI …  ANSWER  BOI target EOI  END

A model that revises starts with the source image in the canvas and changes it. A model that only
fills in masks, such as the published Lumina-DiMOO, gets the source in its prompt, before the last
token of the instruction's template. The ids of a row alone say where instruction and source are, so
guidance and dropout need nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from remask.models.images.tokens import ImageLayout

SourceIn = Literal["canvas", "prompt"]


@dataclass(frozen=True)
class EditRow:
    """One image edit; tensors are [N]."""

    target: Tensor
    """Ids with the target image in the canvas."""
    wrong: Tensor
    """Ids with the source image in the canvas; equal to `target` if the source is in the prompt."""
    editable: Tensor
    """True at the codes of the canvas, bool."""
    prompt_length: int
    """Number of ids before the first code of the canvas."""


@dataclass(frozen=True, kw_only=True)
class EditLayout:
    """The ids that image edits are written with. The defaults are Lumina-DiMOO's."""

    image: ImageLayout = field(default_factory=ImageLayout)
    """The ids that images are written with."""
    unconditional_id: int = 126351
    """Replaces the instruction in rows without text."""
    answer_id: int | None = 126354
    """Marker before the canvas; None writes no marker."""
    answer_end_id: int | None = 126355
    """Marker after the canvas; None writes no marker."""
    text_begin_id: int | None = None
    """Marker before the instruction within its template. Defaults to the start of the row."""
    text_end_id: int | None = None
    """Marker after the instruction. Defaults to the first image or the answer, which end it in any
    case."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids of this layout other than codes."""
        image = self.image
        of_image = (image.newline_id, image.begin_id, image.end_id)
        of_row = (self.unconditional_id, self.answer_id, self.answer_end_id)
        of_text = (self.text_begin_id, self.text_end_id)
        return tuple(x for x in (*of_image, *of_row, *of_text) if x is not None)

    def writes_same_rows(self, other: "EditLayout") -> bool:
        """Whether both layouts write the same rows. The markers of the instruction may differ,
        because they only matter for reading."""
        return replace(self, text_begin_id=None, text_end_id=None) == replace(
            other, text_begin_id=None, text_end_id=None
        )

    def row(
        self, prompt: Sequence[int], source: Tensor, target: Tensor, source_in: SourceIn
    ) -> EditRow:
        """Write an edit.

        Args:
            prompt: Ids of the instruction in its template.
            source: Codes, [h, w].
            target: Codes, [h, w]; its size may differ only if the source is in the prompt.
            source_in: Where the source image is written.
        """
        if source_in == "canvas" and source.shape != target.shape:
            raise ValueError(
                "source and target must have the same size to share a canvas, got "
                f"{list(source.shape)} and {list(target.shape)} codes"
            )
        before = [torch.tensor(list(prompt), dtype=torch.long)]
        if source_in == "prompt":
            instruction = before[0]
            before = [instruction[:-1], *self._with_markers(source), instruction[-1:]]
        before += [_id_tensor(self.answer_id), _id_tensor(self.image.begin_id)]
        after = [_id_tensor(self.image.end_id), _id_tensor(self.answer_end_id)]
        start = target if source_in == "prompt" else source
        rows = [torch.cat([*before, self.image.to_tokens(x), *after]) for x in (target, start)]
        length = sum(map(len, before))
        editable = torch.zeros(len(rows[0]), dtype=torch.bool)
        cells = self.image.cells(*target.shape)
        editable[length : length + len(cells)] = cells
        return EditRow(rows[0], rows[1], editable, length)

    def instruction(self, ids: Tensor) -> Tensor:
        """Positions of the instruction, bool [B, N]."""
        markers = [self.image.begin_id, self.answer_id, self.text_end_id]
        ends = torch.tensor([x for x in markers if x is not None], device=ids.device)
        has_begun = torch.ones_like(ids, dtype=torch.bool)
        if self.text_begin_id is not None:
            has_begun = _count_before(ids == self.text_begin_id) > 0
        has_ended = (torch.isin(ids, ends) & has_begun).cumsum(-1) > 0
        return has_begun & ~has_ended

    def source_cells(self, ids: Tensor) -> Tensor:
        """Cells of the first image, which holds the source's codes or revisions of them, bool
        [B, N]."""
        image = self.image
        has_begun = _count_before(ids == image.begin_id) > 0
        has_ended = (ids == image.end_id).cumsum(-1) > 0
        return has_begun & ~has_ended & (ids != image.newline_id)

    def source_image(self, ids: Tensor) -> Tensor:
        """The first image with its markers, bool [B, N]."""
        image = self.image
        has_begun = (ids == image.begin_id).cumsum(-1) > 0
        return has_begun & (_count_before((ids == image.end_id) & has_begun) == 0)

    def without_text(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Replace the instruction by the unconditional id.

        Returns:
            Ids, [B, N], and which positions are kept, bool [B, N]: the first position of the
            instruction holds the unconditional id, its others are dropped.
        """
        is_text = self.instruction(ids)
        lacks_text = ~is_text.any(-1)
        if lacks_text.any():
            raise ValueError(
                f"row {int(lacks_text.nonzero()[0])} has no instruction to leave out: there is no "
                f"text before its image, after text_begin_id {self.text_begin_id}; use a model "
                "whose layout is that of the rows"
            )
        is_first = is_text & (is_text.cumsum(-1) == 1)
        return torch.where(is_first, self.unconditional_id, ids), ~is_text | is_first

    def _with_markers(self, codes: Tensor) -> list[Tensor]:
        begin, end = _id_tensor(self.image.begin_id), _id_tensor(self.image.end_id)
        return [begin, self.image.to_tokens(codes), end]


def _id_tensor(id: int | None) -> Tensor:
    """[1], or [0] for no id."""
    return torch.tensor([] if id is None else [id], dtype=torch.long)


def _count_before(is_match: Tensor) -> Tensor:
    """Number of matches at earlier positions, [B, N]."""
    return is_match.cumsum(-1) - is_match.long()
