"""Edits of synthetic scenes: named things in the cells of a grid, one of which is changed.

Rendering a scene is deterministic, so source and target differ only in the thing that is edited.
Subclasses decide which things exist and how they look: `shapes.py` draws its own, `emoji.py` uses
pictures.

No held-out picture and no held-out instruction occurs in training: a scene and an instruction each
hash to a number in [0, 1); training pairs have both at or above `held_out_share`, held-out pairs
both below, and all others are drawn again.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from remask.models.ranges import Range, check_fields
from remask.pipeline.edits.images import Picture, Size
from remask.pipeline.edits.pair import EditPair, check_number, split_words
from remask.pipeline.format.examples import hash_share

BACKGROUNDS = {
    "white": (255, 255, 255),
    "sand": (245, 235, 210),
    "mint": (220, 245, 230),
    "sky": (220, 232, 250),
}
PLACES = {
    1: (("middle",),),
    2: (("top left", "top right"), ("bottom left", "bottom right")),
    3: (
        ("top left", "top", "top right"),
        ("left", "middle", "right"),
        ("bottom left", "bottom", "bottom right"),
    ),
}
"""Names of the cells of a grid, by its number of cells per side."""
EDITS = ("recolour", "replace", "add", "remove", "no_op")
"""Kinds of edit. `no_op` asks to remove a thing that is not in the scene, which stays unchanged."""
LOOK_EDITS = ("recolour", "tone")
"""Kinds of edit that change the look of a thing and keep it in its place."""
MAX_DRAWS = 10_000
"""Scenes drawn in search of one that an edit applies to."""
MAX_EDITS = 1_000_000
"""Edits drawn in search of one that belongs to a split. With a held-out share of 0.01, one in
10,000 is held out."""


@dataclass(frozen=True)
class Thing:
    """A named thing in a cell."""

    name: str
    look: str = ""
    """Its colour or skin tone; empty for the natural one."""

    @property
    def words(self) -> str:
        return f"{self.look} {self.name}".strip()


@dataclass(frozen=True)
class Scene:
    """The content of a picture."""

    background: str
    things: tuple[Thing | None, ...]
    """The thing in each cell, in reading order; None for an empty cell."""

    def put(self, cell: int, thing: Thing | None) -> "Scene":
        things = list(self.things)
        things[cell] = thing
        return Scene(self.background, tuple(things))

    @property
    def names(self) -> set[str]:
        return {thing.words for thing in self.things if thing}


@dataclass(frozen=True)
class SceneEdit:
    """An edit as scenes, before they are rendered."""

    kind: str
    instruction: str
    before: Scene
    after: Scene
    cell: int


@dataclass(frozen=True, kw_only=True)
class ScenePairs(ABC):
    """Pairs of rendered scenes."""

    kind: str = ""
    train: Annotated[int, Range("[0, inf)")] = 10_000
    held_out: Annotated[int, Range("[0, inf)")] = 1_000
    side: int = 32
    """Pixels per side of the square pictures."""
    grid: Annotated[int, Range("[1, 3]")] = 2
    """Cells per side."""
    things: tuple[int, int] = (2, 3)
    """Least and greatest number of things in a scene before the edit."""
    edits: tuple[str, ...] = ("recolour", "replace", "add", "remove")
    """Kinds of edit, drawn uniformly."""
    held_out_share: Annotated[float, Range("[0.01, 0.99]")] = 0.2
    """Share of the scenes, and of the instructions, that is held out of training."""
    seed: Annotated[int, Range("[0, inf)")] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.train + self.held_out == 0:
            raise ValueError("train and held_out are both 0; at least one split needs pairs")
        if self.side < 8 * self.grid or self.side % self.grid:
            raise ValueError(
                f"side must be a multiple of grid {self.grid} with at least 8 pixels per cell, got "
                f"{self.side}"
            )
        low, high = self.things
        limit = self.grid**2 - ("add" in self.edits)
        if not 1 <= low <= high <= limit:
            room = " with room to add one" if "add" in self.edits else ""
            raise ValueError(
                f"things must be 1 <= low <= high <= {limit} in a grid of {self.grid**2} cells"
                f"{room}, got {low}, {high}"
            )
        unknown = sorted(set(self.edits) - set(self.known_edits()))
        if unknown or not self.edits:
            raise ValueError(f"edits must be among {list(self.known_edits())}, got {unknown}")

    @classmethod
    def known_edits(cls) -> tuple[str, ...]:
        """Kinds of edit that `edits` may list."""
        return EDITS

    @abstractmethod
    def random_thing(self, rng: np.random.Generator) -> Thing:
        """Draw a thing for a scene before the edit."""

    @abstractmethod
    def other_looks(self, thing: Thing, edit: str) -> tuple[str, ...]:
        """The looks that an edit, one of LOOK_EDITS, may give a thing."""

    @abstractmethod
    def draw(self, canvas: Picture, thing: Thing) -> None:
        """Draw a thing into a cell, in place; `canvas` is a view of the cell's pixels."""

    @abstractmethod
    def thing_words(self) -> Iterator[str]:
        """All words for names and looks of things."""

    @abstractmethod
    def data_hash(self) -> str | None:
        """Hash of the data that is read; None if pictures are generated."""

    @property
    def size(self) -> Size:
        return self.side, self.side

    def size_for(self, size: Size) -> Size:
        return self.size

    def num_pairs(self) -> dict[str, int]:
        return {"train": self.train, "held_out": self.held_out}

    def pair(self, split: str, number: int) -> EditPair:
        check_number(split, number, self.num_pairs())
        edit = self.edit(split, number)
        return EditPair(
            f"{self.kind}{self.seed}-{split}-{number:07d}",
            edit.kind,
            edit.instruction,
            self.render(edit.before),
            self.render(edit.after),
        )

    def edit(self, split: str, number: int) -> SceneEdit:
        """A pair's edit, which depends only on the seed, the split and the number."""
        rng = np.random.default_rng([self.seed, zlib.crc32(split.encode()), number])
        wants_held_out = split == "held_out"
        for _ in range(MAX_EDITS):
            edit = self._draw_edit(rng)
            shares = (hash_share(repr(x).encode()) for x in (edit.before, edit.instruction))
            if all((share < self.held_out_share) == wants_held_out for share in shares):
                return edit
        raise ValueError(
            f"none of {MAX_EDITS:,} drawn edits belongs to {split} with held_out_share "
            f"{self.held_out_share}; change it, or allow more edits or things"
        )

    def render(self, scene: Scene) -> Picture:
        """The picture of a scene, [side, side, 3]."""
        canvas = np.empty((self.side, self.side, 3), np.uint8)
        canvas[:] = BACKGROUNDS[scene.background]
        step = self.side // self.grid
        for cell, thing in enumerate(scene.things):
            if thing:
                row, column = (i * step for i in divmod(cell, self.grid))
                self.draw(canvas[row : row + step, column : column + step], thing)
        return canvas

    def words(self) -> tuple[str, ...]:
        fixed = "make the replace with a add at remove"
        places = " ".join(name for row in PLACES[self.grid] for name in row)
        return tuple(sorted({*split_words(f"{fixed} {places}"), *self.thing_words()}))

    def _draw_edit(self, rng: np.random.Generator) -> SceneEdit:
        kind = self.edits[rng.integers(len(self.edits))]
        for _ in range(MAX_DRAWS):
            scene = self._draw_scene(rng)
            cells = [i for i, thing in enumerate(scene.things) if self._applies(kind, thing)]
            if cells:
                break
        else:
            raise ValueError(f"edit {kind} applies to none of the things; leave it out of edits")
        cell = int(rng.choice(cells))
        instruction, after = self._carry_out(kind, scene, cell, rng)
        return SceneEdit(kind, instruction, scene, after, cell)

    def _applies(self, kind: str, thing: Thing | None) -> bool:
        """Can an edit be applied to a cell with this thing, or to an empty one?"""
        if thing is None:
            return kind == "add"
        return kind != "add" and (kind not in LOOK_EDITS or bool(self.other_looks(thing, kind)))

    def _carry_out(
        self, kind: str, scene: Scene, cell: int, rng: np.random.Generator
    ) -> tuple[str, Scene]:
        """The instruction of an edit, and the scene after it."""
        if kind in LOOK_EDITS:
            thing = _at(scene, cell)
            look = str(rng.choice(self.other_looks(thing, kind)))
            instruction = f"make the {thing.words} {look}"
            if kind == "tone":
                instruction = f"give the {thing.words} {look} skin"
            return instruction, scene.put(cell, Thing(thing.name, look))
        if kind == "remove":
            return f"remove the {_at(scene, cell).words}", scene.put(cell, None)
        new = self._new_thing(scene, rng)
        if kind == "replace":
            instruction = f"replace the {_at(scene, cell).words} with a {new.words}"
            return instruction, scene.put(cell, new)
        if kind == "add":
            row, column = divmod(cell, self.grid)
            instruction = f"add a {new.words} at the {PLACES[self.grid][row][column]}"
            return instruction, scene.put(cell, new)
        return f"remove the {new.words}", scene

    def _draw_scene(self, rng: np.random.Generator) -> Scene:
        """A scene whose things all have different names, so that each can be referred to."""
        low, high = self.things
        background = list(BACKGROUNDS)[rng.integers(len(BACKGROUNDS))]
        scene = Scene(background, (None,) * self.grid**2)
        for cell in rng.permutation(self.grid**2)[: rng.integers(low, high + 1)]:
            scene = scene.put(int(cell), self._new_thing(scene, rng))
        return scene

    def _new_thing(self, scene: Scene, rng: np.random.Generator) -> Thing:
        for _ in range(MAX_DRAWS):
            thing = self.random_thing(rng)
            if thing.words not in scene.names:
                return thing
        raise ValueError(
            f"there are too few things for {self.things[1]} different ones in a scene and one "
            "more; lower things, or use more pictures or kinds of edit that change looks"
        )


def _at(scene: Scene, cell: int) -> Thing:
    thing = scene.things[cell]
    assert thing is not None, "edits other than add choose a cell with a thing"
    return thing
