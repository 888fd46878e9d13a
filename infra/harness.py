"""lm-evaluation-harness with our checkpoints, as the model `remask`.

    remask harness --model remask --tasks arc_challenge \\
        --model_args checkpoint=weights/llada-8b-base,mc_num=128,cfg=0.5
    remask harness --model remask --tasks gsm8k --apply_chat_template --model_args \\
        checkpoint=runs/rm/model,tokenizer=weights/llada-8b-instruct,policy=revision,reveal_count=2

This is the command `lm_eval` with our model registered; `remask harness run --help` lists its
options. The keys of model_args are documented in `remask.evaluation.harness`.
"""

import importlib
import importlib.util
import sys

from remask.models.checkpoints.folder import CheckpointError
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import fail


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print((__doc__ or "").strip())
        raise SystemExit(0)
    if importlib.util.find_spec("lm_eval") is None:
        print(
            "remask harness: lm-evaluation-harness is missing; `pip install 'remask[harness]'`",
            file=sys.stderr,
        )
        raise SystemExit(2)
    importlib.import_module("remask.evaluation.harness")
    sys.argv = ["lm_eval", *argv]
    try:
        importlib.import_module("lm_eval.__main__").cli_evaluate()
    except CheckpointError as error:
        fail("remask harness", 2, error)
    except StorageError as error:
        fail("remask harness", 1, error)


if __name__ == "__main__":
    main()
