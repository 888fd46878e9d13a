"""Scenes of coloured shapes: they need no files and are learned in minutes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from remask.pipeline.edits.images import Picture
from remask.pipeline.edits.scenes import ScenePairs, Thing

COLOURS = {
    "red": (214, 40, 40),
    "green": (46, 139, 60),
    "blue": (38, 84, 204),
    "yellow": (240, 196, 25),
    "purple": (128, 60, 160),
    "black": (30, 30, 30),
}
# Is a point inside the shape? x and y run from -1 to 1 over its box.
SHAPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "circle": lambda x, y: x**2 + y**2 <= 1,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) <= 0.85,
    "triangle": lambda x, y: 2 * abs(x) <= 1 + y,
    "diamond": lambda x, y: abs(x) + abs(y) <= 1,
    "cross": lambda x, y: np.minimum(abs(x), abs(y)) <= 0.34,
}
MARGIN = 0.125
"""Share of a cell's width that stays empty on each side of its shape."""


@dataclass(frozen=True, kw_only=True)
class ShapePairs(ScenePairs):
    """Five shapes in six colours on pale backgrounds."""

    kind: Literal["shapes"] = "shapes"

    def random_thing(self, rng: np.random.Generator) -> Thing:
        name, look = (list(x)[rng.integers(len(x))] for x in (SHAPES, COLOURS))
        return Thing(name, look)

    def other_looks(self, thing: Thing, edit: str) -> tuple[str, ...]:
        return tuple(look for look in COLOURS if look != thing.look)

    def draw(self, canvas: Picture, thing: Thing) -> None:
        side = len(canvas)
        at = ((np.arange(side) + 0.5) / side * 2 - 1) / (1 - 2 * MARGIN)
        x, y = at[None, :], at[:, None]
        is_inside = np.maximum(abs(x), abs(y)) <= 1
        canvas[SHAPES[thing.name](x, y) & is_inside] = COLOURS[thing.look]

    def thing_words(self) -> Iterator[str]:
        yield from (*SHAPES, *COLOURS)

    def data_hash(self) -> None:
        return None

    def with_absolute_paths(self) -> "ShapePairs":
        return self
