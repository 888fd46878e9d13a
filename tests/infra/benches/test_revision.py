"""Calls of `history_embed` in the signatures that it has had."""

from types import SimpleNamespace

import torch

from remask import kernels
from remask.infra.benches.revision import embed_call

MASK, VOCAB, HORIZON = 0, 11, 6


def embed_by_boundaries(
    weight, target, wrong, masked_at, revealed_at, step, *, mask_id, horizon, decay
):
    """The operator as it was before segments, by a loop over states."""
    acc = torch.zeros(*target.shape, weight.shape[1])
    for k in range(int(step.max()) + 1):
        state = torch.where(k < revealed_at, mask_id, target)
        state = torch.where(k < masked_at, wrong, state)
        aged = kernels.history_step(acc, weight[state], decay=decay)
        acc = torch.where((k <= step)[:, None, None], aged, acc)
    return acc


def test_both_signatures_get_the_same_trajectories():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(VOCAB, 8, generator=generator)
    wrong, target = torch.randint(1, VOCAB, (2, 3, 5), generator=generator).int()
    tokens = torch.stack((wrong, torch.full_like(target, MASK), target))
    ends = torch.randint(0, HORIZON + 1, (2, 3, 5), generator=generator).int().sort(0).values
    segments = tokens, ends, torch.tensor([0, 3, 6]).int()
    before = SimpleNamespace(history_embed=embed_by_boundaries)
    results = [
        embed_call(package, weight, segments, horizon=HORIZON, decay=0.8)()
        for package in (before, kernels)
    ]
    torch.testing.assert_close(*results)
