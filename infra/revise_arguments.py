"""The arguments of `remask revise`: what they ask for, and how it is decoded."""

import argparse
import dataclasses
from typing import Any

from remask.infra.edit import read_bytes
from remask.infra.options import MAX_STEPS, Options
from remask.infra.requests import check_text
from remask.infra.reviser import Reviser
from remask.models import Policy, RevisionPolicy
from remask.models.decoding import POLICIES
from remask.pipeline.inputs.reader import Kind, Start

Plan = tuple[Policy, int, list[str]]
"""A policy, its limit of steps, and notes."""


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """The parser of the command's arguments."""
    parser = argparse.ArgumentParser(
        prog="remask revise", description=description, formatter_class=argparse.RawTextHelpFormatter
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


def read_request(arguments: argparse.Namespace, kind: Kind) -> dict[str, Any]:
    """What --prompt or --picture ask for."""
    if kind == "image_edit":
        check_text("--instruction", arguments.instruction)
        picture = read_bytes(arguments.picture)
        return {"picture": picture, "instruction": arguments.instruction}
    check_text("--prompt", arguments.prompt)
    check_text("--draft", arguments.draft)
    return {name: getattr(arguments, name) for name in ("prompt", "draft", "length")}


def read_options(arguments: argparse.Namespace) -> Options:
    """The options that a reviser has."""
    names = ("policy", "history", "margin", "pace", "max_steps", "seed")
    return Options(**{name: getattr(arguments, name) for name in names})


def make_plan(
    reviser: Reviser, start: Start, options: Options, arguments: argparse.Namespace
) -> Plan:
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
