"""Merge a LoRA adapter into its base model, and write a plain checkpoint.

remask merge runs/math/model runs/math/merged
"""

import argparse
import time

from remask.models import CheckpointError, load, save
from remask.models.checkpoints.adapter import has_adapter, merge
from remask.models.checkpoints.checkpoint import check_target
from remask.models.checkpoints.input_files import read_input_files
from remask.models.checkpoints.inputs_file import inputs_folder
from remask.pipeline.runtime.ending import after_model, duration, say_next
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import fail, say


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask merge", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("adapter", help="model folder of a LoRA run, or hf:owner/name")
    parser.add_argument("output", help="folder for the merged model")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    try:
        check_target(arguments.output)
        backbone = load(arguments.adapter)
        if not has_adapter(backbone):
            raise CheckpointError(
                f"{arguments.adapter} is a whole model; give the model folder of a LoRA run"
            )
        inputs = read_input_files(inputs_folder(arguments.adapter))
        save(merge(backbone), arguments.output, inputs=inputs)
    except CheckpointError as error:
        fail("remask merge", 2, error)
    except StorageError as error:
        fail("remask merge", 1, error)
    say(f"merged: {arguments.output}")
    say(f"merge: one model in {duration(time.monotonic() - started)}: {arguments.output}")
    say_next(after_model(arguments.output))


if __name__ == "__main__":
    main()
