"""MATH-500 and Minerva MATH: worked solutions, judged by their final answer as mathematics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from remask.evaluation.suites.answer_suite import AnswerSuite
from remask.evaluation.suites.presets import LLADA_BASE, PAPER, decode_settings
from remask.evaluation.suites.text_suite import Question
from remask.pipeline.benchmarks.math import MATH, MathProblem, read_math
from remask.pipeline.judges.answers import AnswerFormat


@dataclass(frozen=True, kw_only=True)
class MathSuite(AnswerSuite):
    """Problems of MATH, with scores by subject and level."""

    kind: ClassVar[str] = "math"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": PAPER,
        "llada_base": LLADA_BASE | {"shots": 4},
        "llada_instruct": decode_settings(512, ends="late", chat=True, shots=0),
        "llada_instruct_blocks": decode_settings(512, 64, ends="late", chat=True, shots=0),
    }
    answer_format: ClassVar[AnswerFormat] = "math"
    plain_template: ClassVar[str] = MATH.plain_template
    plain_stops: ClassVar[tuple[str, ...]] = ("Problem:",)
    chat_template: ClassVar[str] = MATH.chat_template

    data: str = "HuggingFaceH4/MATH-500"
    subjects: tuple[str, ...] | None = None
    """Subjects by name, such as Algebra. Defaults to all."""

    def read(self, data: str, *, is_example: bool) -> Sequence[Question]:
        problems = read_math(data, "train" if is_example else self.split)
        if is_example:
            return [_question(p) for p in problems if p.answer]  # MATH has two with an empty box
        known = sorted({p.subject for p in problems})
        unknown = [s for s in self.subjects or () if s not in known]
        if unknown:
            raise ValueError(f"{data} has no subject {unknown[0]!r}; it has {known}")
        for problem in problems:
            if not problem.answer:
                raise ValueError(f"{data}: problem {problem.problem_id} has no answer")
        return [_question(p) for p in problems if p.subject in (self.subjects or known)]

    def own_examples(self) -> Sequence[Question]:
        return [_question(_worked(*example)) for example in WORKED]


def _question(problem: MathProblem) -> Question:
    return Question(
        sample_id=problem.problem_id,
        text=MATH.ask(problem),
        worked=MATH.solve(problem),
        record=problem,
        subject=problem.subject,
        level=problem.level,
    )


def _worked(problem: str, solution: str, answer: str) -> MathProblem:
    return MathProblem(
        problem_id="", problem=problem, solution=solution, answer=answer, subject="", level=None
    )


WORKED = (
    (
        "What is the sum of all $x$ with $x^2 - 7x + 10 = 0$?",
        "We factor: $x^2 - 7x + 10 = (x - 2)(x - 5)$. So $x = 2$ or $x = 5$, and their sum is "
        "$2 + 5 = \\boxed{7}$.",
        "7",
    ),
    (
        "A fair coin is thrown three times. What is the probability of exactly two heads?",
        "There are $2^3 = 8$ outcomes, all equally likely. The one tail can be any of the three "
        "throws, so 3 outcomes have two heads. The probability is $\\boxed{\\frac{3}{8}}$.",
        "3/8",
    ),
    (
        "A right triangle has legs of length 6 and 8. How far is its right angle from its "
        "hypotenuse?",
        "The hypotenuse is $\\sqrt{6^2 + 8^2} = 10$. The area is $\\frac{1}{2} \\cdot 6 \\cdot 8 = "
        "24$, and also $\\frac{1}{2} \\cdot 10 \\cdot h$. So $h = \\boxed{\\frac{24}{5}}$.",
        "4.8",
    ),
    (
        "What is the remainder of $3^{20}$ when it is divided by 7?",
        "The powers of 3 leave the remainders $3, 2, 6, 4, 5, 1$, and then the same again, for "
        "$3^6$ leaves 1. As $20 = 3 \\cdot 6 + 2$, the remainder is that of $3^2$: $\\boxed{2}$.",
        "2",
    ),
)
