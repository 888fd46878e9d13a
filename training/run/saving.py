"""How all ranks together write a checkpoint, and the finished model."""

from pathlib import Path
from typing import Any

from torch import Tensor

from remask.models import Backbone
from remask.training.engine import save_model, whole_weights
from remask.training.plan import TrainingPlan
from remask.training.run.card import model_card
from remask.training.run.checkpoint import State, files_of, seal
from remask.training.run.engine_state import save_state
from remask.training.run.folder import RunFolder
from remask.training.world import World


class Saver:
    """Writes to a run's folder; all ranks must make the same calls."""

    def __init__(
        self, engine: Any, backbone: Backbone, plan: TrainingPlan, folder: RunFolder, world: World
    ) -> None:
        self._engine, self._backbone = engine, backbone
        self._plan, self._folder, self._world = plan, folder, world

    def save(self, state: State) -> None:
        """Write a checkpoint: it appears complete or not at all."""
        try:
            self._write(state)
        except BaseException:
            self._folder.discard(state.step)
            raise

    def export(self, state: State, scores: dict[str, float] | None) -> None:
        """Write the finished model to OUTPUT/model."""
        weights = whole_weights(self._backbone, self._world)
        if self._world.is_first:  # a sweep by another rank would remove what this one is writing
            self._folder.sweep()
            self._write_model(self._folder.model, weights, state, scores)
        self._world.wait()

    def _write(self, state: State) -> None:
        world, aside = self._world, self._folder.aside(state.step)
        if world.is_first:
            self._folder.begin(state.step)
        world.wait()
        save_state(self._engine, aside)
        weights = whole_weights(self._backbone, world)
        if world.is_first:
            self._write_model(aside / "model", weights, state, state.scores)
        names = world.gather(files_of(aside) if world.is_first else None)[0]
        parts = world.gather(seal(aside, names[world.rank :: world.size]))
        if world.is_first:
            files = {name: saved for part in parts for name, saved in part.items()}
            self._folder.commit(state, files, keep=self._plan.recipe.save.keep)
        world.wait()

    def _write_model(
        self,
        path: Path,
        weights: dict[str, Tensor] | None,
        state: State,
        scores: dict[str, float] | None,
    ) -> None:
        card = model_card(self._plan, state, scores)
        save_model(self._backbone, path, weights, card, self._plan)
