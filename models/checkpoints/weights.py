"""Weights from safetensors, in one file or in shards, straight to where they are wanted.

Tensors are read one after another, so that no more of them than the model itself is ever held.
What several modules share is stored once, under any of its names.
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
"""A tensor's name in a file to its name in the model; none for what the model has no use for."""


def weight_files(folder: Path) -> list[Path]:
    """The file or shards that hold a folder's weights; CheckpointError if any is not there."""
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
            raise CheckpointError(f"{index} names {name!r}, which is no safetensors file beside it")
    if not names:
        raise CheckpointError(f"{index} names no shards")
    return names


def unique_tensors(module: nn.Module) -> dict[str, Tensor]:
    """A module's state, with what is shared only under its first name."""
    return {names[0]: x for names, x in _shared(module)}


def check_weights(module: nn.Module, folder: Path, rename: Rename) -> None:
    """By the files' headers alone: are they the module's weights, by name and shape?"""
    _match(module, folder, rename)


def read_weights(
    module: nn.Module,
    folder: Path,
    rename: Rename,
    device: torch.device,
    dtype: torch.dtype | None,
) -> None:
    """Put a folder's tensors into a module built on meta.

    Args:
        module: What they belong to; shared parameters stay shared.
        folder: A checkpoint's.
        rename: Names in the files to the module's.
        device: Where to put them.
        dtype: What to store them in; as saved when none.
    """
    for path, matches in _match(module, folder, rename).items():
        with _opened(path, str(device)) as file:  # no two at once: a shard's pages go with it
            for names, stored in matches:
                tensor = file.get_tensor(stored)
                if not tensor.is_floating_point():
                    raise CheckpointError(f"{path}: {stored} holds {tensor.dtype}, not weights")
                parameter = nn.Parameter(tensor if dtype is None else tensor.to(dtype))
                for name in names:
                    owner, _, leaf = name.rpartition(".")
                    setattr(module.get_submodule(owner), leaf, parameter)


def _shared(module: nn.Module) -> list[tuple[list[str], Tensor]]:
    """Each tensor of a module's state once, with all its names."""
    found: dict[int, tuple[list[str], Tensor]] = {}
    for name, x in module.state_dict(keep_vars=True).items():
        found.setdefault(id(x), ([], x))[0].append(name)
    return list(found.values())


@dataclass(frozen=True)
class _Stored:
    """A tensor in a file."""

    path: Path
    name: str
    shape: list[int]


def _match(
    module: nn.Module, folder: Path, rename: Rename
) -> dict[Path, list[tuple[list[str], str]]]:
    """For each file its tensors, by their names in the module and in the file; all of them fit."""
    stored: dict[str, _Stored] = {}
    matches: dict[Path, list[tuple[list[str], str]]] = {}
    for path in weight_files(folder):
        with _opened(path, "cpu") as file:
            for name in sorted(file.keys()):
                new = rename(name)
                if new is not None:
                    stored[new] = _Stored(path, name, file.get_slice(name).get_shape())
    wanted = _shared(module)
    aliases = getattr(module, "aliases", {})
    accepted = [[*names, *(a for a in aliases if aliases[a] in names)] for names, _ in wanted]
    _check_names(folder, accepted, stored)
    for (names, x), either in zip(wanted, accepted, strict=True):
        found = next(stored[name] for name in either if name in stored)
        if found.shape != list(x.shape):
            raise CheckpointError(
                f"{found.path}: {found.name} is {found.shape}, the config says {list(x.shape)}"
            )
        matches.setdefault(found.path, []).append((names, found.name))
    return matches


def _check_names(folder: Path, wanted: list[list[str]], stored: Mapping[str, _Stored]) -> None:
    known = {name for names in wanted for name in names}
    missing = sorted(names[0] for names in wanted if not any(n in stored for n in names))
    foreign = sorted(x.name for new, x in stored.items() if new not in known)
    if missing or foreign:
        parts = [f"lacks {missing[:3]}"] * bool(missing) + [f"has unknown {foreign[:3]}"] * bool(
            foreign
        )
        raise CheckpointError(
            f"{folder} {' and '.join(parts)} ({len(missing)} tensors missing, {len(foreign)} "
            "unknown); its weights do not belong to its config"
        )


@contextlib.contextmanager
def _opened(path: Path, device: str) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt", device=device) as file:
            yield file
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged or not safetensors: {error}") from error
