"""The training loop: shards in, checkpoints out, the same with any backbone and objective.

Everything a step does follows from the recipe and the step's number: its rows, its masks, its
learning rate, its dropout. So a run that was killed goes on from its last checkpoint as if it had
not been, and nothing but weights and optimiser need be stored.
"""

import contextlib
import dataclasses
import math
import signal
import statistics
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from torch import Tensor

from remask.pipeline.runtime.provenance import RECIPE
from remask.pipeline.runtime.recipes import digest
from remask.pipeline.runtime.terminal import complain
from remask.training.batch import Batch
from remask.training.engine import is_regrouped, make_engine, save_model, whole_weights
from remask.training.held_out import HeldOut
from remask.training.learner import Learner
from remask.training.loader import Loader
from remask.training.plan import Plan, make_plan
from remask.training.prefetch import Prefetched
from remask.training.recipe import TrainRecipe
from remask.training.run import disk_space
from remask.training.run.card import model_card
from remask.training.run.checkpoint import Checkpoint, State, files_of, seal
from remask.training.run.engine_state import save_state
from remask.training.run.extension import claim_run
from remask.training.run.folder import Outcome, RunFolder
from remask.training.run.logs import Log, check_wandb
from remask.training.shard_set import ShardSet
from remask.training.tally import Tally
from remask.training.world import TrainingError, World

MOST_NAMED = 8
"""Rows named in an error."""
PATIENCE_S = 5
"""For a killed run whose ranks are ending, to be given again at once."""


