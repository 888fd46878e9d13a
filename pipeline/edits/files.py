"""Edit pairs from files: a table that names or contains the pictures.

Two layouts are read without settings. A plain folder has `edits.jsonl`, one line per pair, with or
without a mask:

    {"source": "a.png", "target": "b.png", "instruction": "...", "mask": "m.png"}

ImgEdit, once its archives are unpacked (`python -m remask.infra.unpack_imgedit`), has

    Parquet/*.parquet         columns input_images, output_images (lists of paths), prompt
    Singleturn/, Multiturn/   the pictures, which those paths are relative to

Its rows with one input and one output are pairs; all others are left out. Any other table that
`datasets` loads can be read too, including Parquet with pictures in it, if `fields` names its
columns. Tables and pictures may lie on any storage.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from remask.models.checkpoints.hub_name import data_stem
from remask.models.ranges import Range, check_fields
from remask.pipeline.edits.images import ImageError, ImageFile, Size, nearest_size, sizes_of_area
from remask.pipeline.edits.named import read_named
from remask.pipeline.edits.pair import EditPair, check_number, split_words
from remask.pipeline.edits.tables import (
    PairFields,
    load_table,
    pictures_folder,
    split_rows,
    table_files,
)
from remask.pipeline.runtime.places import PLACE
from remask.pipeline.runtime.storage import absolute, file_hash

Side = Annotated[int, Range("[1, 16384]")]


@dataclass(frozen=True, kw_only=True)
class FilePairs:
    """Pairs of pictures from files."""

    kind: Literal["files"] = "files"
    data: str = field(metadata=PLACE)
    """A folder, a table in it (.parquet, .jsonl, .json, .csv; * for several), or a data set on the
    hub whose tables contain the pictures: `hf:owner/name@revision`, or a name that `datasets`
    loads."""
    images: str | None = field(default=None, metadata=PLACE)
    """Folder that the table's paths are relative to and may not leave; defaults to the table's."""
    schemes: tuple[str, ...] = ()
    """Schemes of URLs outside that folder that the table may name, such as https."""
    height: Side = 512
    """Height in pixels."""
    width: Side = 512
    """Size in pixels that all pictures are scaled and cropped to."""
    shape: Literal["one", "own"] = "one"
    """`one` gives all pictures the size height × width. `own` gives each pair the shape that keeps
    most of its source picture, with at most height × width pixels and sides that are multiples of
    `step`, as Lumina-DiMOO does."""
    step: Annotated[int, Range("[1, inf)")] = 32
    """With `own`, the sides are multiples of this many pixels."""
    subset: str = "train"
    """Name of the data set's split to read."""
    fields: PairFields | None = None
    """The table's columns; defaults to ImgEdit's names if it has them, otherwise to `source`,
    `target`, `instruction` and `mask`."""
    max_rows: Annotated[int | None, Range("[1, inf)")] = None
    """Limit on the rows used, chosen by a hash; defaults to all."""
    held_out_share: Annotated[float, Range("[0, 1]")] = 0.02
    """Share of the source pictures that is held out of training."""
    split_by: Literal["picture", "folder"] = "picture"
    """What shares a split, with all its edits: a source picture by its path, or all pictures in
    folders of one name. ImgEdit names a folder after its photo, which several of its parts edit."""
    max_words: Annotated[int, Range("[1, inf)")] = 4096
    """Size of the vocabulary of the instructions, the most frequent words first."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.shape == "own" and not self._sizes:
            raise ValueError(
                f"no picture of at most {self.height} × {self.width} pixels has sides in steps of "
                f"{self.step}; lower step"
            )

    @property
    def size(self) -> Size | None:
        return (self.height, self.width) if self.shape == "one" else None

    def size_for(self, size: Size) -> Size:
        return self.size or nearest_size(size, self._sizes)

    def num_pairs(self) -> dict[str, int]:
        return {split: len(rows) for split, rows in self._rows.items() if rows}

    def pair(self, split: str, number: int) -> EditPair:
        check_number(split, number, self.num_pairs())
        table, fields = self._table
        row = self._rows[split][number]
        record = table[row]
        name = f"{self._name}-{row:09d}"
        instruction = record[fields.instruction]
        if not isinstance(instruction, str) or not instruction.strip():
            raise ImageError(f"{name} has no instruction")
        source, target = (self._read(record[x], name) for x in (fields.source, fields.target))
        target.check_shape(source)
        size = self.size_for(source.size)
        region = None
        if fields.mask is not None and record[fields.mask] is not None:
            region = self._read(record[fields.mask], name).region(source, size)
        return EditPair(name, "", instruction.strip(), source.fit(size), target.fit(size), region)

    def words(self) -> tuple[str, ...]:
        table, fields = self._table
        texts = [text for text in table[fields.instruction] if isinstance(text, str)]
        count = Counter(word for text in texts for word in split_words(text))
        frequent = sorted(count, key=lambda word: (-count[word], word))
        return tuple(sorted(frequent[: self.max_words]))

    def data_hash(self) -> str:
        """Hash of the tables. Pictures are not hashed: a path is taken to identify its picture."""
        files = table_files(self.data, self.subset)
        return "-".join(map(file_hash, files)) if files else self._table[0]._fingerprint

    def with_absolute_paths(self) -> "FilePairs":
        if not table_files(self.data, self.subset):  # on the hub
            return replace(self, images=absolute(self.images))
        return replace(self, data=absolute(self.data), images=absolute(self.images))

    @property
    def _name(self) -> str:
        return data_stem(self.data).replace("*", "") or "pairs"

    @property
    def _table(self) -> tuple[Any, PairFields]:
        return load_table(self.data, self.subset, self.fields)

    @property
    def _rows(self) -> dict[str, list[int]]:
        return split_rows(
            self.data, self.subset, self.fields, self.held_out_share, self.max_rows, self.split_by
        )

    @property
    def _sizes(self) -> tuple[Size, ...]:
        return sizes_of_area(self.height * self.width, self.step)

    def _read(self, value: Any, row: str) -> ImageFile:
        """Read the picture that a cell of the table names or contains."""
        if isinstance(value, list):
            if len(value) > 1:
                raise ImageError(f"{row} has {len(value)} pictures where an edit has one")
            value = value[0] if value else None
        if isinstance(value, dict) and value.get("bytes") is not None:
            name = f"{row} ({value.get('path') or 'in the table'})"
            return ImageFile.read(value["bytes"], name)
        path = value.get("path") if isinstance(value, dict) else value
        if not isinstance(path, str) or not path:
            raise ImageError(f"{row} names no picture, got {path!r}")
        return read_named(path, self.images or pictures_folder(self.data), self.schemes, row)
