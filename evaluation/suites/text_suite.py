"""What text suites have in common: questions read from data, prompts made from them.

A prompt is some worked examples, then the question, either as a conversation in the tokenizer's
chat template or as one text. The wording is ours, and is that of the training rows if a benchmark
is trained on (`pipeline/benchmarks/`); a recipe may set another `template`.
"""

import dataclasses
import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from remask.evaluation.decoder import Decoder
from remask.evaluation.player import PlayerSample
from remask.evaluation.suites.text_showcase import read_answer
from remask.models import Backbone
from remask.models.ranges import Range, check_fields
from remask.models.text.prompts import Message, TextTokenizer, load_tokenizer
from remask.pipeline.benchmarks.task import QUESTION
from remask.pipeline.runtime.storage import absolute_if_here


@dataclass(frozen=True, kw_only=True)
class Question:
    """A sample of a benchmark."""

    sample_id: str
    text: str
    """The question as the prompt states it."""
    worked: str
    """The solution, as a worked example shows it."""
    record: Any
    """The row of the benchmark: a frozen dataclass of `pipeline/benchmarks/`."""
    subject: str | None = None
    level: int | None = None


@dataclass(frozen=True, kw_only=True)
class TextSuite(ABC):
    """Questions from a file or the hub, and the prompts that ask them."""

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    glossary: ClassVar[Mapping[str, str]]
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings by name: `preset: llada_base` in a recipe (`presets.py`)."""
    plain_template: ClassVar[str]
    """Prompt of a question without a chat template; the answer of a worked example follows it
    after a space."""
    chat_template: ClassVar[str]
    """The user's message in a chat."""

    data: str
    """A .jsonl file, or a data set on the hub: `hf:owner/name@revision`, or a name that `datasets`
    loads."""
    tokenizer: str
    """Folder of the models' tokenizer, or its hub name: `hf:owner/name@revision`."""
    split: str = "test"
    """Split of a data set on the hub."""
    limit: Annotated[int | None, Range("[1, inf)")] = None
    """Number of questions, from the first on. Defaults to all."""
    shots: Annotated[int, Range("[0, inf)")] = 0
    """Number of worked examples before the question."""
    examples: str | None = None
    """Data like `data` whose first rows are the worked examples. Defaults to the suite's own."""
    chat: bool = True
    """Use the tokenizer's chat template, for models that were tuned to it."""
    bos: bool = True
    """Begin with the tokenizer's BOS token, if it has one."""
    template: str | None = None
    """The user's message, or the prompt without a chat template; `{question}` stands for the
    question. Defaults to the suite's own."""
    mask_token: str | None = None
    """The mask token, for tokenizers that do not name theirs."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.template is not None and QUESTION not in self.template:
            raise ValueError(f"template must contain {QUESTION}, got {self.template!r}")

    @abstractmethod
    def read(self, data: str, *, is_example: bool) -> Sequence[Question]:
        """All questions of the data; ValueError names the first row that cannot be read."""

    def own_examples(self) -> Sequence[Question]:
        """Worked examples that come with the suite."""
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
        data = {name: getattr(self, name) for name in ("data", "examples")}
        return dataclasses.replace(
            self,
            tokenizer=absolute_if_here(self.tokenizer),
            **{name: absolute_if_here(x, "dataset") for name, x in data.items() if x},
        )

    def adapt(self, decoder: Decoder) -> Decoder:
        if decoder.start != "given":
            raise ValueError(f"{self.kind} starts from MASKs alone: start must be given")
        return decoder

    @classmethod
    def player_sample(cls, sample: dict[str, Any]) -> PlayerSample | None:
        return read_answer(sample)

    def check(self, backbone: Backbone) -> None:
        self.codec.check_model(backbone.mask_id, backbone.vocab_size)

    def default_template(self) -> str:
        return self.chat_template if self.chat else self.plain_template

    def messages(self, question: Question) -> list[Message]:
        """The conversation that asks a question; joined, it is the prompt without a chat
        template."""
        template, messages = self.template or self.default_template(), list[Message]()
        for shot in self._shots_for(question):
            solution = shot.worked if self.chat else f" {shot.worked}\n\n"
            messages.append({"role": "user", "content": template.replace(QUESTION, shot.text)})
            messages.append({"role": "assistant", "content": solution})
        return [*messages, {"role": "user", "content": template.replace(QUESTION, question.text)}]

    def prompt_ids(self, question: Question) -> list[int]:
        """Token ids of the text that the model continues."""
        return self.codec.encode_prompt(self.messages(question), chat=self.chat, bos=self.bos)

    def _shots_for(self, question: Question) -> list[Question]:
        """The first worked examples, without the question itself."""
        others = [shot for shot in _examples(self) if shot.text != question.text]
        if len(others) < self.shots:
            where = self.examples or "the suite's own; name a file with more as `examples`"
            raise ValueError(
                f"{self.kind}: {self.shots} shots are asked for, but there are {len(others)} "
                f"worked examples ({where})"
            )
        return others[: self.shots]


@functools.lru_cache(maxsize=8)
def _questions(suite: TextSuite) -> tuple[Question, ...]:
    questions = suite.read(suite.data, is_example=False)
    if suite.limit is not None and suite.limit > len(questions):
        raise ValueError(f"{suite.data} holds {len(questions)} questions, limit is {suite.limit}")
    return tuple(questions[: suite.limit])


@functools.lru_cache(maxsize=8)
def _examples(suite: TextSuite) -> tuple[Question, ...]:
    if suite.shots == 0:
        return ()
    if suite.examples is None:
        return tuple(suite.own_examples())
    return tuple(suite.read(suite.examples, is_example=True))


@functools.lru_cache(maxsize=8)
def _identity(suite: TextSuite) -> tuple[tuple[str, Any], ...]:
    """The settings, with files replaced by hashes of their questions, prompts and tokens."""
    settings = dataclasses.asdict(suite)
    for name in ("data", "examples", "tokenizer"):
        del settings[name]
    messages = [suite.messages(question) for question in suite.questions]
    hashes = {
        "questions": _hash(suite.questions),
        "prompts": _hash(messages),
        "tokenizer": suite.codec.hash,
    }
    return tuple((settings | hashes).items())


def _hash(values: Any) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]
