"""The benchmarks that may be trained on, as fields for the templates of a text source."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from remask.pipeline.benchmarks.arc import ARC, read_arc
from remask.pipeline.benchmarks.gsm8k import GSM8K, read_gsm8k
from remask.pipeline.benchmarks.math import MATH, read_subjects
from remask.pipeline.benchmarks.mbpp import MBPP, read_mbpp
from remask.pipeline.benchmarks.task import Fields, Task

Benchmark = Literal["math", "gsm8k", "mbpp", "arc"]


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """Which records of a benchmark to train on."""

    data: str
    """A .jsonl file, or the name of a data set on the hub."""
    split: str
    """Split of the data set on the hub. MBPP ignores it and takes the paper's training part."""
    subjects: tuple[str, ...] = ()
    """Subjects of MATH; defaults to all."""
    split_seed: int = 0
    """Seed of MBPP's division into parts; must equal the seed of its suite."""


BENCHMARKS: dict[Benchmark, tuple[Task, Callable[[TrainingSet], list[Any]]]] = {
    "math": (MATH, lambda chosen: read_subjects(chosen.data, chosen.split, chosen.subjects)),
    "gsm8k": (GSM8K, lambda chosen: read_gsm8k(chosen.data, chosen.split)),
    "mbpp": (MBPP, lambda chosen: read_mbpp(chosen.data, "train", seed=chosen.split_seed)),
    "arc": (ARC, lambda chosen: read_arc(chosen.data, chosen.split)),
}
"""Task and reader of each benchmark."""


@functools.lru_cache(maxsize=2)
def read_fields(benchmark: Benchmark, chosen: TrainingSet, *, chat: bool) -> list[Fields]:
    """The fields of all chosen records, with the benchmark's `prompt` and `response` among them.

    Args:
        benchmark: Name of the benchmark.
        chosen: The records to read.
        chat: Ask as in a chat; otherwise the prompt is a text to continue.
    """
    task, _ = BENCHMARKS[benchmark]
    return [task.training_fields(record, chat=chat) for record in read_chosen(benchmark, chosen)]


@functools.lru_cache(maxsize=2)
def read_chosen(benchmark: Benchmark, chosen: TrainingSet) -> list[Any]:
    """The chosen records of a benchmark, in the order of `read_fields`."""
    _, read = BENCHMARKS[benchmark]
    return read(chosen)
