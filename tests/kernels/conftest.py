"""Trajectories for the kernels, drawn by SPEC §3's law without the pipeline's sampler."""

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


def draw_segments(batch, positions, vocab_size, horizon, num_segments=3, seed=0):
    """tokens, ends, step: paths of 1 .. num_segments random tokens, some of them empty."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low, high):
        return int(torch.randint(low, high + 1, (), generator=generator))

    tokens = torch.zeros(num_segments, batch, positions, dtype=torch.long)
    ends = torch.zeros(num_segments - 1, batch, positions, dtype=torch.long)
    for b in range(batch):
        for n in range(positions):
            length = uniform(1, num_segments)
            path = [uniform(MASK, vocab_size - 1) for _ in range(length)]
            tokens[:, b, n] = torch.tensor([path[-1]] * (num_segments - length) + path)
            drawn = sorted(uniform(0, horizon) for _ in range(length - 1))
            ends[num_segments - length :, b, n] = torch.tensor(drawn)
    step = torch.tensor([uniform(0, horizon) for _ in range(batch)])
    return tokens, ends, step


@pytest.fixture(scope="session")
def cpu_library():
    built = native("cpu")
    if built.library is None:
        pytest.skip(built.detail)
    return built.library
