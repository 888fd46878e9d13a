"""Compiled history operators against eager PyTorch: time, memory and share of the bandwidth.

Both sides run in turns in one process, so a noisy machine slows both. "eager" accumulates state
after state, as the method is written; "segments" is the segment form in plain PyTorch.

    python -m remask.infra.benches.kernels                # all sizes, about two minutes
    python -m remask.infra.benches.kernels --only 64,81,128
    python -m remask.infra.benches.kernels --against main # beside another git revision
"""

import argparse
import ctypes
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import torch
from torch import Tensor

from remask import kernels
from remask.infra.benches.revision import embed_call, load_revision
from remask.kernels import reference
from remask.kernels.build import native
from remask.kernels.native import Tensors
from remask.kernels.segments import Segments

# B, N, D and a vocabulary to match: Sudoku's, then text of growing length and width.
SIZES = [
    (64, 81, 128, 10),
    (8, 256, 512, 8192),
    (4, 512, 2048, 8192),
    (2, 1024, 4096, 8192),
    (2, 2048, 4096, 8192),
]
HORIZONS = (6, 64, 512)
DECAY = 0.9
NOISY = 0.4
"""Share of positions that do not simply keep their target."""

# Freed memory stays with the process, as in a training run: faulting fresh pages in costs more than
# the operators do, and would hide them. This applies to all sides.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


def main() -> None:
    if not KEEP_MEMORY.keys() <= os.environ.keys():  # malloc reads them when a process starts
        os.execve(
            sys.executable,
            [sys.executable, "-m", "remask.infra.benches.kernels", *sys.argv[1:]],
            os.environ | KEEP_MEMORY,
        )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", metavar="B,N,D", help="one of the sizes")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--against", metavar="REVISION", help="compare with that revision instead")
    arguments = parser.parse_args()
    sizes = [s for s in SIZES if arguments.only in (None, ",".join(map(str, s[:3])))]
    if not sizes:
        parser.error(f"--only takes one of {[','.join(map(str, s[:3])) for s in SIZES]}")

    built = native("cpu")
    if built.library is None:
        parser.exit(1, f"nothing to compare: {built.detail}\n")
    if arguments.against is not None:
        print(f"history_embed, T = 6, {torch.get_num_threads()} threads, float32, S = 3")
        with TemporaryDirectory() as folder:
            try:
                other = load_revision(arguments.against, Path(folder))
            except ValueError as error:
                parser.error(str(error))
            except RuntimeError as error:
                parser.exit(1, f"{error}\n")
            bench_against(other, arguments.against, sizes, arguments.repeats)
        return
    bandwidth = memory_bandwidth()
    print(
        f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch "
        f"{torch.__version__}, float32; memory bandwidth {bandwidth / 1e9:.1f} GB/s (torch add)"
    )
    print("\nhistory_step: embed + γ R acc")
    print(f"{'B, N, D':>16} {'eager ms':>10} {'compiled ms':>12} {'ratio':>7} {'bandwidth':>10}")
    for size in sizes:
        bench_step(size, arguments.repeats, bandwidth)
    for backward in (False, True):
        print(f"\nhistory_embed, T = 6, {'forward + backward' if backward else 'forward'}")
        print(
            f"{'B, N, D':>16} {'V':>6} {'eager ms':>10} {'segments':>10} {'compiled':>10}"
            f" {'ratio':>7} {'vs segm.':>9} {'bandwidth':>10} {'peak MB eager':>14} {'compiled':>9}"
        )
        for size in sizes:
            bench_embed(size, backward, arguments.repeats, bandwidth)
    print("\nhistory_embed, forward + backward, cost by horizon (compiled, ms; relative to T = 6)")
    print(f"{'B, N, D':>16} " + " ".join(f"{f'T = {t}':>16}" for t in HORIZONS))
    for size in sizes:
        bench_horizon(size, arguments.repeats)
    for backward in (False, True):
        print(
            f"\nhistory_embed, T = 6, {'forward + backward' if backward else 'forward'}, cost by "
            "segments (compiled, ms; relative to S = 3)"
        )
        print(f"{'B, N, D':>16} {'S = 3':>16} {'S = 8, 3 used':>16} {'S = 8, all used':>16}")
        for size in sizes:
            bench_segments(size, backward, arguments.repeats)


