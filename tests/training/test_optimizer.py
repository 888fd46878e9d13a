"""Muon against singular value decomposition, AdamW against torch's, the schedule by its ends."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from remask.models import SudokuConfig, SudokuMDM
from remask.training.optimizer import (
    Muon,
    OptimizerConfig,
    make_optimizer,
    orthogonalise,
    split_parameters,
)


@given(st.integers(2, 12), st.integers(2, 24), st.integers(0, 5))
def test_orthogonalising_keeps_directions_and_evens_out_their_sizes(rows, extra, seed):
    columns = rows + extra
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, columns, generator=generator)
    orthogonal = orthogonalise(matrix[None])[0]
    u, sizes, v = torch.linalg.svd(matrix, full_matrices=False)
    turned = u.mT @ orthogonal @ v.mT  # diagonal if the directions are kept
    off = turned - torch.diag(turned.diagonal())
    assert off.abs().max() < 2e-2
    # Directions of a hundredth of the norm and more end between a half and one and a half.
    strong = sizes > 0.02 * sizes.square().sum().sqrt()
    assert ((turned.diagonal()[strong] > 0.4) & (turned.diagonal()[strong] < 1.6)).all()


def test_matrices_of_one_size_go_together_and_tall_ones_turned():
    generator = torch.Generator().manual_seed(0)
    grads = [torch.randn(size, generator=generator) for size in ((6, 10), (10, 6), (6, 10), (4, 4))]
    config = OptimizerConfig(lr=0.1, weight_decay=0.3, momentum=0.9)
    together = [nn.Parameter(torch.ones_like(g)) for g in grads]
    for p, g in zip(together, grads, strict=True):
        p.grad = g.clone()
    Muon(together, [], config).step()
    for p, g in zip(together, grads, strict=True):
        # First step: momentum is a tenth of the gradient, and Nesterov's look is along it.
        wide = g if g.shape[0] <= g.shape[1] else g.mT
        update = orthogonalise(wide[None])[0]
        update = update if g.shape[0] <= g.shape[1] else update.mT
        scale = max(1.0, g.shape[0] / g.shape[1]) ** 0.5
        expected = torch.ones_like(g) * (1 - 0.1 * 0.3) - 0.1 * scale * update
        torch.testing.assert_close(p.detach(), expected, rtol=1e-4, atol=1e-4)


def test_the_rest_moves_as_by_adamw():
    torch.manual_seed(0)
    config = OptimizerConfig(lr=0.02, adamw_share=0.5, weight_decay=0.1, betas=(0.8, 0.9))
    mine = nn.Parameter(torch.randn(5, 3))
    theirs = nn.Parameter(mine.detach().clone())
    optimizer = Muon([], [mine], config)
    other = torch.optim.AdamW([theirs], lr=0.01, betas=(0.8, 0.9), weight_decay=0.1)
    for _ in range(5):
        grad = torch.randn(5, 3)
        mine.grad, theirs.grad = grad.clone(), grad.clone()
        optimizer.step()
        other.step()
    torch.testing.assert_close(mine, theirs)


def test_blocks_matrices_are_muons_and_nothing_else_is():
    model = SudokuMDM(SudokuConfig(side=4, layers=2, width=16, feed_forward=32))
    muon, rest = split_parameters(model, model.parameters())
    names = {id(p): name for name, p in model.named_parameters()}
    assert sorted(names[id(p)] for p in muon) == sorted(
        f"blocks.{i}.{x}.weight"
        for i in range(2)
        for x in ("query_key_value", "attention_out", "feed_in", "feed_out")
    )
    assert len(muon) + len(rest) == len(list(model.parameters()))
    model.requires_grad_(False)
    assert split_parameters(model, model.parameters()) == ([], [])


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_a_restored_optimizer_goes_on_bit_for_bit(kind):
    torch.manual_seed(0)
    model = SudokuMDM(SudokuConfig(side=4, layers=1, width=16, feed_forward=32))
    config = OptimizerConfig(kind=kind, lr=0.01)
    optimizer = make_optimizer(model, model.parameters(), config)

    def step(model, optimizer, seed):
        generator = torch.Generator().manual_seed(seed)
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()

    for seed in range(3):
        step(model, optimizer, seed)
    twin = copy.deepcopy(model)
    restored = make_optimizer(twin, twin.parameters(), config)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for seed in range(3, 6):
        step(model, optimizer, seed)
        step(twin, restored, seed)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


@given(
    warmup=st.integers(0, 20),
    steps=st.integers(21, 200),
    decay=st.sampled_from(["cosine", "linear", "constant"]),
    final=st.floats(0, 0.5),
)
def test_the_schedule_warms_up_then_only_falls(warmup, steps, decay, final):
    config = OptimizerConfig(warmup=warmup, decay=decay, final_share=final)
    rates = [config.rate(step, steps) for step in range(steps)]
    assert all(0 < x <= 1 for x in rates)
    if warmup:
        assert rates[0] == pytest.approx(1 / warmup)
        assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup] == pytest.approx(1)
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert config.rate(steps, steps) == pytest.approx(1 if decay == "constant" else final)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, "lr must be above 0"),
        ({"momentum": 1.5}, "momentum must lie in"),
        ({"betas": (0.9, 1.0)}, "betas must lie in"),
        ({"warmup": -1}, "warmup must be 0 or more"),
    ],
)
def test_settings_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**changes)
