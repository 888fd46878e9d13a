"""What suites over text share: questions read from data, made into prompts, known by their hash.

The prompt is some worked examples, then the question, either as a conversation by the tokenizer's
chat template or as one text. Wordings are ours, those of training rows where a benchmark is trained
on (`pipeline/benchmarks/`); a recipe may give another `template`.
"""

import dataclasses
import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from remask.evaluation.decoder import Decoder
from remask.models import Backbone
from remask.models.text.prompts import Message, TextTokenizer, load_tokenizer
from remask.pipeline.benchmarks.task import QUESTION
from remask.pipeline.runtime.storage import absolute_if_here


@dataclass(frozen=True, kw_only=True)
class Question:
    """A sample of a benchmark."""

    sample_id: str
    text: str
    """What is asked."""
    worked: str
    """Its solution, as a worked example shows it."""
    record: Any
    """The row it comes from: a frozen dataclass of `pipeline/benchmarks/`."""
    subject: str | None = None
    level: int | None = None


@dataclass(frozen=True, kw_only=True)
class TextSuite(ABC):
    """Questions from a file or the hub, and the prompts that ask them."""

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    plain_template: ClassVar[str]
    """The prompt of a question without a chat; a worked example follows after a blank."""
    chat_template: ClassVar[str]
    """What the user says in a chat."""

    data: str
    """A .jsonl file, or the name of a data set on the hub."""
    tokenizer: str
    """Folder of the models' tokenizer, or its hub name."""
    preset: str | None = None
    """Settings by name, from `evaluation/suites/presets.py`; what is given beside it goes first."""
    split: str = "test"
    """Of a data set on the hub."""
    limit: int | None = None
    """Only so many questions, the first ones."""
    shots: int = 0
    """Worked examples before the question."""
    examples: str | None = None
    """Where they come from: data as above, whose first rows are taken; our own few when none."""
    chat: bool = True
    """By the tokenizer's chat template, for models that were tuned to it."""
    bos: bool = True
    """Begin with the tokenizer's BOS, where it has one."""
    template: str | None = None
    """What the user says, or the prompt without a chat; `{question}` is what is asked."""
    mask_token: str | None = None
    """Where the tokenizer does not say which of its tokens is MASK."""

    def __post_init__(self) -> None:
        if self.shots < 0:
            raise ValueError(f"shots must be 0 or more, got {self.shots}")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, got {self.limit}")
        if self.template is not None and QUESTION not in self.template:
            raise ValueError(f"template must hold {QUESTION}, got {self.template!r}")

    @abstractmethod
    def read(self, data: str, *, is_example: bool) -> Sequence[Question]:
        """All questions of the data; ValueError names a row that is wrong."""

    def own_examples(self) -> Sequence[Question]:
        """Worked examples of ours."""
        return ()

    @property
    def num_samples(self) -> int:
        return len(self.questions)

    @property
    def questions(self) -> tuple[Question, ...]:
        return _questions(self)

    @property
    def codec(self) -> TextTokenizer:
        return load_tokenizer(self.tokenizer, self.mask_token)

    def identity(self) -> dict[str, Any]:
        return dict(_identity(self))

    def with_absolute_paths(self) -> Any:
        paths = {name: getattr(self, name) for name in ("data", "tokenizer", "examples")}
        return dataclasses.replace(
            self, **{name: absolute_if_here(x) for name, x in paths.items() if x}
        )

    def adapt(self, decoder: Decoder) -> Decoder:
        if decoder.start != "given":
            raise ValueError(f"{self.kind} starts from MASKs alone: start must be given")
        return decoder

    def check(self, backbone: Backbone) -> None:
        self.codec.check_model(backbone.mask_id, backbone.vocab_size)

    def default_template(self) -> str:
        return self.chat_template if self.chat else self.plain_template

    def rounds(self, question: Question) -> list[Message]:
        """The conversation that asks a question; joined, it is the prompt without a chat."""
        template, found = self.template or self.default_template(), list[Message]()
        for shot in self._shots_for(question):
            said = shot.worked if self.chat else f" {shot.worked}\n\n"
            found.append({"role": "user", "content": template.replace(QUESTION, shot.text)})
            found.append({"role": "assistant", "content": said})
        return [*found, {"role": "user", "content": template.replace(QUESTION, question.text)}]

    def prompt(self, question: Question) -> list[int]:
        """What the model is to continue."""
        return self.codec.encode_prompt(self.rounds(question), chat=self.chat, bos=self.bos)

    def _shots_for(self, question: Question) -> list[Question]:
        """The first worked examples, but never the question itself."""
        others = [shot for shot in _examples(self) if shot.text != question.text]
        if len(others) < self.shots:
            where = self.examples or "our own (name a file with more as `examples`)"
            raise ValueError(
                f"{self.kind}: {self.shots} shots are asked for, and {len(others)} worked examples "
                f"are there: {where}"
            )
        return others[: self.shots]


@functools.lru_cache(maxsize=8)
def _questions(suite: TextSuite) -> tuple[Question, ...]:
    found = suite.read(suite.data, is_example=False)
    if suite.limit is not None and suite.limit > len(found):
        raise ValueError(f"{suite.data} holds {len(found)} questions, limit is {suite.limit}")
    return tuple(found[: suite.limit])


@functools.lru_cache(maxsize=8)
def _examples(suite: TextSuite) -> tuple[Question, ...]:
    if suite.shots == 0:
        return ()
    if suite.examples is None:
        return tuple(suite.own_examples())
    return tuple(suite.read(suite.examples, is_example=True))


@functools.lru_cache(maxsize=8)
def _identity(suite: TextSuite) -> tuple[tuple[str, Any], ...]:
    """Settings, and of files what they come to: questions with their answers, prompts, tokens."""
    settings = dataclasses.asdict(suite)
    for name in ("data", "examples", "tokenizer", "preset"):
        del settings[name]
    rounds = [suite.rounds(question) for question in suite.questions]
    hashes = {
        "questions": _hash(suite.questions),
        "prompts": _hash(rounds),
        "tokenizer": suite.codec.hash,
    }
    return tuple((settings | hashes).items())


def _hash(values: Any) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]
