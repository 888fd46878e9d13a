"""Edits of made-up scenes: named things in the cells of a grid, one of them changed in words.

A scene becomes a picture in one way only, so nothing but the thing that is edited differs between
source and target. What things there are and how they look is the world's affair: `shapes.py` draws
its own, `emoji.py` takes pictures.

No held-out picture and no held-out instruction is ever in training: a scene and an instruction each
hash to a number in [0, 1); training pairs have both at or above `held_out_share`, held-out pairs
both below, and all others are drawn again.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from remask.pipeline.edits.images import Picture, Size
from remask.pipeline.edits.pair import EditPair, check_numbers, split_words
from remask.pipeline.format.rows import hash_share

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
"""Names of the cells of a grid, by its side."""
EDITS = ("recolour", "replace", "add", "remove", "nothing")
"""`nothing` names a thing that is not there, and leaves all as it is."""
LOOK_EDITS = ("recolour", "tone")
"""Those that leave a thing in its place and give it another look."""
MOST_DRAWS = 10_000
"""In search of a scene that suits, before it is given up."""
MOST_EDITS = 1_000_000
"""In search of an edit of a split: of a share of 0.01 one in 10,000 is held out."""


@dataclass(frozen=True)
class Thing:
    """Something in a cell."""

    name: str
    look: str = ""
    """A colour or the like; empty for its natural one."""

    @property
    def words(self) -> str:
        return f"{self.look} {self.name}".strip()


@dataclass(frozen=True)
class Scene:
    """What a picture shows."""

    background: str
    things: tuple[Thing | None, ...]
    """By cell, in reading order."""

    def put(self, cell: int, thing: Thing | None) -> "Scene":
        things = list(self.things)
        things[cell] = thing
        return Scene(self.background, tuple(things))

    @property
    def names(self) -> set[str]:
        return {thing.words for thing in self.things if thing}


@dataclass(frozen=True)
class SceneEdit:
    """An edit before it is drawn."""

    kind: str
    instruction: str
    before: Scene
    after: Scene
    cell: int


@dataclass(frozen=True, kw_only=True)
class ScenePairs(ABC):
    """Pairs made of scenes."""

    kind: str = ""
    train: int = 10_000
    held_out: int = 1_000
    side: int = 32
    """Pixels of the square pictures."""
    grid: int = 2
    """Cells per side, 1 to 3."""
    things: tuple[int, int] = (2, 3)
    """Least and most things in a scene that is to be edited."""
    edits: tuple[str, ...] = ("recolour", "replace", "add", "remove")
    """What is done, all alike often."""
    held_out_share: float = 0.2
    """Share of the scenes, and of the instructions, that is kept from training."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.train < 0 or self.held_out < 0 or self.train + self.held_out == 0:
            raise ValueError(f"need pairs in some split, got {self.train} and {self.held_out}")
        if self.grid not in PLACES:
            raise ValueError(f"grid must be one of {list(PLACES)}, got {self.grid}")
        if self.side < 8 * self.grid or self.side % self.grid:
            raise ValueError(
                f"side must be a multiple of grid {self.grid} with 8 pixels a cell or more, got "
                f"{self.side}"
            )
        low, high = self.things
        most = self.grid**2 - ("add" in self.edits)
        if not 1 <= low <= high <= most:
            raise ValueError(
                f"things must be 1 <= low <= high <= {most} in a grid of {self.grid**2} cells"
                f"{' with room to add one' if 'add' in self.edits else ''}, got {low}, {high}"
            )
        unknown = sorted(set(self.edits) - set(self.known_edits()))
        if unknown or not self.edits:
            raise ValueError(f"edits must be among {list(self.known_edits())}, got {unknown}")
        if not 0.01 <= self.held_out_share <= 0.99:
            raise ValueError(f"held_out_share must lie in [0.01, 0.99], got {self.held_out_share}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")

    @classmethod
    def known_edits(cls) -> tuple[str, ...]:
        return EDITS

    @abstractmethod
    def random_thing(self, rng: np.random.Generator) -> Thing:
        """A thing as it may stand in a scene that is yet to be edited."""

    @abstractmethod
    def other_looks(self, thing: Thing, edit: str) -> tuple[str, ...]:
        """The looks that one of LOOK_EDITS may give it."""

    @abstractmethod
    def draw(self, canvas: Picture, thing: Thing) -> None:
        """Draw a thing over a cell of the canvas, in place."""

    @abstractmethod
    def thing_words(self) -> Iterator[str]:
        """Names and looks of all things."""

    @abstractmethod
    def data_hash(self) -> str | None: ...

    @property
    def size(self) -> Size:
        return self.side, self.side

    def size_for(self, size: Size) -> Size:
        return self.size

    def num_pairs(self) -> dict[str, int]:
        return {"train": self.train, "held_out": self.held_out}

    def pair(self, split: str, number: int) -> EditPair:
        check_numbers(split, number, self.num_pairs())
        edit = self.edit(split, number)
        return EditPair(
            f"{self.kind}{self.seed}-{split}-{number:07d}",
            edit.kind,
            edit.instruction,
            self.render(edit.before),
            self.render(edit.after),
        )

    def edit(self, split: str, number: int) -> SceneEdit:
        """The pair's edit, by seed, split and number alone."""
        rng = np.random.default_rng([self.seed, zlib.crc32(split.encode()), number])
        wants_held_out = split == "held_out"
        for _ in range(MOST_EDITS):
            found = self._draw_edit(rng)
            shares = (hash_share(repr(x).encode()) for x in (found.before, found.instruction))
            if all((share < self.held_out_share) == wants_held_out for share in shares):
                return found
        raise ValueError(
            f"no {split} edit is found in {MOST_EDITS:,} drawn: held_out_share "
            f"{self.held_out_share} leaves none of so few; change it, or allow more edits or things"
        )

    def render(self, scene: Scene) -> Picture:
        """A scene's picture."""
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
        for _ in range(MOST_DRAWS):
            scene = self._draw_scene(rng)
            cells = [i for i, thing in enumerate(scene.things) if self._suits(kind, thing)]
            if cells:
                break
        else:
            raise ValueError(f"edit {kind} suits none of the things; leave it out of edits")
        cell = int(rng.choice(cells))
        instruction, after = self._carry_out(kind, scene, cell, rng)
        return SceneEdit(kind, instruction, scene, after, cell)

    def _suits(self, kind: str, thing: Thing | None) -> bool:
        """Can this be done where this is, or where nothing is?"""
        if thing is None:
            return kind == "add"
        return kind != "add" and (kind not in LOOK_EDITS or bool(self.other_looks(thing, kind)))

    def _carry_out(
        self, kind: str, scene: Scene, cell: int, rng: np.random.Generator
    ) -> tuple[str, Scene]:
        if kind in LOOK_EDITS:
            thing = _at(scene, cell)
            look = str(rng.choice(self.other_looks(thing, kind)))
            said = f"make the {thing.words} {look}"
            if kind == "tone":
                said = f"give the {thing.words} {look} skin"
            return said, scene.put(cell, Thing(thing.name, look))
        if kind == "remove":
            return f"remove the {_at(scene, cell).words}", scene.put(cell, None)
        new = self._new_thing(scene, rng)
        if kind == "replace":
            said = f"replace the {_at(scene, cell).words} with a {new.words}"
            return said, scene.put(cell, new)
        if kind == "add":
            row, column = divmod(cell, self.grid)
            return f"add a {new.words} at the {PLACES[self.grid][row][column]}", scene.put(
                cell, new
            )
        return f"remove the {new.words}", scene

    def _draw_scene(self, rng: np.random.Generator) -> Scene:
        """Things that differ in words, so that each can be named."""
        low, high = self.things
        background = list(BACKGROUNDS)[rng.integers(len(BACKGROUNDS))]
        scene = Scene(background, (None,) * self.grid**2)
        for cell in rng.permutation(self.grid**2)[: rng.integers(low, high + 1)]:
            scene = scene.put(int(cell), self._new_thing(scene, rng))
        return scene

    def _new_thing(self, scene: Scene, rng: np.random.Generator) -> Thing:
        for _ in range(MOST_DRAWS):
            thing = self.random_thing(rng)
            if thing.words not in scene.names:
                return thing
        raise ValueError(
            f"there are too few things for {self.things[1]} different ones in a scene and one "
            "more; lower things, or use more pictures or edits of looks"
        )


def _at(scene: Scene, cell: int) -> Thing:
    thing = scene.things[cell]
    assert thing is not None, "only full cells are chosen to be changed"
    return thing