def bench_step(size: tuple[int, int, int, int], repeats: int, bandwidth: float) -> None:
    *shape, _ = size
    acc, embed = torch.randn(shape), torch.randn(shape)
    turn = reference.turn(shape[-1], DECAY, True, False, torch.float32, acc.device)
    eager, compiled = alternate(
        [
            lambda: reference.history_step(acc, embed, turn),
            lambda: kernels.history_step(acc, embed, decay=DECAY),
        ],
        repeats,
    )
    share = 3 * acc.nbytes / compiled / bandwidth
    print(
        f"{_name(size):>16} {eager * 1e3:10.3f} {compiled * 1e3:12.3f} {eager / compiled:6.1f}x"
        f" {share:9.0%}"
    )


def bench_embed(
    size: tuple[int, int, int, int], backward: bool, repeats: int, bandwidth: float
) -> None:
    batch, positions, width, vocab_size = size
    weight = torch.randn(vocab_size, width, requires_grad=backward)
    segments = draw_segments(batch, positions, vocab_size, 6)
    grad = torch.randn(batch, positions, width)

    def run(forward: Callable[[], Tensor]) -> Callable[[], object]:
        return with_backward(forward, weight, grad) if backward else forward

    table = reference.coefficient_table(width, 6, DECAY, True, None, torch.float32, weight.device)
    sides = [
        run(lambda: reference.accumulate(weight, *segments, decay=DECAY)),
        run(lambda: reference.history_embed(weight, *segments, table)),
        run(lambda: kernels.history_embed(weight, *segments, horizon=6, decay=DECAY)),
    ]
    eager, plain, compiled = alternate(sides, repeats)
    peaks = [peak_bytes(side) for side in (sides[0], sides[2])]
    share = bytes_moved(segments, width, vocab_size, backward) / compiled / bandwidth
    print(
        f"{_name(size):>16} {vocab_size:6} {eager * 1e3:10.2f} {plain * 1e3:10.2f}"
        f" {compiled * 1e3:10.2f} {eager / compiled:6.1f}x {plain / compiled:8.1f}x"
        f" {share:9.0%} {peaks[0] / 1e6:14.0f} {peaks[1] / 1e6:9.0f}"
    )


def bench_horizon(size: tuple[int, int, int, int], repeats: int) -> None:
    batch, positions, width, vocab_size = size
    weight = torch.randn(vocab_size, width, requires_grad=True)
    grad = torch.randn(batch, positions, width)

    def run(horizon: int) -> Callable[[], object]:
        segments = draw_segments(batch, positions, vocab_size, horizon)
        forward = embed_call(kernels, weight, segments, horizon=horizon, decay=DECAY)
        return with_backward(forward, weight, grad)

    times = turns([run(horizon) for horizon in HORIZONS], 3 * repeats)
    print(f"{_name(size):>16} {_relative(times)}")


def bench_segments(size: tuple[int, int, int, int], backward: bool, repeats: int) -> None:
    batch, positions, width, vocab_size = size
    weight = torch.randn(vocab_size, width, requires_grad=backward)
    grad = torch.randn(batch, positions, width)
    three = draw_segments(batch, positions, vocab_size, 6)
    wide = Segments(*three).widen(8)
    full = draw_full_segments(batch, positions, vocab_size, 8)

    def run(segments: Tensors, horizon: int) -> Callable[[], object]:
        forward = embed_call(kernels, weight, segments, horizon=horizon, decay=DECAY)
        return with_backward(forward, weight, grad) if backward else forward

    sides = [run(three, 6), run((wide.tokens, wide.ends, wide.step), 6), run(full, 8)]
    print(f"{_name(size):>16} {_relative(turns(sides, 3 * repeats))}")


def bench_against(
    other: ModuleType, revision: str, sizes: list[tuple[int, int, int, int]], repeats: int
) -> None:
    print(
        f"{'B, N, D':>16} {'':>20} {f'{revision[:12]} ms':>16} {'this ms':>10} {'this / that':>12}"
    )
    for size in sizes:
        batch, positions, width, vocab_size = size
        weight = torch.randn(vocab_size, width, requires_grad=True)
        grad = torch.randn(batch, positions, width)
        segments = draw_segments(batch, positions, vocab_size, 6)
        forward: list[Callable[[], Tensor]] = [
            embed_call(package, weight, segments, horizon=6, decay=DECAY)
            for package in (other, kernels)
        ]
        both = [with_backward(call, weight, grad) for call in forward]
        for name, sides in (("forward", forward), ("forward + backward", both)):
            theirs, ours = turns(sides, 6 * repeats)
            print(
                f"{_name(size):>16} {name:>20} {statistics.median(theirs) * 1e3:16.3f}"
                f" {statistics.median(ours) * 1e3:10.3f} {_ratio(ours, theirs):12.3f}"
            )


