"""Revise Sudoku boards with a checkpoint: boards in, revised boards out, one per line.

A board is 81 or 16 digits in reading order, 0 or . for a blank. Boards are arguments, or lines of
files or of standard input. A board may be followed by a space and as many digits 0 and 1, where 1
marks a cell that may change; by default all may. On a terminal every step is shown: × breaks a
rule, ? is about to be re-masked, + was just revealed.

Settings that `remask tune --start given` chose for the checkpoint are used, those of the largest
budget within --max-steps, and named on stderr. With --reveal-count, --margin, --patience or
--no-tuned they are not, and the other options have their defaults.

    remask revise --checkpoint sudoku boards.txt
    remask revise --checkpoint runs/sudoku4/train/model 4132331414233243
    remask revise --checkpoint runs/sudoku4/train/model "4132331414233243 0000110000000001"
    remask revise --checkpoint sudoku --no-show < boards.txt > revised.txt
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

from remask.infra.boards import show_revision
from remask.models import CheckpointError, Revision, RevisionPolicy, SudokuMDM, load, revise
from remask.models.checkpoints.decoding_file import read_decoding
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import fail, make_console, say
from remask.pipeline.sources.sudoku_rules import conflict_cells, parse_board

BAD_LINES_SHOWN = 3


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask revise", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("boards", nargs="*", help="boards or files (default: standard input)")
    parser.add_argument(
        "--checkpoint",
        required=True,
        help="folder written by training, `sudoku`, which is packaged, or hf:owner/name@revision",
    )
    parser.add_argument("--max-steps", type=int, default=32, help="limit of steps (default: 32)")
    parser.add_argument(
        "--batch-size", type=int, default=256, help="boards decoded at once (default: 256)"
    )
    parser.add_argument("--reveal-count", type=int, help="cells revealed per step (default: all)")
    parser.add_argument(
        "--margin",
        type=float,
        help="re-mask only if MASK leads by this many nats (default: 0)",
    )
    parser.add_argument(
        "--patience",
        type=int,
        help="stop after this many steps without a change (default: 1)",
    )
    parser.add_argument(
        "--tuned",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="use settings that were tuned for the checkpoint (default: yes, if there are any)",
    )
    parser.add_argument(
        "--show",
        action=argparse.BooleanOptionalAction,
        default=sys.stderr.isatty(),
        help="show every step, on stderr (default: on a terminal)",
    )
    arguments = parser.parse_args(argv)
    try:
        model = load(arguments.checkpoint)
        if not isinstance(model, SudokuMDM):
            raise ValueError(
                f"{arguments.checkpoint} holds a {model.kind} model, not a Sudoku model"
            )
        tokens, editable = read_boards(_lines(arguments.boards), model.config.cells)
        policy, max_steps = choose_policy(arguments)
        revision = revise(
            model,
            tokens,
            editable,
            policy=policy,
            max_steps=max_steps,
            batch_size=arguments.batch_size,
        )
    except (CheckpointError, ValueError) as error:
        fail("remask revise", 2, error)
    except StorageError as error:
        fail("remask revise", 1, error)
    console = make_console(to_stderr=True)
    for row, board in enumerate(revision.tokens.tolist()):
        if arguments.show:
            show_revision(console, revision, row)
            console.print(outcome(revision, row))
        print("".join(map(str, board)))


def choose_policy(arguments: argparse.Namespace) -> tuple[RevisionPolicy, int]:
    """The policy and its limit of steps: as the options say, or as tuned for the checkpoint."""
    names = ("reveal_count", "margin", "patience")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    tuned = read_decoding(arguments.checkpoint) if arguments.tuned and not given else None
    choice = None
    if tuned is not None and tuned.start == "given":
        choice = tuned.within(arguments.max_steps)
    if choice is None:
        return RevisionPolicy(**given), arguments.max_steps
    trial = choice.trial
    settings = ", ".join(f"{name} {value}" for name, value in trial.settings.items())
    say(
        f"remask revise: settings tuned for {choice.budget} passes: {settings}, "
        f"{trial.max_steps} steps",
        to_stderr=True,
    )
    return trial.make_policy(), trial.max_steps


def outcome(revision: Revision, row: int) -> str:
    """Summary of one board's decode, in a line."""
    broken = int(conflict_cells(revision.tokens[row : row + 1].numpy()).sum())
    stats = revision.stats
    ended = f"not valid, {broken} cells break a rule" if broken else "valid"
    return (
        f"{ended}: {int(stats.steps[row])} steps, {int(stats.remasked[row])} cells re-masked, "
        f"{int(stats.revealed[row])} revealed"
    )


def read_boards(lines: Iterable[tuple[str, str]], cells: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Parse lines, each with its location, to tokens and editable cells, [B, N] each.

    Raises ValueError with the locations of the first bad lines.
    """
    boards, masks, bad = [], [], []
    for where, line in lines:
        try:
            board, mask = _read_board(line, cells)
        except ValueError as error:
            bad.append(f"{where}: {error}")
            continue
        boards.append(board)
        masks.append(mask)
    if bad:
        more = f"; and {len(bad) - BAD_LINES_SHOWN} more" if len(bad) > BAD_LINES_SHOWN else ""
        raise ValueError("; ".join(bad[:BAD_LINES_SHOWN]) + more)
    if not boards:
        raise ValueError("no boards given: pass them as arguments, in a file or on standard input")
    return torch.from_numpy(np.stack(boards)).long(), torch.tensor(masks)


def _read_board(line: str, cells: int) -> tuple[np.ndarray, list[bool]]:
    digits, *rest = line.split()
    board = parse_board(digits)
    if board.size != cells:
        raise ValueError(
            f"this checkpoint takes boards of {cells} cells, got {board.size}: {digits}"
        )
    mask = rest[0] if rest else "1" * cells
    if len(rest) > 1 or len(mask) != cells or set(mask) - {"0", "1"}:
        raise ValueError(
            f"a board is followed by {cells} 0s and 1s or nothing, got {' '.join(rest)!r}"
        )
    editable = [c == "1" for c in mask]
    stuck = [i for i, may_change in enumerate(editable) if not may_change and board[i] == 0]
    if stuck:
        raise ValueError(f"cell {stuck[0] + 1} is blank and may not change; let it change")
    return board, editable


def _lines(boards: list[str]) -> Iterator[tuple[str, str]]:
    """(location, line) of every board: those on the command line, and lines that are not blank."""
    if not boards:
        yield from _numbered("standard input", sys.stdin)
    for number, board in enumerate(boards, 1):
        if _is_file(board):
            try:
                yield from _numbered(board, Path(board).read_text().splitlines())
            except (OSError, ValueError) as error:  # not UTF-8, or not a path
                raise ValueError(f"cannot read boards from {board}: {error}") from error
        elif not _is_board(board):
            raise ValueError(
                f"there is no file {board}, and a board is 81 or 16 digits, 0 or . for a blank"
            )
        elif board.strip():
            yield f"board {number}", board


def _numbered(name: str, lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    yield from ((f"{name}: line {n}", line) for n, line in enumerate(lines, 1) if line.strip())


def _is_file(text: str) -> bool:
    return not _is_board(text) and (os.path.exists(text) or "/" in text or "\\" in text)


def _is_board(text: str) -> bool:
    return set(text) <= set("0123456789. ")


if __name__ == "__main__":
    main()
