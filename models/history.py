"""History Reference: what the model sees of its own past states.

a^(t) = Σ_{k≤t} γ^(t-k) R_{k-t} wte(x^(k)): past token embeddings, rotated by their age, faded, and
summed into the input, without a new parameter. `encode_rows` gives it for training rows in closed
form; `HistoryState` keeps it running while decoding. SPEC §2.
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
    """`none` sees the current state only; `hr` sums all states alike; `hr+decay` fades them;
    `hr+decay+her` also rotates them by age, the full method; `absolute` rotates by step instead of
    age, for comparison."""
    decay: Annotated[float, Range("(0, 1]", "1.0 keeps all")] = 0.9
    """γ, weight kept per step into the past, in (0, 1]; used by the variants that fade."""
    window: Annotated[int | None, Range("[0, inf)")] = None
    """Past states that count besides the current one; all when none."""
    norm: Norm = "rms"
    """`rms` scales the sum to unit RMS; `match` to the RMS of the current embedding, so that with
    no history a pretrained backbone gets exactly its own input; `none` leaves it as it is;
    `residual` adds the past's sum, after a LayerNorm without parameters, to the current embedding.
    The authors' LayerNorm has learned ones."""
    positions: Positions = "all"
    """Where the past is seen: `editable` leaves prompts with their current embedding alone."""
    fade_from: FadeFrom = "current"
    """A state of age n counts γ^n; from the `previous` state on, γ^(n-1): that one in full."""
    rotation: Rotation = "paper"
    """`paper` turns pairs (2j, 2j+1) by -n·θ_j; `released` pairs (j, j + D/2) by +n·θ_j."""

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
    """`preset: released` in a recipe is as the authors' code for text has it."""

    def __post_init__(self) -> None:
        check_fields(self, "history.")
        if self.variant == "absolute" and self._has_released_parts:
            raise ValueError(
                "history.variant absolute turns the current state too: it goes with norm rms, "
                "match or none, positions all, fade_from current and rotation paper"
            )

    @property
    def rotate(self) -> bool:
        return self.variant in ("hr+decay+her", "absolute")

    @property
    def weight_per_step(self) -> float:
        """γ as the variant has it: `hr` does not fade."""
        return 1.0 if self.variant == "hr" else self.decay

    @property
    def needs_current(self) -> bool:
        """Is the current embedding needed besides the sum?"""
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
    """The running history of a batch being decoded: one float32 buffer [B, N, D], O(1) per step."""

    def __init__(
        self, config: HistoryConfig, token_embedding: Tensor, editable: Tensor | None = None
    ) -> None:
        """`editable` as for `encode_rows`."""
        self.config = config
        self._weight = token_embedding
        self._editable = editable
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
        newest = _to_pairs(embed, self.config)
        if self._acc is None:
            self._acc = newest.float()
        else:
            self._acc = kernels.history_step(
                self._acc, newest, decay=self.config.weight_per_step, rotate=self.config.rotate
            )
        acc = self._acc = self._forget(ids, self._acc)
        if self.config.variant == "absolute":
            acc = _to_absolute(acc, torch.full(ids.shape[:1], self._steps, device=ids.device))
        self._steps += 1
        return _finish(_from_pairs(acc, self.config), current, self.config, self._editable)

    def clear(self) -> None:
        """Forget all states."""
        self._acc, self._steps = None, 0
        self._recent.clear()

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, by bool [B] or index."""
        self._acc = None if self._acc is None else self._acc[rows]
        self._editable = None if self._editable is None else self._editable[rows]
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
            leaving = _to_pairs(F.embedding(self._recent[0], self._weight), self.config).float()
            acc = acc - reference.complex_product(factor[0], leaving)
        self._recent.append(ids.clone())
        return acc


def normalise(acc: Tensor, current: Tensor, norm: Norm) -> Tensor:
    """Bring each position of acc, [..., D], to the scale that `HistoryConfig.norm` says; `current`
    is the current embedding, which is part of it."""
    match norm:
        case "rms":
            return acc * (acc.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
        case "match":
            wanted, found = (x.square().mean(-1, keepdim=True).sqrt() for x in (current, acc))
            return acc * (wanted / found.clamp(min=torch.finfo(acc.dtype).tiny))
        case "none":
            return acc
        case "residual":
            return current + F.layer_norm(acc - current, acc.shape[-1:], eps=LAYER_NORM_EPSILON)


def _finish(acc: Tensor, current: Tensor, config: HistoryConfig, editable: Tensor | None) -> Tensor:
    """The sum of all states, [B, N, D], to the model's input."""
    if config.fade_from == "previous":
        acc = current + (acc - current) / config.weight_per_step
    if config.positions == "editable" and editable is not None:
        acc = torch.where(editable[..., None], acc, current)
    return normalise(acc, current, config.norm)


def _to_pairs(x: Tensor, config: HistoryConfig) -> Tensor:
    """Columns in the order in which the paper's rotation is the config's.

    The released one reads x_j + i·x_{j+D/2} and turns it the other way. With the parts exchanged
    that is a turn the paper's way, so (x_{j+D/2}, x_j) become a pair.
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
