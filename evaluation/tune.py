"""Choose a checkpoint's decoding settings on held-out rows, for budgets of forward passes.

A small grid of margins, paces and steps is decoded on held-out rows of a build or rollout recipe's
source, never on a test set. For each budget the settings that solve the most rows are written into
the checkpoint, as decoding.json, with the results of the whole grid. Decoders with `policy: tuned`
and `remask revise` use them. By default rows are decoded from MASKs alone; with `--start given`
they have wrong tokens to revise. Tune from the states that you will decode from.

    remask tune runs/sums/her-0/model sums --budgets 4 6 12
    remask tune runs/sudoku4/train/model sudoku4 --start given --budgets 8 16 --rows 200
    python -m remask.evaluation.tune runs/sums/her-0/model sums_rollout seed=1 --dry-run
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from remask.evaluation.held_out import HeldOut, Start, read_held_out, solved_rows
from remask.models import Backbone, RevisionPolicy, fingerprint, load, revise
from remask.models.checkpoints.checkpoint import trained_history
from remask.models.checkpoints.decoding_file import Choice, Trial, TunedDecoding, write_decoding
from remask.models.checkpoints.folder import DECODING
from remask.models.checkpoints.hub_name import is_hub_name
from remask.models.checkpoints.shipped import checkpoint_folder, is_shipped
from remask.models.ranges import Range, check_number
from remask.pipeline.probe import batches_by_length, check_length
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.rollout import check_vocabulary
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.pipeline.runtime.ending import command, duration, say_next
from remask.pipeline.runtime.memory import keep_memory
from remask.pipeline.runtime.progress import Meter
from remask.pipeline.runtime.recipes import RECIPE_HELP, digest, load_recipe, read_keys
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import fail, say

BUDGETS = (4, 6, 12, 24)
ROWS = 300
MARGINS = (0.0, -0.5, -1.0, -2.0)
PACES = (None, 0.34, 0.5, 0.7, 1.0)
"""Values of `reveal_within`. None, which reveals everything at once, cannot write from MASKs."""
PRINTED_PACE: dict[Start, float | None] = {"blank": 0.5, "given": None}
"""`reveal_within` of the printed rule, which the chosen settings are shown beside."""

DataRecipe = BuildRecipe | RolloutRecipe


def tune(
    checkpoint: str | os.PathLike[str],
    recipe: DataRecipe,
    *,
    budgets: Sequence[int] = BUDGETS,
    rows: int = ROWS,
    start: Start = "blank",
) -> TunedDecoding:
    """Choose a checkpoint's decoding settings and write them into its folder.

    Args:
        checkpoint: Folder of a model or of an adapter.
        recipe: Names the source of the held-out rows, and the seed that they are drawn with.
        budgets: Maximum numbers of forward passes of a row, each at least 2.
        rows: Number of held-out rows.
        start: What rows are decoded from; see `read_held_out`.

    Raises ValueError for a wrong request, StorageError if the settings cannot be written.
    """
    folder = _folder_of(checkpoint)
    budgets = check_request(checkpoint, recipe, budgets, start)
    held_out = read_held_out(recipe, rows, start)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    backbone = load(folder, device=device, history=trained_history(folder))
    check_length(backbone, held_out.examples)
    trials: list[Trial] = []
    grid = list(make_grid(budgets, start))
    with Meter("tune", len(grid), counts="passes") as meter:
        for max_steps, settings in grid:
            trial = run_trial(backbone, held_out, settings, max_steps, recipe.run.tokens_per_batch)
            trials.append(trial)
            meter.add(held_out.num_rows, round(trial.mean_passes * held_out.num_rows))
    if not any(trial.solved for trial in trials):
        raise ValueError(
            f"no settings solved any of the {held_out.num_rows} rows of {recipe.source.kind} from "
            f"start {start}, so there is nothing to choose by; use another start or another recipe"
        )
    source = recipe.source
    tuned = TunedDecoding(
        model=fingerprint(folder),
        source=source.kind,
        recipe=digest([recipe.content, source.tokenizer_hash(), source.data_hash()]),
        start=start,
        rows=held_out.num_rows,
        seed=recipe.seed,
        chosen=tuple(Choice(budget=x, trial=choose(trials, x)) for x in budgets),
        grid=tuple(trials),
    )
    try:
        write_decoding(folder, tuned)
    except OSError as error:
        raise StorageError(f"cannot write {folder / DECODING}: {error.strerror}") from error
    return tuned


def check_request(
    checkpoint: str | os.PathLike[str], recipe: DataRecipe, budgets: Sequence[int], start: Start
) -> list[int]:
    """The budgets, ascending. Raise ValueError for what could not be tuned or written."""
    budgets = sorted(set(budgets))
    if not budgets:
        raise ValueError("budgets is empty; name at least one number of forward passes")
    for budget in budgets:
        hint = "one pass is kept for the closing step"
        check_number("budgets", budget, Range("[2, 2^15]", hint))
    if not list(make_grid(budgets[:1], start)):
        raise ValueError(
            f"a budget of {budgets[0]} passes reveals every MASK at once from blank rows; use a "
            "budget of at least 3, or start given"
        )
    check_vocabulary(str(checkpoint), recipe.source)
    if (checker := recipe.source.checker()) is not None:
        checker.check_machine()
    folder = _folder_of(checkpoint)
    if is_shipped(checkpoint):
        raise ValueError(
            f"{checkpoint} comes with the package; copy {folder} elsewhere and tune the copy"
        )
    if (folder.resolve().parent / "state.json").is_file():
        raise ValueError(
            f"{folder} is part of a checkpoint that training resumes from, whose files must not "
            "change; tune the finished model, OUTPUT/model"
        )
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder} is read-only; copy it elsewhere and tune the copy")
    return budgets


def make_grid(budgets: Sequence[int], start: Start) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbers of steps and settings to try, in a fixed order."""
    for budget, pace, margin in itertools.product(budgets, PACES, MARGINS):
        policy = RevisionPolicy(margin=margin, reveal_within=pace)
        max_steps = budget - 1  # the closing step needs a pass
        if start == "given" or not policy.reveals_all(max_steps):
            yield max_steps, {"margin": margin} | ({} if pace is None else {"reveal_within": pace})


