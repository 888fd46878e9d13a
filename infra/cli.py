"""The `remask` command: each verb hands over to its module. `GROUPS` is the table of verbs."""

import importlib
import os
import sys
import tomllib
from dataclasses import dataclass
from importlib import metadata

from remask import CLONE


@dataclass(frozen=True)
class Verb:
    """A verb of the command."""

    usage: str
    """What is typed after `remask`; its first word is the verb."""
    meaning: str
    module: str
    """Below `remask`; it has a `main(argv)`."""

    @property
    def name(self) -> str:
        return self.usage.split()[0]


GROUPS: dict[str, tuple[Verb, ...]] = {
    "everything": (
        Verb("run RECIPE", "all stages of a recipe, one after another, to a report", "infra.run"),
    ),
    "data": (
        Verb("source RECIPE", "clean sequences → examples", "pipeline.source"),
        Verb("probe RECIPE", "frozen backbone → proposals", "pipeline.probe"),
        Verb("build RECIPE", "proposals → trajectory shards", "pipeline.build"),
        Verb("rollout RECIPE", "a checkpoint's own decodes → shards", "pipeline.rollout"),
        Verb("vq RECIPE", "pictures → an image tokeniser", "training.vq"),
    ),
    "train": (
        Verb("train RECIPE", "shards → a model, with DeepSpeed's launcher", "training.launch"),
        Verb("merge ADAPTER OUTPUT", "a LoRA adapter and its base → one model", "training.merge"),
    ),
    "evaluate": (
        Verb("eval RECIPE", "checkpoints → predictions and scores", "evaluation.evaluate"),
        Verb("tune CHECKPOINT RECIPE", "decoding settings, on held-out rows", "evaluation.tune"),
        Verb("report FOLDER", "scores → one HTML file", "evaluation.report.make"),
    ),
    "use": (
        Verb("revise", "revise boards, text or a picture, and show every step", "infra.revise"),
        Verb(
            "chat", "talk with a text model, whose answers are revised as you watch", "infra.chat"
        ),
        Verb("edit PICTURE WORDS", "edit a picture with an image-edit checkpoint", "infra.edit"),
        Verb("demo", "a page to play with, on this machine", "infra.demo.serve"),
    ),
    "run elsewhere": (
        Verb("harness ARGUMENTS", "lm-evaluation-harness with our checkpoints", "infra.harness"),
        Verb("push RUN OWNER/NAME", "a finished run's model → the Hugging Face hub", "infra.push"),
    ),
    "inspect": (
        Verb("recipes", "recipes: list, show, copy, new; what keys mean", "infra.catalogue"),
        Verb("shards URI", "a data set: list, show, verify, tv-bound", "pipeline.shards"),
        Verb("doctor", "what this machine can run, and why not", "infra.doctor"),
    ),
}
"""Verbs by purpose. A new verb is one line here."""
VERBS = {verb.name: f"remask.{verb.module}" for verbs in GROUPS.values() for verb in verbs}
"""The module of each verb."""


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print(help_text())
        return
    if argv[0] == "--version":
        print(f"remask {version()}")
        return
    verb, *rest = argv
    if verb not in VERBS:
        print(f"remask: no verb {verb!r}; the verbs are {', '.join(VERBS)}", file=sys.stderr)
        raise SystemExit(2)
    try:
        importlib.import_module(VERBS[verb]).main(rest)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("remask: stopped", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def help_text() -> str:
    """What `remask --help` prints: a line for each verb, by purpose."""
    width = max(len(verb.usage) for verbs in GROUPS.values() for verb in verbs)
    lines = ["remask: post-train mask diffusion models to revise their own output"]
    for purpose, verbs in GROUPS.items():
        lines += ["", f"{purpose}:"]
        lines += [f"  remask {verb.usage:{width}}  {verb.meaning}" for verb in verbs]
    lines += [
        "",
        "remask VERB --help    options and examples of a verb",
        "remask --version      the version",
        "",
        "RECIPE is a YAML file or the name of a packaged recipe (`remask recipes` lists them).",
        "With RAY_ADDRESS set, the stages join that cluster. Each verb is also a module, for jobs:",
        "`python -m remask.pipeline.build RECIPE`.",
    ]
    return "\n".join(lines)


def version() -> str:
    """The installed version, or that of the clone if nothing is installed."""
    try:
        return metadata.version("remask")
    except metadata.PackageNotFoundError:
        return tomllib.loads((CLONE / "pyproject.toml").read_text("utf-8"))["project"]["version"]


if __name__ == "__main__":
    main()
