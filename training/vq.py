"""Pictures → our own image tokenizer, by a short training loop in one process.

A killed run leaves nothing and starts from the beginning; a finished one is left as it is.

    remask vq training/recipes/shapes_vq.yaml
    python -m remask.training.vq training/recipes/emoji_vq.yaml pairs.folder=my/pngs

It writes OUTPUT/tokenizer, for `source.tokenizer` of a build, and OUTPUT/scores.json.
"""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from remask.models import PatchVQConfig, save_tokenizer
from remask.models.checkpoints.folder import check_replaceable
from remask.models.ranges import Range, check_fields
from remask.pipeline.edits import EditPairs, EmojiPairs, FilePairs, ShapePairs
from remask.pipeline.edits.images import ImageError
from remask.pipeline.runtime.command import main_for
from remask.pipeline.runtime.ending import command
from remask.pipeline.runtime.places import PLACE, without_places
from remask.pipeline.runtime.progress import Meter, Summary
from remask.pipeline.runtime.provenance import claim
from remask.pipeline.runtime.storage import Storage
from remask.training.codebook import LearnConfig, Pictures, learn, psnr, to_images

SCORES, TOKENIZER = "scores.json", "tokenizer"


@dataclass(frozen=True, kw_only=True)
class VQRecipe:
    """From pictures to an image tokenizer."""

    output: str = field(metadata=PLACE)
    """Folder of the run."""
    pairs: ShapePairs | EmojiPairs | FilePairs
    """Image edits; pictures before and after the edit are training data."""
    num_pairs: Annotated[int, Range("[1, inf)")] = 2000
    """Limit of training pairs, chosen at equal distances in the training split."""
    num_held_out: Annotated[int, Range("[0, inf)")] = 100
    """Limit of held-out pairs that the result is scored on."""
    tokenizer: PatchVQConfig = field(default_factory=PatchVQConfig)
    """Shape of the tokeniser."""
    learning: LearnConfig = field(default_factory=LearnConfig)
    """How the tokeniser is trained."""
    seed: Annotated[int, Range("[0, 2^63)")] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if "://" in self.output:
            raise ValueError(f"output must be a folder on a file system, got {self.output}")
        if self.pairs.size is None:
            raise ValueError("pairs.shape must be set; a tokenizer is trained on one size")
        height, width = self.pairs.size
        if height % self.tokenizer.patch or width % self.tokenizer.patch:
            raise ValueError(
                f"pictures of {height} × {width} pixels do not divide into cells of "
                f"{self.tokenizer.patch}; change tokenizer.patch or the pictures' size"
            )

    @property
    def content(self) -> dict[str, Any]:
        """The settings that the result depends on, and a hash of the data."""
        return without_places(self) | {"data": self.pairs.data_hash()}


def train_tokenizer(recipe: VQRecipe) -> Summary:
    """Train the tokenizer of a recipe, unless it exists."""
    folder = Path(recipe.output)
    claim(Storage(str(folder)), recipe.content)
    meter = Meter("vq", recipe.learning.steps, counts="cells")
    if (folder / TOKENIZER).exists():
        return meter.summary(0, str(folder / TOKENIZER))
    check_replaceable(folder / TOKENIZER, ())
    pairs = recipe.pairs.with_absolute_paths()
    pictures, unreadable = read_pictures(pairs, "train", recipe.num_pairs)
    held_out = None
    if recipe.num_held_out and pairs.num_pairs().get("held_out"):
        held_out, _ = read_pictures(pairs, "held_out", recipe.num_held_out)
    started = time.monotonic()
    cells = recipe.learning.batch_size * pictures[0, ..., 0].size // recipe.tokenizer.patch**2
    with meter:
        tokenizer = learn(
            pictures,
            recipe.tokenizer,
            recipe.learning,
            recipe.seed,
            lambda step, error: meter.add(recipe.learning.batch_size, cells),
        )
    scores: dict[str, Any] = {
        "psnr_train": round(psnr(tokenizer, pictures[:200]), 3),
        "pictures": len(pictures),
        "unreadable": unreadable,
        "seconds": round(time.monotonic() - started, 1),
    }
    if held_out is not None:
        scores["psnr_held_out"] = round(psnr(tokenizer, held_out), 3)
        scores["codes_used"] = len(tokenizer.encode(to_images(held_out)).unique())
    (folder / SCORES).write_text(json.dumps(scores, indent=2) + "\n")
    save_tokenizer(tokenizer, folder / TOKENIZER)  # last: its existence means that the run is done
    return meter.summary(recipe.learning.steps, f"{folder / TOKENIZER} {json.dumps(scores)}")


def read_pictures(pairs: EditPairs, split: str, limit: int) -> tuple[Pictures, int]:
    """Read both pictures of up to `limit` pairs, and count the pairs that cannot be read."""
    total = pairs.num_pairs().get(split, 0)
    pictures, unreadable = [], 0
    for number in np.unique(np.linspace(0, total - 1, min(limit, total)).astype(int)):
        try:
            pair = pairs.pair(split, int(number))
        except ImageError:
            unreadable += 1
            continue
        pictures += [pair.source, pair.target]
    if not pictures:
        raise ValueError(f"pairs has no readable picture in {split}; {unreadable} are unreadable")
    return np.stack(pictures), unreadable


def main(argv: list[str] | None = None) -> None:
    main_for(
        "vq",
        __doc__,
        train_tokenizer,
        lambda recipe: range(recipe.learning.steps),
        argv,
        VQRecipe,
        advise=lambda recipe, name: command(
            "build", "RECIPE", f"source.tokenizer={Path(recipe.output) / TOKENIZER}"
        ),
    )


if __name__ == "__main__":
    main()
