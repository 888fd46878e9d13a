"""How an evaluation's figures came about: versions, checkpoints, settings."""

import json
from dataclasses import dataclass
from typing import Any

from remask.evaluation.report.results import Evaluation, run_name
from remask.evaluation.stats.tables import MISSING

Facts = list[tuple[str, str]]
"""Names with their values, in the order in which the page lists them."""

RUN_COLUMNS = {
    "member": "member",
    "parameters": "parameters",
    "samples": "samples",
    "forward_passes": "forward passes",
    "fingerprint": "fingerprint",
}
"""Facts of a run and the headings of their columns, after its suite and label. The
member is left out if no checkpoint has several."""
NUMBERS = ("member", "parameters", "samples", "forward_passes")
SETTINGS = ("path", "settings", "suite_settings", "history")
"""Facts of a run that take more room than a column."""


@dataclass(frozen=True)
class Origin:
    title: str
    facts: Facts
    columns: list[str]
    numbers: list[str]
    """The columns that hold numbers."""
    rows: list[list[str]]
    settings: str
    recipe: str


def make_origin(evaluation: Evaluation) -> Origin:
    facts = dict(evaluation.provenance)
    versions = facts.pop("versions", None)
    facts |= versions if isinstance(versions, dict) else {}
    runs = [(run, run_name(run)) for run in evaluation.runs]
    settings = [
        {"suite": name[0], "run": evaluation.label(name), "member": run.get("member")}
        | {key: run.get(key) for key in SETTINGS}
        for run, name in runs
    ]
    has_suites = len({name[0] for _, name in runs}) > 1
    is_shown = {"member": any(run.get("member") for run in evaluation.runs)}
    keys = [key for key in RUN_COLUMNS if is_shown.get(key, True)]
    return Origin(
        title=evaluation.title,
        facts=[("folder", evaluation.uri), *((str(k), _plain(v)) for k, v in facts.items())],
        columns=["suite"] * has_suites + ["run", *(RUN_COLUMNS[key] for key in keys)],
        numbers=[RUN_COLUMNS[key] for key in NUMBERS],
        rows=[
            [name[0]] * has_suites
            + [evaluation.label(name), *(_plain(run.get(key)) for key in keys)]
            for run, name in runs
        ],
        settings=_json(settings),
        recipe=_json(evaluation.recipe),
    )


def _plain(value: Any) -> str:
    if value is None:
        return MISSING
    return f"{value:,}" if type(value) is int else str(value)


def _json(values: Any) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False)
