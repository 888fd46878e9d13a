"""Scenes of emoji: pictures with names, recoloured, replaced, added, removed or retoned.

The pictures come from a folder in one of three layouts:

    emoji.json, img/twitter/64/*.png     the npm package emoji-datasource-twitter
    meta.jsonl, twemoji64_rgb.npz        the same pictures in one array
    *.png                                any pictures, named by their files
"""

import colorsys
import functools
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from PIL import Image

from remask.models.checkpoints.folder import check_inside
from remask.models.ranges import Range
from remask.pipeline.edits.images import ImageError, Picture, read_picture
from remask.pipeline.edits.pair import split_words
from remask.pipeline.edits.scenes import EDITS, LOOK_EDITS, ScenePairs, Thing
from remask.pipeline.format.examples import hash_share
from remask.pipeline.runtime.places import PLACE
from remask.pipeline.runtime.storage import absolute

TONES = {
    "1f3fb": "light",
    "1f3fc": "lighter",
    "1f3fd": "medium",
    "1f3fe": "darker",
    "1f3ff": "dark",
}
"""Words for the five skin tones, by the code point in file names."""
HUES = {"red": 0, "orange": 28, "yellow": 52, "green": 125, "blue": 220, "purple": 280}
"""Hues of the colour words, in degrees."""
STORED_SIDE = 64
"""Pixels per side of the pictures in memory."""
ONE_WORD = re.compile(r"[a-z]+")
GREY_RANGE = 24
"""A pixel whose channels differ by less is grey; recolouring leaves it unchanged."""
MIN_CHANGE = 40
"""Levels by which a new colour must change an emoji's pixels on average to be visible."""


@dataclass(frozen=True)
class Emoji:
    """A named picture."""

    name: str
    category: str
    picture: Picture
    tones: dict[str, Picture]
    """The picture in each skin tone, by word; empty if it has no skin tones."""

    @functools.cached_property
    def hues(self) -> tuple[str, ...]:
        """Colours that would visibly change it: none for a grey emoji, and not its own colour."""
        ink = (self.picture < 255).any(-1)
        return tuple(
            name
            for name, hue in HUES.items()
            if _distance(recolour(self.picture, hue), self.picture)[ink].mean() > MIN_CHANGE
        )


