"""MBPP: programs from a sentence and their tests."""

from dataclasses import asdict, dataclass
from typing import Literal

from remask.pipeline.benchmarks.reading import JsonRow, read_records, text_field, unix_newlines
from remask.pipeline.benchmarks.task import QUESTION, Fields, Task
from remask.pipeline.format.examples import hash_share

TRAIN_SHARE = 0.3
"""Share of the tasks for training; the paper tests on the other 70 %."""
BEGIN, DONE = "[BEGIN]", "[DONE]"
"""Delimiters of a program."""


@dataclass(frozen=True, kw_only=True)
class ProgramTask:
    """A task of MBPP."""

    task_id: int
    text: str
    reference: str
    """A program that passes the tests."""
    setup: str
    """Statements to run before the tests."""
    tests: tuple[str, ...]


def _fields(task: ProgramTask) -> Fields:
    return {**asdict(task), "tests": "\n".join(task.tests)}


MBPP = Task(
    chat_template=(
        f"Solve this task in Python: {QUESTION}\n\nWrite the program between {BEGIN} and {DONE}."
    ),
    plain_template=f"Task: {QUESTION}\nProgram:\n",
    question="{text}\nIt must pass these tests:\n{tests}",
    answer=f"{BEGIN}\n{{reference}}\n{DONE}",
    fields=_fields,
)


def read_mbpp(
    data: str, part: Literal["train", "test", "all"] = "test", *, seed: int = 0
) -> list[ProgramTask]:
    """MBPP, such as `google-research-datasets/mbpp`, divided as in the paper, 30 % to 70 %.

    A task's part depends only on the seed and the task's number, not on the other tasks or their
    order.
    """
    tasks = read_records(data, "train+test+validation+prompt", _task, config="full")
    chosen = [task for task in tasks if part in ("all", mbpp_part(task.task_id, seed))]
    if not chosen:
        raise ValueError(f"{data}: none of its {len(tasks)} tasks is in part {part!r}")
    return chosen


def mbpp_part(task_id: int, seed: int) -> Literal["train", "test"]:
    """The part that a task belongs to."""
    is_train = hash_share(f"mbpp-{seed}-{task_id}".encode()) < TRAIN_SHARE
    return "train" if is_train else "test"


def _task(row: JsonRow, number: int) -> ProgramTask:
    tests = row["test_list"]
    if not (isinstance(tests, list) and tests and all(isinstance(t, str) for t in tests)):
        raise ValueError("test_list must be a list of at least one test")
    setup = [str(row.get("test_setup_code") or ""), *row.get("test_imports", [])]
    return ProgramTask(
        task_id=int(row["task_id"]),
        text=text_field(row, "text" if "text" in row else "prompt"),  # the sanitized set's name
        reference=unix_newlines(text_field(row, "code")),
        setup=unix_newlines("\n".join(line for line in setup if line)),
        tests=tuple(unix_newlines(t) for t in tests),
    )
