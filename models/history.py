"""History Reference: how the model sees its own past states. SPEC §2.

    a^(t) = Σ_{k≤t} γ^(t-k) R_{k-t} wte(x^(k))

The embeddings of past tokens are rotated by their age, decayed, and summed into the input; there
are no new parameters. `encode_rows` computes the sum for training rows in closed form;
`HistoryState` updates it step by step while decoding.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from remask import kernels
from remask.kernels import Segments, reference
from remask.models.ranges import Range, check_fields

Variant = Literal["none", "hr", "hr+decay", "hr+decay+her", "absolute"]
Norm = Literal["rms", "match", "none", "residual"]
Positions = Literal["all", "editable"]
FadeFrom = Literal["current", "previous"]
Rotation = Literal["paper", "released"]

EPSILON = 1e-6
LAYER_NORM_EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class HistoryConfig:
    """How past denoising states reach the backbone."""

    variant: Variant = "hr+decay+her"
    """`none` uses the current state only; `hr` sums all states with equal weight; `hr+decay` decays
    them by age; `hr+decay+her`, the full method, also rotates them by age; `absolute` rotates them
    by step instead of age, for comparison."""
    decay: Annotated[float, Range("(0, 1]", "1.0 keeps all")] = 0.9
    """γ, the factor per step into the past, in (0, 1]; used by the variants with decay."""
    window: Annotated[int | None, Range("[0, inf)")] = None
    """Number of past states in the sum besides the current one. Defaults to all."""
    norm: Norm = "rms"
    """`rms` scales the sum to unit RMS; `match` scales it to the RMS of the current embedding, so
    that without history a pretrained backbone gets exactly its own input; `none` does not scale;
    `residual` adds the sum of the past states, after a LayerNorm without parameters, to the current
    embedding. The LayerNorm of the authors' code has learned parameters."""
    positions: Positions = "all"
    """Positions that see their past: `editable` gives prompts their current embedding only."""
    fade_from: FadeFrom = "current"
    """`current` weights a state of age n by γ^n; `previous` by γ^(n-1), so that decay begins after
    the previous state."""
    rotation: Rotation = "paper"
    """`paper` rotates pairs (2j, 2j+1) by -n·θ_j, `released` pairs (j, j + D/2) by n·θ_j."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {
            "paper": {},
            "released": {
                "decay": 1.0,
                "window": 6,
                "norm": "residual",
                "positions": "editable",
                "fade_from": "previous",
                "rotation": "released",
            },
        }
    )
    """`preset: released` in a recipe gives the settings of the authors' code for text."""

    def __post_init__(self) -> None:
        check_fields(self, "history.")
        if self.variant == "absolute" and self._has_released_parts:
            raise ValueError(
                "history.variant absolute also rotates the current state, so it needs norm rms, "
                "match or none, positions all, fade_from current and rotation paper"
            )

    @property
    def rotate(self) -> bool:
        return self.variant in ("hr+decay+her", "absolute")

    @property
    def weight_per_step(self) -> float:
        """γ of this variant; 1 for `hr`, which has no decay."""
        return 1.0 if self.variant == "hr" else self.decay

    @property
    def needs_current(self) -> bool:
        """Whether the input needs the current embedding besides the sum."""
        return self.norm != "rms" or self._has_released_parts

    @property
    def _has_released_parts(self) -> bool:
        defaults = (self.positions, self.fade_from, self.rotation) == ("all", "current", "paper")
        return self.norm == "residual" or not defaults


def encode_rows(
    weight: Tensor,
    segments: Segments[Tensor],
    *,
    horizon: int,
    config: HistoryConfig,
    editable: Tensor | None = None,
) -> Tensor:
    """Model input for training rows at their current step, [B, N, D], float32.

    Args:
        weight: Token embeddings, [V, D].
        segments: The trajectories.
        horizon: T, the number of steps in a trajectory.
        config: How past states count.
        editable: E, bool [B, N]; defaults to all positions.

    Returns:
        The input; differentiable in weight.
    """
    state = segments.state_at(segments.step)
    if config.variant == "none":
        current = F.embedding(state, weight).float()
        return normalise(current, current, config.norm)
    acc = kernels.history_embed(
        _to_pairs(weight, config),
        segments.tokens,
        segments.ends,
        segments.step,
        horizon=horizon,
        decay=config.weight_per_step,
        rotate=config.rotate,
        window=config.window,
    )
    if config.variant == "absolute":
        acc = _to_absolute(acc, segments.step)
    current = F.embedding(state, weight).float() if config.needs_current else acc
    return _finish(_from_pairs(acc, config), current, config, editable)


