"""Tables of figures, laid out so that a screen of 1280 pixels shows them whole."""

from collections.abc import Iterator
from dataclasses import dataclass

from remask.evaluation.stats.tables import WIDE, Cell, Table

ROOM = 9.0
"""Number of columns of measured figures that fit beside the labels."""
QUOTED = 0.7
"""Width of a column of published figures, in columns of measured ones."""
FEW = 4
"""A table with many metrics and at most this number of rows has metrics as rows."""
INLINE = 5.0
"""Up to this width, intervals stand beside their values and not below them."""

Line = tuple[str, list[Cell]]


@dataclass(frozen=True)
class ShownTable:
    """A table as `tables.html` takes it."""

    title: str
    """Empty for the continuation of a table."""
    note: str
    headings: list[str]
    lines: list[Line]

    @property
    def is_split(self) -> list[bool]:
        """Whether each column has published figures beside the measured ones."""
        return _split(self.lines, len(self.headings))

    @property
    def is_roomy(self) -> bool:
        return sum(_widths(self.lines, len(self.headings))) <= INLINE


def lay_out(table: Table) -> list[ShownTable]:
    """The table, folded into several with the same rows if it is too wide."""
    headings, lines = table.grid(is_transposed=_is_transposed(table))
    blocks = list(_blocks(lines, len(headings)))
    return [
        ShownTable(
            title=table.title if i == 0 else "",
            note=table.note if i == len(blocks) - 1 else "",
            headings=[_unbroken(heading) for heading in headings[start:end]],
            lines=[(label, cells[start:end]) for label, cells in lines],
        )
        for i, (start, end) in enumerate(blocks)
    ]


def _unbroken(heading: str) -> str:
    """The heading with its unit and arrow on one line."""
    for sign in ("%", "↑", "↓"):
        heading = heading.replace(f" {sign}", f"\N{NO-BREAK SPACE}{sign}")
    return heading


def _is_transposed(table: Table) -> bool:
    if len(table.columns) > WIDE and len(table.rows) <= FEW:
        return True
    plain, transposed = (
        sum(_widths(lines, len(headings)))
        for headings, lines in (table.grid(is_transposed=x) for x in (False, True))
    )
    return plain > ROOM >= transposed


def _blocks(lines: list[Line], count: int) -> Iterator[tuple[int, int]]:
    """The first and last column of each part that fits; at least one part."""
    widths, start, used = _widths(lines, count), 0, 0.0
    for i, width in enumerate(widths):
        if used and used + width > ROOM:
            yield start, i
            start, used = i, 0.0
        used += width
    yield start, count


def _widths(lines: list[Line], count: int) -> list[float]:
    return [1 + QUOTED * split for split in _split(lines, count)]


def _split(lines: list[Line], count: int) -> list[bool]:
    return [any(cells[i].quoted for _, cells in lines) for i in range(count)]
