"""How a model in training does on held-out rows: a small decode, and the loss in its parts.

The benchmark suites live in `evaluation`; this is what a trainer looks at while it runs.
"""

import torch
from torch import Tensor

from remask.models import Absorbing, RevisionPolicy, revise
from remask.training.batch import Batch
from remask.training.learner import Learner, Tally
from remask.training.loader import Loader
from remask.training.order import Order
from remask.training.recipe import HeldOutConfig
from remask.training.shard_set import ShardSet
from remask.training.world import World

ROWS_AT_ONCE = 128


class HeldOut:
    """Some held-out rows, ready to be decoded."""

    def __init__(
        self, shards: ShardSet, config: HeldOutConfig, world: World, *, together: bool
    ) -> None:
        """With `together`, every rank decodes all rows: where weights are divided among ranks, all
        must call the model alike."""
        self._config, self._world, self._together = config, world, together
        count = min(config.rows, shards.num_rows)
        ((batch,)) = next(Loader(shards, Order(shards.sizes, count, 0, count)).batches())
        mine = torch.arange(count) if together else torch.arange(world.rank, count, world.size)
        by_length = mine[batch.is_token[mine].sum(1).argsort(stable=True)]
        self._batches = [batch[rows] for rows in by_length.split(ROWS_AT_ONCE) if len(rows)]

    @torch.no_grad()
    def score(self, learner: Learner) -> dict[str, float]:
        """Loss, its parts, and how the decode ended: rows and positions as they should be."""
        was_training = learner.training
        learner.eval()
        counts = torch.zeros(6, dtype=torch.float64)
        tally = torch.zeros(Tally.size(), dtype=torch.float64)
        for batch in self._batches:
            here = batch.to(self._world.device)
            tally += learner(here, 0)[1].cpu()
            counts += self._decode(learner, here).cpu()
        learner.train(was_training)
        if not self._together:
            both = self._world.total(torch.cat([counts, tally]))
            counts, tally = both[:6], both[6:]
        rows, exact, positions, right, fixed, broken = counts.tolist()
        return {
            **Tally(tally).summary(learner.config),
            "exact": exact / max(rows, 1),
            "right": right / max(positions, 1),
            "fixed": fixed / max(rows, 1),
            "broken": broken / max(rows, 1),
        }

    def _decode(self, learner: Learner, batch: Batch) -> Tensor:
        """Rows, exact ones; editable positions, right ones; positions fixed and broken."""
        backbone, steps = learner.backbone, self._config.max_steps
        if learner.config.kind == "rm":
            start = batch.segments.state_at(0)
            policy = RevisionPolicy()
        else:
            # What a reviser would have to find is given: the positions that change are masked.
            start = batch.target.masked_fill(batch.segments.moves, backbone.mask_id)
            policy = Absorbing()
        revision = revise(
            backbone,
            start.long(),
            batch.editable,
            policy=policy,
            max_steps=steps,
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
