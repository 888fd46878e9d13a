"""Calls into the compiled libraries: allocate the result, pass pointers, check the return code.

`ops.py` guarantees contiguous inputs of the right types: segments int32, accumulators and tables
float32 or, on the CPU, float64. The CUDA functions also run on the host shim's library with CPU
tensors, so that all of this file is tested on machines without a GPU.
"""

import contextlib
import ctypes

import torch
from torch import Tensor
from torch.nn import functional as F

# As numbered in csrc/history.h.
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}
CPU_DTYPES = (torch.float32, torch.bfloat16, torch.float64)
CUDA_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

Tensors = tuple[Tensor, Tensor, Tensor]
"""The arrays of `Segments`: tokens [S, B, N], ends [S-1, B, N] and step [B]; contiguous int32."""


def cpu_history_step(library: ctypes.CDLL, acc: Tensor, embed: Tensor, turn: Tensor) -> Tensor:
    """embed + turn · acc on the CPU."""
    out = torch.empty_like(acc)
    width = acc.shape[-1]
    _check_cpu(
        library.remask_history_step(
            _pointer(acc),
            _pointer(embed),
            _pointer(turn),
            _pointer(out),
            _long(acc.numel() // width),
            _long(width),
            DTYPES[embed.dtype],
            torch.get_num_threads(),
        )
    )
    return out


def cpu_history_embed(
    library: ctypes.CDLL, weight: Tensor, segments: Tensors, table: Tensor
) -> Tensor:
    """a^(t) of segments on the CPU, [B, N, D]."""
    (_, batch, positions), width = segments[0].shape, weight.shape[1]
    out = torch.empty(batch, positions, width, dtype=table.dtype)
    _check_cpu(
        library.remask_history_embed(
            _pointer(weight),
            *map(_pointer, segments),
            _pointer(table),
            _pointer(out),
            *map(_long, (len(segments[0]), batch, positions, width)),
            DTYPES[weight.dtype],
            torch.get_num_threads(),
        )
    )
    return out


def cpu_history_embed_backward(
    library: ctypes.CDLL, grad: Tensor, segments: Tensors, table: Tensor, vocab_size: int
) -> Tensor:
    """Gradient of `cpu_history_embed` in weight, [V, D]; the same bits for any thread count."""
    batch, positions, width = grad.shape
    out = torch.zeros(vocab_size, width, dtype=table.dtype)
    _check_cpu(
        library.remask_history_embed_backward(
            _pointer(grad),
            *map(_pointer, segments),
            _pointer(table),
            _pointer(out),
            *map(_long, (len(segments[0]), batch, positions, vocab_size, width)),
            DTYPES[grad.dtype],
            torch.get_num_threads(),
        )
    )
    return out


def cpu_segments_are_valid(
    library: ctypes.CDLL, segments: Tensors, vocab_size: int, horizon: int
) -> bool:
    """Are all tokens, ends and steps in range, and the ends in order?"""
    return bool(
        library.remask_segments_are_valid(
            *map(_pointer, segments), *map(_long, segments[0].shape), vocab_size, horizon
        )
    )


def cuda_history_step(library: ctypes.CDLL, acc: Tensor, embed: Tensor, turn: Tensor) -> Tensor:
    """embed + turn · acc on torch's current stream."""
    acc, embed = _aligned(acc), _aligned(embed)
    out = torch.empty_like(acc)
    width = acc.shape[-1]
    with _on_device(acc) as stream:
        _check_launch(
            library,
            library.remask_cuda_history_step(
                _pointer(acc),
                _pointer(embed),
                _pointer(turn),
                _pointer(out),
                _long(acc.numel() // width),
                _long(width),
                DTYPES[embed.dtype],
                stream,
            ),
        )
    return out


def cuda_history_embed(
    library: ctypes.CDLL, weight: Tensor, segments: Tensors, table: Tensor
) -> Tensor:
    """a^(t) of segments on torch's current stream, [B, N, D]."""
    weight = _aligned(weight)
    (_, batch, positions), width = segments[0].shape, weight.shape[1]
    out = torch.empty(batch, positions, width, dtype=table.dtype, device=weight.device)
    with _on_device(weight) as stream:
        _check_launch(
            library,
            library.remask_cuda_history_embed(
                _pointer(weight),
                *map(_pointer, segments),
                _pointer(table),
                _pointer(out),
                *map(_long, (len(segments[0]), batch, positions, width)),
                DTYPES[weight.dtype],
                stream,
            ),
        )
    return out


def cuda_history_embed_backward(
    library: ctypes.CDLL,
    grad: Tensor,
    segments: Tensors,
    table: Tensor,
    vocab_size: int,
    *,
    deterministic: bool,
) -> Tensor:
    """Gradient of `cuda_history_embed` in weight, [V, D]; atomic, or summed in a fixed order."""
    grad = _aligned(grad)
    batch, positions, width = grad.shape
    if deterministic:
        entry, start = _sorted_entries(segments, vocab_size)
        order = (_pointer(entry), _pointer(start))
        out = torch.empty(vocab_size, width, dtype=table.dtype, device=grad.device)
    else:
        order = (None, None)
        out = torch.zeros(vocab_size, width, dtype=table.dtype, device=grad.device)
    with _on_device(grad) as stream:
        _check_launch(
            library,
            library.remask_cuda_history_embed_backward(
                _pointer(grad),
                *map(_pointer, segments),
                _pointer(table),
                *order,
                _pointer(out),
                *map(_long, (len(segments[0]), batch, positions, vocab_size, width)),
                stream,
            ),
        )
    return out


def _sorted_entries(segments: Tensors, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Numbers s·B·N + position of all pieces, sorted by their token; and where each token's start.

    Returns:
        Piece numbers, [S·B·N], and the index of the first piece of each token, [V+1]. Empty pieces
        stand last, after those of every token.
    """
    tokens, ends, step = segments
    edges = F.pad(ends, (0, 0, 0, 0, 1, 1))  # [S+1, B, N], first row 0
    edges[-1] = torch.iinfo(torch.int32).max
    is_empty = edges[:-1] >= torch.minimum(edges[1:], step[:, None] + 1)
    token = tokens.masked_fill(is_empty, vocab_size).flatten()  # [S·B·N]
    ordered, entry = torch.sort(token, stable=True)
    row = torch.arange(vocab_size + 1, device=token.device, dtype=token.dtype)
    return entry.int(), torch.searchsorted(ordered, row, out_int32=True)


def _aligned(tensor: Tensor) -> Tensor:
    """A copy if the tensor is not 16-byte aligned, as vector loads need; views may not be."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


@contextlib.contextmanager
def _on_device(tensor: Tensor):
    """Guard the device and yield torch's current stream there; None for the host shim."""
    if tensor.device.type == "cuda":
        with torch.cuda.device(tensor.device):
            yield ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    else:
        yield None


def _check_cpu(code: int) -> None:
    if code != 0:
        raise RuntimeError("the CPU kernels do not support this dtype")


def _check_launch(library: ctypes.CDLL, code: int) -> None:
    if code != 0:
        library.remask_cuda_error.restype = ctypes.c_char_p
        raise RuntimeError(f"CUDA launch failed: {library.remask_cuda_error(code).decode()}")


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _long(number: int) -> ctypes.c_int64:
    return ctypes.c_int64(number)
