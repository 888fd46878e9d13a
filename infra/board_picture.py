"""A moving picture of a Sudoku board being revised, as an animated GIF.

A held-out board gets some wrong cells, the packaged model revises it by the paper's rule, and every
state becomes a frame. Wrong cells are crossed, cells about to be re-masked are framed, and cells
just revealed have a plus, so that the picture can be read without colour.

    python -m remask.infra.board_picture infra/pictures/board.gif
    python -m remask.infra.board_picture board.gif --wrong 12 --seed 3
"""

import argparse
import io
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from remask.models import Action, Revision, load, revise
from remask.pipeline.runtime.storage import Storage, StorageError
from remask.pipeline.runtime.terminal import fail, say
from remask.pipeline.sources.sudoku import SudokuSource

CELL, MARGIN, CAPTION = 40, 14, 34
"""Side of a cell, margin around the board and height of the caption, in pixels."""
FRAME_MS, LAST_MS = 1300, 3500
"""How long a frame is shown, and the last one."""
INK, FAINT, LINE, PAPER = "#1b1f24", "#8a929b", "#c9ced4", "#ffffff"
WRONG, REVEALED, DOUBTED = "#fde2e0", "#d9f2df", "#fff1c2"


def wrong_board(num_wrong: int, seed: int) -> tuple[Tensor, Tensor]:
    """A held-out board with wrong cells, and its solution, [N] each."""
    rng = np.random.default_rng(seed)
    source = SudokuSource(train=0, held_out=1, images=1)
    solution = source.examples("held_out", 0, 1, rng).target[0].astype(np.int64)
    board = solution.copy()
    cells = rng.choice(board.size, num_wrong, replace=False)
    board[cells] = (board[cells] - 1 + rng.integers(1, 9, num_wrong)) % 9 + 1
    return torch.from_numpy(board), torch.from_numpy(solution)


def draw_revision(revision: Revision, solution: Tensor) -> list[Image.Image]:
    """A frame for every state of the first row, up to the one that stays.

    Args:
        revision: A decode.
        solution: The board that is wanted, [N].
    """
    num_states = int(revision.stats.steps[0]) + 1
    states = revision.trajectory[:num_states, 0]
    steps = int((states != states[-1]).any(1).sum())  # without steps that only look again
    return [
        _draw(
            revision.trajectory[k, 0],
            solution,
            revision.actions[k - 1, 0] if k else None,
            revision.actions[k, 0] if k < steps else None,
            _caption(revision, solution, k),
        )
        for k in range(steps + 1)
    ]


def to_gif(frames: list[Image.Image]) -> bytes:
    """The bytes of an endless GIF."""
    file = io.BytesIO()
    palette = [frame.quantize(64, dither=Image.Dither.NONE) for frame in frames]
    durations = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    palette[0].save(
        file, "GIF", save_all=True, append_images=palette[1:], duration=durations, loop=0
    )
    return file.getvalue()


def _caption(revision: Revision, solution: Tensor, step: int) -> str:
    state = revision.trajectory[step, 0]
    num_masked = int((state == 0).sum())
    num_wrong = int(((state != solution) & (state != 0)).sum())
    if step and num_masked + num_wrong == 0:
        return f"step {step}: solved"
    name = f"step {step}" if step else "as given"
    return f"{name}: {num_wrong} wrong, {num_masked} masked"


def _draw(
    state: Tensor,
    solution: Tensor,
    last: Tensor | None,
    following: Tensor | None,
    caption: str,
) -> Image.Image:
    """One state, [N], marked by the actions that led to it and those that follow."""
    side = math.isqrt(state.numel())
    box, extent = math.isqrt(side), CELL * side
    size = (extent + 2 * MARGIN, extent + 2 * MARGIN + CAPTION)
    picture = Image.new("RGB", size, PAPER)
    pen = ImageDraw.Draw(picture)
    digits, words, marks = (ImageFont.load_default(size=x) for x in (22, 16, 12))
    for cell, token in enumerate(state.tolist()):
        row, column = divmod(cell, side)
        left, top = MARGIN + column * CELL, MARGIN + row * CELL
        is_wrong = token not in (0, int(solution[cell]))
        was_revealed = last is not None and last[cell] == Action.REVEAL
        is_doubted = following is not None and following[cell] == Action.REMASK
        fill = REVEALED if was_revealed else DOUBTED if is_doubted else WRONG if is_wrong else PAPER
        pen.rectangle((left, top, left + CELL, top + CELL), fill, LINE)
        middle = (left + CELL / 2, top + CELL / 2)
        pen.text(middle, str(token or "·"), INK if token else FAINT, digits, "mm")
        mark = "+" if was_revealed else "x" if is_wrong else ""
        pen.text((left + CELL - 4, top + 3), mark, INK, marks, "ra")
        if is_doubted:
            pen.rectangle((left + 3, top + 3, left + CELL - 3, top + CELL - 3), outline=INK)
    for i in range(0, side + 1, box):
        at = MARGIN + i * CELL
        pen.line((at, MARGIN, at, MARGIN + extent), INK, 2)
        pen.line((MARGIN, at, MARGIN + extent, at), INK, 2)
    pen.text((MARGIN, MARGIN + extent + CAPTION / 2 + 4), caption, INK, words, "lm")
    return picture


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask.infra.board_picture",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("output", help="GIF file to write")
    parser.add_argument("--wrong", type=int, default=26, help="wrong cells, 1 to 30 (default: 26)")
    parser.add_argument("--seed", type=int, default=26, help="draws board and cells (default: 26)")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.wrong <= 30:
        fail("remask.infra.board_picture", 2, f"--wrong must lie in [1, 30], got {arguments.wrong}")
    board, solution = wrong_board(arguments.wrong, arguments.seed)
    revision = revise(load("sudoku"), board[None], max_steps=32)
    frames = draw_revision(revision, solution)
    path = Path(arguments.output)
    try:
        Storage(str(path.parent)).write(path.name, to_gif(frames))
    except StorageError as error:
        fail("remask.infra.board_picture", 1, error)
    say(f"{arguments.output}: {len(frames)} frames")


if __name__ == "__main__":
    main()
