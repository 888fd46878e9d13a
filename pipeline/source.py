"""Source → examples: clean sequences with their editable positions, as Parquet.

remask source pipeline/recipes/sudoku.yaml
python -m remask.pipeline.source pipeline/recipes/sudoku.yaml source.train=100000
"""

import dataclasses
from functools import partial
from typing import Any

from remask.pipeline.format.examples import ExampleFile, Examples, encode_examples
from remask.pipeline.plan import SOURCE_STAGE, Plan, Unit, example_units, make_plan, unit_rng
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.command import main_for
from remask.pipeline.runtime.ending import command
from remask.pipeline.runtime.jobs import run_tasks
from remask.pipeline.runtime.progress import Meter, Summary
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.runtime.terminal import say
from remask.pipeline.sources.source import Source
from remask.pipeline.trajectory import Ints

LEFT_OUT, UNCHANGED = ".left_out.txt", ".unchanged.txt"
"""File name endings of a unit's lists of the records left out, and of the no-op edits."""


def make_examples(plan: Plan[Any], unit: Unit) -> tuple[int, int, int, int]:
    """Write one unit's examples; return its rows, tokens, skipped records and no-op edits."""
    rng = unit_rng(plan, SOURCE_STAGE, unit)
    source: Source = plan.recipe.source
    examples = source.examples(unit.split, unit.first, unit.count, rng)
    for ending, lines in ((LEFT_OUT, examples.left_out), (UNCHANGED, examples.unchanged)):
        if lines:
            plan.examples.write(f"{unit.name}{ending}", "".join(f"{x}\n" for x in lines).encode())
    if examples.starts is not None:
        starts = dataclasses.replace(examples, target=examples.starts)
        plan.examples.write_sealed(_starts_name(unit), encode_examples(starts))
    data = encode_examples(examples)
    plan.examples.write_sealed(f"{unit.name}.parquet", data)  # last: its presence means "done"
    tokens = int(examples.lengths.sum())
    return len(examples.example_ids), tokens, examples.num_skipped, len(examples.unchanged)


def open_examples(plan: Plan[Any], unit: Unit) -> ExampleFile:
    """Open the file that `make_examples` wrote."""
    storage, name = plan.examples, f"{unit.name}.parquet"
    return ExampleFile(storage.read_sealed(name), storage.path(name))


def read_examples(plan: Plan[Any], unit: Unit) -> Examples:
    """Read the examples that `make_examples` wrote."""
    return open_examples(plan, unit).decode()


def read_starts(plan: Plan[Any], unit: Unit) -> Ints:
    """The tokens that a unit's rows should be revised from, [B, N]."""
    name = _starts_name(unit)
    data = plan.examples.read_sealed(name)
    return ExampleFile(data, plan.examples.path(name)).decode().target


def missing(storage: Storage, units: list[Unit]) -> list[Unit]:
    """The units without a file; partial files of killed writers are removed."""
    storage.sweep("")
    finished = storage.sealed_names("")
    return [unit for unit in units if f"{unit.name}.parquet" not in finished]


def run(recipe: BuildRecipe) -> Summary:
    """Make the missing examples."""
    return run_plan(make_plan(recipe))


def run_plan(plan: Plan[Any], units: list[Unit] | None = None) -> Summary:
    """Make the missing examples of some units of a plan. Defaults to all units."""
    units = example_units(plan.recipe) if units is None else units
    todo = missing(plan.examples, units)
    num_no_ops = 0
    with Meter("source", len(units), len(units) - len(todo)) as meter:
        for *counts, no_ops in run_tasks(
            partial(make_examples, plan),
            todo,
            workers=plan.workers,
            num_gpus=plan.recipe.run.gpus_per_source,
        ):
            meter.add(*counts)
            num_no_ops += no_ops
    plan.examples.sweep("")
    if num_no_ops:
        files = plan.examples.path(f"*{UNCHANGED}")
        say(f"source: {num_no_ops:,} no-op edits are kept; see {files}", to_stderr=True)
    if meter.rows == 0 and len(todo) == len(units):
        plan.examples.remove(f"{unit.name}.parquet" for unit in units)
        advice = _first_reason(plan) or "raise source.max_length or fix the templates"
        raise ValueError(
            f"the source gave no example: all {meter.skipped} records were left out, because they "
            "cannot be read, are too long, have an empty response, or contain the mask token; "
            f"{advice}"
        )
    return meter.summary(len(todo), plan.examples.uri)


def _first_reason(plan: Plan[Any]) -> str | None:
    """Why the first record was left out; None if the source does not say so."""
    for name in sorted(plan.examples.names("")):
        if name.endswith(LEFT_OUT):
            first = plan.examples.read(name).decode().partition("\n")[0]
            return f"the first: {first}; see {plan.examples.path(name)}"
    return None


def _starts_name(unit: Unit) -> str:
    return f"{unit.name}.starts.parquet"


def main(argv: list[str] | None = None) -> None:
    main_for(
        "source",
        __doc__,
        run,
        example_units,
        argv,
        advise=lambda recipe, name: f"{command('build', name)}, with the same keys",
    )


if __name__ == "__main__":
    main()
