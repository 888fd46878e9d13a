"""An image edit as one row of tokens: instruction, source image, and the image to be made.

    canvas   instruction  ANSWER  BOI source→target EOI  END
    prompt   instruction… BOI source EOI …  ANSWER  BOI target EOI  END

A reviser starts from the source in the canvas and changes it; a model that fills in masks is given
the source in its prompt, as Lumina-DiMOO is, before the last token of the instruction's template.
Where the instruction and the source lie can be told from the ids alone, so that guidance and
dropout need nothing but a row.
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
    """One edit; [N] each."""

    target: Tensor
    """Ids with the target image in the canvas."""
    wrong: Tensor
    """Ids with the source image in the canvas, or the target's where it is in the prompt."""
    editable: Tensor
    """The canvas's codes, bool."""
    prompt_length: int
    """Ids before the canvas's first."""


@dataclass(frozen=True, kw_only=True)
class EditLayout:
    """The ids that edits are written with. The defaults are Lumina-DiMOO's."""

    image: ImageLayout = field(default_factory=ImageLayout)
    unconditional_id: int = 126351
    """Stands for the instruction where there is none."""
    answer_id: int | None = 126354
    """Before the canvas; nothing when none."""
    answer_end_id: int | None = 126355
    """After it."""
    text_begin_id: int | None = None
    """Before the instruction itself, within its template; the row's start when none."""
    text_end_id: int | None = None
    """After it; what follows may be an image or the answer all the same."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids that have a meaning here, codes aside."""
        image = self.image
        marks = (self.unconditional_id, self.answer_id, self.answer_end_id)
        ends = (self.text_begin_id, self.text_end_id)
        found = (image.newline_id, image.begin_id, image.end_id, *marks, *ends)
        return tuple(x for x in found if x is not None)

    def writes_as(self, other: "EditLayout") -> bool:
        """Do both write the same rows? Where the instruction itself is, within its template, they
        need not know alike."""
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
            target: Codes, [h, w]; of another size only where the source is in the prompt.
            source_in: Where the source lies.
        """
        if source_in == "canvas" and source.shape != target.shape:
            raise ValueError(
                "source and target must have one size to share a canvas, got "
                f"{list(source.shape)} and {list(target.shape)} codes"
            )
        before = [torch.tensor(list(prompt), dtype=torch.long)]
        if source_in == "prompt":
            words = before[0]
            before = [words[:-1], *self._marked(source), words[-1:]]
        before += [_one(self.answer_id), _one(self.image.begin_id)]
        after = [_one(self.image.end_id), _one(self.answer_end_id)]
        given = target if source_in == "prompt" else source
        rows = [torch.cat([*before, self.image.to_tokens(x), *after]) for x in (target, given)]
        length = sum(map(len, before))
        editable = torch.zeros(len(rows[0]), dtype=torch.bool)
        cells = self.image.cells(*target.shape)
        editable[length : length + len(cells)] = cells
        return EditRow(rows[0], rows[1], editable, length)

    def instruction(self, ids: Tensor) -> Tensor:
        """Where the instruction stands, bool [B, N]."""
        stops = [self.image.begin_id, self.answer_id, self.text_end_id]
        known = torch.tensor([x for x in stops if x is not None], device=ids.device)
        has_begun = torch.ones_like(ids, dtype=torch.bool)
        if self.text_begin_id is not None:
            has_begun = _before(ids == self.text_begin_id) > 0
        has_ended = (torch.isin(ids, known) & has_begun).cumsum(-1) > 0
        return has_begun & ~has_ended

    def source_cells(self, ids: Tensor) -> Tensor:
        """Where the source's codes stand, or what became of them: in the first image, [B, N]."""
        image = self.image
        is_inside = (_before(ids == image.begin_id) > 0) & ((ids == image.end_id).cumsum(-1) == 0)
        return is_inside & (ids != image.newline_id)

    def source_image(self, ids: Tensor) -> Tensor:
        """The first image with its marks, [B, N]."""
        image = self.image
        has_begun = (ids == image.begin_id).cumsum(-1) > 0
        return has_begun & (_before((ids == image.end_id) & has_begun) == 0)

    def without_text(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rows whose instruction is the unconditional id alone.

        Returns:
            Ids [B, N], and which of them there still are, bool [B, N].
        """
        spoken = self.instruction(ids)
        mute = ~spoken.any(-1)
        if mute.any():
            raise ValueError(
                f"row {int(mute.nonzero()[0])} has no instruction to leave out: none stands before "
                f"its image, after text_begin_id {self.text_begin_id}; is the model's layout that "
                "of the rows?"
            )
        is_first = spoken & (spoken.cumsum(-1) == 1)
        return torch.where(is_first, self.unconditional_id, ids), ~spoken | is_first

    def _marked(self, codes: Tensor) -> list[Tensor]:
        return [_one(self.image.begin_id), self.image.to_tokens(codes), _one(self.image.end_id)]


def _one(id: int | None) -> Tensor:
    return torch.tensor([] if id is None else [id], dtype=torch.long)


def _before(found: Tensor) -> Tensor:
    """How many were found at earlier positions."""
    return found.cumsum(-1) - found.long()
