"""ARC-Challenge: multiple-choice questions."""

from dataclasses import asdict, dataclass

from remask.pipeline.benchmarks.reading import JsonRow, read_records, text_field
from remask.pipeline.benchmarks.task import QUESTION, Fields, Task


@dataclass(frozen=True, kw_only=True)
class ChoiceQuestion:
    """A question of ARC-Challenge."""

    question_id: str
    question: str
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    answer: str
    """The label of the right choice."""


def _fields(question: ChoiceQuestion) -> Fields:
    pairs = zip(question.labels, question.texts, strict=True)
    return {**asdict(question), "choices": "\n".join(f"{label}. {text}" for label, text in pairs)}


ARC = Task(
    chat_template=f"{QUESTION}\n\nAnswer with the letter of the right choice alone.",
    plain_template=f"Question: {QUESTION}\nAnswer:",
    question="{question}\n{choices}",
    answer="{answer}",
    fields=_fields,
)


def read_arc(data: str, split: str = "test") -> list[ChoiceQuestion]:
    """ARC-Challenge, such as `allenai/ai2_arc`."""
    return read_records(data, split, _question, config="ARC-Challenge")


def _question(row: JsonRow, number: int) -> ChoiceQuestion:
    labels, texts = (tuple(map(str, row["choices"][name])) for name in ("label", "text"))
    answer = str(row["answerKey"])
    if len(labels) != len(texts) or len(set(labels)) != len(labels) or not labels:
        raise ValueError(f"choices do not match: labels {labels}, {len(texts)} texts")
    if answer not in labels:
        raise ValueError(f"answerKey {answer!r} is not one of {labels}")
    return ChoiceQuestion(
        question_id=str(row.get("id", number)),
        question=text_field(row, "question"),
        labels=labels,
        texts=texts,
        answer=answer,
    )
