"""Generation suites whose answers are programs, run against tests in the sandbox."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from remask.evaluation.sandbox.run import Limits, Outcome, is_available
from remask.evaluation.suites.generation_suite import GenerationSuite, Judge, Verdict
from remask.evaluation.suites.text_suite import Question
from remask.models import Backbone


@dataclass(frozen=True, kw_only=True)
class ProgramSuite(GenerationSuite):
    """pass@1: of one program for each task, the share that passes all its tests."""

    metric: ClassVar[str] = "pass_at_1"
    is_judged_along: ClassVar[bool] = False

    limits: Limits = field(default_factory=Limits)
    """What a program may use."""
    unsafe: bool = False
    """Run programs without a sandbox where there is none: on a machine that may be lost."""

    @abstractmethod
    def program(self, question: Question, response: str) -> str:
        """The program in a response; empty if there is none."""

    @abstractmethod
    def run(self, question: Question, response: str) -> Outcome:
        """Run the program in a response."""

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
