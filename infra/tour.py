"""The whole method in about a minute: train a small reviser on 4×4 Sudoku, then watch it revise.

Half of the 288 boards train it, the other half are held out. Nothing is downloaded.

    python -m infra.tour
    python -m infra.tour --minutes 5 --wrong 1 6 --out runs/tour
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from evaluation.suites import sudoku as suite
from infra.boards import show_revision
from kernels import state_at
from models import CheckpointError, HistoryConfig, SudokuConfig, SudokuMDM, revise, save
from models.checkpoint import check_target
from models.history import encode_rows
from pipeline import TrajectoryConfig, sample_trajectories, wrong_digit
from pipeline.sources.sudoku import all_boards
from training import ObjectiveConfig, OracleLoss, oracle_loss

SIDE = 4
BATCH = 256
LEARNING_RATE = 2e-3


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m infra.tour",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="time to train (default: 1)")
    parser.add_argument(
        "--wrong", type=int, nargs=2, default=(1, 4), metavar=("LOW", "HIGH"),
        help="wrong cells per test board (default: 1 4)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/tour"), help="checkpoint folder")
    arguments = parser.parse_args(argv)
    low, high = arguments.wrong
    if not 1 <= low <= high <= SIDE**2 or not 0 < arguments.minutes < math.inf:
        parser.error(f"need 1 <= LOW <= HIGH <= {SIDE**2} and minutes above 0")
    try:
        check_target(arguments.out)
    except CheckpointError as error:
        parser.error(str(error))

    console = Console()
    rng = np.random.default_rng(arguments.seed)
    torch.manual_seed(arguments.seed)
    boards = rng.permutation(all_boards(SIDE))
    held_out, seen = np.split(boards, 2)
    model = train(seen, rng, arguments.minutes * 60, console)
    save(model, arguments.out)

    solution, start = corrupt(np.tile(held_out, (4, 1)), low, high, rng)
    revision = revise(model, start, max_steps=12)
    scores = suite.score(solution, revision)
    show_revision(console, revision, row=0, solution=solution[0])
    console.print(
        f"{len(solution)} held-out boards with {low} to {high} wrong cells: "
        f"[bold]{scores.exact:.1%} exact[/], {scores.valid:.1%} valid, "
        f"{scores.replay:.1%} of re-masked mistakes replayed, "
        f"{scores.conflicts:.3f} conflicting cells per board"
    )
    line = "".join(map(str, start[0].tolist()))
    console.print(
        f"checkpoint: {arguments.out}\ntry: remask revise --checkpoint {arguments.out} {line}"
    )


def train(
    boards: np.ndarray, rng: np.random.Generator, seconds: float, console: Console
) -> SudokuMDM:
    """Fit a small model to fresh trajectories of the boards until the time is up."""
    model = SudokuMDM(
        SudokuConfig(side=SIDE, layers=3, width=64, feed_forward=256), HistoryConfig(decay=0.5)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    law = TrajectoryConfig(noisy_count=(0, 8), doubt_share=0.1)
    columns = (
        TextColumn("training"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    start = time.monotonic()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=seconds, note="")
        while (elapsed := time.monotonic() - start) < seconds:
            # Warm up over the first twentieth, then fall linearly to nothing.
            share = elapsed / seconds
            optimizer.param_groups[0]["lr"] = (
                LEARNING_RATE * min(1.0, 20 * share + 0.05) * (1 - share)
            )
            loss = train_step(
                model, optimizer, boards[rng.integers(0, len(boards), BATCH)], law, rng
            )
            progress.update(task, completed=elapsed, note=_note(loss))
    return model.eval()


def train_step(
    model: SudokuMDM,
    optimizer: torch.optim.Optimizer,
    boards: np.ndarray,
    law: TrajectoryConfig,
    rng: np.random.Generator,
) -> OracleLoss:
    """One step of the method, from clean boards to updated weights."""
    rows = sample_trajectories(boards, np.ones(boards.shape, np.bool_), wrong_digit(SIDE), law, rng)
    target, wrong, masked_at, revealed_at, step = (
        torch.from_numpy(x).long()
        for x in (rows.target, rows.wrong, rows.masked_at, rows.revealed_at, rows.step)
    )
    state = state_at(target, wrong, masked_at, revealed_at, step[:, None], model.mask_id)
    inputs = encode_rows(
        model.token_embedding,
        target,
        wrong,
        masked_at,
        revealed_at,
        step,
        mask_id=model.mask_id,
        horizon=law.horizon,
        config=model.history,
    )
    loss = oracle_loss(
        model.head,
        model.hidden(inputs),
        state=state,
        target=target,
        wrong=wrong,
        moves=revealed_at > 0,
        editable=torch.from_numpy(rows.editable),
        mask_id=model.mask_id,
        vocab_size=model.vocab_size,
        config=ObjectiveConfig(),
    )
    optimizer.zero_grad()
    loss.total.backward()
    optimizer.step()
    return loss


def corrupt(
    boards: np.ndarray, low: int, high: int, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Solutions and starts: each board with low to high of its cells replaced by another digit."""
    law = TrajectoryConfig(noisy_count=(low, high), wrong_share=1.0)
    rows = sample_trajectories(boards, np.ones(boards.shape, np.bool_), wrong_digit(SIDE), law, rng)
    return torch.from_numpy(boards).long(), torch.from_numpy(rows.wrong).long()


def _note(loss: OracleLoss) -> str:
    parts = (("reveal", loss.reveal), ("mask", loss.mask), ("keep", loss.keep))
    right = ", ".join(f"{name} {p.num_correct / p.count.clamp(min=1):.0%}" for name, p in parts)
    return f"loss {loss.total.item():.3f}, right: {right}"


if __name__ == "__main__":
    main()
