"""Suites whose models write an answer, which is decoded and then judged."""

import dataclasses
import functools
import hashlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa

from remask.evaluation.decode.generation import Answer, fit_to_masks, generate, milestones
from remask.evaluation.decoder import Decoder
from remask.evaluation.stats.scores import AS_FIRST_WRITTEN
from remask.evaluation.suite import Outcome, Score
from remask.evaluation.suites.generation_scores import COUNTS, GLOSSARY, SCHEMA, generation_scores
from remask.evaluation.suites.text_showcase import choose, show_answer
from remask.evaluation.suites.text_suite import Question, TextSuite
from remask.models import Backbone
from remask.models.ranges import Range
from remask.models.text.prompts import check_room


@dataclass(frozen=True)
class Verdict:
    """The answer of a response, and whether it is right."""

    answer: str | None
    """The answer as it stands in the response; None if the response gives none."""
    is_right: bool
    detail: str = ""


Judge = Callable[[Question, str], Verdict]


@dataclass(frozen=True, kw_only=True)
class GenerationSuite(TextSuite):
    """Questions answered by a text of at most `gen_length` tokens, decoded from MASKs."""

    version: ClassVar[int] = 2
    glossary: ClassVar[Mapping[str, str]] = GLOSSARY | {
        "accuracy": "questions whose answer is right"
    }
    metric: ClassVar[str] = "accuracy"
    """Name of the share of right answers."""
    outcome: ClassVar[Outcome] = Outcome(
        metric="accuracy",
        samples="questions",
        success="are answered right",
        before=AS_FIRST_WRITTEN,
        before_label="as first written",
    )
    is_judged_along: ClassVar[bool] = True
    """Whether to judge the answer after some of the forward passes too."""
    plain_stops: ClassVar[tuple[str, ...]] = ()
    """Texts that end an answer if the prompt has no chat template."""
    chat_stops: ClassVar[tuple[str, ...]] = ()

    gen_length: Annotated[int, Range("[1, inf)")] = 256
    """Tokens of an answer."""
    steps: Annotated[int | None, Range("[1, inf)")] = None
    """Limit on the forward passes of every decoder without a max_steps of its own. Defaults to one
    per token. Revision gets one step less, for its closing pass."""
    block_length: Annotated[int | None, Range("[1, inf)")] = None
    """Tokens of a block, for decoders that take blocks and set no block length. Blocks are decoded
    from left to right. Defaults to one block."""
    ends: Literal["free", "late", "never"] = "free"
    """When the tokens that end an answer are revealed: `free`, like any other; `late`, after all
    others of their block (LLaDA's confidence_eos_eot_inf); `never` (logits_eos_inf)."""
    stops: tuple[str, ...] | None = None
    """Texts that end an answer. Defaults to the suite's own."""

    @abstractmethod
    def judging(self) -> AbstractContextManager[Judge]:
        """A function that tells right responses from wrong ones, within the context it needs."""

    def adapt(self, decoder: Decoder) -> Decoder:
        decoder = fit_to_masks(super().adapt(decoder), self.steps or self.gen_length)
        settings = dict(decoder.settings)
        takes_blocks = hasattr(decoder.make_policy(), "block_length")
        if takes_blocks and self.block_length is not None:
            settings.setdefault("block_length", self.block_length)
        if self.ends != "free":
            sampling = dataclasses.asdict(decoder.make_policy().sampling)
            settings["sampling"] = sampling | {f"{self.ends}_ids": list(self.codec.end_ids)}
        adapted = dataclasses.replace(decoder, settings=settings)
        self._check_blocks(adapted)
        return adapted

    def check(self, backbone: Backbone) -> None:
        super().check(backbone)
        length, sample_id = _longest_prompt(self)
        check_room(length, self.gen_length, backbone.max_length, sample_id)

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        questions = self.questions[samples.start : samples.stop]
        prompts = [self.prompt_ids(question) for question in questions]
        passes = milestones(decoder.steps) if self.is_judged_along else []
        answers = generate(
            backbone, prompts, self.gen_length, decoder, row_ids=samples, passes=passes
        )
        with self.judging() as judge:
            rows = [
                self._row(judge, question, prompt, answer, passes)
                for question, prompt, answer in zip(questions, prompts, answers, strict=True)
            ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def score(self, predictions: pa.Table) -> list[Score]:
        return generation_scores(self.metric, predictions)

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """The first answers, those that revision put right, and others with many re-masks."""
        questions = {question.sample_id: question for question in self.questions}
        return [
            show_answer(row, self.codec, self.messages(questions[row["sample_id"]])[-1]["content"])
            for row in choose(predictions.to_pylist())
        ]

    def _check_blocks(self, decoder: Decoder) -> None:
        length = decoder.settings.get("block_length")
        blocks = -(-self.gen_length // length) if length else 1
        if blocks > decoder.steps:
            raise ValueError(
                f"{self.gen_length} tokens in blocks of {length} need at least {blocks} steps, got "
                f"{decoder.steps}; set more steps or a larger block_length"
            )

    def _response(self, ids: list[int]) -> str:
        stops = self.chat_stops if self.chat else self.plain_stops
        return self.codec.decode_answer(ids, stops if self.stops is None else self.stops)

    def _row(
        self,
        judge: Judge,
        question: Question,
        prompt: list[int],
        answer: Answer,
        passes: list[int],
    ) -> dict[str, Any]:
        verdicts: dict[str, Verdict] = {}  # states on the way often have the same response

        def judged(ids: list[int]) -> tuple[str, Verdict]:
            response = self._response(ids)
            if response not in verdicts:
                verdicts[response] = judge(question, response)
            return response, verdicts[response]

        response, verdict = judged(answer.ids)
        length = self._length(answer.ids)
        return {name: getattr(answer, name) for name in COUNTS} | {
            "sample_id": question.sample_id,
            "subject": question.subject,
            "level": question.level,
            "prompt_sha256": hashlib.sha256(repr(prompt).encode()).hexdigest(),
            "prompt_tokens": len(prompt),
            "response": response,
            "answer": verdict.answer,
            "verdict": verdict.detail,
            "is_right": verdict.is_right,
            "has_ended": length < len(answer.ids),
            "answer_tokens": length,
            "right_as_written": judged(answer.first_written)[1].is_right,
            "path": answer.path.pack(),
            "passes": passes,
            "right_after": [
                self.codec.mask_id not in state[: self._length(state)] and judged(state)[1].is_right
                for state in answer.states
            ],
        }

    def _length(self, ids: list[int]) -> int:
        """Number of tokens before the first end token."""
        ends = {*self.codec.end_ids}
        return next((i for i, token in enumerate(ids) if token in ends), len(ids))


@functools.lru_cache(maxsize=8)
def _longest_prompt(suite: GenerationSuite) -> tuple[int, str]:
    """Number of tokens of the longest prompt, and the id of its sample."""
    return max(
        (len(suite.prompt_ids(question)), question.sample_id) for question in suite.questions
    )