class HistoryState:
    """The history of a batch that is being decoded: one float32 buffer [B, N, D], O(1) per step.

    Args:
        config: The settings.
        token_embedding: wte, [V, D].
        editable: Bool [B, N]. Defaults to all positions.
    """

    def __init__(
        self, config: HistoryConfig, token_embedding: Tensor, editable: Tensor | None = None
    ) -> None:
        self.config = config
        self._weight = token_embedding
        self._editable = editable
        self._acc: Tensor | None = None
        self._steps = 0
        # With a window, a state is subtracted again once it leaves, so its ids are kept.
        self._recent: deque[Tensor] = deque(maxlen=(config.window or 0) + 1)

    def update(self, ids: Tensor) -> Tensor:
        """Add the newest state, ids [B, N], and return the model's input, [B, N, D] float32."""
        embed = F.embedding(ids, self._weight)
        current = embed.float()
        if self.config.variant == "none":
            return normalise(current, current, self.config.norm)
        newest = _to_pairs(embed, self.config)
        if self._acc is None:
            self._acc = newest.float()
        else:
            self._acc = kernels.history_step(
                self._acc, newest, decay=self.config.weight_per_step, rotate=self.config.rotate
            )
        acc = self._acc = self._subtract_expired(ids, self._acc)
        if self.config.variant == "absolute":
            acc = _to_absolute(acc, torch.full(ids.shape[:1], self._steps, device=ids.device))
        self._steps += 1
        return _finish(_from_pairs(acc, self.config), current, self.config, self._editable)

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, by bool [B] or index."""
        self._acc = None if self._acc is None else self._acc[rows]
        self._editable = None if self._editable is None else self._editable[rows]
        self._recent = deque((ids[rows] for ids in self._recent), maxlen=self._recent.maxlen)

    def _subtract_expired(self, ids: Tensor, acc: Tensor) -> Tensor:
        """Subtract the state that has just left the window from the sum."""
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
            leaving = _to_pairs(F.embedding(self._recent[0], self._weight), self.config).float()
            acc = acc - reference.complex_product(factor[0], leaving)
        self._recent.append(ids.clone())
        return acc


def normalise(acc: Tensor, current: Tensor, norm: Norm) -> Tensor:
    """Normalise a history as `HistoryConfig.norm` says.

    Args:
        acc: The sum of all states, [..., D].
        current: The current embedding, which is part of the sum, [..., D].
        norm: How to normalise.
    """
    match norm:
        case "rms":
            return acc * (acc.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
        case "match":
            current_rms, rms = (x.square().mean(-1, keepdim=True).sqrt() for x in (current, acc))
            return acc * (current_rms / rms.clamp(min=torch.finfo(acc.dtype).tiny))
        case "none":
            return acc
        case "residual":
            return current + F.layer_norm(acc - current, acc.shape[-1:], eps=LAYER_NORM_EPSILON)


def _finish(acc: Tensor, current: Tensor, config: HistoryConfig, editable: Tensor | None) -> Tensor:
    """Turn the sum of all states into the model's input, [B, N, D]."""
    if config.fade_from == "previous":
        acc = current + (acc - current) / config.weight_per_step
    if config.positions == "editable" and editable is not None:
        acc = torch.where(editable[..., None], acc, current)
    return normalise(acc, current, config.norm)


def _to_pairs(x: Tensor, config: HistoryConfig) -> Tensor:
    """Reorder columns so that the paper's rotation, which the kernels compute, is the config's.

    The released code rotates x_j + i·x_{j+D/2} in the opposite direction. Exchanging the real and
    the imaginary part reverses the direction, so (x_{j+D/2}, x_j) become a pair.
    """
    if config.rotation == "paper":
        return x
    first, second = x.chunk(2, -1)
    return torch.stack((second, first), -1).flatten(-2)


def _from_pairs(x: Tensor, config: HistoryConfig) -> Tensor:
    """The inverse of `_to_pairs`."""
    if config.rotation == "paper":
        return x
    second, first = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.cat((first, second), -1)


def _to_absolute(acc: Tensor, step: Tensor) -> Tensor:
    """Σ γ^(t-k) R_k e^(k) is R_t times the relative sum."""
    factor = reference.lag_factors(-step, acc.shape[-1], decay=1.0, rotate=True, dtype=acc.dtype)
    return reference.complex_product(factor[:, None], acc)
