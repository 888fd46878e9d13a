"""The model card: what a checkpoint is, how it was trained, and its scores."""

import json

from remask.models.checkpoints.hub_name import is_hub_name
from remask.models.checkpoints.shipped import is_shipped
from remask.pipeline.runtime.provenance import provenance
from remask.training.objective import OBJECTIVES
from remask.training.plan import TrainingPlan
from remask.training.run.checkpoint import State


def model_card(plan: TrainingPlan, state: State, scores: dict[str, float] | None) -> str:
    """The model's README.md."""
    recipe = plan.recipe
    parts = [
        f"# {recipe.output.rstrip('/').rsplit('/', 1)[-1]}",
        f"Trained with remask {OBJECTIVES[recipe.objective.kind].purpose}.",
        "| | |\n|---|---|",
    ]
    facts = {
        "steps": f"{state.step:,} of {plan.steps:,}",
        "rows seen": f"{state.step * recipe.batch_size:,}",
        "data": "; ".join(_data(plan)),
        "started from": _start(plan),
    }
    parts[-1] += "".join(f"\n| {name} | {value} |" for name, value in facts.items())
    if scores:
        rows = "".join(f"\n| {name} | {value:.6g} |" for name, value in scores.items())
        parts += ["## On held-out rows", f"| | |\n|---|---|{rows}"]
    parts += [
        "## Recipe",
        f"```json\n{json.dumps(plan.content, indent=2)}\n```",
        "## Versions",
        f"```json\n{json.dumps(provenance(), indent=2)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _start(plan: TrainingPlan) -> str:
    """Fingerprint of the checkpoint that the run started from, with its name if it is public."""
    if plan.start is None:
        return "random weights"
    name = plan.recipe.start or ""
    return f"{name}, {plan.start}" if is_hub_name(name) or is_shipped(name) else plan.start


def _data(plan: TrainingPlan) -> list[str]:
    """Fingerprint and size of each shard set; of several, also its share of every batch."""
    recipe = plan.recipe
    facts = [f"{x.fingerprint}, {x.num_rows:,} training rows" for x in plan.train.sets]
    if recipe.rounds:
        facts.append(f"the model's own decodes in {recipe.num_rounds} rounds")
    if len(facts) == 1:
        return facts
    rows = zip(facts, recipe.rows_per_set, strict=True)
    return [f"{fact}, {count / recipe.batch_size:g} of each batch" for fact, count in rows]
