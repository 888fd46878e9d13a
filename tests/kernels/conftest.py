"""Trajectory rows for the kernels, drawn by SPEC §3's law without the pipeline's sampler."""

import pytest
import torch

from remask.kernels.build import native

MASK = 0


def draw_rows(batch, positions, vocab_size, horizon, seed=0):
    """target, wrong, masked_at, revealed_at, step: all four rules, by plain Python loops."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low, high):
        return int(torch.randint(low, high + 1, (), generator=generator))

    target = torch.zeros(batch, positions, dtype=torch.long)
    wrong, masked_at, revealed_at = (torch.zeros_like(target) for _ in range(3))
    for b in range(batch):
        for n in range(positions):
            target[b, n] = wrong[b, n] = uniform(1, vocab_size - 1)
            rule = uniform(0, 3)
            if rule == 1:  # mask
                revealed_at[b, n] = uniform(1, horizon)
            if rule >= 2:  # wrong, or doubt, which leaves wrong at target
                masked_at[b, n] = uniform(1, horizon - 1)
                revealed_at[b, n] = uniform(int(masked_at[b, n]) + 1, horizon)
                wrong[b, n] = uniform(1, vocab_size - 1) if rule == 2 else target[b, n]
    step = torch.tensor([uniform(0, horizon - 1) for _ in range(batch)])
    return target, wrong, masked_at, revealed_at, step


@pytest.fixture(scope="session")
def cpu_library():
    found = native("cpu")
    if found.library is None:
        pytest.skip(found.detail)
    return found.library
