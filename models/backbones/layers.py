"""What Llama-like transformers share: RMSNorm, rotary positions, full attention, SwiGLU.

The projections are in each backbone, under the names of its published weights.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Rotary = tuple[Tensor, Tensor]
"""Cosine and sine of the rotary angles of every position, [N, head width] each."""
MAX_UNFUSED_LENGTH = 512
"""Positions up to which plain products are faster than torch's fused kernel, for bf16 on a CPU."""


class RMSNorm(nn.Module):
    """Scale to unit RMS in float32, then multiply by a learned weight."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self._epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], eps=self._epsilon).to(x.dtype) * self.weight


def rotary(length: int, head_width: int, theta: float, device: torch.device) -> Rotary:
    """Cosine and sine of the rotary angles of N positions, [N, head width] each, float32."""
    half = torch.arange(0, head_width, 2, device=device) / head_width
    angle = torch.arange(length, device=device)[:, None] * theta**-half
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def attend(
    query: Tensor, key: Tensor, value: Tensor, head_width: int, angles: Rotary, mask: Tensor | None
) -> Tensor:
    """Attention of every position to every other, with rotary positions, [B, N, D].

    Args:
        query: [B, N, heads × head width].
        key: [B, N, key heads × head width]; query heads share key heads in equal groups.
        value: As key.
        head_width: Width of one head.
        angles: The output of `rotary` for N positions.
        mask: Bool [B, 1, 1, N], false at padding; None without padding.
    """
    query, key, value = (
        x.unflatten(-1, (-1, head_width)).transpose(1, 2) for x in (query, key, value)
    )  # [B, H, N, D / H]
    query, key = (_rotate(heads, *angles) for heads in (query, key))
    return softmax_attention(query, key, value, mask).transpose(1, 2).flatten(2)  # [B, N, D]


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention of separate heads, [B, H, N, D / H]."""
    is_grouped = key.shape[1] < query.shape[1]
    is_bf16_on_cpu = query.device.type == "cpu" and query.dtype == torch.bfloat16
    if is_grouped or not is_bf16_on_cpu or query.shape[2] > MAX_UNFUSED_LENGTH:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=is_grouped
        )
    # The backward pass of the fused kernel alone takes four times as long as this.
    scores = (query * query.shape[-1] ** -0.5) @ key.mT  # [B, H, N, N]
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1).to(value.dtype) @ value


def swiglu(x: Tensor, gate: nn.Module, up: nn.Module, down: nn.Module) -> Tensor:
    """The feed-forward layer of a block, with a gated projection."""
    return down(F.silu(gate(x)) * up(x))


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """An attention mask, bool [B, N], in the shape that attention broadcasts, [B, 1, 1, N]."""
    return None if attention_mask is None else attention_mask[:, None, None, :]


def check_heads(config: object, names: tuple[str, str, str]) -> None:
    """Raise ValueError unless heads divide the width into rotary pairs, and key heads the heads.

    Args:
        config: A backbone's config.
        names: Its fields for the width, the number of heads and the number of key heads.
    """
    width, heads, key_heads = (getattr(config, name) for name in names)
    if width % (2 * heads) or heads % key_heads:
        raise ValueError(
            f"{names[0]} must be a multiple of twice {names[1]}, and {names[1]} of {names[2]}; got "
            f"{width}, {heads}, {key_heads}"
        )


def check_length(length: int, limit: int) -> None:
    """Raise ValueError for more positions than a model takes."""
    if length > limit:
        raise ValueError(f"the model takes {limit} positions, got {length}; shorten the rows")


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return (x.float() * cos + turned * sin).to(x.dtype)
