"""Generation suites whose answers are programs, run against tests in the sandbox."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar

from remask.evaluation.suite import Outcome
from remask.evaluation.suites.generation_scores import GLOSSARY
from remask.evaluation.suites.generation_suite import GenerationSuite, Judge, Verdict
from remask.evaluation.suites.text_suite import Question
from remask.models import Backbone
from remask.pipeline.sandbox.run import Limits, ProgramOutcome, is_available


@dataclass(frozen=True, kw_only=True)
class ProgramSuite(GenerationSuite):
    """pass@1: the share of tasks whose one program passes all its tests."""

    glossary: ClassVar[Mapping[str, str]] = GLOSSARY | {
        "pass_at_1": "tasks whose one program passes all its tests"
    }
    metric: ClassVar[str] = "pass_at_1"
    outcome: ClassVar[Outcome] = replace(
        GenerationSuite.outcome, metric="pass_at_1", samples="tasks", success="are solved"
    )
    is_judged_along: ClassVar[bool] = False

    limits: Limits = field(default_factory=Limits)
    """Resource limits of a program."""
    unsafe: bool = False
    """Run programs without a sandbox if none is available; only on a disposable machine."""

    @abstractmethod
    def program(self, question: Question, response: str) -> str:
        """The program in a response; empty if there is none."""

    @abstractmethod
    def run(self, question: Question, response: str) -> ProgramOutcome:
        """Run the program in a response against the task's tests."""

    def check(self, backbone: Backbone) -> None:
        reason = is_available()
        if reason is not None and not self.unsafe:
            raise ValueError(
                f"{self.kind} runs generated code, and there is no sandbox: {reason} (in a recipe, "
                "unsafe: true in the suite)"
            )
        super().check(backbone)

    @contextmanager
    def judging(self) -> Iterator[Judge]:
        def judge(question: Question, response: str) -> Verdict:
            outcome = self.run(question, response)
            program = self.program(question, response)
            return Verdict(program or None, outcome.status == "passed", outcome.status)

        yield judge
