"""The public operators: both paths against the reference, gradients, compilation, bad input."""

import subprocess
import sys

import pytest
import torch

from remask import kernels
from remask.kernels import ops, reference
from tests.kernels.conftest import draw_segments

VOCAB, LARGE_VOCAB, HORIZON = 11, 900, 6
NUM_SEGMENTS = [1, 2, 3, 4, 5, 9]  # the CPU kernel sums four pieces at once
SIZES = [(1, 1, 2), (3, 5, 6), (2, 7, 70), (4, 9, 128), (2, 3, 514)]
# Widths of 2, 6, 70 and 514 leave a remainder after vectors of eight; weights are stored as given,
# sums are in float32, so only the order of additions differs.
TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.bfloat16: {"rtol": 1e-5, "atol": 1e-5},
    torch.float16: {"rtol": 1e-5, "atol": 1e-5},
    torch.float64: {"rtol": 1e-12, "atol": 1e-12},
}


def embed(weight, segments, **overrides):
    settings = {"horizon": HORIZON, "decay": 0.8} | overrides
    return kernels.history_embed(weight, *segments, **settings)


def random_weight(width, dtype, vocab_size=VOCAB):
    return torch.randn(vocab_size, width, generator=torch.Generator().manual_seed(2)).to(dtype)


@pytest.mark.usefixtures("cpu_library")
def test_compiled_path_runs_here():
    assert kernels.is_compiled("cpu")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rotate", [True, False])
@pytest.mark.parametrize("num_segments", NUM_SEGMENTS)
def test_history_embed_equals_stepwise_accumulation(size, dtype, rotate, num_segments):
    batch, positions, width = size
    weight = random_weight(width, dtype)
    segments = draw_segments(batch, positions, VOCAB, HORIZON, num_segments)
    out = embed(weight, segments, rotate=rotate)
    wide = weight.to(out.dtype)
    expected = reference.accumulate(wide, *segments, decay=0.8, rotate=rotate)
    assert out.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(out, expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("num_segments", NUM_SEGMENTS)
def test_gradient_equals_that_of_stepwise_accumulation(size, dtype, num_segments):
    batch, positions, width = size
    segments = draw_segments(batch, positions, VOCAB, HORIZON, num_segments)
    weight = random_weight(width, dtype).requires_grad_()
    out = embed(weight, segments)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).to(out.dtype)
    (grad,) = torch.autograd.grad(out, weight, upstream)
    wide = weight.detach().to(out.dtype).requires_grad_()
    stepwise = reference.accumulate(wide, *segments, decay=0.8)
    (expected,) = torch.autograd.grad(stepwise, wide, upstream)
    assert grad.dtype == dtype
    loose = {"rtol": 1e-2, "atol": 1e-2}  # the gradient is rounded to the weight's own type
    tolerance = loose if dtype == torch.bfloat16 else TOLERANCE[dtype]
    torch.testing.assert_close(grad, expected.to(dtype), **tolerance)


def test_long_horizon_stays_accurate():
    segments = draw_segments(4, 6, VOCAB, 512)
    weight = random_weight(32, torch.float32)
    out = embed(weight, segments, horizon=512, decay=1.0)
    expected = reference.accumulate(weight.double(), *segments, decay=1.0)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_segments", [3, 9])