def run_trial(
    backbone: Backbone,
    held_out: HeldOut,
    settings: dict[str, Any],
    max_steps: int,
    tokens_per_batch: int,
) -> Trial:
    """Decode all rows with some settings."""
    examples, policy = held_out.examples, RevisionPolicy(**settings)
    visible = 0 if examples.vocabulary.mask_id else 1  # padding must not be MASK
    tokens, passes = examples.target.copy(), 0
    for rows, width in batches_by_length(examples.lengths, tokens_per_batch):
        start, editable, is_token = (
            x[rows, :width] for x in (held_out.starts, examples.editable, examples.is_token)
        )
        revision = revise(
            backbone,
            torch.from_numpy(np.where(is_token, start, visible).astype(np.int64)),
            torch.from_numpy(editable),
            policy=policy,
            max_steps=max_steps,
            attention_mask=None if is_token.all() else torch.from_numpy(is_token),
        )
        decoded = np.where(editable, revision.tokens.numpy(), examples.target[rows, :width])
        tokens[rows, :width] = decoded
        passes += int(revision.stats.forward_passes.sum())
    return Trial(
        settings=dict(settings),
        max_steps=max_steps,
        solved=float(solved_rows(held_out, tokens).mean()),
        mean_passes=passes / held_out.num_rows,
    )


def choose(trials: Sequence[Trial], budget: int) -> Trial:
    """The trial that solved the most rows within a budget.

    Ties go to fewer passes, then to the margin nearest 0, then to the first. Settings that were
    tried for a smaller budget are candidates too.
    """
    candidates = [trial for trial in trials if trial.max_steps < budget]
    return min(candidates, key=lambda x: (-x.solved, x.mean_passes, abs(x.settings["margin"])))


