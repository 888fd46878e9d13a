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
import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import Any

import torch

from remask.infra.boards import show_revision
from remask.infra.edit import read_bytes, write_png
from remask.infra.record import Record
from remask.infra.requests import check_text, kind_of, read_lines, read_starts
from remask.infra.reviser import MAX_STEPS, Options, Reviser, open_reviser
from remask.infra.steps import LEGEND, show_pictures, show_text, summary
from remask.models import Policy, Revision, RevisionPolicy, revise
from remask.models.decoding import POLICIES
from remask.pipeline.inputs.reader import Kind, Start
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import fail, make_console, say, visible
from remask.pipeline.sources.sudoku_rules import conflict_cells

Plan = tuple[Policy, int, list[str]]
"""A policy, its limit of steps, and notes."""


def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
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
    options = _options(arguments)
    if not arguments.tuned or arguments.reveal_count or arguments.patience:
        reviser.tuned = None
    if reviser.kind == "image_edit" and kind is None:
        raise ValueError(f"{arguments.checkpoint} edits pictures; give --picture and --instruction")
    if kind == "image_edit" or arguments.prompt is not None:
        starts = [reviser.start(_request(arguments, reviser.kind))]
    else:
        starts = read_starts(lines, reviser)
    plans = [_plan(reviser, start, options, arguments) for start in starts]
    if reviser.kind == "sudoku" and not arguments.json:
        return _revise_boards(reviser, starts, plans[0], options, arguments)
    return _revise_each(reviser, starts, plans, options, arguments)


def asked_kind(arguments: argparse.Namespace) -> Kind | None:
    """The kind that the options ask for; None if they fit several."""
    given = {
        name: getattr(arguments, name) is not None
        for name in ("prompt", "draft", "length", "picture", "instruction")
    }
    if given["picture"] != given["instruction"]:
        raise ValueError("--picture and --instruction are given together")
    if (given["draft"] or given["length"]) and not given["prompt"]:
        raise ValueError("--draft and --length go with --prompt")
    if given["picture"] and given["prompt"]:
        raise ValueError("--prompt is for text and --picture for pictures; give one of them")
    if arguments.inputs and (given["prompt"] or given["picture"]):
        raise ValueError(
            f"{arguments.inputs[0]} stands beside "
            f"{'--prompt' if given['prompt'] else '--picture'}; give one of them"
        )
    return "text" if given["prompt"] else "image_edit" if given["picture"] else None


def _request(arguments: argparse.Namespace, kind: Kind) -> dict[str, Any]:
    if kind == "image_edit":
        check_text("--instruction", arguments.instruction)
        picture = read_bytes(arguments.picture)
        return {"picture": picture, "instruction": arguments.instruction}
    check_text("--prompt", arguments.prompt)
    check_text("--draft", arguments.draft)
    return {name: getattr(arguments, name) for name in ("prompt", "draft", "length")}


def _options(arguments: argparse.Namespace) -> Options:
    names = ("policy", "history", "margin", "pace", "max_steps", "seed")
    return Options(**{name: getattr(arguments, name) for name in names})


def _plan(reviser: Reviser, start: Start, options: Options, arguments: argparse.Namespace) -> Plan:
    """How a start is decoded, with the options that `Options` does not have."""
    policy, max_steps, notes = reviser.plan(start, options)
    more = {name: getattr(arguments, name) for name in ("reveal_count", "patience")}
    more = {name: value for name, value in more.items() if value is not None}
    if not more:
        return policy, max_steps, notes
    if not isinstance(policy, RevisionPolicy):
        raise ValueError(
            f"--{next(iter(more)).replace('_', '-')} is an option of policy revision, not of "
            f"{policy.name}"
        )
    if "reveal_count" in more:
        more["reveal_within"] = options.pace
    return dataclasses.replace(policy, **more), max_steps, notes


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="remask revise", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "inputs", nargs="*", help="boards, JSON objects or files (default: standard input)"
    )
    parser.add_argument(
        "--checkpoint",
        help="folder written by training or published, or the name of a packaged model\n"
        "(default: the packaged model of the kind)",
    )
    text = parser.add_argument_group("text")
    text.add_argument("--prompt", help="what to answer")
    text.add_argument("--draft", help="the response to revise (default: write one from nothing)")
    text.add_argument(
        "--length", type=int, help="tokens of the response (default: as the rows of training)"
    )
    pictures = parser.add_argument_group("pictures")
    pictures.add_argument("--picture", metavar="FILE", help="picture to edit, of any format")
    pictures.add_argument("--instruction", help="what to change, in words")
    pictures.add_argument(
        "--output", default="edited.png", help="PNG to write (default: edited.png)"
    )
    decoding = parser.add_argument_group("decoding")
    decoding.add_argument(
        "--policy",
        choices=sorted(POLICIES),
        default=RevisionPolicy.name,
        help="the rule (default: revision); the others are for comparison",
    )
    decoding.add_argument(
        "--history",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show the model its past states (default: yes)",
    )
    decoding.add_argument("--max-steps", type=int, help=f"limit of steps (default: {MAX_STEPS})")
    decoding.add_argument(
        "--margin", type=float, help="re-mask only if MASK leads by this many nats (default: 0)"
    )
    decoding.add_argument(
        "--pace",
        type=float,
        help="spread reveals over this share of the steps (default: all at once, or 0.5 for text\n"
        "from nothing)",
    )
    decoding.add_argument("--reveal-count", type=int, help="reveal so many per step")
    decoding.add_argument(
        "--patience", type=int, help="stop after this many steps without a change (default: 1)"
    )
    decoding.add_argument(
        "--tuned",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="use settings that were tuned for the checkpoint (default: yes, if there are any)",
    )
    decoding.add_argument("--seed", type=int, default=0, help="seed of random rules (default: 0)")
    decoding.add_argument(
        "--batch-size", type=int, default=256, help="boards decoded at once (default: 256)"
    )
    printing = parser.add_argument_group("printing")
    printing.add_argument(
        "--show",
        action=argparse.BooleanOptionalAction,
        help="show every step, on stderr (default: with --prompt and --picture, and on a terminal)",
    )
    printing.add_argument(
        "--json", action="store_true", help="print a JSON object per line, with all steps"
    )
    return parser


if __name__ == "__main__":
    main()
