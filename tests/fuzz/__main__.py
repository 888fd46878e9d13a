"""Fuzz every reader of the project: damaged and hostile files, recipes and arguments.

Whatever comes in, it is taken or refused in one clear line; any other exception, a hang, a process
that dies, and a refusal that does not say what it is about, are failures. Input i of a target
depends on (seed, target, i) alone. One input of each kind of failure is saved, to be replayed.

    python -m tests.fuzz
    python -m tests.fuzz --inputs 100000 --jobs 2
    python -m tests.fuzz --targets shard-tables manifest --seed 7
    python -m tests.fuzz --replay fuzz-failures/manifest-1f2e3d4c.json
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.fuzz.pool import CPU_SECONDS, Pool, Tally

INPUTS = 10_000
FAILURES = "fuzz-failures"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--inputs", type=int, default=INPUTS, help=f"in all (default: {INPUTS:,})")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    parser.add_argument("--targets", nargs="+", metavar="NAME", help="(default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument(
        "--cpu-seconds",
        type=float,
        default=CPU_SECONDS,
        help=f"computing after which an input hangs (default: {CPU_SECONDS:g})",
    )
    parser.add_argument(
        "--failures",
        type=Path,
        default=Path(FAILURES),
        help=f"folder for inputs that fail (default: {FAILURES})",
    )
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run a saved input")
    arguments = parser.parse_args(argv)
    pool = Pool(jobs=arguments.jobs, seed=arguments.seed, cpu_seconds=arguments.cpu_seconds)
    if arguments.replay:
        answer = pool.replay(arguments.replay)
        print(answer["status"], answer["bucket"], answer["detail"], sep="\n")
        raise SystemExit(answer["status"] == "failed")
    shares = pool.targets()
    if arguments.list:
        print("\n".join(shares))
        return
    unknown = sorted({*(arguments.targets or ())} - {*shares})
    if unknown or arguments.inputs < 1 or arguments.jobs < 1:
        parser.error(f"no targets {unknown}" if unknown else "--inputs and --jobs are 1 or more")
    chosen = {name: shares[name] for name in arguments.targets or shares}
    raise SystemExit(fuzz(pool, divide(arguments.inputs, chosen), arguments.failures))


def divide(inputs: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Inputs of each target, at least one of each."""
    whole = sum(shares.values())
    return {name: max(1, round(inputs * share / whole)) for name, share in shares.items()}


def fuzz(pool: Pool, counts: Mapping[str, int], failures: Path) -> int:
    """Run, print a table and every bucket; the exit status."""
    start = time.monotonic()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    failed = 0
    with bar:
        task = bar.add_task("", total=sum(counts.values()), failed=0)

        def show(target: str, is_failure: bool) -> None:
            nonlocal failed
            failed += is_failure
            bar.update(task, advance=1, description=target, failed=failed)

        tallies = pool.run(counts, failures, show)
    report(Console(width=140), tallies, time.monotonic() - start, pool.jobs)
    return int(any(tally.failures or tally.skipped for tally in tallies.values()))


def report(console: Console, tallies: Mapping[str, Tally], seconds: float, jobs: int) -> None:
    """A line per target, then each bucket with the command that replays it."""
    table = Table(
        *("target", "inputs", "accepted", "refused", "failed", "buckets", "ms each", "slowest"),
        box=None,
        pad_edge=False,
    )
    for name, tally in tallies.items():
        each = 1000 * tally.seconds / max(1, tally.inputs)
        counts = (tally.inputs, tally.accepted, tally.refused, tally.failures, len(tally.buckets))
        slowest = f"{tally.slowest:.2f} s, input {tally.slowest_index}"
        table.add_row(name, *(f"{x:,}" for x in counts), f"{each:.1f}", slowest)
    console.print(table)
    for name, tally in tallies.items():
        if tally.skipped:
            console.print(
                f"\n[bold]{name}[/]: {tally.skipped:,} inputs were not run, for {tally.deaths} "
                "before them ended the process"
            )
        for words, bucket in sorted(tally.buckets.items(), key=lambda x: -x[1].count):
            console.print(f"\n[bold]{name}[/] × {bucket.count:,}: {escape(words)}", soft_wrap=True)
            last = (bucket.detail.strip().splitlines() or [""])[-1][:300]
            console.print(f"  {escape(ascii(last)[1:-1])}", soft_wrap=True)
            console.print(f"  python -m tests.fuzz --replay {bucket.saved}", soft_wrap=True)
    inputs, failures = (
        sum(getattr(x, y) for x in tallies.values()) for y in ("inputs", "failures")
    )
    buckets, rate = sum(len(x.buckets) for x in tallies.values()), inputs / max(seconds, 1e-9)
    console.print(
        f"\n{inputs:,} inputs in {seconds:.0f} s ({rate:.0f} a second, {jobs} jobs): {failures:,} "
        f"failures in {buckets} buckets"
    )


if __name__ == "__main__":
    main()
