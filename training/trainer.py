"""The training loop: shards in, checkpoints out, the same for every backbone and objective.

Rows, masks, learning rate and dropout of a step are functions of the recipe and the step. So a run
that was killed resumes from its last checkpoint as if it had not been interrupted, and only weights
and optimizer state must be stored.
"""

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Iterator
from types import FrameType

import numpy as np
import torch
from torch import Tensor

from remask.pipeline.runtime.provenance import RECIPE
from remask.pipeline.runtime.recipes import digest
from remask.pipeline.runtime.terminal import say
from remask.training.batch import Batch
from remask.training.engine import is_regrouped, make_engine
from remask.training.held_out import HeldOut
from remask.training.learner import Learner
from remask.training.loader import Loader
from remask.training.plan import TrainingPlan, make_plan
from remask.training.prefetch import Prefetched
from remask.training.recipe import TrainRecipe
from remask.training.run import disk_space
from remask.training.run.checkpoint import State
from remask.training.run.extension import claim_run
from remask.training.run.folder import RunFolder, RunOutcome
from remask.training.run.logs import Log, check_wandb
from remask.training.run.recovery import find_newest
from remask.training.run.rounds import await_round
from remask.training.run.saving import Saver
from remask.training.spikes import SpikeFilter
from remask.training.tally import Tally
from remask.training.world import TrainingError, World

MAX_NAMED_ROWS = 8
"""Rows named in an error."""
LOCK_TIMEOUT_S = 5
"""How long to wait for the ranks of a killed run, which end on their own, to release the lock."""


