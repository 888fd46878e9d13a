"""The shape of a new model by a size, and its vocabulary by its data.

    model: {kind: llada, size: tiny}

A size stands for the keys in the backbone's table (`Backbone.sizes`); keys beside it take
precedence. Vocabulary size and MASK come from the training data where they are left out.
"""

from collections.abc import Mapping
from typing import Any

from remask.models.backbones.backbone import BACKBONES, Backbone

KIND, SIZE = "kind", "size"


def find_backbone(settings: Mapping[str, Any]) -> type[Backbone]:
    """The class of a recipe's `model` section; ValueError for an unknown kind."""
    kind = settings.get(KIND)
    if not isinstance(kind, str) or kind not in BACKBONES:
        raise ValueError(f"model: kind must be one of {sorted(BACKBONES)}, got {kind!r}")
    return BACKBONES[kind]


def without_size(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's `model` section with the keys that its size stands for.

    Raises:
        ValueError: The kind is unknown, or has no such size.
    """
    backbone, values = find_backbone(settings), dict(settings)
    if SIZE not in values:
        return values
    size, known = values.pop(SIZE), list(backbone.sizes)
    if size not in known:
        choice = f"one of {known}" if known else "left out: this kind has no sizes"
        raise ValueError(f"model: size of kind {backbone.kind} must be {choice}, got {size!r}")
    return {KIND: backbone.kind, **backbone.sizes[size], **values}


def lacks_vocabulary(settings: Mapping[str, Any]) -> bool:
    """Whether a `model` section leaves its vocabulary to the data."""
    names = find_backbone(settings).vocabulary_fields
    return names is not None and any(name not in settings for name in names)


def with_vocabulary(settings: Mapping[str, Any], vocab_size: int, mask_id: int) -> dict[str, Any]:
    """A `model` section with the vocabulary of the data where it has none of its own."""
    names = find_backbone(settings).vocabulary_fields or ()
    return dict(zip(names, (vocab_size, mask_id), strict=False)) | dict(settings)
