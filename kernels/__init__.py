"""The history operators: past token embeddings, rotated by their age and faded, as one sum."""

from remask.kernels.build import is_compiled
from remask.kernels.ops import history_embed, history_step
from remask.kernels.segments import Segments, state_at

# Hugging Face publishes an unrelated package of this name, which transformers uses from version
# 0.17 on. This version stays below that, so that transformers ignores our package.
__version__ = "0.1.0"

__all__ = ["Segments", "history_embed", "history_step", "is_compiled", "state_at"]
