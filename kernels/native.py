"""Calls into the compiled libraries: allocate, pass pointers, check the answer.

Inputs are contiguous and of the types `ops.py` promises: ids and boundaries int32, accumulators and
tables float32 or, on the CPU, float64. The CUDA functions also run on the host shim's library with
CPU tensors, so that all of this file is tested on machines without a GPU.
"""

import contextlib
import ctypes

import torch
from torch import Tensor

# As numbered in csrc/history.h.
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}
CPU_DTYPES = (torch.float32, torch.bfloat16, torch.float64)
CUDA_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

Rows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""target, wrong, masked_at, revealed_at, [B, N] each, and step [B]; all int32."""


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
    library: ctypes.CDLL, weight: Tensor, rows: Rows, table: Tensor, mask_id: int
) -> Tensor:
    """The segment form on the CPU, [B, N, D]."""
    (batch, positions), width = rows[0].shape, weight.shape[1]
    out = torch.empty(batch, positions, width, dtype=table.dtype)
    _check_cpu(
        library.remask_history_embed(
            _pointer(weight),
            *map(_pointer, rows),
            _pointer(table),
            _pointer(out),
            *map(_long, (batch, positions, width)),
            mask_id,
            DTYPES[weight.dtype],
            torch.get_num_threads(),
        )
    )
    return out


def cpu_history_embed_backward(
    library: ctypes.CDLL, grad: Tensor, rows: Rows, table: Tensor, mask_id: int, vocab_size: int
) -> Tensor:
    """Its gradient in weight on the CPU, [V, D]; the same bits for any number of threads."""
    batch, positions, width = grad.shape
    out = torch.zeros(vocab_size, width, dtype=table.dtype)
    _check_cpu(
        library.remask_history_embed_backward(
            _pointer(grad),
            *map(_pointer, rows),
            _pointer(table),
            _pointer(out),
            *map(_long, (batch, positions, width)),
            mask_id,
            DTYPES[grad.dtype],
            torch.get_num_threads(),
        )
    )
    return out


def cpu_rows_are_valid(
    library: ctypes.CDLL, rows: Rows, mask_id: int, vocab_size: int, horizon: int
) -> bool:
    """Are all ids and boundaries in range? One fused pass."""
    batch, positions = rows[0].shape
    return bool(
        library.remask_rows_are_valid(
            *map(_pointer, rows), _long(batch), _long(positions), vocab_size, mask_id, horizon
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
    library: ctypes.CDLL, weight: Tensor, rows: Rows, table: Tensor, mask_id: int
) -> Tensor:
    """The segment form on torch's current stream, [B, N, D]."""
    weight = _aligned(weight)
    (batch, positions), width = rows[0].shape, weight.shape[1]
    out = torch.empty(batch, positions, width, dtype=table.dtype, device=weight.device)
    with _on_device(weight) as stream:
        _check_launch(
            library,
            library.remask_cuda_history_embed(
                _pointer(weight),
                *map(_pointer, rows),
                _pointer(table),
                _pointer(out),
                *map(_long, (batch, positions, width)),
                mask_id,
                DTYPES[weight.dtype],
                stream,
            ),
        )
    return out


def cuda_history_embed_backward(
    library: ctypes.CDLL,
    grad: Tensor,
    rows: Rows,
    table: Tensor,
    mask_id: int,
    vocab_size: int,
    *,
    deterministic: bool,
) -> Tensor:
    """Its gradient in weight on torch's current stream, [V, D]; atomic, or in a fixed order."""
    grad = _aligned(grad)
    batch, positions, width = grad.shape
    if deterministic:
        entry, start = _sorted_entries(rows, mask_id, vocab_size)
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
                *map(_pointer, rows),
                _pointer(table),
                *order,
                _pointer(out),
                *map(_long, (batch, positions, vocab_size, width)),
                mask_id,
                stream,
            ),
        )
    return out


def _sorted_entries(rows: Rows, mask_id: int, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Contributions (piece, position), sorted by weight row, and where each row's start."""
    target, wrong, masked_at, revealed_at, step = rows
    states = step[:, None] + 1  # [B, 1]
    nobody = vocab_size  # sorts past every row: empty pieces go to no one
    token = torch.stack(
        (
            torch.where(masked_at > 0, wrong, nobody),
            torch.where((masked_at < revealed_at) & (masked_at < states), mask_id, nobody),
            torch.where(revealed_at < states, target, nobody),
        )
    ).flatten()  # [3·B·N]
    ordered, entry = torch.sort(token, stable=True)
    row = torch.arange(vocab_size + 1, device=token.device, dtype=token.dtype)
    return entry.int(), torch.searchsorted(ordered, row, out_int32=True)


def _aligned(tensor: Tensor) -> Tensor:
    """Vector loads need 16-byte boundaries, which a view into a flat buffer may miss."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


@contextlib.contextmanager
def _on_device(tensor: Tensor):
    """Guard the device and give torch's current stream there; none for the host shim."""
    if tensor.device.type == "cuda":
        with torch.cuda.device(tensor.device):
            yield ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    else:
        yield None


def _check_cpu(code: int) -> None:
    if code != 0:
        raise RuntimeError("the CPU kernels have no version for this dtype")


def _check_launch(library: ctypes.CDLL, code: int) -> None:
    if code != 0:
        library.remask_cuda_error.restype = ctypes.c_char_p
        raise RuntimeError(f"CUDA launch failed: {library.remask_cuda_error(code).decode()}")


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _long(number: int) -> ctypes.c_int64:
    return ctypes.c_int64(number)
