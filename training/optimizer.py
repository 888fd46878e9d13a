"""Optimizers and the learning-rate schedule: Muon for matrices, AdamW for everything else.

Muon replaces a matrix's update by the nearest orthogonal matrix, so that all its directions learn
at the same rate. It applies to the matrices within a model's blocks; embeddings, head, norms and
biases are updated by AdamW.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from remask.models import Backbone
from remask.models.ranges import Range, check_fields

# A quintic that moves singular values towards 1; its slope at 0 is steep, so few iterations do.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
_POSITIVE, _AT_LEAST_0, _SHARE = Range("(0, inf)"), Range("[0, inf)"), Range("[0, 1]")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizer, its learning rates and their schedule."""

    kind: Literal["muon", "adamw"] = "muon"
    """`muon` trains small models in about a tenth of the steps; `adamw` is usual for pretrained
    ones."""
    lr: Annotated[float, _POSITIVE] = 0.02
    """Peak learning rate of `kind`."""
    adamw_share: Annotated[float, _POSITIVE] = 0.15
    """With `muon`, the learning rate of AdamW's parameters as a multiple of `lr`."""
    momentum: Annotated[float, _SHARE] = 0.95
    """Muon's momentum."""
    betas: Annotated[tuple[float, float], Range("[0, 1)")] = (0.9, 0.95)
    """AdamW's decay rates of the first and second moment."""
    weight_decay: Annotated[float, _AT_LEAST_0] = 0.01
    """Decoupled weight decay, multiplied by the learning rate."""
    warmup: Annotated[int, _AT_LEAST_0] = 50
    """Steps of linear warm-up."""
    decay: Literal["cosine", "linear", "constant"] = "cosine"
    """How the rate falls from its peak to `final_share` of it at the end of the last step."""
    final_share: Annotated[float, _SHARE] = 0.0
    """Share of the peak rate that is left at the end of the last step."""

    def __post_init__(self) -> None:
        check_fields(self, "optimizer.")

    def rate(self, step: int, steps: int) -> float:
        """Learning rate at a step of 0 .. steps - 1, as a share of its peak."""
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        done = max(0, step - self.warmup) / max(1, steps - self.warmup)
        match self.decay:
            case "cosine":
                left = (1 + math.cos(math.pi * done)) / 2
            case "linear":
                left = 1 - done
            case "constant":
                left = 1.0
        return warm * (self.final_share + (1 - self.final_share) * left)

    def steps_changed(self, steps: int, others: int, done: int) -> int:
        """Number of the first `done` steps whose rates differ between two totals of steps."""
        return sum(self.rate(x, steps) != self.rate(x, others) for x in range(done))


def split_parameters(
    backbone: Backbone, parameters: Iterable[nn.Parameter]
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split trainable parameters into Muon's, matrices within the blocks, and AdamW's, the rest."""
    inner = {
        id(module.weight)
        for module in backbone.blocks.modules()
        if isinstance(module, nn.Linear) and module.weight.ndim == 2
    }
    muon, rest = [], []
    for parameter in parameters:
        if parameter.requires_grad:
            (muon if id(parameter) in inner else rest).append(parameter)
    return muon, rest


def make_optimizer(
    backbone: Backbone, parameters: Iterable[nn.Parameter], config: OptimizerConfig
) -> torch.optim.Optimizer:
    """Make the optimizer of a config, its groups at their peak learning rates."""
    parameters = list(parameters)
    if config.kind == "adamw":
        decayed = [p for p in parameters if p.requires_grad and p.ndim >= 2]
        others = [p for p in parameters if p.requires_grad and p.ndim < 2]
        groups = [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=config.lr, betas=config.betas
        )
    muon, rest = split_parameters(backbone, parameters)
    return Muon(muon, rest, config)


class Muon(torch.optim.Optimizer):
    """Muon for matrices and AdamW for the rest, as one optimizer with one state."""

    def __init__(
        self, matrices: list[nn.Parameter], rest: list[nn.Parameter], config: OptimizerConfig
    ) -> None:
        halves = ((matrices, True, config.lr), (rest, False, config.lr * config.adamw_share))
        groups = [{"params": x, "use_muon": muon, "lr": lr} for x, muon, lr in halves if x]
        super().__init__(
            groups,
            {
                "momentum": config.momentum,
                "betas": config.betas,
                "weight_decay": config.weight_decay,
            },
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                (self._muon if group["use_muon"] else self._adamw)(parameters, group)

    def _muon(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        grads = [p.grad for p in parameters if p.grad is not None]
        for p in parameters:
            self.state[p].setdefault("momentum", torch.zeros_like(p))
        momenta = [self.state[p]["momentum"] for p in parameters]
        ahead = []
        for momentum, grad in zip(momenta, grads, strict=True):
            momentum.lerp_(grad, 1 - group["momentum"])
            ahead.append(grad.lerp(momentum, group["momentum"]))  # Nesterov
        # Matrices of one size are orthogonalised as one batch, tall ones transposed.
        by_size: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for i, p in enumerate(parameters):
            by_size[tuple(sorted(p.shape))].append(i)
        for indices in by_size.values():
            wide = [_widen(ahead[i]) for i in indices]
            for i, update in zip(indices, orthogonalise(torch.stack(wide)), strict=True):
                p = parameters[i]
                rows, columns = p.shape
                p.mul_(1 - group["lr"] * group["weight_decay"])
                scale = math.sqrt(max(1.0, rows / columns))
                p.add_(update if rows <= columns else update.mT, alpha=-group["lr"] * scale)

    def _adamw(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        for p in parameters:
            state = self.state[p]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        states = [self.state[p] for p in parameters]
        adamw(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            [s["exp_avg"] for s in states],
            [s["exp_avg_sq"] for s in states],
            [],
            [s["step"] for s in states],
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=1e-8,
            maximize=False,
        )


def orthogonalise(matrices: Tensor) -> Tensor:
    """Move the singular values of wide matrices [G, rows, columns] close to 1, by Newton-Schulz.

    Singular vectors are kept. It runs in bfloat16 on GPUs and in float32 on CPUs, where bfloat16 is
    slower.
    """
    a, b, c = NEWTON_SCHULZ
    x = matrices.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x.to(matrices.dtype)


def _widen(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