def test_gradient_of_a_large_vocabulary(dtype, num_segments):
    """It is summed in place, whereas a small one is summed in a copy of each thread."""
    segments = draw_segments(4, 9, LARGE_VOCAB, HORIZON, num_segments)
    weight = random_weight(70, dtype, LARGE_VOCAB).requires_grad_()
    upstream = torch.randn(4, 9, 70, generator=torch.Generator().manual_seed(3)).to(dtype)
    (grad,) = torch.autograd.grad(embed(weight, segments), weight, upstream)
    stepwise = reference.accumulate(weight, *segments, decay=0.8)
    (expected,) = torch.autograd.grad(stepwise, weight, upstream)
    torch.testing.assert_close(grad, expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("vocab_size", [VOCAB, LARGE_VOCAB])
def test_backward_bits_do_not_depend_on_threads(threads, vocab_size):
    segments = draw_segments(8, 20, vocab_size, HORIZON)
    weight = random_weight(130, torch.float32, vocab_size).requires_grad_()
    upstream = torch.randn(8, 20, 130, generator=torch.Generator().manual_seed(4))
    before = torch.get_num_threads()
    grads = []
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            grads.append(torch.autograd.grad(embed(weight, segments), weight, upstream)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*grads)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_history_step_equals_reference(dtype):
    generator = torch.Generator().manual_seed(5)
    acc_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    acc = torch.randn(3, 5, 70, generator=generator).to(acc_dtype)
    newest = torch.randn(3, 5, 70, generator=generator).to(dtype)
    out = kernels.history_step(acc, newest, decay=0.7)
    turn = reference.turn(70, 0.7, True, False, acc_dtype, acc.device)
    torch.testing.assert_close(
        out, reference.history_step(acc, newest.to(acc_dtype), turn), **TOLERANCE[dtype]
    )


def test_float64_embeddings_join_a_float32_history():
    acc, newest = torch.randn(2, 200, 5, 8).unbind(0)
    out = kernels.history_step(acc, newest.double(), decay=0.7)
    assert out.dtype == torch.float32
    assert torch.equal(out, kernels.history_step(acc, newest, decay=0.7))


def test_history_step_repeated_equals_history_embed():
    weight = random_weight(16, torch.float32)
    tokens, ends, _ = draw_segments(1, 8, VOCAB, HORIZON)
    segments = tokens, ends, torch.tensor([HORIZON - 1])
    acc = torch.zeros(1, 8, 16)
    for k in range(HORIZON):
        state = kernels.state_at(tokens, ends, k)
        acc = kernels.history_step(acc, weight[state], decay=0.8)
    torch.testing.assert_close(acc, embed(weight, segments), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ids_dtype", [torch.uint8, torch.uint16, torch.int32])
def test_narrow_ids_and_strided_inputs_give_the_same(ids_dtype):
    segments = draw_segments(4, 6, VOCAB, HORIZON)
    weight = random_weight(32, torch.float32)
    narrow = [x.to(ids_dtype) for x in segments]
    strided = [x.mT.contiguous().mT if x.dim() == 3 else x for x in narrow]
    wide = torch.randn(VOCAB, 64)
    wide[:, ::2] = weight
    assert torch.equal(embed(wide[:, ::2], strided), embed(weight, segments))


def test_strided_history_step_gives_the_same():
    acc, newest = torch.randn(2, 5, 4, 8).unbind(0)
    moved = kernels.history_step(acc.transpose(0, 1), newest.transpose(0, 1), decay=0.9)
    assert torch.equal(moved, kernels.history_step(acc, newest, decay=0.9).transpose(0, 1))


def test_gradcheck_in_float64():
    segments = draw_segments(2, 3, 5, 4)
    weight = random_weight(6, torch.float64, vocab_size=5).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: embed(w, segments, horizon=4), weight)
    assert torch.autograd.gradgradcheck(lambda w: embed(w, segments, horizon=4), weight)
    acc, newest = torch.randn(2, 2, 6, dtype=torch.float64).requires_grad_().unbind(0)
    assert torch.autograd.gradcheck(
        lambda a, e: kernels.history_step(a, e, decay=0.6), (acc, newest)
    )


def test_operators_pass_opcheck():
    segments = [x.int() for x in draw_segments(2, 5, VOCAB, HORIZON)]
    settings = (HORIZON, 0.8, True, None)
    weight = random_weight(8, torch.float32).requires_grad_()
    torch.library.opcheck(torch.ops.remask.history_embed, (weight, *segments, *settings))
    torch.library.opcheck(
        torch.ops.remask.history_embed_backward,
        (torch.randn(2, 5, 8), *segments, *settings, VOCAB, False),
    )
    acc, newest = (torch.randn(2, 5, 8, requires_grad=True) for _ in range(2))
    torch.library.opcheck(torch.ops.remask.history_step, (acc, newest, 0.8, True, False))


def test_operators_compile_without_a_graph_break():
    segments = draw_segments(2, 5, VOCAB, HORIZON)
    weight = random_weight(8, torch.float32).requires_grad_()

    def loss(weight):
        acc = embed(weight, segments)
        return kernels.history_step(acc, weight[segments[0][-1]], decay=0.5).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(loss(weight), weight)
    (grad,) = torch.autograd.grad(compiled(weight), weight)
    torch.testing.assert_close(grad, expected)


def test_table_made_in_inference_mode_serves_training():
    segments = draw_segments(2, 5, VOCAB, HORIZON)
    weight = random_weight(22, torch.float32).requires_grad_()
    with torch.inference_mode():
        embed(weight, segments, decay=0.123)
    embed(weight, segments, decay=0.123).sum().backward()
    assert weight.grad is not None


def test_empty_batch_gives_an_empty_result():
    segments = [torch.zeros(*shape, dtype=torch.long) for shape in ((3, 0, 5), (2, 0, 5), (0,))]
    weight = random_weight(8, torch.float32).requires_grad_()
    out = embed(weight, segments)
    assert out.shape == (0, 5, 8)
    out.sum().backward()
    assert torch.equal(weight.grad, torch.zeros_like(weight))
    assert kernels.history_step(torch.zeros(0, 5, 8), torch.zeros(0, 5, 8), decay=1).shape[0] == 0


def altered(**changes):
    """Good segments with some values replaced at row 1, position 2 (or row 1 for step).

    A change of tokens or ends gives the segment, then the value.
    """
    segments = {
        "tokens": torch.tensor([4, 0, 3])[:, None, None].repeat(1, 2, 4),
        "ends": torch.tensor([1, 2])[:, None, None].repeat(1, 2, 4),
        "step": torch.tensor([1, 1]),
    }
    for name, change in changes.items():
        if name == "step":
            segments["step"][1] = change
        else:
            segment, value = change
            segments[name][segment, 1, 2] = value
    return list(segments.values())


BAD_SEGMENTS = [
    ({"tokens": (2, VOCAB)}, r"tokens must be ids in 0 .. 10, got 11 at \[2, 1, 2\]"),
    ({"tokens": (0, -1)}, r"tokens must be ids in 0 .. 10, got -1 at \[0, 1, 2\]"),
    ({"ends": (0, -1)}, r"ends must lie in 0 .. horizon 6, got -1 at \[0, 1, 2\]"),
    ({"ends": (1, 7)}, r"ends must lie in 0 .. horizon 6, got 7 at \[1, 1, 2\]"),
    ({"ends": (1, 0)}, r"ends must not decrease .* got 0 at \[1, 1, 2\]"),
    ({"step": 7}, r"step must lie in 0 .. horizon 6, got 7 at \[1\]"),
    ({"step": -1}, r"step must lie in 0 .. horizon 6, got -1 at \[1\]"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_SEGMENTS)
@pytest.mark.parametrize("path", ["compiled", "reference"])
def test_impossible_segments_raise_the_same_error_on_both_paths(
    changes, message, path, monkeypatch
):
    if path == "reference":
        monkeypatch.setattr(ops, "_library_for", lambda *_: None)
    with pytest.raises(ValueError, match=message):
        embed(random_weight(8, torch.float32), altered(**changes))


def test_bad_shapes_types_and_settings_are_refused():
    weight, (tokens, ends, step) = random_weight(8, torch.float32), altered()
    segments = tokens, ends, step
    with pytest.raises(ValueError, match=r"decay must lie in \(0, 1\], got 0"):
        embed(weight, segments, decay=0)
    with pytest.raises(ValueError, match=r"decay must lie in \(0, 1\], got 1.5"):
        embed(weight, segments, decay=1.5)
    with pytest.raises(ValueError, match="horizon must be at least 1, got 0"):
        embed(weight, segments, horizon=0)
    with pytest.raises(ValueError, match="window must be 0 or more past states, got -1"):
        embed(weight, segments, window=-1)
    with pytest.raises(ValueError, match="width D must be even"):
        embed(weight[:, :7], segments)
    with pytest.raises(ValueError, match=r"weight must be a floating \[V, D\], got torch.int64"):
        embed(weight.long(), segments)
    with pytest.raises(ValueError, match=r"tokens must be \[S, B, N\] with S >= 1, got \[2, 4\]"):
        embed(weight, (tokens[0], ends, step))
    with pytest.raises(ValueError, match=r"S >= 1, got \[0, 2, 4\]"):
        embed(weight, (tokens[:0], ends[:0], step))
    with pytest.raises(ValueError, match=r"\[S-1, B, N\] = \[2, 2, 4\], got \[2, 2, 3\]"):
        embed(weight, (tokens, ends[..., :3], step))
    with pytest.raises(ValueError, match=r"step must be \[B\] = \[2\], got \[3\]"):
        embed(weight, (tokens, ends, torch.zeros(3, dtype=torch.long)))
    with pytest.raises(ValueError, match="tokens must hold integers, got torch.float32"):
        embed(weight, (tokens.float(), ends, step))
    with pytest.raises(ValueError, match="one device, got weight on meta, tokens on cpu"):
        embed(weight.to("meta"), segments)


def test_bad_history_steps_are_refused():
    acc = torch.zeros(2, 4)
    with pytest.raises(ValueError, match=r"share one shape .* got \[2, 4\] and \[2, 6\]"):
        kernels.history_step(acc, torch.zeros(2, 6), decay=0.5)
    with pytest.raises(ValueError, match="acc must be float32 .* got torch.bfloat16"):
        kernels.history_step(acc.bfloat16(), acc, decay=0.5)
    with pytest.raises(ValueError, match="width D must be even"):
        kernels.history_step(acc[:, :3], acc[:, :3], decay=0.5)
    with pytest.raises(ValueError, match="decay must lie"):
        kernels.history_step(acc, acc, decay=-0.1)
    with pytest.raises(ValueError, match="one device"):
        kernels.history_step(acc, acc.to("meta"), decay=0.5)


def test_import_compiles_nothing():
    script = (
        "import subprocess; subprocess.run = lambda *a, **k: (_ for _ in ()).throw(SystemExit(3));"
        "import kernels; print(kernels.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
