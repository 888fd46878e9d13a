"""The CUDA kernels without a GPU: their bodies on the host, their machine code by nvcc.

Where there is a GPU, `pytest -m gpu` runs the real thing.
"""

import ctypes
import re
import shutil
import subprocess

import pytest
import torch

from remask import kernels
from remask.kernels import build, native, reference
from tests.kernels.conftest import draw_segments

VOCAB, HORIZON = 11, 6
SIZES = [(1, 1, 2), (3, 5, 6), (2, 7, 128), (5, 9, 516), (2, 3, 1030)]
NUM_SEGMENTS = [1, 2, 3, 4, 5, 9]  # a thread reads four at once
CUDA_KERNELS = 16  # step and embed: 2 vector widths × 3 types; backward: 2 widths × 2 orders


@pytest.fixture(scope="session")
def shim():
    """The CUDA file as the host compiler sees it, every block and thread played by a loop."""
    try:
        return ctypes.CDLL(str(build.build(build.shim_command())))
    except RuntimeError as error:
        pytest.skip(str(error))


def inputs(size, dtype=torch.float32, num_segments=3):
    batch, positions, width = size
    generator = torch.Generator().manual_seed(6)
    weight = torch.randn(VOCAB, width, generator=generator).to(dtype)
    segments = draw_segments(batch, positions, VOCAB, HORIZON, num_segments)
    segments = tuple(x.int() for x in segments)
    table = reference.coefficient_table(
        width, HORIZON, 0.8, True, None, torch.float32, torch.device("cpu")
    )
    grad = torch.randn(batch, positions, width, generator=generator)
    return weight, segments, table, grad


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", native.CUDA_DTYPES)
@pytest.mark.parametrize("num_segments", NUM_SEGMENTS)
def test_forward_bodies_equal_the_reference(shim, size, dtype, num_segments):
    weight, segments, table, _ = inputs(size, dtype, num_segments)
    out = native.cuda_history_embed(shim, weight, segments, table)
    expected = reference.accumulate(weight.float(), *segments, decay=0.8)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", native.CUDA_DTYPES)
def test_step_bodies_equal_the_reference(shim, size, dtype):
    width = size[-1]
    acc, newest = torch.randn(2, *size, generator=torch.Generator().manual_seed(7)).unbind(0)
    turn = reference.turn(width, 0.8, True, False, torch.float32, acc.device)
    out = native.cuda_history_step(shim, acc.contiguous(), newest.to(dtype), turn)
    expected = reference.history_step(acc, newest.to(dtype).float(), turn)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("num_segments", NUM_SEGMENTS)
def test_backward_bodies_equal_the_reference(shim, size, deterministic, num_segments):
    _, segments, table, grad = inputs(size, num_segments=num_segments)
    out = native.cuda_history_embed_backward(
        shim, grad, segments, table, VOCAB, deterministic=deterministic
    )
    expected = reference.history_embed_backward(grad, *segments, table, VOCAB)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


def test_views_into_a_flat_buffer_are_brought_into_line(shim, monkeypatch):
    weight, segments, table, _ = inputs((2, 3, 8))
    flat = torch.empty(weight.numel() + 1)
    flat[1:] = weight.flatten()
    view = flat[1:].view_as(weight)
    seen = []
    monkeypatch.setattr(
        native, "_pointer", lambda x: seen.append(x.data_ptr()) or native.ctypes.c_void_p(seen[-1])
    )
    out = native.cuda_history_embed(shim, view, segments, table)
    assert view.data_ptr() % 16
    assert seen[0] % 16 == 0, "a vector load at this address would fault"
    torch.testing.assert_close(out, native.cuda_history_embed(shim, weight, segments, table))


def test_unsupported_types_are_refused(shim):
    weight, segments, table, _ = inputs((1, 2, 4), torch.float64)
    with pytest.raises(RuntimeError, match="CUDA launch failed: unsupported dtype"):
        native.cuda_history_embed(shim, weight, segments, table)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_nvcc_compiles_without_spills(architecture, tmp_path):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    source = build.CSRC / build.SOURCES["cuda"]
    done = subprocess.run(
        f"{nvcc} -O3 -std=c++17 -arch={architecture} -Xptxas -v -cubin -o kernels.cubin {source}",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", done.stderr)]
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores", done.stderr)
    assert len(registers) == len(spills) == CUDA_KERNELS
    assert max(registers) <= 40, "more than 40 registers cost occupancy at 128 threads a block"
    assert set(spills) == {("0", "0")}, "nothing may live in local memory"


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("deterministic", [False, True])
def test_on_a_real_gpu(size, deterministic):
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    assert kernels.is_compiled("cuda"), build.native("cuda").detail
    weight, segments, _, grad = inputs(size)
    results = []
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(deterministic)
    try:
        for device in ("cpu", "cuda"):
            moved = weight.to(device).requires_grad_()
            out = kernels.history_embed(
                moved, *(x.to(device) for x in segments), horizon=HORIZON, decay=0.8
            )
            (grad_weight,) = torch.autograd.grad(out, moved, grad.to(device))
            results.append((out.detach().cpu(), grad_weight.cpu()))
    finally:
        torch.use_deterministic_algorithms(before)
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
