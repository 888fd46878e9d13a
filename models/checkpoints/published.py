"""Folders as their makers publish them: config.json by model_type, weights in safetensors.

Each kind says how its config is read and how its tensors are named. Configs with a feature that our
backbone does not have are refused, for they would load and compute something else.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remask.models.backbones.dream import DreamConfig, DreamMDM
from remask.models.backbones.llada import LladaConfig, LladaMDM
from remask.models.backbones.lumina import LuminaConfig, LuminaMDM
from remask.models.backbones.masked_lm import FAMILIES, MaskedLM, MaskedLMConfig
from remask.models.checkpoints.folder import CheckpointError
from remask.models.checkpoints.sizes import check_size
from remask.models.checkpoints.weights import Rename
from remask.models.config import from_mapping
from remask.models.images.edit_rows import EditLayout
from remask.models.text.tokens import find_mask, read_tokens

Settings = Mapping[str, Any]

LLADA_FIXED = {
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "bias_for_layer_norm": False,
    "attention_layer_norm": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "scale_logits": False,
    "rope": True,
    "alibi": False,
    "multi_query_attention": False,
}
DREAM_FIXED = {
    "hidden_act": "silu",
    "rope_scaling": None,
    "use_sliding_window": False,
}
MASKED_LM_FIXED = {
    "quantization_config": None,
    "position_embedding_type": "absolute",  # others were given up by transformers, silently
}
LUMINA_CLASS = "LLaDAForMultiModalGeneration"
"""Of Lumina-DiMOO, whose model_type is LLaDA's."""
NOT_SHAPE = re.compile(
    r"_.*|model_type|architectures|auto_map|mask_token_id|(torch_)?dtype|transformers_version"
    r"|attn_implementation"
)
"""Keys of a masked LM's config that say how it was saved or run."""
NO_USE = re.compile(r"pooler\.|seq_relationship|sop_classifier|(position_ids|inv_freq)$")
"""Tensors of other heads, and what is computed anew."""


@dataclass(frozen=True)
class Published:
    """How folders of one model_type are read."""

    kind: str
    """The backbone's."""
    read: Callable[[Settings, Path], Any]
    """config.json and its folder to the backbone's config."""
    rename: Callable[[Any], Rename]
    """The backbone's config to how its tensors are named."""


def find_published(folder: Path, settings: Settings) -> Published:
    """The reader for a config; CheckpointError says which there are."""
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in PUBLISHED:
        raise CheckpointError(
            f"{folder} holds a {kind!r} model; known model_types are {sorted(PUBLISHED)}"
        )
    classes = settings.get("architectures")
    if kind == "llada" and isinstance(classes, list) and LUMINA_CLASS in classes:
        return LUMINA
    return PUBLISHED[kind]


def read_config(folder: Path, settings: Settings) -> Any:
    """The backbone's config for a published one; CheckpointError for what it cannot be."""
    try:
        return find_published(folder, settings).read(settings, folder)
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{folder / 'config.json'}: {error}") from error


def _read_llada(settings: Settings, folder: Path) -> LladaConfig:
    return _with_tokens(LladaConfig, _llada_values(settings), settings, folder)


def _read_lumina(settings: Settings, folder: Path) -> LuminaConfig:
    values = _llada_values(settings)
    values["mask_token_id"] = settings.get("mask_token_id") or LuminaConfig().mask_token_id
    ids = read_tokens(folder).ids
    # Without them the whole template counts as the instruction.
    layout = EditLayout(text_begin_id=ids.get("<user>"), text_end_id=ids.get("</user>"))
    return replace(from_mapping(LuminaConfig, values, "config"), layout=layout)


def _llada_values(settings: Settings) -> dict[str, Any]:
    _check_fixed(settings, LLADA_FIXED)
    names = ("d_model", "n_layers", "n_heads", "mlp_hidden_size", "max_sequence_length")
    values = _pick(settings, names, ("n_kv_heads", "rope_theta", "rms_norm_eps", "weight_tying"))
    values.setdefault("n_kv_heads", values["n_heads"])
    rows = settings.get("embedding_size") or _pick(settings, ("vocab_size",))["vocab_size"]
    return values | {"vocab_size": rows}


def _llada_names(config: LladaConfig) -> Rename:
    head = "model.transformer.ff_out.weight"  # saved all the same by some that tie it
    return lambda name: None if config.weight_tying and name == head else name


def _read_dream(settings: Settings, folder: Path) -> DreamConfig:
    _check_fixed(settings, DREAM_FIXED)
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    values = _pick(
        settings,
        (*sizes, "vocab_size", "max_position_embeddings"),
        ("num_key_value_heads", "rope_theta", "rms_norm_eps", "tie_word_embeddings"),
    )
    values.setdefault("num_key_value_heads", values["num_attention_heads"])
    return _with_tokens(DreamConfig, values, settings, folder)


def _dream_names(config: DreamConfig) -> Rename:
    def rename(name: str) -> str | None:
        is_repeated = config.tie_word_embeddings and name == "lm_head.weight"
        return None if is_repeated or name.endswith("rotary_emb.inv_freq") else name

    return rename


def _read_masked_lm(settings: Settings, folder: Path) -> MaskedLMConfig:
    _check_fixed(settings, MASKED_LM_FIXED)
    kept = {name: x for name, x in settings.items() if not NOT_SHAPE.fullmatch(name)}
    values = {"model_type": settings["model_type"], "settings": kept}
    return _with_tokens(MaskedLMConfig, values, settings, folder)


def _masked_lm_names(config: MaskedLMConfig) -> Rename:
    def rename(name: str) -> str | None:
        if NO_USE.search(name):
            return None
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")  # as BERT's oldest files have it
        return "lm." + name.replace("LayerNorm.beta", "LayerNorm.bias")

    return rename


def _with_tokens(kind: type, values: dict[str, Any], settings: Settings, folder: Path) -> Any:
    """Add what the tokenizer knows: MASK, and the ids that are never revealed."""
    tokens = read_tokens(folder)
    rows = values["vocab_size"] if "vocab_size" in values else settings.get("vocab_size")
    if type(rows) is not int:
        raise ValueError(f"vocab_size must be int, got {rows!r}")
    check_size("vocab_size", rows)  # before its ids are listed
    values["mask_token_id"] = find_mask(folder, tokens, settings.get("mask_token_id"))
    values["excluded_ids"] = tokens.excluded(rows)
    return from_mapping(kind, values, "config")


def _check_fixed(settings: Settings, fixed: Settings) -> None:
    for name, value in fixed.items():
        if settings.get(name) not in (None, value):  # null: the default, which is ours
            raise ValueError(f"{name} is {settings[name]!r}; only {value!r} can be loaded")


def _pick(
    settings: Settings, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    found = {n: settings[n] for n in (*needed, *optional) if settings.get(n) is not None}
    missing = [name for name in needed if name not in found]
    if missing:
        raise ValueError(f"it lacks {missing}")
    return found


LUMINA = Published(LuminaMDM.kind, _read_lumina, _llada_names)

# A new kind is one line here.
PUBLISHED: dict[str, Published] = {
    "Dream": Published(DreamMDM.kind, _read_dream, _dream_names),
    "llada": Published(LladaMDM.kind, _read_llada, _llada_names),
    **dict.fromkeys(FAMILIES, Published(MaskedLM.kind, _read_masked_lm, _masked_lm_names)),
}
