"""Masked language models of Hugging Face's kinds: BERT, RoBERTa, ModernBERT, ALBERT and theirs.

transformers builds them from their config, with no code but its own; weights are read by us. They
are fed embeddings instead of ids, so that a past can be added. Parameters are the published ones
under `lm.`.
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.backbones.backbone import Backbone, check_ids
from remask.models.backbones.layers import check_length
from remask.models.checkpoints.sizes import MOST_SIZE, shown
from remask.models.history import HistoryConfig

BUILD_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
)
"""What transformers raises for settings that make no model, besides ValueError."""

Positions = Literal["learned", "after_padding", "rotary"]


@dataclass(frozen=True)
class Family:
    """Where a kind of model keeps its parts."""

    blocks: str
    """Its layers, within the model without its head."""
    head: tuple[str, ...]
    """Modules that make logits of hidden states, one after another."""
    positions: Positions = "learned"
    """`learned` counts from 0; `after_padding` from the padding token's id on."""


_BERT, _ROBERTA = "encoder.layer", Family("encoder.layer", ("lm_head",), "after_padding")

# A new kind is one line here.
FAMILIES = {
    "albert": Family("encoder.albert_layer_groups", ("predictions",)),
    "bert": Family(_BERT, ("cls",)),
    "camembert": _ROBERTA,
    "distilbert": Family(
        "transformer.layer",
        ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
    ),
    "electra": Family(_BERT, ("generator_predictions", "generator_lm_head")),
    "modernbert": Family("layers", ("head", "decoder"), "rotary"),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig:
    """A model of transformers', and what a reviser needs besides."""

    model_type: str
    """Its kind, as in the published config.json."""
    settings: dict[str, Any]
    """The rest of that file, as far as it shapes the model."""
    mask_token_id: int
    excluded_ids: tuple[int, ...] = ()
    """Special and unused ids, which are never revealed; MASK need not be among them."""

    def __post_init__(self) -> None:
        if self.model_type not in FAMILIES:
            raise ValueError(
                f"model_type must be one of {sorted(FAMILIES)}, got {self.model_type!r}"
            )
        if type(self.settings.get("vocab_size")) is not int:
            raise ValueError(
                f"settings: vocab_size must be int, got {self.settings.get('vocab_size')!r}"
            )
        for name, value in self.settings.items():
            if isinstance(value, int) and abs(value) > MOST_SIZE:
                raise ValueError(f"settings: {name} must lie below {MOST_SIZE}, got {shown(value)}")
        if self.settings.get("is_decoder"):
            raise ValueError("settings: is_decoder is true; the model must attend both ways")
        check_ids(self.mask_token_id, self.excluded_ids, self.settings["vocab_size"])


class MaskedLM(Backbone):
    """transformers' model, its token embedding taken apart from the rest."""

    kind = "masked_lm"

    def __init__(self, config: MaskedLMConfig, history: HistoryConfig | None = None) -> None:
        super().__init__()
        self.config: MaskedLMConfig = config
        self.history = history or HistoryConfig(norm="match")
        self._family = FAMILIES[config.model_type]
        self.lm: Any = _build(config)
        self.aliases = _tie_head(self.lm)
        self.mask_id, self.vocab_size = config.mask_token_id, config.settings["vocab_size"]
        self.excluded_ids = config.excluded_ids
        after_padding = self._family.positions == "after_padding"
        padding, longest = self.lm.config.pad_token_id, self.lm.config.max_position_embeddings
        if after_padding and (type(padding) is not int or not 0 <= padding < longest - 1):
            raise ValueError(
                f"settings: pad_token_id must leave positions of {longest}, got {padding}"
            )
        self._first = padding + 1 if after_padding else 0
        self.max_length = longest - self._first

    @property
    def blocks(self) -> nn.ModuleList:  # pyright: ignore[reportIncompatibleVariableOverride]
        return attrgetter(self._family.blocks)(self.lm.base_model)

    @property
    def token_embedding(self) -> Tensor:
        return self.lm.get_input_embeddings().weight

    def hidden(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        check_length(embeds.shape[1], self.max_length or 0)
        inputs = {"inputs_embeds": embeds, "attention_mask": attention_mask}
        if self._family.positions != "rotary":
            inputs["position_ids"] = self._first + _count(embeds, attention_mask)
        return self.lm.base_model(**inputs)[0]

    def head(self, hidden: Tensor) -> Tensor:
        for name in self._family.head:
            hidden = getattr(self.lm, name)(hidden)
        return hidden


def _count(embeds: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Every token's number from 0 in its row, padding not counted, [B or 1, N]."""
    if attention_mask is None:
        return torch.arange(embeds.shape[1], device=embeds.device)[None]
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def _build(config: MaskedLMConfig) -> Any:
    """transformers' model with random weights, or without any where torch's device is meta."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForMaskedLM

    try:
        shape = AutoConfig.for_model(config.model_type, **config.settings)
        # Named, for a config may ask for an implementation that would be fetched.
        lm = AutoModelForMaskedLM.from_config(shape, attn_implementation="sdpa")
        unfilled = _fill_buffers(lm)
    except (*BUILD_ERRORS, StrictDataclassError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"transformers cannot build this {config.model_type}: {reason}") from error
    if unfilled:
        raise RuntimeError(
            f"this version of transformers does not fill {unfilled[0]} of a {config.model_type}; "
            "remask needs 5.0 or newer"
        )
    return lm


def _tie_head(lm: Any) -> dict[str, str]:
    """Leave the embedding the only owner of a weight it shares with the head.

    Returns:
        The head's name for it, which files may use, to the embedding's.
    """
    embedding, out = lm.get_input_embeddings(), lm.get_output_embeddings()
    if out.weight is not embedding.weight:
        return {}
    names = {id(module): f"lm.{name}.weight" for name, module in lm.named_modules()}
    lm.set_output_embeddings(_TiedHead(embedding, out.bias))
    return {names[id(out)]: names[id(embedding)]}


class _TiedHead(nn.Module):
    """A projection with the embedding's weight, of which the embedding alone is the owner.

    Where ZeRO divides parameters it gives back a module's own after each use, and this one is
    needed on.
    """

    def __init__(self, embedding: nn.Embedding, bias: nn.Parameter | None) -> None:
        super().__init__()
        self._embedding = (embedding,)  # in a tuple, so that it is no part of this
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self._embedding[0].weight, self.bias)


def _fill_buffers(lm: Any) -> list[str]:
    """Compute what is in no file, such as rotary frequencies, where a model was built on meta.

    Returns:
        Names of buffers that are still empty.
    """
    unfilled = []
    for name, module in lm.named_modules():
        empty = [key for key, x in module.named_buffers(recurse=False) if x.is_meta]
        for key in empty:
            buffer = getattr(module, key)
            unset = torch.full(buffer.shape, -1, dtype=buffer.dtype, device="cpu")
            module.register_buffer(key, unset, persistent=False)
        if empty:
            with torch.device("cpu"):
                lm._init_weights(module)  # its weights, on meta, stay there
        unfilled += [f"{name}.{k}" for k in empty if bool((getattr(module, k) == -1).any())]
    return unfilled
