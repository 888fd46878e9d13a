"""Revise boards, text or pictures with a checkpoint, and show every step.

What is revised follows from what is given, and must be what the checkpoint takes. Without
--checkpoint the model that comes with remask for that kind is used.

Boards are 81 or 16 digits in reading order, 0 or . for a blank, as arguments, or as lines of files
or of standard input. A board may be followed by a space and as many digits 0 and 1, where 1 marks a
cell that may change; by default all may. On a terminal every step is shown: × breaks a rule, ? is
about to be re-masked, + was just revealed.

    remask revise --checkpoint sudoku boards.txt
    remask revise --checkpoint runs/sudoku4/train/model 4132331414233243
    remask revise --checkpoint runs/sudoku4/train/model "4132331414233243 0000110000000001"
    remask revise --checkpoint sudoku --no-show < boards.txt > revised.txt

Text is a prompt, with a draft of its response or, to have one written from nothing, without. A
draft may hold MASK, as ▒ or as the tokenizer spells it. What follows a draft begins as end tokens,
or as MASK if the draft ends with MASK. Steps show [-re-masked] and [+revealed] tokens. Files hold a
JSON object per line.

    remask revise --checkpoint runs/mine/model --prompt "8+3-4+2:" --draft "8+3=9;9-4=6;6+2=8"
    remask revise --checkpoint runs/mine/model --prompt "8+3-4+2:"
    remask revise --checkpoint runs/mine/model prompts.jsonl --json > records.jsonl

A picture goes with an instruction; the edited picture is written to a file.

    remask revise --picture scene.png --instruction "make the mouse green" --output edited.png

Settings that `remask tune` chose for the checkpoint are used, those of the largest budget within
--max-steps, and named on stderr. With --reveal-count, --margin, --pace, --patience or --no-tuned
they are not, and the other options have their defaults.
"""

import argparse
import base64
import json
import sys
from collections.abc import Iterator

import torch

from remask.infra.boards import show_revision
from remask.infra.edit import write_png
from remask.infra.options import Options
from remask.infra.record import Record
from remask.infra.requests import kind_of, read_lines, read_starts
from remask.infra.revise_arguments import (
    Plan,
    asked_kind,
    make_parser,
    make_plan,
    read_options,
    read_request,
)
from remask.infra.reviser import Reviser, open_reviser
from remask.infra.steps import LEGEND, show_pictures, show_text, summary
from remask.models import Revision, revise
from remask.pipeline.inputs.reader import Start
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import fail, make_console, say, visible
from remask.pipeline.sources.sudoku_rules import conflict_cells


def main(argv: list[str] | None = None) -> None:
    arguments = make_parser(__doc__).parse_args(argv)
    try:
        run(arguments)
    except ValueError as error:
        fail("remask revise", 2, error)
    except StorageError as error:
        fail("remask revise", 1, error)


def run(arguments: argparse.Namespace) -> None:
    """Do what the arguments ask; ValueError if they are wrong."""
    kind = asked_kind(arguments)
    lines = []
    if arguments.prompt is None and kind != "image_edit":
        if not arguments.inputs and sys.stdin.isatty():
            say("remask revise: reading lines from the terminal; Ctrl-D ends", to_stderr=True)
        lines = read_lines(arguments.inputs)
        kind = kind or (None if arguments.checkpoint else kind_of(lines))
    reviser = open_reviser(arguments.checkpoint, kind)
    options = read_options(arguments)
    if not arguments.tuned or arguments.reveal_count or arguments.patience:
        reviser.tuned = None
    if reviser.kind == "image_edit" and kind is None:
        raise ValueError(f"{arguments.checkpoint} edits pictures; give --picture and --instruction")
    if kind == "image_edit" or arguments.prompt is not None:
        starts = [reviser.start(read_request(arguments, reviser.kind))]
    else:
        starts = read_starts(lines, reviser)
    plans = [make_plan(reviser, start, options, arguments) for start in starts]
    if reviser.kind == "sudoku" and not arguments.json:
        return _revise_boards(reviser, starts, plans[0], options, arguments)
    return _revise_each(reviser, starts, plans, options, arguments)


def _revise_boards(
    reviser: Reviser,
    starts: list[Start],
    plan: Plan,
    options: Options,
    arguments: argparse.Namespace,
) -> None:
    """Revise boards in batches, and print one per line."""
    policy, max_steps, notes = plan
    for note in notes:
        say(f"remask revise: {note}", to_stderr=True)
    revision = revise(
        reviser.backbone,
        torch.stack([start.tokens for start in starts]),
        torch.stack([start.editable for start in starts]),
        history=reviser.history(options.history),
        policy=policy,
        max_steps=max_steps,
        seed=options.seed,
        row_ids=torch.zeros(len(starts), dtype=torch.long),
        batch_size=arguments.batch_size,
    )
    console = make_console(to_stderr=True)
    is_shown = sys.stderr.isatty() if arguments.show is None else arguments.show
    for row, board in enumerate(revision.tokens.tolist()):
        if is_shown:
            show_revision(console, revision, row)
            console.print(outcome(revision, row))
        print("".join(map(str, board)))


def _revise_each(
    reviser: Reviser,
    starts: list[Start],
    plans: list[Plan],
    options: Options,
    arguments: argparse.Namespace,
) -> None:
    """Revise starts one after another, each as if it were alone, and print records or results."""
    said: set[str] = set()
    for record in _records(reviser, starts, plans, options):
        if arguments.json:
            print(json.dumps(record.to_json()), flush=True)
        else:
            _show(record, arguments, said)
        if record.picture is not None:
            write_png(arguments.output, base64.b64decode(record.picture))
            say(f"{arguments.output}: {summary(record)}", to_stderr=arguments.json)
        elif not arguments.json:
            print("\n".join(map(visible, record.result.split("\n"))), flush=True)


def _records(
    reviser: Reviser, starts: list[Start], plans: list[Plan], options: Options
) -> Iterator[Record]:
    for start, (policy, max_steps, notes) in zip(starts, plans, strict=True):
        yield reviser.decode(
            start, policy, max_steps, history=options.history, seed=options.seed, notes=notes
        )


def _show(record: Record, arguments: argparse.Namespace, said: set[str]) -> None:
    """Print the steps on stderr if they are wanted, and notes that were not said before."""
    if record.note and record.note not in said:
        said.add(record.note)
        say(f"remask revise: {record.note}", to_stderr=True)
    is_single = arguments.prompt is not None or record.kind == "image_edit"
    is_shown = is_single or sys.stderr.isatty() if arguments.show is None else arguments.show
    if not is_shown:
        return
    console = make_console(to_stderr=True)
    if record.kind == "image_edit":
        show_pictures(console, record)
    else:
        show_text(console, record)
        console.print(summary(record))
        console.print(LEGEND, style="dim")


def outcome(revision: Revision, row: int) -> str:
    """Summary of one board's decode, in a line."""
    broken = int(conflict_cells(revision.tokens[row : row + 1].numpy()).sum())
    stats = revision.stats
    ended = f"not valid, {broken} cells break a rule" if broken else "valid"
    return (
        f"{ended}: {int(stats.steps[row])} steps, {int(stats.remasked[row])} cells re-masked, "
        f"{int(stats.revealed[row])} revealed"
    )


if __name__ == "__main__":
    main()
