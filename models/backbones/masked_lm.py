"""Masked language models of transformers: BERT, RoBERTa, ModernBERT, ALBERT and relatives.

transformers builds a model from its config, without code from the checkpoint; the weights are read
by us. The model takes embeddings instead of ids, so that a history can be added. Parameters have
their published names, prefixed with `lm.`.
"""

import re
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.backbones.backbone import Backbone, check_ids, register_backbone
from remask.models.backbones.layers import check_length
from remask.models.backbones.published import Settings, check_fixed, with_token_ids
from remask.models.checkpoints.sizes import MAX_SIZE
from remask.models.history import HistoryConfig
from remask.models.ranges import Range, check_number

BUILD_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
)
"""What transformers raises for invalid settings, besides ValueError."""

PUBLISHED_FIXED = {
    "quantization_config": None,
    "position_embedding_type": "absolute",  # transformers ignores the other types silently
}
"""Settings of a published config.json that this backbone supports with these values only."""
NOT_SHAPE = re.compile(
    r"_.*|model_type|architectures|auto_map|mask_token_id|(torch_)?dtype|transformers_version"
    r"|attn_implementation"
)
"""Keys of a published config.json that do not shape the model."""
UNUSED_TENSORS = re.compile(r"pooler\.|seq_relationship|sop_classifier|(position_ids|inv_freq)$")
"""Published tensors of other heads, and buffers that are computed."""

PositionIds = Literal["learned", "after_padding", "rotary"]


@dataclass(frozen=True)
class Family:
    """Where the models of one model_type keep their parts."""

    blocks: str
    """Path of the layers within the model without its head."""
    head: tuple[str, ...]
    """Modules that turn hidden states into logits, in order."""
    positions: PositionIds = "learned"
    """How positions are numbered: `learned` from 0, `after_padding` from the padding token's id
    plus 1, and not at all with `rotary`."""


_BERT, _ROBERTA = "encoder.layer", Family("encoder.layer", ("lm_head",), "after_padding")

# A new model_type is one line here.
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
    """The config of a model of transformers, and the ids that decoding needs."""

    model_type: str
    """As in the published config.json; a key of `FAMILIES`."""
    settings: dict[str, Any]
    """The other settings of that file that shape the model."""
    mask_token_id: int
    excluded_ids: tuple[int, ...] = ()
    """Special and unused ids, which are never revealed; MASK need not be listed."""

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
            if isinstance(value, int):
                check_number(f"settings: {name}", value, Range(f"[-{MAX_SIZE}, {MAX_SIZE}]"))
        if self.settings.get("is_decoder"):
            raise ValueError("settings: is_decoder is true; the model must attend both ways")
        check_ids(self.mask_token_id, self.excluded_ids, self.settings["vocab_size"])


@register_backbone
class MaskedLM(Backbone):
    """A masked language model of transformers behind our interface."""

    kind = "masked_lm"
    config_type = MaskedLMConfig
    model_types = tuple(FAMILIES)

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
        padding, num_positions = self.lm.config.pad_token_id, self.lm.config.max_position_embeddings
        if after_padding and (type(padding) is not int or not 0 <= padding < num_positions - 1):
            raise ValueError(
                f"settings: pad_token_id must leave positions of {num_positions}, got {padding}"
            )
        self._first_position = padding + 1 if after_padding else 0
        self.max_length = num_positions - self._first_position

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
            inputs["position_ids"] = self._first_position + _indices(embeds, attention_mask)
        return self.lm.base_model(**inputs)[0]

    def head(self, hidden: Tensor) -> Tensor:
        for name in self._family.head:
            hidden = getattr(self.lm, name)(hidden)
        return hidden

    @classmethod
    def read_published(cls, settings: Settings, folder: Path) -> MaskedLMConfig:
        check_fixed(settings, PUBLISHED_FIXED)
        shape = {name: x for name, x in settings.items() if not NOT_SHAPE.fullmatch(name)}
        values = {"model_type": settings["model_type"], "settings": shape}
        return with_token_ids(MaskedLMConfig, values, settings, folder)

    @classmethod
    def rename_published(cls, config: Any, name: str) -> str | None:
        if UNUSED_TENSORS.search(name):
            return None
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")  # as in BERT's oldest files
        return "lm." + name.replace("LayerNorm.beta", "LayerNorm.bias")


def _indices(embeds: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Index of every token in its row, not counting padding, [B or 1, N]."""
    if attention_mask is None:
        return torch.arange(embeds.shape[1], device=embeds.device)[None]
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def _build(config: MaskedLMConfig) -> Any:
    """The model of transformers, with random weights unless torch's default device is meta."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForMaskedLM

    try:
        shape = AutoConfig.for_model(config.model_type, **config.settings)
        # A config may name an attention implementation that transformers would download.
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
    """Make the embedding the only owner of a weight that it shares with the head.

    Returns:
        The head's name for the weight, which files may use, to the embedding's name for it.
    """
    embedding, out = lm.get_input_embeddings(), lm.get_output_embeddings()
    if out.weight is not embedding.weight:
        return {}
    names = {id(module): f"lm.{name}.weight" for name, module in lm.named_modules()}
    lm.set_output_embeddings(_TiedHead(embedding, out.bias))
    return {names[id(out)]: names[id(embedding)]}


class _TiedHead(nn.Module):
    """A projection with the embedding's weight, which the embedding alone owns.

    ZeRO-3 releases the parameters that a module owns after each use; the embedding's is still
    needed after the head has run.
    """

    def __init__(self, embedding: nn.Embedding, bias: nn.Parameter | None) -> None:
        super().__init__()
        self._embedding = (embedding,)  # in a tuple, so that it does not become a submodule
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self._embedding[0].weight, self.bias)


def _fill_buffers(lm: Any) -> list[str]:
    """Compute buffers that no file holds, such as rotary frequencies, of a model built on meta.

    Returns:
        Names of the buffers that are still empty.
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
                lm._init_weights(module)  # leaves its weights on meta
        unfilled += [f"{name}.{k}" for k in empty if bool((getattr(module, k) == -1).any())]
    return unfilled
