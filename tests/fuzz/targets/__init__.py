"""Everything that is fuzzed, a file for each family of readers."""

from remask.kernels.build import native
from tests.fuzz.case import Target
from tests.fuzz.targets import (
    answers,
    boards,
    checkpoints,
    demo,
    edits,
    evaluations,
    inputs,
    pictures,
    puzzles,
    recipes,
    reports,
    runs,
    shards,
    text,
    wire,
)

native("cpu")  # compiled before any input is run, for that takes longer than an input may

TARGETS: tuple[Target, ...] = (
    *recipes.TARGETS,
    *boards.TARGETS,
    *puzzles.TARGETS,
    *text.TARGETS,
    *answers.TARGETS,
    *pictures.TARGETS,
    *edits.TARGETS,
    *shards.TARGETS,
    *checkpoints.TARGETS,
    *inputs.TARGETS,
    *demo.TARGETS,
    *runs.TARGETS,
    *evaluations.TARGETS,
    *reports.TARGETS,
    *wire.TARGETS,
)
