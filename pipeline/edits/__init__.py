"""Image edits as pairs: a source picture, an instruction, and the target picture."""

from remask.pipeline.edits.emoji import EmojiPairs
from remask.pipeline.edits.files import FilePairs
from remask.pipeline.edits.pair import EditPair, EditPairs
from remask.pipeline.edits.shapes import ShapePairs

__all__ = ["EditPair", "EditPairs", "EmojiPairs", "FilePairs", "ShapePairs"]
