"""How a benchmark is asked and answered, in training and in evaluation.

The suites of `evaluation/suites` build their prompts from the same tasks: without worked examples,
a suite's prompt equals a training row's token by token, with a chat template and without one.
There are two exceptions. Presets with shots put worked examples before the question, which no
training row has. ARC is trained as its `paper` preset asks it, with the choices listed and a letter
as the answer, and not as `scored: texts` or `arc_generation` ask it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Fields = dict[str, Any]

QUESTION = "{question}"
"""Placeholder of the question in a template."""


@dataclass(frozen=True)
class Task:
    """Prompt and answer format of a benchmark."""

    chat_template: str
    """The user's message in a chat; `{question}` is the placeholder of the question."""
    plain_template: str
    """The prompt without a chat; the answer follows it after a space."""
    question: str
    """Template of the question over a record's fields."""
    answer: str
    """Template of a worked solution over a record's fields."""
    fields: Callable[[Any], Fields]
    """Maps a record to its fields."""

    def ask(self, record: Any) -> str:
        """The question that a record poses."""
        return self.question.format(**self.fields(record))

    def solve(self, record: Any) -> str:
        """A record's worked solution."""
        return self.answer.format(**self.fields(record))

    def training_fields(self, record: Any, *, chat: bool) -> Fields:
        """A record's fields, with the `prompt` and `response` that a model is trained on."""
        template = self.chat_template if chat else self.plain_template
        answer = self.solve(record)
        return self.fields(record) | {
            "prompt": template.replace(QUESTION, self.ask(record)),
            "response": answer if chat else f" {answer}",
        }