class Trainer:
    """One rank of a run."""

    def __init__(self, plan: TrainingPlan, folder: RunFolder, world: World) -> None:
        recipe = plan.recipe
        self.plan, self._folder, self._world, self._recipe = plan, folder, world, recipe
        backbone = plan.make_backbone()
        is_partitioned = recipe.engine.zero_stage == 3
        self.learner = Learner(
            backbone,
            recipe.objective,
            horizon=plan.horizon,
            seed=recipe.seed,
            mixed=recipe.engine.precision == "mixed",
        )
        self._held_out = None
        if recipe.held_out.every and plan.held_out is not None:
            self._held_out = HeldOut(
                plan.held_out, recipe.held_out, world, replicated=is_partitioned
            )
        if world.is_first:  # read here, so that what is wrong with them is found before training
            _, note = plan.inputs
            if note:
                say(f"train: {note}", to_stderr=True)
        newest = find_newest(folder, world)
        self._engine, self._peaks = make_engine(self.learner, plan, world, newest)
        self._saver = Saver(self._engine, backbone, plan, folder, world)
        self._state = newest.state if newest else State(0, world.size)
        self._spikes = SpikeFilter(recipe.spikes, self._state.recent_losses)
        self._mixture = plan.train
        self._stop = False  # all ranks agree
        self._stop_requested = False  # on this rank

    def run(self) -> RunOutcome:
        """Train to the last step, or until asked to stop."""
        plan, saved = self.plan, self._state.step
        with Log(self._folder, plan, self._world, self._state) as log, self._watching_signals():
            while self._state.step < plan.steps and not self._stop:
                part = plan.part_of(self._state.step)
                if self._open(log):
                    saved = self._train_part(part, log, saved)
            if saved < self._state.step:
                self._save(None, log.tally())
            step, scores = self._state.step, self._state.scores
            if step == plan.steps:
                self._saver.export(self._state, scores)
        if step == plan.steps:
            return RunOutcome(step, plan.steps, scores, str(self._folder.model))
        return RunOutcome(step, plan.steps, None, str(self._folder.path))

    def _open(self, log: Log) -> bool:
        """Open the data of the next step, once it is there; False if asked to stop before that."""
        step = self._state.step
        if self._recipe.rounds:
            start, number = time.monotonic(), self._recipe.rounds.round_of(step)
            if not await_round(self._recipe, number, self._folder, self._world, self._wants_stop):
                self._stop = True
                return False
            log.round(step, number, time.monotonic() - start)
        self._mixture = self.plan.mixture(step)
        if self._recipe.engine.zero_stage == 3:
            # All ranks must call a head whose weights are partitioned equally often.
            objective = self.learner.objective
            objective.min_chunks = self.plan.max_chunks(
                self._mixture, objective.backbone.vocab_size, self._world
            )
        return True

    def _train_part(self, part: range, log: Log, saved: int) -> int:
        """Train on steps whose data is open, or until asked to stop.

        Args:
            part: The steps, some of which may be done.
            log: Takes the sums.
            saved: The step of the newest checkpoint.

        Returns:
            The step of the newest checkpoint.
        """
        recipe, plan, step = self._recipe, self.plan, self._state.step
        loader = Loader(
            self._mixture,
            rank=self._world.rank,
            world_size=self._world.size,
            micro_batches=plan.micro_batches,
        )
        pin = self._world.device.type == "cuda"
        with Prefetched(loader, step, part.stop, pin=pin) as stream:
            while step < part.stop and not self._stop:
                sums, num_skipped = self.update(step, next(stream))
                step += 1
                self._state = State(
                    step,
                    self._world.size,
                    self._state.num_skipped + num_skipped,
                    self._spikes.recent_losses,
                )
                self._spikes.check_progress(step, num_skipped)
                log.add(step, sums, self._rate(step - 1), self._state.num_skipped)
                # A round's model is that of a checkpoint.
                is_due = step % recipe.save.every == 0 or step == part.stop
                scores = None
                if self._held_out and (is_due or step % recipe.held_out.every == 0):
                    start = time.monotonic()
                    scores = self._held_out.score(self.learner)
                    log.scores(step, scores, time.monotonic() - start)
                if is_due:
                    self._save(scores, log.tally())
                    saved = step
        return saved

    def update(self, step: int, micro_batches: list[Batch]) -> tuple[Tensor, int]:
        """Make one update.

        Returns:
            The sums of its `Tally`, and the number of micro-batches skipped as spikes.
        """
        # The dropout of backbones that have it is a function of the step as well.
        torch.manual_seed(int(digest([self._recipe.seed, step, self._world.rank]), 16))
        rate = self._rate(step)
        sums = torch.zeros(Tally.size(), dtype=torch.float64)
        num_skipped = 0
        for batch, scale in zip(micro_batches, self._scales(micro_batches), strict=True):
            loss, batch_sums = self._engine(batch.to(self._world.device), step)
            if self._spikes.is_spike(self._agree(step, batch, loss)):
                num_skipped += 1
                scale = 0.0
            if num_skipped == len(micro_batches):
                rate = 0.0  # momentum and weight decay must not move weights either
            for group, peak in zip(self._engine.optimizer.param_groups, self._peaks, strict=True):
                group["lr"] = peak * rate
            self._engine.backward(loss * scale)
            if batch is micro_batches[-1]:
                self._check_gradient(step, micro_batches)
            self._engine.step()
            sums += batch_sums.cpu()
        return sums, num_skipped

    def _scales(self, micro_batches: list[Batch]) -> list[float]:
        """Factor of each micro-batch's loss that turns the engine's plain mean, over micro-batches
        and ranks, into the weighted mean over the whole step."""
        weights = [self.learner.objective.weight(batch) for batch in micro_batches]
        total = float(self._world.total(torch.tensor(sum(weights), dtype=torch.float64)))
        count = len(weights) * self._world.size
        return [weight * count / total if total else 1.0 for weight in weights]

    def _check_gradient(self, step: int, micro_batches: list[Batch]) -> None:
        """Fail before a gradient that is not a number reaches the weights.

        Under ZeRO the gradient is partitioned, and only the loss is checked.
        """
        if self._recipe.engine.zero_stage:
            return
        grads = [x.grad for x in self.learner.parameters() if x.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        if not math.isfinite(norm):
            rows = [i for batch in micro_batches for i in batch.row_ids.tolist()]
            self._fail(step, "the gradient", rows)

    def _agree(self, step: int, batch: Batch, loss: Tensor) -> float:
        """The mean loss over ranks. All ranks agree whether to stop, and fail together if the loss
        is not a number."""
        value = float(loss.detach())
        mean, self._stop = value, self._wants_stop()
        if self._world.size > 1:
            own = torch.tensor([value, float(self._stop)], dtype=torch.float64)
            total, num_requests = self._world.total(own).tolist()
            mean, self._stop = total / self._world.size, num_requests > 0
        if not math.isfinite(mean):
            self._fail(
                step, "the loss", [] if math.isfinite(value) else self._bad_rows(batch, step)
            )
        return mean

    def _wants_stop(self) -> bool:
        """Whether this rank was asked to stop, by a signal or by the run's file."""
        if self._world.is_first and self._folder.stop.exists():
            self._stop_requested = True
        return self._stop_requested

    def _bad_rows(self, batch: Batch, step: int) -> list[int]:
        """Rows whose loss by themselves is not a number; all rows if there are none."""
        if self._recipe.engine.zero_stage == 3:  # a forward pass needs all ranks
            return batch.row_ids.tolist()
        bad = []
        with torch.no_grad():
            for i in range(len(batch.row_ids)):
                row = batch[i : i + 1].to(self._world.device)
                if not math.isfinite(float(self.learner(row, step)[0])):
                    bad.append(int(batch.row_ids[i]))
        return bad or batch.row_ids.tolist()

    def _fail(self, step: int, what: str, row_ids: list[int]) -> None:
        by_rank = self._world.gather(row_ids)
        rows = np.array([i for ids in by_rank for i in ids], np.int64)
        mixture = self._mixture.reopened()  # the loader's thread uses the other one
        names = mixture.names(rows[:MAX_NAMED_ROWS])
        uri = mixture.sets[0].uri if len(mixture.sets) == 1 else "URI"
        more = f" and {len(rows) - MAX_NAMED_ROWS} more" if len(rows) > MAX_NAMED_ROWS else ""
        raise TrainingError(
            f"{what} is not a number at step {step}, from rows {', '.join(names)}{more}; inspect "
            f"the rows with `remask shards {uri} show`, or lower optimizer.lr and "
            "start again from an earlier checkpoint"
        )

    def _rate(self, step: int) -> float:
        return self._recipe.optimizer.rate(step, self.plan.steps)

    def _save(self, scores: dict[str, float] | None, tally: list[float]) -> None:
        unlogged = tuple(tally) if any(tally) else ()
        self._state = dataclasses.replace(self._state, tally=unlogged, scores=scores)
        self._saver.save(self._state)

    @contextlib.contextmanager
    def _watching_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the run after the current step, with a checkpoint."""

        def request_stop(signum: int, frame: FrameType | None) -> None:
            self._stop_requested = True

        before = {x: signal.signal(x, request_stop) for x in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def prepared(recipe: TrainRecipe, world: World) -> Iterator[tuple[TrainingPlan, RunFolder]]:
    """Check everything that can be checked before training, and lock the run's folder.

    Raises:
        ValueError: The request is wrong, or another run holds the folder.
        StorageError: The data set cannot be read.
    """
    plan, folder = make_plan(recipe, world), RunFolder(recipe.output)
    check_wandb(recipe.log.wandb)
    with folder.locked(LOCK_TIMEOUT_S) if world.is_first else contextlib.nullcontext():
        if world.is_first:
            claim_run(folder, plan)
        is_regrouped(plan, world, folder.newest())
        yield plan, folder


def train(plan: TrainingPlan, folder: RunFolder, world: World) -> RunOutcome:
    """Train on this rank from the last checkpoint, and record how the run ended.

    Raises:
        TrainingError: The run cannot continue, for lack of memory or disk space for example.
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
                f"out of memory on {world.device} with {micro} rows per forward pass; lower "
                "engine.micro_batch_size, set engine.recompute, or raise engine.zero_stage"
            ) from error
        if isinstance(error, RuntimeError) and world.size > 1 and "peer" in str(error):
            raise TrainingError("another rank has ended; its own message says why") from error
        raise


def _train(plan: TrainingPlan, folder: RunFolder, world: World) -> RunOutcome:
    newest, last = folder.newest(), folder.outcome()
    # After an extension the model may still be that of the earlier, smaller number of steps.
    is_done = last is not None and last.is_finished and last.step == plan.steps
    if newest is not None and newest.state.step >= plan.steps and is_done and folder.model.exists():
        return RunOutcome(newest.state.step, plan.steps, newest.state.scores, str(folder.model))
    world.join()
    sees_folder = world.gather((folder.path / RECIPE).exists())
    if not all(sees_folder):
        raise TrainingError(
            f"ranks {[i for i, x in enumerate(sees_folder) if not x]} do not see {folder.path}; "
            "output must be on a file system that all ranks share"
        )
    if world.is_first:
        folder.stop.unlink(missing_ok=True)
    return Trainer(plan, folder, world).run()
