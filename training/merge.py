"""Add a LoRA adapter into the model it belongs to, and write a plain checkpoint.

remask merge runs/math/model runs/math/merged
"""

import argparse

from remask.models import CheckpointError, load, save
from remask.models.checkpoints.adapter import has_adapter, merge
from remask.models.checkpoints.checkpoint import check_target
from remask.pipeline.runtime.terminal import fail, say


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask merge", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("adapter", help="folder that training with LoRA wrote")
    parser.add_argument("output", help="folder for the merged model")
    arguments = parser.parse_args(argv)
    try:
        check_target(arguments.output)
        backbone = load(arguments.adapter)
        if not has_adapter(backbone):
            raise CheckpointError(f"{arguments.adapter} is no adapter, but a whole model")
        save(merge(backbone), arguments.output)
    except CheckpointError as error:
        fail("remask merge", 2, error)
    say(f"merged: {arguments.output}")


if __name__ == "__main__":
    main()
