"""Reflective Masking: post-train mask diffusion models to revise their own output.

The rooms are `remask.kernels`, `remask.models`, `remask.pipeline`, `remask.training`,
`remask.evaluation` and `remask.infra`. In a wheel they lie in this folder; in a clone they lie
beside it, and this package looks for them there.
"""

import importlib.machinery
import sys
from pathlib import Path

ROOMS = ("kernels", "models", "pipeline", "training", "evaluation", "infra")
CLONE = Path(__file__).resolve().parents[1]


class _Unshadow:
    """Finds another package that has the name of a room before the room's folder in a clone.

    Python puts the working directory on its path. At the root of a clone, Hugging Face's `kernels`,
    which transformers imports where it is installed, would otherwise be our folder of that name.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None):
        if path is not None or name not in ROOMS:
            return None
        elsewhere = [x for x in sys.path if Path(x or ".").resolve() != CLONE]
        spec = importlib.machinery.PathFinder.find_spec(name, elsewhere)
        return spec if spec is not None and spec.origin else None


if not (Path(__file__).parent / "kernels").is_dir():
    __path__.append(str(CLONE))
    sys.meta_path.insert(0, _Unshadow)
