"""Checks of a file's rows, made by the one decoder that every reader uses.

A checksum proves that bytes are as written, not that they are valid rows: a data set may come from
anyone. Training indexes tables by these numbers, on a GPU without any check. The checks look at the
stored form, which holds only the positions that move, so they cost little.
"""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from remask.pipeline.moves import Bools, Ints, Moves

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
    _check_targets(values, meta)
    if len(prompt_lengths) and (prompt_lengths.min() < 0 or (prompt_lengths > lengths).any()):
        row = int(np.flatnonzero((prompt_lengths < 0) | (prompt_lengths > lengths))[0])
        raise ValueError(
            f"row {row} has {lengths[row]} tokens, of which {prompt_lengths[row]} are its prompt"
        )


def check_sizes(name: str, sizes: Ints, wanted: Ints) -> None:
    """Raise ValueError where a row has another number of values than it needs, [B] each."""
    if not np.array_equal(sizes, wanted):
        row = int(np.flatnonzero(sizes != wanted)[0])
        raise ValueError(f"{name} has {sizes[row]} values in row {row}, not {wanted[row]}")


def check_moves(moves: Moves, editable: Bools, meta: dict[str, Any], *, all_editable: bool) -> None:
    """Raise ValueError at positions that move as no trajectory does.

    Args:
        moves: As they are stored.
        editable: E, bool [B, N].
        meta: The file's.
        all_editable: Whether every position is editable, so that the check can be skipped.
    """
    if moves.count.sum() != moves.at.size or len(moves.count) != len(editable):
        raise ValueError(f"ends have {moves.count.sum()} values for {moves.at.size} positions")
    if not all_editable and not editable.ravel()[moves.at].all():
        raise ValueError("a position moves that is not editable")
    for older, newer in itertools.pairwise(moves.ends):
        if ((older >= newer) & (older > 0)).any():
            raise ValueError("a segment ends after the next one")
    if not moves.ends[-1].all():
        raise ValueError("a position that moves has no segment before its target")
    for name, values in (("end_1", moves.ends[-1]), ("step", moves.step)):
        if int(values.max(initial=0)) > meta["horizon"]:
            raise ValueError(
                f"{name} must not exceed horizon {meta['horizon']}, got {values.max()}"
            )


def check_ids(name: str, ids: Ints, meta: dict[str, Any]) -> None:
    """Raise ValueError at ids outside the vocabulary."""
    if ids.size and int(ids.max()) >= meta["size"]:
        raise ValueError(f"{name} has the id {ids.max()}, of a vocabulary of {meta['size']}")


def _check_targets(ids: Ints, meta: dict[str, Any]) -> None:
    check_ids("target", ids, meta)
    mask_id = meta["mask_id"]
    if ids.size and (not ids.min() if mask_id == 0 else (ids == mask_id).any()):
        raise ValueError(f"target must not be MASK ({mask_id})")
