"""Whether a run may continue with another total number of steps.

It may if the learning rates of the steps that it has done are the same with both totals. An
extended run is then, bit for bit, the run with the new total from the start.
"""

import dataclasses
import json

from remask.pipeline.runtime.provenance import RECIPE, claim, read_json
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.runtime.terminal import say
from remask.training.plan import TrainingPlan
from remask.training.run.folder import RunFolder

TOTALS = ("steps", "epochs")


def claim_run(folder: RunFolder, plan: TrainingPlan) -> None:
    """Claim a folder for a plan's run, possibly one that it holds with another number of steps.

    Raises:
        ValueError: It holds a run of another recipe, or the new number of steps would change
            learning rates of steps that are done.
    """
    storage = Storage(str(folder.path))
    total = _claimed_steps(storage, plan) if storage.exists(RECIPE) else None
    if total is not None:
        _check(folder, plan, total)
        storage.write(RECIPE, json.dumps(plan.content, indent=2).encode())
        if total != plan.steps:
            say(
                f"train: {folder.path} continues after {folder.last_step()} steps, to {plan.steps} "
                f"instead of {total}",
                to_stderr=True,
            )
    claim(storage, plan.content)


def _claimed_steps(storage: Storage, plan: TrainingPlan) -> int | None:
    """Total steps of the run in a folder; None unless it differs from the plan in these only."""
    claimed, content = read_json(storage, RECIPE), json.loads(json.dumps(plan.content))
    totals = {name: claimed.get(name) for name in TOTALS}
    if claimed == content or claimed != content | totals:
        return None
    try:
        recipe = dataclasses.replace(plan.recipe, **totals)
        return recipe.num_steps(plan.train.num_rows)
    except (TypeError, ValueError):  # edited by hand
        return None


def _check(folder: RunFolder, plan: TrainingPlan, total: int) -> None:
    done, decay = folder.last_step(), plan.recipe.optimizer.decay
    if done > plan.steps:
        raise ValueError(
            f"{folder.path} has done {done} steps, more than the {plan.steps} requested; choose "
            f"another output, or {done} steps or more"
        )
    changed = plan.recipe.optimizer.steps_changed(total, plan.steps, done)
    if changed:
        raise ValueError(
            f"{folder.path} was started with {total} steps in total, and optimizer.decay {decay} "
            f"sets the learning rate by that number: {plan.steps} would change {changed} of its "
            f"{done} steps (constant would change none); choose another output, or go back to "
            f"{total}"
        )
