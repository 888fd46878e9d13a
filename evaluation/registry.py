"""The suites by the name that recipes give them.

A suite is imported only when a recipe or a report asks for it.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from remask.evaluation.suite import Outcome, Suite
from remask.models.config import from_mapping

SUITES: dict[str, str] = {
    "arc": "remask.evaluation.suites.arc:ArcSuite",
    "arc_generation": "remask.evaluation.suites.arc_generation:ArcGenerationSuite",
    "countdown": "remask.evaluation.suites.countdown:CountdownSuite",
    "gsm8k": "remask.evaluation.suites.gsm8k:Gsm8kSuite",
    "humaneval": "remask.evaluation.suites.humaneval:HumanEvalSuite",
    "image_edit": "remask.evaluation.suites.image_edit:ImageEditSuite",
    "math": "remask.evaluation.suites.math:MathSuite",
    "mbpp": "remask.evaluation.suites.mbpp:MbppSuite",
    "sudoku": "remask.evaluation.suites.sudoku:SudokuSuite",
    "sudoku_puzzles": "remask.evaluation.suites.sudoku_puzzles:SudokuPuzzlesSuite",
    "text": "remask.evaluation.suites.text:OwnTextSuite",
}


def find_suite(kind: str) -> type[Suite] | None:
    """The class of a suite; None if no suite has this name."""
    if kind not in SUITES:
        return None
    module, _, name = SUITES[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def find_outcome(kind: str) -> Outcome | None:
    """The figures that say whether revision helped; None if the suite does not name them."""
    return getattr(find_suite(kind), "outcome", None)


def make_suite(values: Any, where: str) -> Suite:
    """Build the suite of a recipe's section, which holds its `kind` and its settings.

    Args:
        values: The section.
        where: Named in errors, like `suites: boards`.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: expected keys and values, got {values!r}")
    settings = dict(values)
    kind = settings.pop("kind", None)
    suite = find_suite(kind) if isinstance(kind, str) else None
    if suite is None:
        raise ValueError(f"{where}: kind must be one of {sorted(SUITES)}, got {kind!r}")
    return from_mapping(suite, settings, where)
