"""May a run that began towards one number of steps go on towards another?

Only where nothing that is done would have been otherwise: the learning rates of the steps that it
has done are the same by both numbers. So an extended run is, bit by bit, the one that would have
been with the new number from the start.
"""

import dataclasses
import json

from remask.pipeline.runtime.provenance import RECIPE, claim, read_json
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.runtime.terminal import say
from remask.training.plan import Plan
from remask.training.run.folder import RunFolder

TOTALS = ("steps", "epochs")


def claim_run(folder: RunFolder, plan: Plan) -> None:
    """Make sure that a folder is of this plan's run, with as many steps in all or fewer or more.

    Raises ValueError if it is another recipe's, or if its steps would have been others.
    """
    storage = Storage(str(folder.path))
    total = _claimed_steps(storage, plan) if storage.exists(RECIPE) else None
    if total is not None:
        _check(folder, plan, total)
        storage.write(RECIPE, json.dumps(plan.content, indent=2).encode())
        if total != plan.steps:
            say(
                f"train: {folder.path} goes on after {folder.last_step()} steps, to {plan.steps} "
                f"instead of {total}",
                to_stderr=True,
            )
    claim(storage, plan.content)


def _claimed_steps(storage: Storage, plan: Plan) -> int | None:
    """Steps of the run that a folder holds; none unless it differs from the plan in them alone."""
    claimed, content = read_json(storage, RECIPE), json.loads(json.dumps(plan.content))
    totals = {name: claimed.get(name) for name in TOTALS}
    if claimed == content or claimed != content | totals:
        return None
    try:
        recipe = dataclasses.replace(plan.recipe, **totals)
        return recipe.num_steps(plan.train.num_rows)
    except (TypeError, ValueError):  # somebody has edited it
        return None


def _check(folder: RunFolder, plan: Plan, total: int) -> None:
    done, decay = folder.last_step(), plan.recipe.optimizer.decay
    if done > plan.steps:
        raise ValueError(
            f"{folder.path} has done {done} steps, and {plan.steps} are asked for; choose another "
            f"output, or {done} steps or more"
        )
    changed = plan.recipe.optimizer.steps_changed(total, plan.steps, done)
    if changed:
        raise ValueError(
            f"{folder.path} was begun with {total} steps in all, and optimizer.decay {decay} sets "
            f"the learning rate by that number: {plan.steps} would change {changed} of its {done} "
            f"steps (constant would change none); choose another output, or go back to {total}"
        )
