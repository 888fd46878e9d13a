"""The interface of backbones: embeddings in, logits out, and the facts that decoding needs.

History Reference works between the two halves: it takes the output of `embed`, adds the past
states, and passes the sum to `hidden`. A backbone whose outputs are shifted by one position (Dream)
or whose padding needs an attention mask handles that inside `hidden`, so that no caller has to.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.backbones.published import Settings
from remask.models.history import HistoryConfig
from remask.models.images.edit_rows import EditLayout
from remask.models.registry import add_to


class Backbone(nn.Module, ABC):
    """A mask diffusion model: tokens, some of them MASK, to a distribution per position.

    Subclasses are constructed as `Subclass(config, history=None)`.
    """

    kind: ClassVar[str]
    """Name in recipes (`model: {kind: sudoku}`) and in a checkpoint's config.json."""
    config_type: ClassVar[type]
    """Frozen dataclass of the settings that shape the model."""
    model_types: ClassVar[tuple[str, ...]] = ()
    """`model_type` of the published config.json files that this backbone reads."""
    sizes: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    """Keys of the config by the size that stands for them in recipes (`named_sizes.py`)."""
    vocabulary_fields: ClassVar[tuple[str, str] | None] = None
    """Fields of the config with the number of ids and the id of MASK, which a recipe may leave to
    its data; None if they follow from other fields."""
    architecture: ClassVar[str | None] = None
    """Class that such a file names in `architectures`; needed only where another backbone reads the
    same model_type."""

    config: Any
    """The instance of `config_type` that shaped this model."""
    history: HistoryConfig
    """How past states reach this model; saved with it."""
    mask_id: int
    vocab_size: int
    """Number of rows of the embedding, including MASK."""
    max_length: int | None = None
    """Maximum number of positions. Defaults to no limit."""
    excluded_ids: tuple[int, ...] = ()
    """Special and unused ids, which a prompt may hold but which are never revealed or proposed."""
    layout: EditLayout | None = None
    """How image edits are written as rows of tokens; None for models without images."""
    blocks: nn.ModuleList
    """The layers in their order. Muon optimises their matrices, LoRA adapts them, and activation
    checkpointing recomputes them one by one."""
    aliases: Mapping[str, str] = MappingProxyType({})
    """Other names that weight files may have for a tensor, to its name in this model."""

    @property
    @abstractmethod
    def token_embedding(self) -> Tensor:
        """wte, [V, D]."""

    @abstractmethod
    def hidden(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        """Embeddings [B, N, D] to final hidden states [B, N, D]; state i predicts position i.

        Args:
            embeds: Token embeddings, with or without history, in the model's dtype.
            attention_mask: Bool [B, N], false at padding. Defaults to no padding.
        """

    @abstractmethod
    def head(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., D] to logits [..., V]; separate, so that callers can apply it to a
        few positions at a time."""

    @classmethod
    def read_published(cls, settings: Settings, folder: Path) -> Any:
        """The config of a published model, for backbones with `model_types`.

        Args:
            settings: Its config.json.
            folder: The folder of that file, with the tokenizer beside it.

        Raises:
            ValueError: This backbone lacks a feature that the config asks for.
        """
        raise NotImplementedError(f"{cls.__qualname__} has model_types but no read_published")

    @classmethod
    def rename_published(cls, config: Any, name: str) -> str | None:
        """The name in this model of a tensor of a published file; None for an unused tensor."""
        return name

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids [B, N] to embeddings [B, N, D]."""
        return F.embedding(ids, self.token_embedding)

    def logits(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        """Embeddings [B, N, D] to logits over V ∪ {MASK}, [B, N, V]."""
        return self.head(self.hidden(embeds, attention_mask=attention_mask))

    @property
    def allowed_ids(self) -> Tensor:
        """Ids that may be revealed or proposed, bool [V]: all but MASK and `excluded_ids`."""
        device = self.token_embedding.device
        forbidden = torch.tensor([self.mask_id, *self.excluded_ids], device=device)
        allowed = torch.ones(self.vocab_size, dtype=torch.bool, device=device)
        return allowed.index_fill_(0, forbidden, False)

    def is_predictable(self, ids: Tensor) -> Tensor:
        """Whether the head covers each id, bool like ids; not asked about MASK."""
        return torch.ones_like(ids, dtype=torch.bool)

    def fits(self, vocab_size: int) -> bool:
        """Whether this is a model of ids below vocab_size, other than unused rows after them."""
        rest = range(vocab_size, self.vocab_size)
        return vocab_size <= self.vocab_size and set(rest) <= set(self.excluded_ids)


BACKBONES: dict[str, type[Backbone]] = {}
"""Every registered backbone by its kind."""

BackboneType = TypeVar("BackboneType", bound=type[Backbone])


def register_backbone(backbone: BackboneType) -> BackboneType:
    """Class decorator: lets recipes and checkpoints name a backbone by its `kind`.

    Raises:
        ValueError: Its kind is taken, or another backbone already reads one of its model_types.
    """
    for other in BACKBONES.values():
        shared = set(other.model_types) & set(backbone.model_types)
        if shared and other.kind != backbone.kind and other.architecture == backbone.architecture:
            raise ValueError(
                f"{backbone.__qualname__} cannot read model_type {min(shared)!r}: a {other.kind} "
                "does; set an architecture, or model_types = () to read no published folders"
            )
    add_to(BACKBONES, backbone.kind, backbone)
    return backbone


def check_ids(mask_token_id: int, excluded_ids: tuple[int, ...], vocab_size: int) -> None:
    """Raise ValueError for a mask or excluded id that is no row of the embedding."""
    for name, ids in (("mask_token_id", (mask_token_id,)), ("excluded_ids", excluded_ids)):
        outside = [x for x in ids if not 0 <= x < vocab_size]
        if outside:
            raise ValueError(f"{name} must lie below vocab_size {vocab_size}, got {outside[0]}")
