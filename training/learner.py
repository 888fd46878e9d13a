"""A backbone with its objective as one module: a batch in, the loss and its sums out.

DeepSpeed wraps a module and calls it, so all that touches parameters happens in `forward`.
"""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from remask.kernels import Segments
from remask.models import Backbone
from remask.models.history import encode_rows
from remask.models.images.guidance import edit_layout, hidden_of_kept, without_image
from remask.models.noise import MASKING, RATE, KeyedNoise
from remask.training.batch import Batch
from remask.training.dropout import Given, drop_conditions
from remask.training.objective import BINS, ObjectiveConfig, OracleLoss, masked_loss, oracle_loss

LOWEST_RATE = 1e-3
PARTS = ("reveal", "mask", "keep")
HEAD = 6  # weight, rows, tokens; and, by weight, loss, unlikelihood, ordering


class Learner(nn.Module):
    """What is trained."""

    def __init__(
        self,
        backbone: Backbone,
        config: ObjectiveConfig,
        *,
        horizon: int,
        seed: int,
        mixed: bool = False,
        least_chunks: int = 1,
    ) -> None:
        """With `mixed`, the backbone's matrix products are in bf16; the loss never is. The head is
        called at least `least_chunks` times a batch: where its weights are divided among ranks, all
        must call it alike."""
        super().__init__()
        self.backbone, self.config = backbone, config
        self._horizon, self._seed, self._mixed = horizon, seed, mixed
        self._least_chunks = least_chunks

    def forward(self, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """The loss to minimise, and the sums that `Tally` reads.

        Args:
            batch: Trajectory rows.
            step: Of training; with a row's number it decides what is masked in `sft`, and what a
                row goes without.
        """
        given = self._given(batch, step)
        loss = self._revision_loss(given) if self.config.kind == "rm" else self._masked(given, step)
        return loss.total, _sums(loss, batch, self.weight(batch))

    def weight(self, batch: Batch) -> float:
        """What a batch counts in a step's mean: its positions, weighted, or its rows."""
        if self.config.kind != "rm":
            return len(batch.row_ids)
        moving = int((batch.editable & batch.segments.moves).sum())
        return int(batch.editable.sum()) + moving * (self.config.edit_weight - 1)

    def _given(self, batch: Batch, step: int) -> Given:
        """The batch, with conditions left out of some rows while training."""
        if not self.training or not self.config.drops:
            return Given(batch)
        layout = edit_layout(self.backbone, "objective.text_dropout or image_dropout")
        noise = KeyedNoise(self._seed, step, batch.row_ids)
        return drop_conditions(batch, layout, self.config, noise)

    def _revision_loss(self, given: Given) -> OracleLoss:
        batch, mask_id = given.batch, self.backbone.mask_id
        self._check_said(batch, batch.editable)
        return oracle_loss(
            self.backbone.head,
            self._hidden(given, self._horizon),
            state=batch.segments.state_at(batch.segments.step),
            target=batch.target,
            rejected=batch.segments.last_rejected(mask_id),
            moves=batch.segments.moves,
            editable=batch.editable,
            mask_id=mask_id,
            vocab_size=self.backbone.vocab_size,
            config=self.config,
            least_chunks=self._least_chunks,
        )

    def _masked(self, given: Given, step: int) -> OracleLoss:
        batch = given.batch
        if self.config.kind == "pretrain":
            maskable = batch.is_token & self.backbone.is_predictable(batch.target)
        else:
            maskable = batch.editable
            self._check_said(batch, maskable)
        noise = KeyedNoise(self._seed, step, batch.row_ids)
        rate = LOWEST_RATE + (1 - LOWEST_RATE) * noise.uniform(1, RATE)[:, 0]  # [B]
        is_masked = maskable & (noise.uniform(maskable.shape[1], MASKING) < rate[:, None])
        # A trajectory of one step: MASK now, the target next.
        target = batch.target
        segments = Segments(
            torch.stack([torch.full_like(target, self.backbone.mask_id), target]),
            is_masked[None].to(target.dtype),
            torch.zeros_like(batch.segments.step),
        )
        masked = replace(batch, segments=segments)
        return masked_loss(
            self.backbone.head,
            self._hidden(replace(given, batch=masked), 1),
            target=batch.target,
            maskable=maskable,
            is_masked=is_masked,
            rate=rate.float(),
            mask_id=self.backbone.mask_id,
            vocab_size=self.backbone.vocab_size,
            config=self.config,
            least_chunks=self._least_chunks,
        )

    def _hidden(self, given: Given, horizon: int) -> Tensor:
        batch, weight = given.batch, self.backbone.token_embedding
        embeds = encode_rows(
            weight,
            batch.segments,
            horizon=horizon,
            config=self.backbone.history,
            editable=batch.editable,
        )
        embeds = embeds.to(weight.dtype)
        if given.blind is not None:
            embeds = without_image(self.backbone, embeds, given.blind)
        attention_mask = None if bool(batch.is_token.all()) else batch.is_token
        with torch.autocast(weight.device.type, torch.bfloat16, enabled=self._mixed):
            hidden = hidden_of_kept(self.backbone, embeds, given.kept, attention_mask)
        return hidden.to(weight.dtype)

    def _check_said(self, batch: Batch, where: Tensor) -> None:
        """Raise ValueError for targets that the head has no probability for."""
        unsaid = where & ~self.backbone.is_predictable(batch.target)
        if unsaid.any():
            row, position = unsaid.nonzero()[0].tolist()
            raise ValueError(
                f"row {int(batch.row_ids[row])} is editable at position {position}, where its "
                f"target is {int(batch.target[row, position])}; a {self.backbone.kind} cannot say "
                "that id. Build shards whose layout is the model's"
            )


@dataclass
class Tally:
    """Sums over micro-batches, positions and ranks, and what they say."""

    sums: Tensor

    @staticmethod
    def size() -> int:
        return HEAD + 3 * len(PARTS) + 3 * BINS

    @property
    def rows(self) -> int:
        return int(self.sums[1])

    @property
    def tokens(self) -> int:
        return int(self.sums[2])

    def summary(self, config: ObjectiveConfig | None = None) -> dict[str, float]:
        """Means, by name; parts without a position are left out. With the objective's config, each
        optional term that is on also has its weight, and its share of the loss after it."""
        values = self.sums.tolist()
        weight, _, _, loss, unlikelihood, ordering = values[:HEAD]
        count = weight or 1.0
        found = {"loss": loss / count}
        for i, name in enumerate(PARTS):
            loss_sum, positions, correct = values[HEAD + 3 * i : HEAD + 3 * i + 3]
            if positions:
                found |= {
                    f"{name}_loss": loss_sum / positions,
                    f"{name}_accuracy": correct / positions,
                    f"{name}_count": positions,
                }
        for name, term in (("unlikelihood", unlikelihood), ("ordering", ordering)):
            term_weight = getattr(config, f"{name}_weight", 0.0)
            if term or term_weight:
                found[name] = term / count
            if term_weight:
                found[f"{name}_weight"] = term_weight
                found[f"{name}_share"] = term_weight * term / loss if loss else 0.0
        visible, belief, wrong = self.sums[HEAD + 3 * len(PARTS) :].view(3, BINS)
        if visible.sum() > 0:
            found["calibration_error"] = float((belief - wrong).abs().sum() / visible.sum())
        return found


def _sums(loss: OracleLoss, batch: Batch, weight: float) -> Tensor:
    counts = torch.tensor([weight, len(batch.row_ids)], device=loss.total.device)
    means = [loss.total.detach(), loss.unlikelihood, loss.ordering]
    head = [*counts, batch.is_token.sum(), *(weight * x for x in means)]
    parts = [getattr(getattr(loss, name), f.name) for name in PARTS for f in fields(loss.reveal)]
    return torch.cat(
        [torch.stack([x.double() for x in [*head, *parts]]), loss.calibration.flatten()]
    )
