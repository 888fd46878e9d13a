"""The model card: what a checkpoint is, how it was trained, and its scores."""

import json

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
        "data": f"{plan.train.fingerprint}, {plan.train.num_rows:,} training rows",
        "started from": plan.start or "random weights",
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
