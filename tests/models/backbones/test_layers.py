import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from remask.models.backbones.layers import MAX_UNFUSED_LENGTH, attend, padding_mask, rotary

WIDTH, HEADS = 8, 3


@pytest.mark.parametrize("length", [1, 7, MAX_UNFUSED_LENGTH, MAX_UNFUSED_LENGTH + 1])
@pytest.mark.parametrize("is_padded", [False, True])
def test_attention_in_bf16_is_that_in_float32(length: int, is_padded: bool) -> None:
    torch.manual_seed(0)
    heads = torch.randn(3, 2, length, HEADS * WIDTH, dtype=torch.bfloat16)
    is_token = torch.ones(2, length, dtype=torch.bool)
    is_token[1, 1 + length // 2 :] = not is_padded
    in_float, float_gradient = _attended(heads.float(), is_token)
    in_bf16, gradient = _attended(heads, is_token)
    assert in_bf16.dtype == torch.bfloat16
    torch.testing.assert_close(in_bf16.float(), in_float, atol=0.03, rtol=0.03)
    similarity = F.cosine_similarity(gradient.float().flatten(), float_gradient.flatten(), dim=0)
    assert similarity > 0.999


def test_padding_is_not_attended_to_in_bf16() -> None:
    torch.manual_seed(0)
    heads = torch.randn(3, 1, 6, HEADS * WIDTH, dtype=torch.bfloat16)
    is_token = torch.tensor([[True] * 4 + [False] * 2])
    before, gradient = _attended(heads, is_token)
    heads[1:, :, 4:] = 100.0  # keys and values of padding
    after, _ = _attended(heads, is_token)
    torch.testing.assert_close(after, before, atol=0, rtol=0)
    assert not gradient[1:, :, 4:].any()


def _attended(heads: Tensor, is_token: Tensor) -> tuple[Tensor, Tensor]:
    """Attention of query, key and value, [3, B, N, D], and the gradient of its sum of squares."""
    heads = heads.clone().requires_grad_()
    turn = rotary(heads.shape[2], WIDTH, 10000.0, heads.device)
    query, key, value = heads
    mixed = attend(query, key, value, WIDTH, turn, padding_mask(is_token))
    mixed.float().square().sum().backward()
    assert heads.grad is not None
    return mixed.detach(), heads.grad
