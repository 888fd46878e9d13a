"""Image edits as pairs: a picture, an instruction, the picture it should become."""

from pipeline.edits.emoji import EmojiPairs
from pipeline.edits.files import FilePairs
from pipeline.edits.pair import EditPair, EditPairs
from pipeline.edits.shapes import ShapePairs

__all__ = ["EditPair", "EditPairs", "EmojiPairs", "FilePairs", "ShapePairs"]
