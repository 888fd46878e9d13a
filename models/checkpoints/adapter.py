"""LoRA adapters: small trained matrices beside a frozen base model, through peft.

    adapter_config.json          as peft writes it
    adapter_model.safetensors    the matrices
    adapter.json                 the base model, its fingerprint, the history settings
    decoding.json                decoding settings, once `remask tune` has chosen them
    inputs.json                  how inputs are read, with the tokenizer beside it
    SHA256SUMS                   checksums of the files above

peft is imported only when an adapter is read or made.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from remask.models.backbones.backbone import Backbone
from remask.models.checkpoints.folder import DECODING, CheckpointError, atomic_folder
from remask.models.checkpoints.input_files import NAMES as INPUT_NAMES
from remask.models.checkpoints.input_files import InputFiles, write_input_files
from remask.models.checkpoints.sizes import Positive, check_size
from remask.models.config import from_mapping
from remask.models.history import HistoryConfig
from remask.models.ranges import check_fields

CONFIG, WEIGHTS, SETTINGS = "adapter_config.json", "adapter_model.safetensors", "adapter.json"
CARD = "README.md"
FILES = (CONFIG, WEIGHTS, SETTINGS)


@dataclass(frozen=True, kw_only=True)
class AdapterSettings:
    """What is needed to apply an adapter to its base model."""

    base: str
    """Checkpoint folder of the base model."""
    base_fingerprint: str
    rank: int
    """At most the largest dimension of an adapted matrix."""
    alpha: Positive
    history: HistoryConfig

    def __post_init__(self) -> None:
        check_fields(self)


def add_lora(backbone: Backbone, rank: int, alpha: float, dropout: float = 0.0) -> None:
    """Freeze a model and add trainable matrices to the linear layers of its blocks, in place."""
    from peft import LoraConfig, inject_adapter_in_model

    linear = {id(x): x for x in backbone.blocks.modules() if isinstance(x, nn.Linear)}
    check_size("rank", rank, max(max(x.weight.shape) for x in linear.values()))
    targets = [name for name, x in backbone.named_modules() if id(x) in linear]
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets)  # pyright: ignore[reportArgumentType]
    inject_adapter_in_model(config, backbone)


def has_adapter(backbone: nn.Module) -> bool:
    return any("lora_A" in name for name, _ in backbone.named_parameters())


def save_adapter(
    backbone: Backbone,
    path: str | os.PathLike[str],
    settings: AdapterSettings,
    *,
    tensors: dict[str, Any] | None = None,
    card: str | None = None,
    inputs: InputFiles | None = None,
) -> None:
    """Write the adapter of a model, without the base model; see `checkpoint.save`."""
    from peft import get_peft_model_state_dict

    with atomic_folder(path, (*FILES, CARD, DECODING, *INPUT_NAMES)) as partial:
        config = backbone.peft_config["default"].to_dict()  # pyright: ignore
        plain = {k: sorted(v) if isinstance(v, set) else v for k, v in config.items()}
        (partial / CONFIG).write_text(json.dumps(plain, indent=2, default=str) + "\n")
        weights = get_peft_model_state_dict(backbone, state_dict=tensors)
        save_file({k: x.detach().contiguous() for k, x in weights.items()}, partial / WEIGHTS)
        (partial / SETTINGS).write_text(json.dumps(dataclasses.asdict(settings), indent=2) + "\n")
        if card is not None:
            (partial / CARD).write_text(card)
        write_input_files(partial, inputs or {})


def is_adapter(folder: Path) -> bool:
    return os.path.isfile(folder / SETTINGS)  # also false for overlong names


def read_settings(folder: Path) -> AdapterSettings:
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(f"{folder} lacks {' and '.join(missing)}")
    try:
        values = json.loads((folder / SETTINGS).read_text())
        return from_mapping(AdapterSettings, values, "settings")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / SETTINGS}: {error}") from error


def apply_adapter(backbone: Backbone, folder: Path, settings: AdapterSettings) -> Backbone:
    """Add a saved adapter to its base model, in place."""
    from peft import set_peft_model_state_dict

    try:
        add_lora(backbone, settings.rank, settings.alpha)
    except ValueError as error:
        raise CheckpointError(f"{folder / SETTINGS}: {error}") from error
    backbone.history = settings.history
    try:
        result = set_peft_model_state_dict(backbone, load_file(folder / WEIGHTS))
    except (SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"{folder / WEIGHTS} does not fit its model: {reason}") from error
    if result.unexpected_keys:
        raise CheckpointError(f"{folder / WEIGHTS} has unknown {result.unexpected_keys[:3]}")
    return backbone


def merge(backbone: Backbone) -> Backbone:
    """Add the matrices of an adapter to the base weights and remove the adapter, in place."""
    from peft.tuners.lora import LoraLayer

    for module in list(backbone.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LoraLayer):
                child.merge(safe_merge=True)  # pyright: ignore[reportCallIssue]
                setattr(module, name, child.get_base_layer())
    del backbone.peft_config
    for parameter in backbone.parameters():
        parameter.requires_grad_(True)
    return backbone
