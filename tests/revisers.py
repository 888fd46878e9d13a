"""Small models of each kind of input with random weights, as training leaves their folders."""

from pathlib import Path

import torch

from remask.models import (
    HistoryConfig,
    LladaConfig,
    LladaMDM,
    LuminaConfig,
    LuminaMDM,
    SudokuConfig,
    SudokuMDM,
    save,
)
from remask.pipeline.edits import EditPair, ShapePairs
from remask.pipeline.edits.text import WordText
from remask.pipeline.inputs.describe import describe
from remask.pipeline.sources.countdown import CountdownSource
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.sources.sudoku import SudokuSource
from tests.pipeline.pictures import write_tokenizer
from tests.text_folders import lively

SUMS = CountdownSource(signs="given", numbers=(3, 3))
PROMPT, DRAFT = "8+3-4:", "8+3=9;9-4=6"


def write_boards(folder: Path) -> str:
    """A model of 4×4 boards."""
    torch.manual_seed(0)
    model = SudokuMDM(SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32))
    save(model, folder, inputs=describe(SudokuSource(side=4)))
    return str(folder)


def write_sums(folder: Path, *, seed: int = 0, is_described: bool = True) -> str:
    """A text model of running sums, whose rows have 18 tokens."""
    config = LladaConfig(
        d_model=32, n_layers=1, n_heads=2, n_kv_heads=2, mlp_hidden_size=32, vocab_size=17,
        mask_token_id=0, max_sequence_length=64, rope_theta=10000.0,
    )  # fmt: skip
    model = lively(LladaMDM(config, HistoryConfig(decay=0.5, norm="rms")), seed)
    save(model, folder, inputs=describe(SUMS) if is_described else None)
    return str(folder)


def write_edits(folder: Path) -> tuple[str, ImageEditSource, list[EditPair]]:
    """A model that edits shapes, the source of its data, and some pairs."""
    pairs = ShapePairs(train=4, held_out=4)
    shown = [pairs.pair("held_out", i) for i in range(4)]
    pictures = [picture for pair in shown for picture in (pair.source, pair.target)]
    tokenizer = write_tokenizer(folder / "vq", pictures, 8, 128)
    edits = ImageEditSource(pairs=pairs, tokenizer=tokenizer, text=WordText(size=64))
    torch.manual_seed(0)
    config = LuminaConfig(
        d_model=16, n_layers=1, n_heads=2, n_kv_heads=2, mlp_hidden_size=16,
        vocab_size=edits.vocabulary().size, mask_token_id=1, max_sequence_length=96,
        layout=edits.layout,
    )  # fmt: skip
    model = LuminaMDM(config, HistoryConfig(decay=0.5, positions="editable"))
    save(model, folder / "model", inputs=describe(edits))
    return str(folder / "model"), edits, shown
