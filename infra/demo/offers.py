"""The models that the page offers: those that come with the package, and `--checkpoint` ones."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from remask.infra.demo.refusal import RefusedError
from remask.infra.reviser import SHIPPED, Reviser, open_reviser
from remask.models.checkpoints.shipped import shipped_names

WORDS = {"sudoku": "boards", "text": "text", "image_edit": "pictures"}
"""What the inputs of each kind are called."""


@dataclass(frozen=True)
class Model:
    """A model that can be asked for by its name."""

    name: str
    kind: str
    columns: int | None
    """Cells per line of its boards; null for other kinds."""
    is_tuned: bool
    """Whether decoding settings were tuned for it."""


class Offers:
    """Loaded models by name; the first of each kind is its default."""

    def __init__(self, revisers: Mapping[str, Reviser]) -> None:
        self.revisers = dict(revisers)

    def find(self, kind: str, name: str | None) -> Reviser:
        """The model of a name, or the default of a kind. Raises RefusedError if there is none."""
        own = {key: reviser for key, reviser in self.revisers.items() if reviser.kind == kind}
        if name is None and own:
            return next(iter(own.values()))
        if name is None:
            raise RefusedError(409, self.missing()[kind])
        if name not in own:
            raise RefusedError(
                404, f"no model for {WORDS[kind]} is called {name!r}; there are {[*own]}"
            )
        return own[name]

    def missing(self) -> dict[str, str]:
        """Kinds without a model, with a sentence for people."""
        kinds = {reviser.kind for reviser in self.revisers.values()}
        return {
            kind: f"No model for {words} is here: start with --checkpoint NAME=FOLDER to add one."
            for kind, words in WORDS.items()
            if kind not in kinds
        }

    def models(self) -> list[Model]:
        return [
            Model(name, reviser.kind, _columns(reviser), reviser.tuned is not None)
            for name, reviser in self.revisers.items()
        ]


def open_offers(folders: Mapping[str, str]) -> Offers:
    """Load the named folders and every model that comes with the package.

    Raises ValueError if one of them cannot be loaded.
    """
    own = [name for name in SHIPPED.values() if name in shipped_names()]
    opened = {name: open_reviser(folder) for name, folder in folders.items()}
    opened |= {name: open_reviser(name) for name in own if name not in opened}
    for name, reviser in opened.items():
        reviser.name = name  # records say what people asked for
    return Offers(opened)


def _columns(reviser: Reviser) -> int | None:
    """Cells per line of the boards that a model takes."""
    for side in (9, 4) if reviser.kind == "sudoku" else ():
        with contextlib.suppress(ValueError):
            return reviser.start({"board": "0" * side**2}).columns
    return None
