"""Revise Sudoku boards with a checkpoint: boards in, mended boards out, one per line.

A board is 81 or 16 digits in reading order, 0 or . for a blank. After a space, as many 0s and 1s
may say which cells can change; without them all can.

    remask revise --checkpoint runs/tour 4132331414233243
    remask revise --checkpoint runs/tour --show < boards.txt
    remask revise --checkpoint runs/tour "4132331414233243 0000110000000001"
"""

import argparse
import sys

import numpy as np
import torch
from rich.console import Console

from infra.boards import show_revision
from models import CheckpointError, RevisionPolicy, SudokuMDM, load, revise
from pipeline.sources.sudoku import parse_board


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask revise", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("boards", nargs="*", help="boards; read from standard input when none")
    parser.add_argument("--checkpoint", required=True, help="folder written by training")
    parser.add_argument("--max-steps", type=int, default=16, help="steps at most (default: 16)")
    parser.add_argument("--batch-size", type=int, default=256, help="boards at once (default: 256)")
    parser.add_argument("--reveal-count", type=int, help="reveal this many per step (default: all)")
    parser.add_argument(
        "--margin", type=float, default=0.0, help="re-mask only beyond this many nats (default: 0)"
    )
    parser.add_argument(
        "--patience", type=int, default=1, help="end after this many idle steps (default: 1)"
    )
    parser.add_argument("--show", action="store_true", help="show every step in colour, on stderr")
    arguments = parser.parse_args(argv)
    try:
        model = load(arguments.checkpoint)
        if not isinstance(model, SudokuMDM):
            raise ValueError(f"{arguments.checkpoint} holds a {model.kind} model, not a Sudoku one")
        tokens, editable = read_boards(arguments.boards or sys.stdin, model.config.cells)
        revision = revise(
            model,
            tokens,
            editable,
            policy=RevisionPolicy(
                reveal_count=arguments.reveal_count,
                margin=arguments.margin,
                patience=arguments.patience,
            ),
            max_steps=arguments.max_steps,
            batch_size=arguments.batch_size,
        )
    except (CheckpointError, ValueError) as error:
        parser.exit(2, f"remask revise: {error}\n")
    console = Console(stderr=True)
    for row, board in enumerate(revision.tokens.tolist()):
        if arguments.show:
            show_revision(console, revision, row)
        print("".join(map(str, board)))


def read_boards(lines, cells: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Lines to tokens and editable cells, [B, N] each; blank lines are passed over."""
    boards, masks = [], []
    for line in filter(str.strip, lines):
        digits, *rest = line.split()
        board = parse_board(digits)
        if board.size != cells:
            raise ValueError(
                f"this checkpoint takes boards of {cells} cells, got {board.size}: {digits}"
            )
        mask = rest[0] if rest else "1" * cells
        if len(rest) > 1 or len(mask) != cells or set(mask) - {"0", "1"}:
            raise ValueError(
                f"after a board come {cells} 0s and 1s or nothing, got {' '.join(rest)!r}"
            )
        boards.append(board)
        masks.append([c == "1" for c in mask])
    if not boards:
        raise ValueError("no boards given: pass them as arguments or on standard input")
    return torch.from_numpy(np.stack(boards)).long(), torch.tensor(masks)


if __name__ == "__main__":
    main()