@dataclass(frozen=True, kw_only=True)
class EmojiPairs(ScenePairs):
    """Scenes of emoji from a folder."""

    kind: Literal["emoji"] = "emoji"
    folder: str = field(metadata=PLACE)
    """Folder of the pictures."""
    side: int = 64
    edits: tuple[str, ...] = ("recolour", "replace", "add", "remove", "tone")
    objects: Annotated[int, Range("[0, inf)")] = 48
    """Limit on the emoji without skin tones. Those with one-word names are used, chosen by a hash
    of their names."""
    people: Annotated[int, Range("[0, inf)")] = 24
    """Limit on the emoji with skin tones, chosen likewise; the edit `tone` needs them."""
    changed_share: Annotated[float, Range("[0, 1]")] = 0.5
    """Share of the things that have a colour or tone other than their own before the edit, so that
    training shows looks that only held-out instructions ask for."""
    categories: tuple[str, ...] = ("Animals & Nature", "Food & Drink", "Objects", "Activities")
    """Categories of the objects; ignored for folders that state none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objects + self.people < self.things[1] + 1:
            raise ValueError(
                f"objects and people must be more than the {self.things[1]} things of a scene, got "
                f"{self.objects} and {self.people}"
            )

    @classmethod
    def known_edits(cls) -> tuple[str, ...]:
        return (*EDITS, "tone")

    def random_thing(self, rng: np.random.Generator) -> Thing:
        names = list(self._chosen)
        thing = Thing(names[rng.integers(len(names))])
        looks = [
            x for edit in LOOK_EDITS if edit in self.edits for x in self.other_looks(thing, edit)
        ]
        if looks and rng.random() < self.changed_share:
            return Thing(thing.name, looks[rng.integers(len(looks))])
        return thing

    def other_looks(self, thing: Thing, edit: str) -> tuple[str, ...]:
        emoji = self._chosen[thing.name]
        toned = tuple(emoji.tones)
        looks = toned if edit == "tone" else () if toned else emoji.hues
        return tuple(look for look in looks if look != thing.look)

    def draw(self, canvas: Picture, thing: Thing) -> None:
        emoji = self._chosen[thing.name]
        picture = emoji.tones.get(thing.look, emoji.picture)
        if thing.look in HUES:
            picture = recolour(picture, HUES[thing.look])
        small = Image.fromarray(picture).resize(canvas.shape[1::-1], Image.Resampling.BOX)
        shade = np.asarray(small)
        # The pictures have a white background: multiplying leaves the canvas unchanged there.
        canvas[:] = (canvas.astype(np.uint16) * shade + 127) // 255

    def thing_words(self) -> Iterator[str]:
        yield from self._chosen
        yield from HUES
        if "tone" in self.edits:
            yield from (*TONES.values(), "give", "skin")

    def data_hash(self) -> str:
        total = hashlib.sha256()
        for name, emoji in self._chosen.items():
            for picture in (emoji.picture, *emoji.tones.values()):
                total.update(name.encode() + picture.tobytes())
        return total.hexdigest()[:16]

    def with_absolute_paths(self) -> "EmojiPairs":
        return replace(self, folder=absolute(self.folder))

    @property
    def _chosen(self) -> dict[str, Emoji]:
        people = self.people if "tone" in self.edits else 0
        return _choose(self.folder, self.objects, people, self.categories)


def recolour(picture: Picture, hue: float) -> Picture:
    """The picture with every colour rotated to one hue, in degrees; greys and white stay."""
    high, low = picture.max(-1).astype(np.float64), picture.min(-1).astype(np.float64)
    pure = np.array(colorsys.hsv_to_rgb(hue / 360, 1, 1))
    # The lightest and the darkest channel of each pixel keep their levels.
    turned = low[..., None] + (high - low)[..., None] * pure
    is_grey = high - low < GREY_RANGE
    return np.where(is_grey[..., None], picture, turned.round()).astype(np.uint8)


def _distance(a: Picture, b: Picture) -> np.ndarray:
    """The largest difference of a channel, by pixel, [H, W]."""
    return np.abs(a.astype(np.int16) - b).max(-1)


@functools.lru_cache(maxsize=4)
def _choose(
    folder: str, objects: int, people: int, categories: tuple[str, ...]
) -> dict[str, Emoji]:
    """The emoji to use, by name."""
    named = {e.name: e for e in read_emoji(folder) if ONE_WORD.fullmatch(e.name)}
    order = sorted(named, key=lambda name: hash_share(name.encode()))
    plain = [n for n in order if not named[n].tones and named[n].category in (*categories, "")]
    toned = [n for n in order if named[n].tones]
    chosen = [*plain[:objects], *toned[:people]]
    if people and not toned:
        raise ValueError(f"{folder} has no emoji with skin tones; leave `tone` out of edits")
    if len(chosen) < 4:
        raise ValueError(
            f"{folder} has {len(chosen)} pictures with one-word names in {list(categories)}; a "
            "scene needs at least 4"
        )
    return {name: named[name] for name in chosen}


@functools.lru_cache(maxsize=2)
def read_emoji(folder: str) -> tuple[Emoji, ...]:
    """All named pictures of a folder."""
    root = Path(folder)
    for index, read in (("meta.jsonl", _read_array), ("emoji.json", _read_package)):
        if (root / index).is_file():
            try:
                return tuple(read(root))
            except ImageError:
                raise
            except (OSError, KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{root / index} and the pictures it names cannot be read: {error!r}; unpack "
                    "emoji-datasource-twitter again, or name a folder of PNG files only"
                ) from error
    files = sorted(root.glob("*.png"))
    if not files:
        raise ValueError(
            f"{folder} has no emoji: neither emoji.json, nor meta.jsonl, nor PNG files; `npm pack "
            f"emoji-datasource-twitter@16.0.0` and `tar xf` of it in {root.parent} give "
            f"{root.parent}/package"
        )
    return tuple(Emoji(path.stem.lower(), "", _read_file(path), {}) for path in files)


def _read_array(root: Path) -> Iterator[Emoji]:
    rows = [json.loads(line) for line in (root / "meta.jsonl").read_text().splitlines()]
    with np.load(root / "twemoji64_rgb.npz", allow_pickle=False) as arrays:
        pictures = arrays["x"]
    by_file = {row["file"]: pictures[row["i"]] for row in rows}
    for row in rows:
        if row["short_name"]:
            yield _emoji(row, by_file[row["file"]], row["skin_variations"], by_file.__getitem__)


def _read_package(root: Path) -> Iterator[Emoji]:
    pictures = root / "img" / "twitter" / "64"

    def read(name: str) -> Picture:
        return _read_file(pictures / check_inside(name))

    for row in json.loads((root / "emoji.json").read_text()):
        is_drawn = row.get("has_img_twitter", True)
        if is_drawn and (pictures / check_inside(row["image"])).is_file():
            variations = [x["image"] for x in (row.get("skin_variations") or {}).values()]
            yield _emoji(row, read(row["image"]), variations, read)


def _emoji(row: dict[str, Any], picture: Picture, variations: list[str], read: Any) -> Emoji:
    tones = {
        TONES[code]: read(name)
        for name in variations
        if len(variations) == len(TONES)  # the two persons of a couple have a tone each
        for code in TONES
        if code in name
    }
    return Emoji(" ".join(split_words(row["short_name"])), row["category"], picture, tones)


def _read_file(path: Path) -> Picture:
    return read_picture(path.read_bytes(), str(path), (STORED_SIDE, STORED_SIDE))