def describe(tuned: TunedDecoding) -> list[str]:
    """A line per budget: the settings chosen, and the printed rule's result beside theirs."""
    pace = PRINTED_PACE[tuned.start]
    printed = {
        x.max_steps + 1: x.solved
        for x in tuned.grid
        if x.settings["margin"] == 0 and x.settings.get("reveal_within") == pace
    }
    lines = []
    for choice in tuned.chosen:
        trial, before = choice.trial, printed.get(choice.budget)
        settings = ", ".join(f"{name} {value:g}" for name, value in trial.settings.items())
        beside = "cannot write" if before is None else f"{before:.1%}"
        lines.append(
            f"tune: {choice.budget} passes: {settings}, {trial.max_steps} steps: solved "
            f"{trial.solved:.1%} in {trial.mean_passes:.1f} passes; printed rule: {beside}"
        )
    return lines


def load_data_recipe(name: str | Path, overrides: list[str]) -> DataRecipe:
    """Load a build recipe, or a rollout recipe, which names a checkpoint."""
    is_rollout = "checkpoint" in read_keys(BuildRecipe, name)
    return load_recipe(RolloutRecipe if is_rollout else BuildRecipe, name, overrides)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask tune", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("checkpoint", help="folder of a model or of an adapter")
    parser.add_argument("recipe", help=f"build or rollout recipe: {RECIPE_HELP}")
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.key=value")
    shown = " ".join(map(str, BUDGETS))
    parser.add_argument(
        "--budgets",
        type=int,
        nargs="+",
        default=list(BUDGETS),
        help=f"maximum numbers of forward passes (default: {shown})",
    )
    parser.add_argument(
        "--rows", type=int, default=ROWS, help=f"held-out rows to decode (default: {ROWS})"
    )
    parser.add_argument(
        "--start",
        choices=get_args(Start),
        help="decode from MASKs alone, or from the tokens that the source wants revised or the\n"
        "trajectories begin with (default: the rollout recipe's start, or blank)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be decoded")
    arguments = parser.parse_intermixed_args(argv)
    started = time.monotonic()
    try:
        folder = _folder_of(arguments.checkpoint)
        recipe = load_data_recipe(arguments.recipe, arguments.overrides)
        start: Start = recipe.start if isinstance(recipe, RolloutRecipe) else "blank"
        start = arguments.start or start
        if arguments.dry_run:
            budgets = check_request(arguments.checkpoint, recipe, arguments.budgets, start)
            say(_plan(read_held_out(recipe, arguments.rows, start), budgets, start, folder))
            return
        keep_memory()
        tuned = tune(
            arguments.checkpoint,
            recipe,
            budgets=arguments.budgets,
            rows=arguments.rows,
            start=start,
        )
    except ValueError as error:
        fail("remask tune", 2, error)
    except StorageError as error:
        fail("remask tune", 1, error)
    except KeyboardInterrupt:
        print("remask tune: stopped", file=sys.stderr)
        raise SystemExit(130) from None
    for line in describe(tuned):
        say(line)
    say(
        f"tune: {len(tuned.grid)} settings on {tuned.rows} held-out rows of {tuned.source}, start "
        f"{tuned.start} in {duration(time.monotonic() - started)}: {folder / DECODING}"
    )
    revise = command("revise", "--checkpoint", arguments.checkpoint)
    say_next(f"{revise} uses them, and so do decoders of an evaluation with policy: tuned")


def _folder_of(checkpoint: str | os.PathLike[str]) -> Path:
    """The folder of a checkpoint; ValueError for one on the hub, where nothing can be written."""
    if is_hub_name(checkpoint):
        raise ValueError(
            f"{checkpoint} is on the hub; save a copy in a folder with remask.models.save, and "
            "tune the copy"
        )
    return checkpoint_folder(checkpoint)


def _plan(held_out: HeldOut, budgets: list[int], start: Start, folder: Path) -> str:
    num_settings = len(list(make_grid(budgets, start)))
    return (
        f"tune: {num_settings} settings for budgets {budgets} on {held_out.num_rows} held-out rows "
        f"of {held_out.source.kind}, start {start}: {folder / DECODING}"
    )


if __name__ == "__main__":
    main()
