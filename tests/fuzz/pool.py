"""Runs inputs on several workers, outlives those that hang or die, and sums up the verdicts."""

import contextlib
import hashlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.verdict import ROOT
from tests.fuzz.worker import place_in_trace

TARGETS = "tests.fuzz.targets"
CPU_SECONDS = 20.0
"""Of computing for one input: beyond, it hangs. A busy machine makes no difference."""
WALL_FACTOR = 15
"""Time on the clock for each of them, for inputs that wait without computing."""
CHUNK = 100
"""Inputs given to a worker at once."""
MAX_DEATHS = 20
"""Of one target's inputs: after as many that hang or end the process, the rest is not run."""
ENVIRONMENT = {
    "COLUMNS": "200",
    "CUDA_VISIBLE_DEVICES": "",
    "DS_ACCELERATOR": "cpu",
    "HF_DATASETS_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass
class Bucket:
    """Failures of one kind in one place."""

    count: int = 0
    index: int = 0
    """Of the input that is easiest to understand."""
    size: float = float("inf")
    detail: str = ""
    saved: Path | None = None


@dataclass
class Tally:
    """What came of one target's inputs."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    skipped: int = 0
    """Not run, for too many before them ended the process."""
    deaths: int = 0
    seconds: float = 0.0
    """Of computing, in all."""
    slowest: float = 0.0
    slowest_index: int = 0
    buckets: dict[str, Bucket] = field(default_factory=dict)

    def add(self, answer: Mapping[str, Any]) -> None:
        self.inputs += 1
        self.seconds += answer["seconds"]
        if answer["seconds"] >= self.slowest:
            self.slowest, self.slowest_index = answer["seconds"], answer["index"]
        if answer["status"] != "failed":
            setattr(self, answer["status"], getattr(self, answer["status"]) + 1)
            return
        bucket = self.buckets.setdefault(answer["bucket"], Bucket())
        bucket.count += 1
        if answer["size"] < bucket.size:
            bucket.index, bucket.size = answer["index"], answer["size"]
            bucket.detail = answer["detail"]

    @property
    def failures(self) -> int:
        return sum(x.count for x in self.buckets.values())


@dataclass(frozen=True)
class Pool:
    """How inputs are run."""

    jobs: int = 2
    seed: int = 0
    cpu_seconds: float = CPU_SECONDS
    module: str = TARGETS
    """That has TARGETS."""

    def targets(self) -> dict[str, float]:
        """Names, and the share of the inputs that each takes."""
        with self._workers(1) as (worker,):
            return worker.next_answer()["targets"]

    def run(
        self,
        counts: Mapping[str, int],
        failures: Path,
        on_input: Callable[[str, bool], object] = lambda target, failed: None,
    ) -> dict[str, Tally]:
        """Run so many inputs of each target; save one of each bucket into a folder."""
        tallies = {name: Tally() for name in counts}
        chunks = deque(
            (name, first, min(first + CHUNK, count))
            for name, count in counts.items()
            for first in range(0, count, CHUNK)
        )
        # On Ctrl-C, what is known until then is told.
        with self._workers(self.jobs) as workers, contextlib.suppress(KeyboardInterrupt):
            self._drive(workers, chunks, tallies, on_input)
        with self._workers(1) as (worker,):
            for name, tally in tallies.items():
                for words, bucket in tally.buckets.items():
                    key = hashlib.sha256(words.encode()).hexdigest()[:8]
                    bucket.saved = failures / f"{name}-{key}.json"
                    worker.save(name, self.seed, words, bucket)
        return tallies

    def replay(self, path: Path) -> dict[str, Any]:
        """Run a saved input once more: status, bucket and detail."""
        with self._workers(1) as (worker,):
            worker.order({"replay": str(path)})
            while True:
                answer = worker.next_answer(self.cpu_seconds * WALL_FACTOR)
                if "status" in answer:
                    return answer

    def _drive(
        self,
        workers: "list[_Worker]",
        chunks: deque[tuple[str, int, int]],
        tallies: dict[str, Tally],
        on_input: Callable[[str, bool], object],
    ) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                selector.register(worker.output, selectors.EVENT_READ, worker)
                _give(worker, chunks, tallies, self.seed)
            while any(worker.chunk for worker in workers):
                for key, _ in selector.select(timeout=1.0):
                    worker: _Worker = key.data
                    for answer in worker.answers():
                        if "status" not in answer or worker.chunk is None:
                            continue
                        name, first, stop = worker.chunk
                        answer.setdefault("index", first)
                        tallies[name].add(answer)
                        on_input(name, answer["status"] == "failed")
                        worker.chunk = (name, answer["index"] + 1, stop)
                        if "died" in answer:
                            tallies[name].deaths += 1
                            chunks.appendleft(worker.chunk)
                        if "died" in answer or worker.chunk[1] >= stop:
                            _give(worker, chunks, tallies, self.seed)
                for worker in workers:
                    worker.end_if_late(self.cpu_seconds * WALL_FACTOR)

    @contextlib.contextmanager
    def _workers(self, count: int) -> "Iterator[list[_Worker]]":
        memory = Path("/dev/shm")
        where = memory if os.access(memory, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=where) as folder:
            workers = [_Worker(self, Path(folder) / str(i)) for i in range(count)]
            try:
                yield workers
            finally:
                for worker in workers:
                    worker.close()


class _Worker:
    """A process that runs inputs, from the outside."""

    def __init__(self, pool: Pool, folder: Path) -> None:
        folder.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", pool.module, folder, str(pool.cpu_seconds)],
            cwd=ROOT,
            env=os.environ | ENVIRONMENT | {"HF_HOME": str(folder / "hf")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.output = self._process.stdout
        self.chunk: tuple[str, int, int] | None = None
        """Target, next input and end of what it is at."""
        self._rest, self._child, self._late = b"", 0, False
        self._last = time.monotonic()

    def order(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        self._last = time.monotonic()

    def save(self, target: str, seed: int, bucket: str, facts: Bucket) -> None:
        """Have an input made again and written to `facts.saved`."""
        values = {"bucket": bucket, "detail": facts.detail, "seed": seed, "index": facts.index}
        order = {"save": str(facts.saved), "target": target, "seed": seed, "index": facts.index}
        self.order(order | {"facts": values})
        while "saved" not in (answer := self.next_answer()):
            if "died" in answer:  # the target itself is broken, and cannot make this input
                facts.saved = None
                return

    def next_answer(self, wall_seconds: float | None = None) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if selector.select(timeout=1.0):
                    self._fill()
                elif wall_seconds is not None:
                    self.end_if_late(wall_seconds)
        line, _, self._rest = self._rest.partition(b"\n")
        return self._understood(json.loads(line))

    def answers(self) -> Iterator[dict[str, Any]]:
        """Those that have come in."""
        self._fill()
        while b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            yield self._understood(json.loads(line))

    def end_if_late(self, wall_seconds: float) -> None:
        """End a child that waits without computing, so that it says where."""
        if self._child and not self._late and time.monotonic() - self._last > wall_seconds:
            self._late = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGPROF)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            if self._child and self._process.poll() is None:
                os.kill(self._child, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self.output.close()

    def _fill(self) -> None:
        data = os.read(self.output.fileno(), 1 << 16)
        if not data:
            raise RuntimeError(
                "a worker of the fuzz suite ended; run `python -m tests.fuzz.worker`"
            )
        self._rest += data
        self._last = time.monotonic()

    def _understood(self, answer: dict[str, Any]) -> dict[str, Any]:
        """A child's death is the verdict on the input it was at."""
        if "pid" in answer:
            self._child = answer["pid"]
        if "died" in answer:
            hang = f"signal {int(signal.SIGPROF)}"
            what = f"process ended by {answer['died']}"
            if answer["died"] == hang:
                what = "waits endlessly" if self._late else "hangs"
            self._late = False
            trace = answer["trace"]
            verdict = {"status": "failed", "bucket": what + place_in_trace(trace), "detail": trace}
            answer |= verdict | {"seconds": 0.0, "size": 0}
        return answer


def _give(
    worker: _Worker, chunks: deque[tuple[str, int, int]], tallies: dict[str, Tally], seed: int
) -> None:
    """The next inputs for a worker that has none."""
    worker.chunk = None
    while chunks and worker.chunk is None:
        name, first, stop = chunks.popleft()
        if tallies[name].deaths >= MAX_DEATHS:
            tallies[name].skipped += stop - first
        elif first < stop:
            worker.chunk = (name, first, stop)
            worker.order({"target": name, "seed": seed, "range": [first, stop]})
