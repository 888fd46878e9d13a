"""History Reference: what the model sees of its own past states.

a^(t) = Σ_{k≤t} γ^(t-k) R_{k-t} wte(x^(k)): past token embeddings, rotated by their age, faded, and
summed into the input, without a new parameter. `encode_rows` gives it for training rows in closed
form; `HistoryState` keeps it running while decoding. SPEC §2.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

import kernels
from kernels import reference

Variant = Literal["none", "hr", "hr+decay", "hr+decay+her", "absolute"]
Norm = Literal["rms", "match"]

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class HistoryConfig:
    """How past denoising states reach the backbone."""

    variant: Variant = "hr+decay+her"
    """`none` sees the current state only; `hr` sums all states alike; `hr+decay` fades them;
    `hr+decay+her` also rotates them by age, the full method; `absolute` rotates by step instead of
    age, for comparison."""
    decay: float = 0.9
    """γ, weight kept per step into the past, in (0, 1]; used by the variants that fade."""
    window: int | None = None
    """Past states that count besides the current one; all when none."""
    norm: Norm = "rms"
    """`rms` scales the sum to unit RMS; `match` to the RMS of the current embedding, so that with
    no history a pretrained backbone gets exactly its own input."""

    def __post_init__(self) -> None:
        _check_choice("variant", self.variant, get_args(Variant))
        _check_choice("norm", self.norm, get_args(Norm))
        if not 0 < self.decay <= 1:
            raise ValueError(f"history.decay must lie in (0, 1], got {self.decay}; 1.0 keeps all")
        if self.window is not None and self.window < 0:
            raise ValueError(f"history.window must be 0 or more past states, got {self.window}")

    @property
    def rotate(self) -> bool:
        return self.variant in ("hr+decay+her", "absolute")

    @property
    def weight_per_step(self) -> float:
        """γ as the variant has it: `hr` does not fade."""
        return 1.0 if self.variant == "hr" else self.decay


def encode_rows(
    weight: Tensor,
    target: Tensor,
    wrong: Tensor,
    masked_at: Tensor,
    revealed_at: Tensor,
    step: Tensor,
    *,
    mask_id: int,
    horizon: int,
    config: HistoryConfig,
) -> Tensor:
    """Model input for training rows at their current step, [B, N, D], float32.

    Arguments as for `kernels.history_embed`. Differentiable in weight.
    """
    state = kernels.state_at(target, wrong, masked_at, revealed_at, step[:, None], mask_id)
    if config.variant == "none":
        current = F.embedding(state, weight).float()
        return normalise(current, current, config.norm)
    acc = kernels.history_embed(
        weight,
        target,
        wrong,
        masked_at,
        revealed_at,
        step,
        mask_id=mask_id,
        horizon=horizon,
        decay=config.weight_per_step,
        rotate=config.rotate,
        window=config.window,
    )
    if config.variant == "absolute":
        acc = _to_absolute(acc, step)
    current = F.embedding(state, weight).float() if config.norm == "match" else acc
    return normalise(acc, current, config.norm)


class HistoryState:
    """The running history of a batch being decoded: one float32 buffer [B, N, D], O(1) per step."""

    def __init__(self, config: HistoryConfig, token_embedding: Tensor) -> None:
        self.config = config
        self._weight = token_embedding
        self._acc: Tensor | None = None
        self._steps = 0
        # A window forgets the state that leaves it, so its ids are kept until then.
        self._recent: deque[Tensor] = deque(maxlen=(config.window or 0) + 1)

    def update(self, ids: Tensor) -> Tensor:
        """Take in the newest state, ids [B, N], and return the model's input, [B, N, D] float32."""
        embed = F.embedding(ids, self._weight)
        current = embed.float()
        if self.config.variant == "none":
            return normalise(current, current, self.config.norm)
        if self._acc is None:
            self._acc = current
        else:
            self._acc = kernels.history_step(
                self._acc, embed, decay=self.config.weight_per_step, rotate=self.config.rotate
            )
        acc = self._acc = self._forget(ids, self._acc)
        if self.config.variant == "absolute":
            acc = _to_absolute(acc, torch.full(ids.shape[:1], self._steps, device=ids.device))
        self._steps += 1
        return normalise(acc, current, self.config.norm)

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, by bool [B] or index."""
        self._acc = None if self._acc is None else self._acc[rows]
        self._recent = deque((ids[rows] for ids in self._recent), maxlen=self._recent.maxlen)

    def _forget(self, ids: Tensor, acc: Tensor) -> Tensor:
        """Take the state that has just left the window out of the sum."""
        if self.config.window is None:
            return acc
        if len(self._recent) == self._recent.maxlen:
            factor = reference.lag_factors(
                torch.tensor([self.config.window + 1], device=ids.device),
                self._weight.shape[1],
                decay=self.config.weight_per_step,
                rotate=self.config.rotate,
                dtype=torch.float32,
            )
            leaving = F.embedding(self._recent[0], self._weight).float()
            acc = acc - reference.complex_product(factor[0], leaving)
        self._recent.append(ids.clone())
        return acc


def normalise(acc: Tensor, current: Tensor, norm: Norm) -> Tensor:
    """Scale each position of acc, [..., D]: to RMS 1, or to the RMS of `current`."""
    if norm == "rms":
        return acc * (acc.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
    wanted, found = (x.square().mean(-1, keepdim=True).sqrt() for x in (current, acc))
    return acc * (wanted / found.clamp(min=torch.finfo(acc.dtype).tiny))


def _to_absolute(acc: Tensor, step: Tensor) -> Tensor:
    """Σ γ^(t-k) R_k e^(k) is R_t times the relative sum."""
    factor = reference.lag_factors(-step, acc.shape[-1], decay=1.0, rotate=True, dtype=acc.dtype)
    return reference.complex_product(factor[:, None], acc)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"history.{name} must be one of {list(choices)}, got {value!r}")
