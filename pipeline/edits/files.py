"""Edit pairs from files: a table of paths or pictures, beside the pictures themselves.

Two layouts are read as they are. A plain folder has `edits.jsonl`, a line for each pair, with or
without a mask:

    {"source": "a.png", "target": "b.png", "instruction": "...", "mask": "m.png"}

ImgEdit, once its archives are unpacked (`python -m remask.infra.unpack_imgedit`), has

    Parquet/*.parquet         columns input_images, output_images (lists of paths), prompt
    Singleturn/, Multiturn/   the pictures, which those paths begin from

and of it rows with one input and one output are pairs; all others are passed over. Any other table
that `datasets` loads will do too, Parquet with pictures in it among them, if `fields` names its
columns. Tables and pictures may lie on any storage.

A source picture, with all edits of it, is held out or trained on by a hash of its path or, with
`split_by: folder`, of its folder's name, so that copies of it in other parts go with it; where the
table holds pictures without a path, by the instruction.
"""

import functools
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Literal

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from remask.pipeline.edits.images import ImageError, ImageFile, Size, nearest_size, sizes_of_area
from remask.pipeline.edits.named import read_named
from remask.pipeline.edits.pair import EditPair, check_numbers, split_words
from remask.pipeline.format.rows import hash_share
from remask.pipeline.runtime.jsonl import first_fault
from remask.pipeline.runtime.places import PLACE
from remask.pipeline.runtime.storage import absolute, file_hash, open_file_system

FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
TABLES = ("edits.jsonl", "Parquet/*.parquet", "*.parquet", "*.jsonl")
"""What is looked for in a folder, the first that is there."""
MAX_SIDE = 16_384
"""Pixels of a picture's height or width."""
ROWS_AT_ONCE = 10_000
"""Of a table, while its splits are made."""


@dataclass(frozen=True, kw_only=True)
class PairFields:
    """Names of a table's columns."""

    source: str = "source"
    target: str = "target"
    instruction: str = "instruction"
    mask: str | None = None


IMGEDIT = PairFields(source="input_images", target="output_images", instruction="prompt")


