"""What every backbone offers: embeddings in, logits out, and the few facts a reviser needs.

History Reference works between the two halves: it takes what `embed` returns, adds the past, and
hands the sum to `hidden`. A backbone whose outputs are shifted by a position (Dream) or whose
padding needs a mask deals with that inside `hidden`, so that nobody else has to know.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.history import HistoryConfig
from remask.models.images.edit_rows import EditLayout


class Backbone(nn.Module, ABC):
    """A mask diffusion model: tokens with MASK among them to a distribution per position."""

    kind: ClassVar[str]
    """Name in a checkpoint's config.json."""
    config: Any
    """Frozen dataclass that shaped the model."""
    mask_id: int
    vocab_size: int
    """Rows of the embedding, MASK included."""
    max_length: int | None = None
    """Positions it can take at most; any number when none."""
    excluded_ids: tuple[int, ...] = ()
    """Special and unused ids, which may be in a prompt but are never revealed or proposed."""
    aliases: Mapping[str, str] = MappingProxyType({})
    """Further names that files may have for a tensor, to its name here."""
    history: HistoryConfig
    """How past states reach this model: what it was trained with."""
    layout: EditLayout | None = None
    """How image edits lie in its rows, if it makes images."""
    blocks: nn.ModuleList
    """The layers that follow one another: Muon's matrices, and the units of recomputation."""

    @property
    @abstractmethod
    def token_embedding(self) -> Tensor:
        """wte, [V, D]."""

    @abstractmethod
    def hidden(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        """Embeddings [B, N, D] to final hidden states [B, N, D], the i-th predicting position i.

        Args:
            embeds: Token embeddings, with or without their past, in the model's dtype.
            attention_mask: Bool [B, N], false at padding; none when there is no padding.
        """

    @abstractmethod
    def head(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., D] to logits [..., V]; apart, so that they can be made piecemeal."""

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids [B, N] to embeddings [B, N, D]."""
        return F.embedding(ids, self.token_embedding)

    def logits(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        """Embeddings [B, N, D] to logits over V ∪ {MASK}, [B, N, V]."""
        return self.head(self.hidden(embeds, attention_mask=attention_mask))

    @property
    def allowed_ids(self) -> Tensor:
        """Bool [V]: ids that may be revealed or proposed; never MASK, nor special or unused."""
        device = self.token_embedding.device
        forbidden = torch.tensor([self.mask_id, *self.excluded_ids], device=device)
        allowed = torch.ones(self.vocab_size, dtype=torch.bool, device=device)
        return allowed.index_fill_(0, forbidden, False)

    def can_say(self, ids: Tensor) -> Tensor:
        """Which ids the head has a probability for at all, bool like ids; MASK aside."""
        return torch.ones_like(ids, dtype=torch.bool)

    def fits(self, vocab_size: int) -> bool:
        """Is it a model of ids below vocab_size? Published ones have unused rows after these."""
        rest = range(vocab_size, self.vocab_size)
        return vocab_size <= self.vocab_size and set(rest) <= set(self.excluded_ids)


def check_ids(mask_token_id: int, excluded_ids: tuple[int, ...], vocab_size: int) -> None:
    """Raise ValueError for a mask or excluded id that is no row of the embedding."""
    for name, ids in (("mask_token_id", (mask_token_id,)), ("excluded_ids", excluded_ids)):
        outside = [x for x in ids if not 0 <= x < vocab_size]
        if outside:
            raise ValueError(f"{name} must lie below vocab_size {vocab_size}, got {outside[0]}")
