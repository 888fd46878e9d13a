"""How a model in training does on held-out rows: a small decode, and the loss in its parts.

The benchmark suites are in `evaluation`; this is what a trainer logs while it runs.
"""

import torch
from torch import Tensor

from remask.models import revise
from remask.training.batch import Batch
from remask.training.learner import Learner
from remask.training.loader import Loader
from remask.training.mixture import Mixture
from remask.training.recipe import HeldOutConfig
from remask.training.shard_set import ShardSet
from remask.training.tally import Tally
from remask.training.world import World

ROWS_PER_BATCH = 128


class HeldOut:
    """Held-out rows, in batches ready to be decoded."""

    def __init__(
        self, shards: ShardSet, config: HeldOutConfig, world: World, *, replicated: bool
    ) -> None:
        """Read the rows.

        Args:
            shards: The held-out split.
            config: How many rows and decoding steps.
            world: The ranks, which share the rows.
            replicated: Decode all rows on every rank: where ZeRO 3 partitions the weights, all
                ranks must call the model equally often.
        """
        self._config, self._world, self._replicated = config, world, replicated
        count = min(config.rows, shards.num_rows)
        ((batch,)) = next(Loader(Mixture.single(shards, count, 0, count)).batches())
        own = torch.arange(count) if replicated else torch.arange(world.rank, count, world.size)
        by_length = own[batch.is_token[own].sum(1).argsort(stable=True)]
        self._batches = [batch[rows] for rows in by_length.split(ROWS_PER_BATCH) if len(rows)]

    @torch.no_grad()
    def score(self, learner: Learner) -> dict[str, float]:
        """The loss in its parts, and the result of the decode.

        Returns:
            What `Tally.summary` has; `exact`, the share of rows that end equal to their target;
            `right`, the share of editable positions; `fixed` and `broken`, the positions per row
            that the decode corrected and spoiled.
        """
        was_training = learner.training
        learner.eval()
        counts = torch.zeros(6, dtype=torch.float64)
        tally = torch.zeros(Tally.size(), dtype=torch.float64)
        for batch in self._batches:
            on_device = batch.to(self._world.device)
            tally += learner(on_device, 0)[1].cpu()
            counts += self._decode(learner, on_device).cpu()
        learner.train(was_training)
        if not self._replicated:
            sums = self._world.total(torch.cat([counts, tally]))
            counts, tally = sums[:6], sums[6:]
        rows, exact, positions, right, fixed, broken = counts.tolist()
        return {
            **Tally(tally).summary(learner.config),
            "exact": exact / max(rows, 1),
            "right": right / max(positions, 1),
            "fixed": fixed / max(rows, 1),
            "broken": broken / max(rows, 1),
        }

    def _decode(self, learner: Learner, batch: Batch) -> Tensor:
        """Counts [6]: rows, exact rows, editable positions, right, fixed and broken positions."""
        start, policy = learner.objective.decode_start(batch)
        revision = revise(
            learner.backbone,
            start.long(),
            batch.editable,
            policy=policy,
            max_steps=self._config.max_steps,
            attention_mask=batch.is_token,
        )
        before, after = start == batch.target, revision.tokens == batch.target
        rows = torch.tensor(len(batch.row_ids), device=after.device)
        return torch.stack(
            [
                rows,
                (after | ~batch.editable).all(1).sum(),
                batch.editable.sum(),
                (after & batch.editable).sum(),
                (~before & after).sum(),
                (before & ~after).sum(),
            ]
        ).double()