@dataclass(frozen=True, kw_only=True)
class FilePairs:
    """Pairs that somebody made."""

    kind: Literal["files"] = "files"
    data: str = field(metadata=PLACE)
    """A folder, a table in it (.parquet, .jsonl, .json, .csv; * for several), or a data set on the
    hub."""
    images: str | None = field(default=None, metadata=PLACE)
    """Folder that the table's paths begin from, and may not leave; defaults to the table's own."""
    schemes: tuple[str, ...] = ()
    """Schemes of URLs that the table may name outside that folder, such as https."""
    height: int = 512
    width: int = 512
    """Pixels, which all pictures are scaled and cut to."""
    shape: Literal["one", "own"] = "one"
    """`own` gives each pair, instead of height and width, the shape that keeps most of its source
    picture: of at most as many pixels in all, in steps of `step`; as Lumina-DiMOO does."""
    step: int = 32
    subset: str = "train"
    """Which split of the data set to read."""
    fields: PairFields | None = None
    """Its columns; ImgEdit's names or `source`, `target`, `instruction`, `mask` when none."""
    most: int | None = None
    """Use so many of the table's rows, chosen by a hash; all when none."""
    held_out_share: float = 0.02
    """Share of the source pictures that is kept from training."""
    split_by: Literal["picture", "folder"] = "picture"
    """What is held out or trained on as one, with all its edits: a source picture by its path, or
    all in folders of one name; the folders of ImgEdit are named by their photo, which several of
    its parts edit."""
    most_words: int = 4096
    """Words of the instructions that are known apart, the most frequent first."""

    def __post_init__(self) -> None:
        for name in ("height", "width", "step", "most", "most_words"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name in ("height", "width"):
            if getattr(self, name) > MAX_SIDE:
                raise ValueError(f"{name} must be at most {MAX_SIDE}, got {getattr(self, name)}")
        if self.shape == "own" and not self._sizes:
            raise ValueError(
                f"no picture of {self.height} × {self.width} pixels in all has sides in steps of "
                f"{self.step}; lower step"
            )
        if not 0 <= self.held_out_share <= 1:
            raise ValueError(f"held_out_share must lie in [0, 1], got {self.held_out_share}")

    @property
    def size(self) -> Size | None:
        return (self.height, self.width) if self.shape == "one" else None

    def size_for(self, size: Size) -> Size:
        return self.size or nearest_size(size, self._sizes)

    def num_pairs(self) -> dict[str, int]:
        return {split: len(rows) for split, rows in self._rows.items() if rows}

    def pair(self, split: str, number: int) -> EditPair:
        check_numbers(split, number, self.num_pairs())
        table, fields = self._table
        row = self._rows[split][number]
        record = table[row]
        name = f"{self._name}-{row:09d}"
        said = record[fields.instruction]
        if not isinstance(said, str) or not said.strip():
            raise ImageError(f"{name} has no instruction")
        source, target = (self._read(record[x], name) for x in (fields.source, fields.target))
        target.check_shape(source)
        size = self.size_for(source.size)
        region = None
        if fields.mask is not None and record[fields.mask] is not None:
            region = self._read(record[fields.mask], name).region(source, size)
        return EditPair(name, "", said.strip(), source.fit(size), target.fit(size), region)

    def words(self) -> tuple[str, ...]:
        table, fields = self._table
        texts = [said for said in table[fields.instruction] if isinstance(said, str)]
        count = Counter(word for said in texts for word in split_words(said))
        frequent = sorted(count, key=lambda word: (-count[word], word))
        return tuple(sorted(frequent[: self.most_words]))

    def data_hash(self) -> str:
        """Of the tables; a picture is taken to be what its name says."""
        files = _table_files(self.data)
        return "-".join(map(file_hash, files)) if files else self._table[0]._fingerprint

    def with_absolute_paths(self) -> "FilePairs":
        if not _table_files(self.data):  # on the hub
            return replace(self, images=absolute(self.images))
        return replace(self, data=absolute(self.data), images=absolute(self.images))

    @property
    def _name(self) -> str:
        return PurePosixPath(self.data.rstrip("/")).stem.replace("*", "") or "pairs"

    @property
    def _table(self) -> tuple[Any, PairFields]:
        return _load(self.data, self.subset, self.fields)

    @property
    def _rows(self) -> dict[str, list[int]]:
        return _split(
            self.data, self.subset, self.fields, self.held_out_share, self.most, self.split_by
        )

    @property
    def _sizes(self) -> tuple[Size, ...]:
        return sizes_of_area(self.height * self.width, self.step)

    def _read(self, value: Any, where: str) -> ImageFile:
        """The picture of whatever stands in a table's cell."""
        if isinstance(value, list):
            if len(value) > 1:
                raise ImageError(f"{where} has {len(value)} pictures where an edit has one")
            value = value[0] if value else None
        if isinstance(value, dict) and value.get("bytes") is not None:
            name = f"{where} ({value.get('path') or 'in the table'})"
            return ImageFile.read(value["bytes"], name)
        path = value.get("path") if isinstance(value, dict) else value
        if not isinstance(path, str) or not path:
            raise ImageError(f"{where} names no picture, got {path!r}")
        return read_named(path, self.images or _folder(self.data), self.schemes, where)


def _folder(data: str) -> str:
    """The folder of a table; of ImgEdit's tables, the one above theirs."""
    is_table = PurePosixPath(data).suffix in FORMATS
    folder = data.rpartition("/")[0] if is_table else data.rstrip("/")
    return folder.removesuffix("/Parquet") if is_table else folder


@functools.lru_cache(maxsize=4)
def _table_files(data: str) -> tuple[str, ...]:
    """The tables of a folder, or those that a path with wildcards names; none for a hub name."""
    fs, path = open_file_system(data)
    wanted = [path] if PurePosixPath(data).suffix in FORMATS else [f"{path}/{x}" for x in TABLES]
    if wanted != [path] and not fs.isdir(path):
        return ()
    for pattern in wanted:
        found = sorted(str(x) for x in fs.glob(pattern))
        if found:
            return tuple(x if "://" not in data else fs.unstrip_protocol(x) for x in found)
    raise ValueError(f"there is no table of edits at {data}; a folder has one of {list(TABLES)}")


def _tables_of_pairs(files: tuple[str, ...], fields: PairFields | None) -> tuple[str, ...]:
    """Those of several Parquet tables that have sources: ImgEdit's others hold whole dialogues."""
    if len(files) < 2 or not files[0].endswith(".parquet"):
        return files
    names = {fields.source} if fields else {IMGEDIT.source, PairFields().source}
    found = []
    for file in files:
        with fsspec.open(file, "rb") as table:
            if names & {*pq.read_schema(table).names}:
                found.append(file)
    return tuple(found) or files  # loading them says what they lack


@functools.lru_cache(maxsize=2)
def _load(data: str, subset: str, fields: PairFields | None) -> tuple[Any, PairFields]:
    """The table and the names of its columns."""
    import datasets  # slow to import, and only files need it
    from datasets.exceptions import DatasetGenerationError

    files = _tables_of_pairs(_table_files(data), fields)
    try:
        if files:
            kind = FORMATS[PurePosixPath(files[0]).suffix]
            table = datasets.load_dataset(kind, data_files={subset: list(files)}, split=subset)
        else:
            table = datasets.load_dataset(data, split=subset)
    except (OSError, ValueError, RecursionError, StopIteration, DatasetGenerationError) as error:
        reason = next(filter(None, map(first_fault, files)), None)
        reason = reason or (str(error) or "it is empty").splitlines()[0]
        raise ValueError(f"cannot load {data}: {reason}") from error
    columns = table.column_names
    if fields is None:
        fields = IMGEDIT if IMGEDIT.source in columns else PairFields()
        fields = replace(fields, mask="mask" if "mask" in columns else None)
    wanted = (fields.source, fields.target, fields.instruction, fields.mask)
    missing = [name for name in wanted if name is not None and name not in columns]
    if missing:
        raise ValueError(f"{data} has no columns {missing}; it has {columns}: name them as fields")
    for name, feature in table.features.items():
        inner = getattr(feature, "feature", feature)  # of a list, what it holds
        if isinstance(inner, datasets.Image):  # decoded by us, so that a bad one is not fatal
            plain: Any = datasets.Image(decode=False)
            table = table.cast_column(name, plain if inner is feature else [plain])
    return table, fields


@functools.lru_cache(maxsize=4)
def _split(
    data: str,
    subset: str,
    fields: PairFields | None,
    held_out_share: float,
    most: int | None,
    split_by: str,
) -> dict[str, list[int]]:
    """Rows of each split."""
    table, names = _load(data, subset, fields)
    try:
        texts = table.select_columns([names.instruction])[:][names.instruction]
        sources, targets = (_paths(table, name) for name in (names.source, names.target))
    except UnicodeDecodeError as error:
        raise ValueError(f"{data} holds text that is not UTF-8: {error}") from error
    keys = [f"{(x and x[0]) or said}" for x, said in zip(sources, texts, strict=True)]
    both = enumerate(zip(sources, targets, strict=True))
    chosen = [row for row, (x, y) in both if max(len(x), len(y)) <= 1]  # one with none is named
    if not chosen:
        raise ValueError(f"none of the {len(table)} rows of {data} has one source and one target")
    if several := len(table) - len(chosen):
        print(
            f"{data}: {several:,} of {len(table):,} rows are passed over, for they have several "
            "sources or targets",
            file=sys.stderr,
        )
    if most is not None:  # by another hash than the split's
        order = sorted(chosen, key=lambda row: hash_share(f"{keys[row]} {texts[row]}".encode()))
        chosen = sorted(order[:most])
    rows: dict[str, list[int]] = {"train": [], "held_out": []}
    for row in chosen:
        folder = PurePosixPath(keys[row]).parent.name if split_by == "folder" else ""
        is_held_out = hash_share((folder or keys[row]).encode()) < held_out_share
        rows["held_out" if is_held_out else "train"].append(row)
    return rows


def _paths(table: Any, name: str) -> list[list[str | None]]:
    """The pictures in each cell of a column by their paths, if they have any; none is read."""
    parts = table.select_columns([name]).with_format("arrow").iter(ROWS_AT_ONCE)
    chunks = (chunk for part in parts for chunk in part[name].chunks)
    return [paths for chunk in chunks for paths in _in_cells(chunk)]


def _in_cells(column: Any) -> list[list[str | None]]:
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        inner = iter(_in_cells(column.flatten()))
        counts = (count or 0 for count in column.value_lengths().to_pylist())
        return [[path for _ in range(count) for path in next(inner)] for count in counts]
    if pa.types.is_struct(column.type):
        if column.type.get_field_index("path") < 0:
            return [[None]] * len(column)
        column = column.field("path")
    return [[path] for path in column.to_pylist()]
