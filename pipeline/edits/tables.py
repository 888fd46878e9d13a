"""Tables of edit pairs: which files hold them, which columns, and which rows belong to which split.

A source picture, with all its edits, is held out or trained on by a hash of its path. With
`split_by: folder` the hash is of its folder's name, so that copies of a picture in other folders of
that name share its split. If the table holds pictures without a path, the instruction is hashed.
"""

import functools
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from remask.models.checkpoints.hub_name import is_hub_name
from remask.pipeline.format.examples import hash_share
from remask.pipeline.runtime.data_files import (
    is_data_file,
    load_files,
    load_from_hub,
    local_files,
)
from remask.pipeline.runtime.storage import open_file_system
from remask.pipeline.runtime.terminal import say

TABLES = ("edits.jsonl", "Parquet/*.parquet", "*.parquet", "*.jsonl")
"""Tables looked for in a folder; the first pattern with a match is used."""
ROWS_PER_READ = 10_000
"""Rows in memory at once while a table is split."""


@dataclass(frozen=True, kw_only=True)
class PairFields:
    """Names of a table's columns."""

    source: str = "source"
    """Column of the picture before the edit."""
    target: str = "target"
    """Column of the picture after the edit."""
    instruction: str = "instruction"
    """Column of the instruction."""
    mask: str | None = None
    """Column of a mask of the edited region. Defaults to none."""


IMGEDIT = PairFields(source="input_images", target="output_images", instruction="prompt")


@functools.lru_cache(maxsize=4)
def table_files(data: str, subset: str = "train") -> tuple[str, ...]:
    """The tables of a folder, those that a path with wildcards names, or those of a split of
    `hf:owner/name`; empty for other hub names."""
    if is_hub_name(data):
        return tuple(local_files(data, subset))
    fs, path = open_file_system(data)
    is_table = is_data_file(data)
    if not is_table and not fs.isdir(path):
        return ()
    for pattern in [path] if is_table else [f"{path}/{x}" for x in TABLES]:
        files = sorted(str(x) for x in fs.glob(pattern))
        if files:
            return tuple(x if "://" not in data else fs.unstrip_protocol(x) for x in files)
    raise ValueError(f"there is no table of edits at {data}; a folder has one of {list(TABLES)}")


def pictures_folder(data: str) -> str:
    """The folder that a table's paths are relative to: its own, or the parent for ImgEdit's.

    On the hub it is the name of the repository: pictures beside a table there are not fetched.
    """
    is_table = is_data_file(data)
    folder = data.rpartition("/")[0] if is_table else data.rstrip("/")
    return folder.removesuffix("/Parquet") if is_table else folder


@functools.lru_cache(maxsize=2)
def load_table(data: str, subset: str, fields: PairFields | None) -> tuple[Any, PairFields]:
    """The table and the names of its columns."""
    import datasets  # slow to import, and only files need it

    files = _tables_of_pairs(table_files(data, subset), fields)
    table = load_files(files, subset, data) if files else load_from_hub(data, subset)
    columns = table.column_names
    if fields is None:
        fields = IMGEDIT if IMGEDIT.source in columns else PairFields()
        fields = replace(fields, mask="mask" if "mask" in columns else None)
    wanted = (fields.source, fields.target, fields.instruction, fields.mask)
    missing = [name for name in wanted if name is not None and name not in columns]
    if missing:
        raise ValueError(f"{data} has no columns {missing}; it has {columns}: name them as fields")
    for name, feature in table.features.items():
        inner = getattr(feature, "feature", feature)  # the element type of a list
        if isinstance(inner, datasets.Image):  # decoded here, so that a bad picture is not fatal
            encoded: Any = datasets.Image(decode=False)
            table = table.cast_column(name, encoded if inner is feature else [encoded])
    return table, fields


def _tables_of_pairs(files: tuple[str, ...], fields: PairFields | None) -> tuple[str, ...]:
    """Those of several Parquet tables that have a column of sources: some of ImgEdit's hold whole
    dialogues."""
    if len(files) < 2 or not files[0].endswith(".parquet"):
        return files
    names = {fields.source} if fields else {IMGEDIT.source, PairFields().source}
    tables = []
    for file in files:
        with fsspec.open(file, "rb") as table:
            if names & {*pq.read_schema(table).names}:
                tables.append(file)
    return tuple(tables) or files  # loading them reports the missing columns


@functools.lru_cache(maxsize=4)
def split_rows(
    data: str,
    subset: str,
    fields: PairFields | None,
    held_out_share: float,
    max_rows: int | None,
    split_by: str,
) -> dict[str, list[int]]:
    """Row numbers of each split. Rows with several sources or targets are left out."""
    table, names = load_table(data, subset, fields)
    try:
        texts = table.select_columns([names.instruction])[:][names.instruction]
        sources, targets = (_paths(table, name) for name in (names.source, names.target))
    except UnicodeDecodeError as error:
        raise ValueError(f"{data} holds text that is not UTF-8: {error}") from error
    keys = [f"{(x and x[0]) or text}" for x, text in zip(sources, texts, strict=True)]
    both = enumerate(zip(sources, targets, strict=True))
    # A row without a picture is kept here, so that reading it reports the row by name.
    chosen = [row for row, (x, y) in both if max(len(x), len(y)) <= 1]
    if not chosen:
        raise ValueError(f"none of the {len(table)} rows of {data} has one source and one target")
    if several := len(table) - len(chosen):
        say(
            f"{data}: {several:,} of {len(table):,} rows are left out, because they have several "
            "sources or targets",
            to_stderr=True,
        )
    if max_rows is not None:  # by another hash than the split's
        order = sorted(chosen, key=lambda row: hash_share(f"{keys[row]} {texts[row]}".encode()))
        chosen = sorted(order[:max_rows])
    rows: dict[str, list[int]] = {"train": [], "held_out": []}
    for row in chosen:
        folder = PurePosixPath(keys[row]).parent.name if split_by == "folder" else ""
        is_held_out = hash_share((folder or keys[row]).encode()) < held_out_share
        rows["held_out" if is_held_out else "train"].append(row)
    return rows


def _paths(table: Any, name: str) -> list[list[str | None]]:
    """The paths of the pictures in each cell of a column, None for a picture without a path. No
    picture is read."""
    parts = table.select_columns([name]).with_format("arrow").iter(ROWS_PER_READ)
    chunks = (chunk for part in parts for chunk in part[name].chunks)
    return [paths for chunk in chunks for paths in _paths_by_cell(chunk)]


def _paths_by_cell(column: Any) -> list[list[str | None]]:
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        inner = iter(_paths_by_cell(column.flatten()))
        counts = (count or 0 for count in column.value_lengths().to_pylist())
        return [[path for _ in range(count) for path in next(inner)] for count in counts]
    if pa.types.is_struct(column.type):
        if column.type.get_field_index("path") < 0:
            return [[None]] * len(column)
        column = column.field("path")
    return [[path] for path in column.to_pylist()]
