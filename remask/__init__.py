"""Reflective Masking: post-train mask diffusion models to revise their own output.

    import remask

    shards = remask.build("sudoku4")           # trajectory shards; their manifest as a LazyFrame
    model = remask.train("sudoku4")            # or remask.load("sudoku"), which is packaged
    revision = remask.revise(model, boards, max_steps=12)
    scores = remask.evaluate("sudoku4")        # a DataFrame
    page = remask.report("runs/sudoku4/eval")  # one HTML file
    reviser = remask.open_reviser("sudoku")    # boards, text or pictures as people write them

The parts are `remask.kernels`, `remask.models`, `remask.pipeline`, `remask.training`,
`remask.evaluation` and `remask.infra`. In a wheel they lie in this folder; in a clone they lie
beside it, and this package looks for them there. All of them are imported on first use.
"""

import importlib
import importlib.machinery
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remask import evaluation, infra, kernels, models, pipeline, training
    from remask.infra.reviser import open_reviser
    from remask.infra.surface import build, evaluate, report, train
    from remask.models import load, revise
    from remask.pipeline import open_manifest, read_rows, states

__all__ = [
    "build",
    "evaluate",
    "evaluation",
    "infra",
    "kernels",
    "load",
    "models",
    "open_manifest",
    "open_reviser",
    "pipeline",
    "read_rows",
    "report",
    "revise",
    "states",
    "train",
    "training",
]

ROOMS = ("kernels", "models", "pipeline", "training", "evaluation", "infra")
CLONE = Path(__file__).resolve().parents[1]
_HOMES = {
    "build": "remask.infra.surface",
    "evaluate": "remask.infra.surface",
    "load": "remask.models",
    "open_manifest": "remask.pipeline",
    "open_reviser": "remask.infra.reviser",
    "read_rows": "remask.pipeline",
    "report": "remask.infra.surface",
    "revise": "remask.models",
    "states": "remask.pipeline",
    "train": "remask.infra.surface",
}
"""The module of each function."""


if not TYPE_CHECKING:  # a type checker reports unknown names of a module without `__getattr__`

    def __getattr__(name: str) -> object:
        if name in ROOMS:
            return importlib.import_module(f"remask.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'remask' has no attribute {name!r}", name=name)
        function = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return function


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Unshadow:
    """Finds an installed package that has a room's name before the room's folder in a clone.

    At the root of a clone, which Python puts on its path, `import kernels` would find our folder.
    Hugging Face publishes a package of that name, which transformers imports if it is installed.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None):
        if path is not None or name not in ROOMS:
            return None
        elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != CLONE]
        spec = importlib.machinery.PathFinder.find_spec(name, elsewhere)
        return spec if spec is not None and spec.origin else None  # no folder without a module


if not (Path(__file__).parent / "kernels").is_dir():
    __path__.append(str(CLONE))
    sys.meta_path.insert(0, _Unshadow)
