"""ARC-Challenge by generation: the model writes a text, and the choice it settles on counts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from remask.evaluation.judges.choices import parse_choice
from remask.evaluation.suites.generation_suite import GenerationSuite, Judge, Verdict
from remask.evaluation.suites.presets import PAPER, decode_settings
from remask.evaluation.suites.text_suite import Question
from remask.pipeline.benchmarks.arc import ARC, ChoiceQuestion, read_arc


@dataclass(frozen=True, kw_only=True)
class ArcGenerationSuite(GenerationSuite):
    """Questions of ARC with their choices listed."""

    kind: ClassVar[str] = "arc_generation"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": PAPER,
        "llada_instruct": decode_settings(512, chat=True, shots=0),
    }
    plain_template: ClassVar[str] = ARC.plain_template
    plain_stops: ClassVar[tuple[str, ...]] = ("Question:",)
    chat_template: ClassVar[str] = (
        "{question}\n\nWhich choice is right? End with: The answer is, and its letter."
    )

    data: str = "allenai/ai2_arc"

    def read(self, data: str, *, is_example: bool) -> Sequence[Question]:
        return [listed(q) for q in read_arc(data, "train" if is_example else self.split)]

    def own_examples(self) -> Sequence[Question]:
        return [listed(question) for question in WORKED]

    @contextmanager
    def judging(self) -> Iterator[Judge]:
        yield _judge


def listed(question: ChoiceQuestion) -> Question:
    """A question with its choices listed below it, each after its letter."""
    return Question(
        sample_id=question.question_id,
        text=ARC.ask(question),
        worked=f"The answer is {question.answer}.",
        record=question,
    )


def _judge(question: Question, response: str) -> Verdict:
    record = question.record
    choice = parse_choice(response, record.labels, record.texts)
    return Verdict(choice, choice == record.answer)


def _worked(question: str, texts: tuple[str, ...], answer: str) -> ChoiceQuestion:
    return ChoiceQuestion(
        question_id="", question=question, labels=tuple("ABCD"), texts=texts, answer=answer
    )


WORKED = (
    _worked(
        "A glass of ice water stands on a warm table, and drops form on its outside. Where do they "
        "come from?",
        ("water vapour in the air", "cracks in the glass", "the melting ice", "the table"),
        "A",
    ),
    _worked(
        "Which of these lets a plant make its own food?",
        ("its roots alone", "stones in the soil", "light on its leaves", "insects nearby"),
        "C",
    ),
    _worked(
        "A cart on a level floor is pushed twice as hard as before. What becomes of its "
        "acceleration, if friction is negligible?",
        ("It halves.", "It doubles.", "It stays the same.", "It becomes zero."),
        "B",
    ),
)
