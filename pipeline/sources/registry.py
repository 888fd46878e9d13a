"""The sources that a recipe may name. A new source is added to `AnySource`, and nowhere else."""

from typing import get_args

from remask.pipeline.sources.countdown import CountdownSource
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.sources.source import Source
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.text import TextSource

AnySource = SudokuSource | TextSource | CountdownSource | ImageEditSource
SOURCES: tuple[type[Source], ...] = get_args(AnySource)
