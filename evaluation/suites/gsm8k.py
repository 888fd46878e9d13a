"""GSM8K: word problems with a number as their answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from remask.evaluation.suites.answer_suite import AnswerSuite
from remask.evaluation.suites.presets import LLADA_BASE, PAPER, decode_settings
from remask.evaluation.suites.text_suite import Question
from remask.pipeline.benchmarks.gsm8k import GSM8K, WordProblem, read_gsm8k
from remask.pipeline.judges.answers import AnswerFormat


@dataclass(frozen=True, kw_only=True)
class Gsm8kSuite(AnswerSuite):
    """Problems of GSM8K."""

    kind: ClassVar[str] = "gsm8k"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": PAPER,
        "llada_base": LLADA_BASE | {"shots": 5},  # the harness's default for this task
        "llada_instruct": decode_settings(512, ends="late", chat=True, shots=0),
        "llada_instruct_blocks": decode_settings(256, 8, ends="late", chat=True, shots=0),
    }
    answer_format: ClassVar[AnswerFormat] = "gsm8k"
    plain_template: ClassVar[str] = GSM8K.plain_template
    plain_stops: ClassVar[tuple[str, ...]] = ("Question:",)
    chat_template: ClassVar[str] = GSM8K.chat_template

    data: str = "openai/gsm8k"

    def read(self, data: str, *, is_example: bool) -> Sequence[Question]:
        problems = read_gsm8k(data, "train" if is_example else self.split)
        return [_question(problem) for problem in problems]

    def own_examples(self) -> Sequence[Question]:
        return [
            _question(WordProblem(problem_id="", question=q, solution=solution, answer=answer))
            for q, solution, answer in WORKED
        ]


def _question(problem: WordProblem) -> Question:
    return Question(
        sample_id=f"gsm8k-{problem.problem_id}",
        text=GSM8K.ask(problem),
        worked=GSM8K.solve(problem),
        record=problem,
    )


WORKED = (
    (
        "A baker fills 6 trays with 12 rolls each. By noon 50 rolls are sold. How many are left?",
        "There are 6 * 12 = 72 rolls. 72 - 50 = 22 are left.",
        "22",
    ),
    (
        "Ines reads 15 pages on Monday and twice as many on Tuesday. Her book has 120 pages. How "
        "many pages has she still to read?",
        "On Tuesday she reads 2 * 15 = 30 pages. Together that is 15 + 30 = 45. She has still "
        "120 - 45 = 75 pages to read.",
        "75",
    ),
    (
        "A train ticket costs $14, and children pay half. What do 2 adults and 3 children pay?",
        "A child pays 14 / 2 = $7. The adults pay 2 * 14 = $28, the children 3 * 7 = $21. "
        "Together that is 28 + 21 = $49.",
        "49",
    ),
    (
        "Out of 80 seedlings a quarter dies. Omar plants the others in rows of 5. How many rows "
        "does he get?",
        "80 / 4 = 20 seedlings die, so 80 - 20 = 60 are planted. That makes 60 / 5 = 12 rows.",
        "12",
    ),
    (
        "A tank holds 300 litres. A pump fills in 25 litres a minute while a leak loses 5 litres a "
        "minute. How many minutes does it take to fill the empty tank?",
        "Each minute adds 25 - 5 = 20 litres. 300 / 20 = 15 minutes.",
        "15",
    ),
)
