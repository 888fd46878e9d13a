"""A backbone with its objective as one module: a batch in, the loss and its sums out.

DeepSpeed wraps a module and calls it, so everything that uses parameters happens in `forward`.
"""

from functools import partial

import torch
from torch import Tensor, nn

from remask.kernels import Segments
from remask.models import Backbone
from remask.models.history import encode_rows
from remask.models.images.guidance import edit_layout, hidden_of_kept, without_image
from remask.models.noise import KeyedNoise
from remask.training.batch import Batch
from remask.training.dropout import ModelInput, drop_conditions
from remask.training.objective import OBJECTIVES, ObjectiveConfig
from remask.training.tally import Tally


class Learner(nn.Module):
    """The module that DeepSpeed trains."""

    def __init__(
        self,
        backbone: Backbone,
        config: ObjectiveConfig,
        *,
        horizon: int,
        seed: int,
        mixed: bool = False,
    ) -> None:
        """Set up the objective that the config names.

        Args:
            backbone: The model to train.
            config: What it is trained for.
            horizon: T of the trajectories.
            seed: Seed of masks and dropped conditions.
            mixed: Run the backbone's matrix products in bf16; the loss is always in float32.
        """
        super().__init__()
        self.backbone, self.config = backbone, config
        self.objective = OBJECTIVES[config.kind](backbone, config, horizon=horizon, seed=seed)
        self._seed, self._mixed = seed, mixed

    def forward(self, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """The loss to minimise, and the sums of its `Tally`.

        Args:
            batch: Trajectory rows.
            step: Training step; masks and dropped conditions are a function of seed, step and row.
        """
        model_input = self._model_input(batch, step)
        loss = self.objective.loss(model_input.batch, step, partial(self._encode, model_input))
        return loss.total, Tally.of_batch(loss, batch, self.objective.weight(batch)).sums

    def _model_input(self, batch: Batch, step: int) -> ModelInput:
        """The batch, in training with the conditions of some rows dropped."""
        if not self.training or not self.config.drops_conditions:
            return ModelInput(batch)
        layout = edit_layout(self.backbone, "objective.text_dropout or image_dropout")
        noise = KeyedNoise(self._seed, step, batch.row_ids)
        return drop_conditions(batch, layout, self.config, noise)

    def _encode(self, model_input: ModelInput, segments: Segments[Tensor], horizon: int) -> Tensor:
        """Final hidden states of trajectories, [B, N, D]."""
        batch, weight = model_input.batch, self.backbone.token_embedding
        embeds = encode_rows(
            weight,
            segments,
            horizon=horizon,
            config=self.backbone.history,
            editable=batch.editable,
        )
        embeds = embeds.to(weight.dtype)
        if model_input.is_blank is not None:
            embeds = without_image(self.backbone, embeds, model_input.is_blank)
        attention_mask = None if bool(batch.is_token.all()) else batch.is_token
        with torch.autocast(weight.device.type, torch.bfloat16, enabled=self._mixed):
            hidden = hidden_of_kept(self.backbone, embeds, model_input.is_present, attention_mask)
        return hidden.to(weight.dtype)
