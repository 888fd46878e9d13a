"""Generation suites whose questions have one final answer, compared as mathematics."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar

from remask.evaluation.suites.generation_suite import GenerationSuite, Judge, Verdict
from remask.evaluation.suites.text_suite import Question
from remask.models import Backbone
from remask.models.ranges import Range
from remask.pipeline.judges.answers import AnswerFormat, extract_answer, same_answer
from remask.pipeline.judges.equivalence import AnswerChecker


@dataclass(frozen=True, kw_only=True)
class AnswerSuite(GenerationSuite):
    """Responses whose final answer is compared with the right one by math-verify."""

    answer_format: ClassVar[AnswerFormat]
    """How a response marks its answer."""

    timeout_s: Annotated[float, Range("(0, inf)")] = 5.0
    """Limit on the CPU time of comparing two answers; a comparison that takes longer counts as
    wrong."""

    def check(self, backbone: Backbone) -> None:
        try:
            AnswerChecker(timeout_s=self.timeout_s)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        super().check(backbone)

    @contextmanager
    def judging(self) -> Iterator[Judge]:
        with AnswerChecker(timeout_s=self.timeout_s) as checker:

            def judge(question: Question, response: str) -> Verdict:
                answer = extract_answer(response, self.answer_format)
                is_right = answer is not None and same_answer(
                    question.record.answer, answer, checker
                )
                return Verdict(answer, is_right)

            yield judge
