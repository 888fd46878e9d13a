"""The `remask` command: each verb hands over to its module.

remask run RECIPE              all stages of a recipe, one after another, to a report
remask source RECIPE           clean sequences → examples
remask probe RECIPE            frozen backbone → proposals
remask build RECIPE            proposals → trajectory shards (runs earlier stages if needed)
remask rollout RECIPE          a checkpoint's own decodes → trajectory shards
remask shards URI              the manifest: list, show, verify, tv-bound
remask vq RECIPE               pictures → an image tokeniser
remask train RECIPE            shards → a model, with DeepSpeed's launcher
remask merge ADAPTER OUTPUT    a LoRA adapter and its model → one model
remask tune CHECKPOINT RECIPE  decoding settings for a checkpoint, chosen on held-out rows
remask eval RECIPE             checkpoints → predictions and scores, as Ray tasks
remask report FOLDER           scores → one HTML file: tables, curves, a player
remask harness ARGUMENTS       lm-evaluation-harness with our checkpoints, as model `remask`
remask revise --checkpoint C   revise boards, text or a picture, and show every step
remask chat --checkpoint C     talk with a text model, whose answers are revised as you watch
remask edit PICTURE WORDS      edit a picture with an image-edit checkpoint
remask push RUN OWNER/NAME     a finished run's model → the Hugging Face hub
remask demo                    a page to play with: boards, text and pictures, on this machine
remask recipes                 the packaged recipes: list, show, copy
remask doctor                  what this machine can run, and why not

remask VERB --help             options and examples of a verb

RECIPE is a YAML file or the name of a packaged recipe.
"""

import importlib
import os
import sys

VERBS = {
    "run": "remask.infra.run",
    "source": "remask.pipeline.source",
    "probe": "remask.pipeline.probe",
    "build": "remask.pipeline.build",
    "rollout": "remask.pipeline.rollout",
    "shards": "remask.pipeline.shards",
    "vq": "remask.training.vq",
    "train": "remask.training.launch",
    "merge": "remask.training.merge",
    "tune": "remask.evaluation.tune",
    "eval": "remask.evaluation.evaluate",
    "report": "remask.evaluation.report.make",
    "harness": "remask.infra.harness",
    "revise": "remask.infra.revise",
    "chat": "remask.infra.chat",
    "edit": "remask.infra.edit",
    "push": "remask.infra.push",
    "demo": "remask.infra.demo.serve",
    "recipes": "remask.infra.catalogue",
    "doctor": "remask.infra.doctor",
}


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print((__doc__ or "").strip())
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


if __name__ == "__main__":
    main()
