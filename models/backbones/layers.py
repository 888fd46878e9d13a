"""What Llama-shaped transformers share: norm, rotary positions, attention both ways, SwiGLU.

Their projections stay with each backbone, under the names its published weights have.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Turn = tuple[Tensor, Tensor]
"""Cosine and sine of every position's angles."""
PLAIN_LENGTH = 512
"""Positions up to which bf16 on a CPU is faster by plain products than by torch's fused kernel."""


class RMSNorm(nn.Module):
    """Scale to unit RMS in float32, then by a learned weight."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self._epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], eps=self._epsilon).to(x.dtype) * self.weight


def rotary(length: int, head_width: int, theta: float, device: torch.device) -> Turn:
    """Cosine and sine of every position's angles, [N, head width] each, float32."""
    half = torch.arange(0, head_width, 2, device=device) / head_width
    angle = torch.arange(length, device=device)[:, None] * theta**-half
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def attend(
    query: Tensor, key: Tensor, value: Tensor, head_width: int, turn: Turn, mask: Tensor | None
) -> Tensor:
    """Attention of every position to every other, heads side by side in and out.

    Args:
        query: [B, N, heads × head width].
        key: [B, N, key heads × head width]; each key head serves as many query heads.
        value: As key.
        head_width: Width of one head.
        turn: What `rotary` gave for N positions.
        mask: Bool [B, 1, 1, N], false at padding; none when there is no padding.
    """
    query, key, value = (
        x.unflatten(-1, (-1, head_width)).transpose(1, 2) for x in (query, key, value)
    )  # [B, H, N, D / H]
    query, key = (_rotate(heads, *turn) for heads in (query, key))
    return mix(query, key, value, mask).transpose(1, 2).flatten(2)  # [B, N, D]


def mix(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Values by the softmax of the scores: what `attend` does with its heads, [B, H, N, D / H]."""
    is_grouped = key.shape[1] < query.shape[1]
    is_bf16_on_cpu = query.device.type == "cpu" and query.dtype == torch.bfloat16
    if is_grouped or not is_bf16_on_cpu or query.shape[2] > PLAIN_LENGTH:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=is_grouped
        )
    # The fused kernel's gradient takes four times as long as all of this.
    scores = (query * query.shape[-1] ** -0.5) @ key.mT  # [B, H, N, N]
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1).to(value.dtype) @ value


def swiglu(x: Tensor, gate: nn.Module, up: nn.Module, down: nn.Module) -> Tensor:
    """The feed-forward of a block: one projection gates another."""
    return down(F.silu(gate(x)) * up(x))


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Bool [B, N] as attention takes it, [B, 1, 1, N]."""
    return None if attention_mask is None else attention_mask[:, None, None, :]


def check_heads(width: int, heads: int, key_heads: int, names: tuple[str, str, str]) -> None:
    """Raise ValueError unless heads divide the width evenly, into rotary pairs, and groups."""
    if width % (2 * heads) or heads % key_heads:
        raise ValueError(
            f"{names[0]} must be a multiple of twice {names[1]}, and {names[1]} of {names[2]}; got "
            f"{width}, {heads}, {key_heads}"
        )


def check_length(length: int, most: int) -> None:
    """Raise ValueError for more positions than a model takes."""
    if length > most:
        raise ValueError(f"the model takes {most} positions, got {length}; shorten them")


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return (x.float() * cos + turned * sin).to(x.dtype)
