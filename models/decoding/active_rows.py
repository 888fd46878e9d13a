"""The rows of a batch that are still being decoded, with everything that is kept per row."""

import torch
from torch import Tensor

from remask.models.decoding.policy import DecodeState
from remask.models.history import HistoryState
from remask.models.images.guidance import Guide
from remask.models.noise import KeyedNoise


class ActiveRows:
    """The rows that are not finished; `index` holds their positions in the batch."""

    def __init__(
        self,
        tokens: Tensor,
        editable: Tensor,
        attention_mask: Tensor | None,
        row_ids: Tensor,
        history: HistoryState,
    ) -> None:
        self.index = torch.arange(tokens.shape[0], device=tokens.device)
        self.tokens = self.start = tokens
        self.editable = editable
        self.attention_mask = attention_mask
        self.row_ids = row_ids
        self.history = history
        self.idle_steps = torch.zeros_like(self.index)
        self.revealed_with = torch.zeros(tokens.shape, device=tokens.device)
        self.times_remasked = torch.zeros_like(tokens)
        self.guide: Guide | None = None

    def is_masked(self, mask_id: int) -> Tensor:
        return self.editable & (self.tokens == mask_id)

    def state(self, mask_id: int, step: int, max_steps: int, seed: int) -> DecodeState:
        is_masked = self.is_masked(mask_id)
        return DecodeState(
            tokens=self.tokens,
            start=self.start,
            editable=self.editable,
            is_masked=is_masked,
            is_visible=self.editable & ~is_masked,
            idle_steps=self.idle_steps,
            revealed_with=self.revealed_with,
            times_remasked=self.times_remasked,
            step=step,
            max_steps=max_steps,
            mask_id=mask_id,
            noise=KeyedNoise(seed, step, self.row_ids),
        )

    def keep(self, is_kept: Tensor) -> None:
        """Drop all rows but these, bool [B]."""
        if is_kept.all():
            return
        for name in ("index", "tokens", "start", "editable", "row_ids", "idle_steps"):
            setattr(self, name, getattr(self, name)[is_kept])
        self.revealed_with = self.revealed_with[is_kept]
        self.times_remasked = self.times_remasked[is_kept]
        if self.attention_mask is not None:
            self.attention_mask = self.attention_mask[is_kept]
        self.history.select(is_kept)
        if self.guide is not None:
            self.guide.select(is_kept)