class Trainer:
    """One rank's part in a run."""

    def __init__(self, plan: Plan, folder: RunFolder, world: World) -> None:
        recipe = plan.recipe
        self.plan, self._folder, self._world, self._recipe = plan, folder, world, recipe
        backbone = plan.make_backbone()
        is_divided = recipe.engine.zero_stage == 3
        self.learner = Learner(
            backbone,
            recipe.objective,
            horizon=plan.horizon,
            seed=recipe.seed,
            mixed=recipe.engine.precision == "mixed",
            min_chunks=plan.max_chunks(backbone.vocab_size, world) if is_divided else 1,
        )
        self._held_out = None
        if recipe.held_out.every and plan.held_out is not None:
            self._held_out = HeldOut(plan.held_out, recipe.held_out, world, replicated=is_divided)
        newest = self._newest()
        self._engine, self._peaks = make_engine(self.learner, plan, world, newest)
        self._state = newest.state if newest else State(0, world.size)
        self._recent = deque(
            self._state.recent_losses, maxlen=recipe.spikes.window if recipe.spikes else 1
        )
        self._stop = self._asked = False
        self._skipped_in_a_row = 0

    def run(self) -> Outcome:
        """Train to the end, or until asked to stop."""
        recipe, plan = self._recipe, self.plan
        loader = Loader(
            plan.train,
            plan.order,
            rank=self._world.rank,
            world_size=self._world.size,
            micro_batches=plan.micro_batches,
        )
        step, scores = self._state.step, self._state.scores
        pin = self._world.device.type == "cuda"
        with (
            Log(self._folder, plan, self._world, self._state) as log,
            Prefetched(loader, step, pin=pin) as stream,
            self._watching_signals(),
        ):
            saved = step
            while step < plan.steps and not self._stop:
                tally, skipped = self.update(step, next(stream))
                step += 1
                self._state = State(
                    step,
                    self._world.size,
                    self._state.num_skipped + skipped,
                    tuple(self._recent) if recipe.spikes else (),
                )
                self._check_skipping(step, skipped)
                log.add(step, tally, self._rate(step - 1), self._state.num_skipped)
                is_due = step % recipe.save.every == 0 or step == plan.steps
                scores = None
                if self._held_out and (is_due or step % recipe.held_out.every == 0):
                    start = time.monotonic()
                    scores = self._held_out.score(self.learner)
                    log.scores(step, scores, time.monotonic() - start)
                if is_due:
                    self._save(scores, log.tally())
                    saved = step
            if saved < step:
                self._save(None, log.tally())
            if step == plan.steps:
                self._export(scores)
        if step == plan.steps:
            return Outcome(step, plan.steps, scores, str(self._folder.model))
        return Outcome(step, plan.steps, None, str(self._folder.path))

    def update(self, step: int, micro_batches: list[Batch]) -> tuple[Tensor, int]:
        """One update: sums over its rows, and how many micro-batches were left out."""
        # Dropout, where a backbone has it, is a function of the step as well.
        torch.manual_seed(int(digest([self._recipe.seed, step, self._world.rank]), 16))
        share = self._rate(step)
        sums = torch.zeros(Tally.size(), dtype=torch.float64)
        skipped = 0
        for batch, scale in zip(micro_batches, self._scales(micro_batches), strict=True):
            here = batch.to(self._world.device)
            loss, parts = self._engine(here, step)
            mean = self._agree(step, batch, loss)
            if self._is_spike(mean):
                skipped += 1
                scale = 0.0
            else:
                self._recent.append(mean)
            if skipped == len(micro_batches):
                share = 0.0  # nothing was learned, so nothing moves
            for group, peak in zip(self._engine.optimizer.param_groups, self._peaks, strict=True):
                group["lr"] = peak * share
            self._engine.backward(loss * scale)
            if batch is micro_batches[-1]:
                self._check_gradient(step, micro_batches)
            self._engine.step()
            sums += parts.cpu()
        return sums, skipped

    def _scales(self, micro_batches: list[Batch]) -> list[float]:
        """What to multiply each micro-batch's mean by, so that the engine's mean of them, over all
        ranks, is the mean over all that the step holds."""
        weights = [self.learner.objective.weight(batch) for batch in micro_batches]
        total = float(self._world.total(torch.tensor(sum(weights), dtype=torch.float64)))
        parts = len(weights) * self._world.size
        return [weight * parts / total if total else 1.0 for weight in weights]

    def _check_gradient(self, step: int, micro_batches: list[Batch]) -> None:
        """Before it can reach the weights, if ZeRO leaves it where it can be seen."""
        if self._recipe.engine.zero_stage:
            return
        grads = [x.grad for x in self.learner.parameters() if x.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        if not math.isfinite(norm):
            rows = [i for batch in micro_batches for i in batch.row_ids.tolist()]
            self._fail(step, "the gradient", rows)

    def _check_skipping(self, step: int, skipped: int) -> None:
        """A loss that stays high is no spike."""
        self._skipped_in_a_row = self._skipped_in_a_row + skipped if skipped else 0
        if self._recipe.spikes and self._skipped_in_a_row > self._recipe.spikes.window:
            raise TrainingError(
                f"the loss has stayed above {self._recipe.spikes.factor} times its median for "
                f"{self._skipped_in_a_row} micro-batches up to step {step}; raise spikes.factor, "
                "or lower optimizer.lr and start again from an earlier checkpoint"
            )

    def _agree(self, step: int, batch: Batch, loss: Tensor) -> float:
        """The loss over all ranks; stops the run together when it is no number or we are asked."""
        value = float(loss.detach())
        if self._world.is_first and self._folder.stop.exists():
            self._asked = True
        mean, self._stop = value, self._asked
        if self._world.size > 1:
            mine = torch.tensor([value, float(self._asked)], dtype=torch.float64)
            mean, asked = self._world.total(mine).tolist()
            mean, self._stop = mean / self._world.size, asked > 0
        if not math.isfinite(mean):
            self._fail(
                step, "the loss", [] if math.isfinite(value) else self._bad_rows(batch, step)
            )
        return mean

    def _bad_rows(self, batch: Batch, step: int) -> list[int]:
        """Those whose own loss is no number, or all if it takes several together."""
        if self._recipe.engine.zero_stage == 3:  # a rank cannot look on its own
            return batch.row_ids.tolist()
        found = []
        with torch.no_grad():
            for i in range(len(batch.row_ids)):
                row = batch[i : i + 1].to(self._world.device)
                if not math.isfinite(float(self.learner(row, step)[0])):
                    found.append(int(batch.row_ids[i]))
        return found or batch.row_ids.tolist()

    def _fail(self, step: int, what: str, row_ids: list[int]) -> None:
        everyone = self._world.gather(row_ids)
        rows = np.array([i for ids in everyone for i in ids], np.int64)
        fresh = ShardSet(self.plan.train.uri, "train")  # the loader's thread has the other
        names = fresh.names(rows[:MOST_NAMED])
        more = f" and {len(rows) - MOST_NAMED} more" if len(rows) > MOST_NAMED else ""
        raise TrainingError(
            f"{what} is not a number at step {step}, from rows {', '.join(names)}{more}; look at "
            f"the rows with `remask shards {self.plan.train.uri} show`, or lower optimizer.lr and "
            "start again from an earlier checkpoint"
        )

    def _is_spike(self, loss: float) -> bool:
        spikes = self._recipe.spikes
        if spikes is None or len(self._recent) < spikes.window:
            return False
        return loss > spikes.factor * statistics.median(self._recent)

    def _rate(self, step: int) -> float:
        return self._recipe.optimizer.rate(step, self.plan.steps)

    def _newest(self) -> Checkpoint | None:
        """Where to go on from: the newest checkpoint of which every byte is as it was written. One
        for all ranks, among which the reading is divided."""
        checkpoints, faults = self._folder.survey()
        steps = self._world.gather([x.state.step for x in checkpoints])
        if any(x != steps[0] for x in steps):
            raise TrainingError(
                f"ranks see different checkpoints in {self._folder.path} (steps {steps}); output "
                "must be on a file system that all of them share"
            )
        while checkpoints:
            newest = checkpoints.pop()
            wrong = self._world.gather(newest.faults(self._world.rank, self._world.size))
            named = [fault for part in wrong for fault in part]
            if not named:
                later = {k: x for k, x in faults.items() if k > newest.path.name}
                if later and self._world.is_first:
                    complain(
                        "remask train",
                        f"{'; '.join(later.values())}: going on from step {newest.state.step} "
                        "instead",
                    )
                return newest
            faults[newest.path.name] = named[0]
        if faults:
            raise TrainingError(
                f"no checkpoint is left to go on from ({'; '.join(faults.values())}); put a good "
                "one back, or remove them to begin anew"
            )
        return None

    def _save(self, scores: dict[str, float] | None, tally: list[float]) -> None:
        state = dataclasses.replace(
            self._state, tally=tuple(tally) if any(tally) else (), scores=scores
        )
        try:
            self._write(state)
        except BaseException:
            self._folder.discard(state.step)
            raise

    def _write(self, state: State) -> None:
        world, aside = self._world, self._folder.aside(state.step)
        if world.is_first:
            self._folder.begin(state.step)
        world.wait()
        save_state(self._engine, aside)
        weights = whole_weights(self.learner.backbone, world)
        if world.is_first:
            self._write_model(aside / "model", weights, state.scores)
        names = world.gather(files_of(aside) if world.is_first else None)[0]
        parts = world.gather(seal(aside, names[world.rank :: world.size]))
        if world.is_first:
            files = {name: saved for part in parts for name, saved in part.items()}
            self._folder.commit(state, files, keep=self._recipe.save.keep)
        world.wait()

    def _export(self, scores: dict[str, float] | None) -> None:
        """The finished model, in a folder of its own."""
        self._folder.sweep()
        weights = whole_weights(self.learner.backbone, self._world)
        if self._world.is_first:
            self._write_model(self._folder.model, weights, scores)
        self._world.wait()

    def _write_model(
        self, path: Path, weights: dict[str, Tensor] | None, scores: dict[str, float] | None
    ) -> None:
        card = model_card(self.plan, self._state, scores)
        save_model(self.learner.backbone, path, weights, card, self.plan)

    @contextlib.contextmanager
    def _watching_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the run after the step under way, with a checkpoint."""

        def ask(signum: int, frame: FrameType | None) -> None:
            self._asked = True

        before = {x: signal.signal(x, ask) for x in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def prepared(recipe: TrainRecipe, world: World) -> Iterator[tuple[Plan, RunFolder]]:
    """Check all that can be checked before anything expensive, and hold the output's folder.

    Raises ValueError or StorageError, saying what is wrong.
    """
    plan, folder = make_plan(recipe, world), RunFolder(recipe.output)
    check_wandb(recipe.log.wandb)
    with folder.held(PATIENCE_S) if world.is_first else contextlib.nullcontext():
        if world.is_first:
            claim_run(folder, plan)
        is_regrouped(plan, world, folder.newest())
        yield plan, folder


def train(plan: Plan, folder: RunFolder, world: World) -> Outcome:
    """Run a plan on this rank, from where it was left, and record how it ended.

    Raises TrainingError, saying what to do, for what a machine may lack.
    """
    try:
        outcome = _train(plan, folder, world)
        if world.is_first:
            folder.record(outcome)
        return outcome
    except Exception as error:
        if disk_space.is_write_error(error):
            raise TrainingError(disk_space.describe(error, plan, folder)) from error
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            micro = plan.recipe.batch_size // world.size // plan.micro_batches
            raise TrainingError(
                f"out of memory on {world.device} with {micro} rows at once; lower "
                "engine.micro_batch_size, set engine.recompute, or raise engine.zero_stage"
            ) from error
        if isinstance(error, RuntimeError) and world.size > 1 and "peer" in str(error):
            raise TrainingError("another rank has ended; its own message says why") from error
        raise


def _train(plan: Plan, folder: RunFolder, world: World) -> Outcome:
    newest, last = folder.newest(), folder.outcome()
    # A model alone may be that of fewer steps, which the run had before it was extended.
    is_done = last is not None and last.is_finished and last.step == plan.steps
    if newest is not None and newest.state.step >= plan.steps and is_done and folder.model.exists():
        return Outcome(newest.state.step, plan.steps, newest.state.scores, str(folder.model))
    world.join()
    seen = world.gather((folder.path / RECIPE).exists())
    if not all(seen):
        raise TrainingError(
            f"ranks {[i for i, x in enumerate(seen) if not x]} do not see {folder.path}; output "
            "must be on a file system that all of them share"
        )
    if world.is_first:
        folder.stop.unlink(missing_ok=True)
    return Trainer(plan, folder, world).run()
