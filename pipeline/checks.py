"""What a file of rows must hold: checked by the one decoder that every reader uses.

A checksum says that bytes are those that were written, not that they are rows: a data set may come
from anybody. Training indexes tables by these numbers, on a GPU without any check. Numbers are
looked at in the form they are stored in, where only the positions that move have any, so that it
costs little; `check_trajectories` is the same law on whole grids.
"""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.trajectory import Bools, Ints, Noise

LARGEST_VOCABULARY = 1 << 31
BINARY = (pa.types.is_binary, pa.types.is_fixed_size_binary)
COLUMN_TYPES = {
    "example_id": (pa.types.is_string,),
    "prompt_length": (pa.types.is_int32,),
    "step": (pa.types.is_uint16,),
}
"""All other columns are binary."""


def check_columns(schema: pa.Schema) -> None:
    """Raise ValueError unless every column has the type that it is written with."""
    for field in schema:
        if not any(fits(field.type) for fits in COLUMN_TYPES.get(field.name, BINARY)):
            raise ValueError(f"column {field.name} has type {field.type}")


def check_table(table: pa.Table) -> None:
    """Raise ValueError at a value that is missing; only `editable` may be."""
    for name in table.column_names:
        if name != "editable" and table[name].null_count:
            raise ValueError(f"column {name} lacks a value")


def check_meta(meta: dict[str, Any], *numbers: str) -> None:
    """Raise ValueError unless a file's metadata has a vocabulary, and these numbers too."""
    for name in ("size", "mask_id", "id_bits", *numbers):
        if type(meta.get(name)) is not int or not 0 <= meta[name] <= LARGEST_VOCABULARY:
            raise ValueError(f"its metadata has {name} {meta.get(name)!r}")
    if meta["mask_id"] >= meta["size"]:
        raise ValueError(f"MASK is {meta['mask_id']} of {meta['size']} ids")
    excluded = meta.get("excluded")
    if not isinstance(excluded, list) or not all(map(_is_pair, excluded)):
        raise ValueError("excluded must be a list of first and last ids")
    ends = [-1, *(x for run in excluded for x in run)]
    if any(a > b for a, b in itertools.pairwise(ends)) or ends[-1] >= meta["size"]:
        raise ValueError(f"excluded ids must ascend below the vocabulary's size {meta['size']}")


def _is_pair(run: Any) -> bool:
    return isinstance(run, list) and len(run) == 2 and all(type(x) is int for x in run)


def check_tokens(values: Ints, lengths: Ints, prompt_lengths: Ints, meta: dict[str, Any]) -> None:
    """Raise ValueError at ids that are no targets, or prompts that are longer than their rows.

    Args:
        values: Ids of all rows, one row after another.
        lengths: Of each row, [B].
        prompt_lengths: [B].
        meta: The file's.
    """
    _check_ids("target", values, meta)
    if len(prompt_lengths) and (prompt_lengths.min() < 0 or (prompt_lengths > lengths).any()):
        row = int(np.flatnonzero((prompt_lengths < 0) | (prompt_lengths > lengths))[0])
        raise ValueError(
            f"row {row} has {lengths[row]} tokens, of which {prompt_lengths[row]} are its prompt"
        )


def count_in_rows(at: Ints, shape: tuple[int, int]) -> Ints:
    """How many ascending indices into a flattened grid fall into each of its rows, [B]."""
    return np.diff(np.searchsorted(at, np.arange(shape[0] + 1) * shape[1]))


def check_sizes(name: str, sizes: Ints, wanted: Ints) -> None:
    """Raise ValueError where a row has another number of values than it needs, [B] each."""
    if not np.array_equal(sizes, wanted):
        row = int(np.flatnonzero(sizes != wanted)[0])
        raise ValueError(f"{name} has {sizes[row]} values in row {row}, not {wanted[row]}")


def check_noise(
    noise: Noise, num_wrong: Ints, editable: Bools, horizon: int, meta: dict[str, Any]
) -> None:
    """Raise ValueError at positions that move as no trajectory does.

    Args:
        noise: As it is stored, with as many boundaries as positions.
        num_wrong: Wrong tokens of each row, [B].
        editable: E, bool [B, N].
        horizon: T.
        meta: The file's.
    """
    check_sizes("wrong", num_wrong, count_in_rows(noise.visible, editable.shape))
    _check_ids("wrong", noise.wrong, meta)
    if noise.at.size and not editable.ravel()[noise.at].all():
        raise ValueError("a position moves that is not editable")
    if (noise.masked_at >= noise.revealed_at).any():
        raise ValueError("a position is revealed before it is masked")
    for name, values in (("revealed_at", noise.revealed_at), ("step", noise.step)):
        if int(values.max(initial=0)) > horizon:
            raise ValueError(f"{name} must not exceed horizon {horizon}, got {values.max()}")


def _check_ids(name: str, ids: Ints, meta: dict[str, Any]) -> None:
    if int(ids.max(initial=0)) >= meta["size"]:
        raise ValueError(f"{name} has the id {ids.max()}, of a vocabulary of {meta['size']}")
    if (ids == meta["mask_id"]).any():
        raise ValueError(f"{name} must not be MASK ({meta['mask_id']})")
