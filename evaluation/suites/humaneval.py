"""HumanEval: functions completed from their signature and docstring, pass@1 in the sandbox."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from remask.evaluation.suites.presets import LLADA_BASE, PAPER, decode_settings
from remask.evaluation.suites.program_suite import ProgramSuite
from remask.evaluation.suites.text_suite import Question
from remask.pipeline.benchmarks.humaneval import HUMANEVAL, CompletionTask, read_humaneval
from remask.pipeline.judges.programs import complete_program, score_completion
from remask.pipeline.sandbox.run import ProgramOutcome


@dataclass(frozen=True, kw_only=True)
class HumanEvalSuite(ProgramSuite):
    """Tasks of HumanEval. Without a chat template, the model continues the prompt's function."""

    kind: ClassVar[str] = "humaneval"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": PAPER,  # not in the paper; set like its other benchmarks
        "llada_base": LLADA_BASE | {"shots": 0},
        "llada_instruct": decode_settings(512, ends="late", chat=True, shots=0),  # length assumed
    }
    plain_template: ClassVar[str] = HUMANEVAL.plain_template
    plain_stops: ClassVar[tuple[str, ...]] = ("\nclass ", "\ndef ", "\n#", "\nif __name__", "\n```")
    chat_template: ClassVar[str] = HUMANEVAL.chat_template

    data: str = "openai/openai_humaneval"

    def read(self, data: str, *, is_example: bool) -> Sequence[Question]:
        return [_question(task) for task in read_humaneval(data, self.split)]

    def program(self, question: Question, response: str) -> str:
        return complete_program(question.record, response) if response.strip() else ""

    def run(self, question: Question, response: str) -> ProgramOutcome:
        return score_completion(question.record, response, limits=self.limits, unsafe=self.unsafe)


def _question(task: CompletionTask) -> Question:
    return Question(
        sample_id=task.task_id,
        text=HUMANEVAL.ask(task),
        worked=HUMANEVAL.solve(task),
        record=task,
    )