def draw_segments(batch: int, positions: int, vocab_size: int, horizon: int) -> Tensors:
    """Trajectories as the pipeline draws them: SPEC §3's law at `NOISY` of the positions, S = 3."""
    generator = torch.Generator().manual_seed(0)

    def uniform(low: Tensor | int, high: Tensor | int) -> Tensor:  # inclusive
        u = torch.rand(batch, positions, generator=generator)
        return (low + u * (high - low + 1)).long()

    target, wrong = uniform(1, vocab_size - 1), uniform(1, vocab_size - 1)
    noisy, masked = uniform(0, 999) < 1000 * NOISY, uniform(0, 9) < 3
    masked_at = torch.where(noisy & ~masked, uniform(1, horizon - 1), 0)
    revealed_at = torch.where(noisy, uniform(masked_at + 1, horizon), 0)
    # A third, a half and the whole of the way: the same share of each piece whatever the horizon.
    step = torch.tensor([horizon // 3, horizon // 2, horizon - 1])[torch.arange(batch) % 3]
    tokens = torch.stack((wrong, torch.zeros_like(target), target))
    return tokens.int(), torch.stack((masked_at, revealed_at)).int(), step.int()


def draw_full_segments(batch: int, positions: int, vocab_size: int, num_segments: int) -> Tensors:
    """Trajectories that show another token at each of `num_segments` steps, all of them seen."""
    generator = torch.Generator().manual_seed(0)
    shape = num_segments, batch, positions
    tokens = torch.randint(vocab_size, shape, generator=generator)
    ends = torch.arange(1, num_segments)[:, None, None].expand(-1, batch, positions)
    step = torch.full((batch,), num_segments - 1)
    return tokens.int(), ends.int().contiguous(), step.int()


def bytes_moved(segments: Tensors, width: int, vocab_size: int, backward: bool) -> int:
    """What the pieces must read and write at least; the table is assumed cached."""
    pieces = reference.pieces(*segments)
    gathers = sum(int((oldest > newest).sum()) for _, oldest, newest in pieces)
    outputs = segments[0][0].numel()
    row = 4 * width
    forward = (gathers + outputs) * row
    if not backward:
        return forward
    return forward + (outputs + 2 * gathers + vocab_size) * row  # read grad, add, zero


def with_backward(
    forward: Callable[[], Tensor], weight: Tensor, grad: Tensor
) -> Callable[[], object]:
    return lambda: torch.autograd.grad(forward(), weight, grad)


def alternate(sides: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds per call of each side, the sides taking turns."""
    return [statistics.median(times) for times in turns(sides, repeats)]


def turns(sides: Sequence[Callable[[], object]], repeats: int) -> list[list[float]]:
    """Seconds per call of each side in each round, the sides taking turns."""
    counts = [max(1, int(0.02 / max(_seconds(side, 1), 1e-6))) for side in sides]
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(repeats):
        for side, count, taken in zip(sides, counts, times, strict=True):
            taken.append(_seconds(side, count))
    return times


def memory_bandwidth() -> float:
    """Bytes per second of an addition far larger than the caches, best of five."""
    a, b, out = (torch.ones(1 << 25) for _ in range(3))
    return 3 * a.nbytes / min(_seconds(lambda: torch.add(a, b, out=out), 1) for _ in range(5))


def peak_bytes(side: Callable[[], object]) -> int:
    """How far the resident set rises above its start during one call; Linux only."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not clear.exists():
        return 0
    ctypes.CDLL(None).malloc_trim(0)  # give back what earlier calls left
    clear.write_text("5")  # resets the high-water mark

    def read(field: str) -> int:
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

    before = read("VmRSS")
    side()
    return (read("VmHWM") - before) * 1024


def _seconds(side: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        side()
    return (time.perf_counter() - start) / count


def _relative(times: list[list[float]]) -> str:
    """Median ms of each side, with its ratio to the first side."""
    cells = [f"{statistics.median(x) * 1e3:.2f} ({_ratio(x, times[0]):.2f}x)" for x in times]
    return " ".join(f"{cell:>16}" for cell in cells)


def _ratio(times: list[float], others: list[float]) -> float:
    """Median of the ratios within a round, which see the same load on the machine."""
    return statistics.median(a / b for a, b in zip(times, others, strict=True))


def _name(size: tuple[int, int, int, int]) -> str:
    return ", ".join(map(str, size[:3]))


if __name__ == "__main__":
    main()
