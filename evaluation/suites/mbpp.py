"""MBPP: functions written from a description and tests, pass@1 in the sandbox."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from remask.evaluation.suites.presets import LLADA_BASE, PAPER, decode_settings
from remask.evaluation.suites.program_suite import ProgramSuite
from remask.evaluation.suites.text_suite import Question
from remask.pipeline.benchmarks.mbpp import DONE, MBPP, ProgramTask, read_mbpp
from remask.pipeline.judges.programs import extract_program, required_names, score_program
from remask.pipeline.sandbox.run import ProgramOutcome


@dataclass(frozen=True, kw_only=True)
class MbppSuite(ProgramSuite):
    """Tasks of MBPP, by default the 70 % that the paper tests on."""

    kind: ClassVar[str] = "mbpp"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": PAPER,
        "llada_base": LLADA_BASE | {"shots": 3},
        "llada_instruct": decode_settings(256, ends="late", chat=True, shots=3),
    }
    plain_template: ClassVar[str] = MBPP.plain_template
    plain_stops: ClassVar[tuple[str, ...]] = (DONE, "Task:")
    chat_template: ClassVar[str] = MBPP.chat_template
    chat_stops: ClassVar[tuple[str, ...]] = (DONE,)

    data: str = "google-research-datasets/mbpp"
    part: Literal["train", "test", "all"] = "test"
    """Which part of the tasks is used; `train` and `test` are drawn by `seed`."""
    seed: int = 0
    """Seed of the train/test split."""

    def read(self, data: str, *, is_example: bool) -> Sequence[Question]:
        part = "train" if is_example else self.part
        return [_question(task) for task in read_mbpp(data, part, seed=self.seed)]

    def own_examples(self) -> Sequence[Question]:
        return [
            _question(ProgramTask(task_id=0, text=text, reference=code, setup="", tests=(test,)))
            for text, code, test in WORKED
        ]

    def program(self, question: Question, response: str) -> str:
        return extract_program(response, required_names(question.record))

    def run(self, question: Question, response: str) -> ProgramOutcome:
        return score_program(question.record, response, limits=self.limits, unsafe=self.unsafe)


def _question(task: ProgramTask) -> Question:
    return Question(
        sample_id=f"mbpp-{task.task_id}",
        text=MBPP.ask(task),
        worked=MBPP.solve(task),
        record=task,
    )


WORKED = (
    (
        "Write a function to count the words of a text that begin with a given letter.",
        "def count_words(text, letter):\n"
        "    return sum(word.startswith(letter) for word in text.split())",
        "assert count_words('ant bee ape', 'a') == 2",
    ),
    (
        "Write a function to find the largest difference between two neighbours of a list.",
        "def largest_gap(numbers):\n"
        "    return max(abs(a - b) for a, b in zip(numbers, numbers[1:]))",
        "assert largest_gap([3, 7, 2]) == 5",
    ),
    (
        "Write a function to turn a list of pairs into a dictionary of lists.",
        "def group_pairs(pairs):\n"
        "    groups = {}\n"
        "    for key, value in pairs:\n"
        "        groups.setdefault(key, []).append(value)\n"
        "    return groups",
        "assert group_pairs([(1, 2), (1, 3)]) == {1: [2, 3]}",
    ),
)
