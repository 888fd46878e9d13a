"""Weights from safetensors, in one file or in shards, read straight to their device.

Tensors are read one at a time, so that peak memory is that of the model. A tensor that several
modules share is stored once, under any of its names.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from remask.models.checkpoints.folder import CheckpointError, check_inside

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")

Rename = Callable[[str], str | None]
"""The name of a tensor in a file to its name in the model; None for an unused tensor."""


def weight_files(folder: Path) -> list[Path]:
    """The file or shards that hold a folder's weights; CheckpointError if one is missing."""
    if (folder / WEIGHTS).is_file() or not (folder / INDEX).is_file():
        paths = [folder / WEIGHTS]
    else:
        paths = [folder / name for name in _shard_names(folder / INDEX)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        pickles = sorted(x.name for x in folder.iterdir() if x.suffix in PICKLES)
        hint = f"; {pickles} may run code when read, convert it to safetensors" if pickles else ""
        raise CheckpointError(f"{folder} lacks {' and '.join(missing)}{hint}")
    return paths


def _shard_names(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index} is not an index of shards: {error!r}") from error
    for name in names:
        try:
            is_beside = check_inside(name).endswith(".safetensors") and "/" not in name
        except ValueError:
            is_beside = False
        if not is_beside:
            raise CheckpointError(
                f"{index} names {name!r}, which is not a safetensors file beside it"
            )
    if not names:
        raise CheckpointError(f"{index} names no shards")
    return names


def unique_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module, with shared tensors under their first name only."""
    return {names[0]: x for names, x in _names_by_tensor(module)}


def check_weights(module: nn.Module, folder: Path, rename: Rename) -> None:
    """Raise CheckpointError unless the files' headers have the names and shapes of the module."""
    _match(module, folder, rename)


def read_weights(
    module: nn.Module,
    folder: Path,
    rename: Rename,
    device: torch.device,
    dtype: torch.dtype | None,
) -> None:
    """Read a folder's tensors into a module that was built on meta.

    Args:
        module: The model; shared parameters stay shared.
        folder: The checkpoint's folder.
        rename: Names in the files to names in the module.
        device: Device of the parameters.
        dtype: Dtype of the parameters. Defaults to the saved one.
    """
    for path, matches in _match(module, folder, rename).items():
        with _opened(path, str(device)) as file:  # one file at a time: closing it frees its pages
            for names, stored in matches:
                tensor = file.get_tensor(stored)
                if not tensor.is_floating_point():
                    raise CheckpointError(f"{path}: {stored} holds {tensor.dtype}, not weights")
                parameter = nn.Parameter(tensor if dtype is None else tensor.to(dtype))
                for name in names:
                    owner, _, leaf = name.rpartition(".")
                    setattr(module.get_submodule(owner), leaf, parameter)


def _names_by_tensor(module: nn.Module) -> list[tuple[list[str], Tensor]]:
    """Each tensor of a module's state once, with all of its names."""
    tensors: dict[int, tuple[list[str], Tensor]] = {}
    for name, x in module.state_dict(keep_vars=True).items():
        tensors.setdefault(id(x), ([], x))[0].append(name)
    return list(tensors.values())


@dataclass(frozen=True)
class _Stored:
    """A tensor in a file."""

    path: Path
    name: str
    shape: list[int]


def _match(
    module: nn.Module, folder: Path, rename: Rename
) -> dict[Path, list[tuple[list[str], str]]]:
    """For each file its tensors, as (names in the module, name in the file); all of them fit."""
    stored: dict[str, _Stored] = {}
    matches: dict[Path, list[tuple[list[str], str]]] = {}
    for path in weight_files(folder):
        with _opened(path, "cpu") as file:
            for name in sorted(file.keys()):
                new = rename(name)
                if new is not None:
                    stored[new] = _Stored(path, name, file.get_slice(name).get_shape())
    expected = _names_by_tensor(module)
    aliases = getattr(module, "aliases", {})
    accepted = [[*names, *(a for a in aliases if aliases[a] in names)] for names, _ in expected]
    _check_names(folder, accepted, stored)
    for (names, x), any_name in zip(expected, accepted, strict=True):
        entry = next(stored[name] for name in any_name if name in stored)
        if entry.shape != list(x.shape):
            raise CheckpointError(
                f"{entry.path}: {entry.name} is {entry.shape}, the config says {list(x.shape)}"
            )
        matches.setdefault(entry.path, []).append((names, entry.name))
    return matches


def _check_names(folder: Path, accepted: list[list[str]], stored: Mapping[str, _Stored]) -> None:
    known = {name for names in accepted for name in names}
    missing = sorted(names[0] for names in accepted if not any(n in stored for n in names))
    unknown = sorted(x.name for new, x in stored.items() if new not in known)
    if missing or unknown:
        parts = [f"lacks {missing[:3]}"] * bool(missing)
        parts += [f"has unknown {unknown[:3]}"] * bool(unknown)
        raise CheckpointError(
            f"{folder} {' and '.join(parts)} ({len(missing)} tensors missing, {len(unknown)} "
            "unknown); its weights do not belong to its config"
        )


@contextlib.contextmanager
def _opened(path: Path, device: str) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt", device=device) as file:
            yield file
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged or not safetensors: {error}") from error
