"""Suites that let a model write its answer: decode, judge, count. One file each in `suites/`."""

import dataclasses
import functools
import hashlib
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from remask.evaluation.decode.generation import Answer, fit_to_masks, generate, milestones
from remask.evaluation.decoder import Decoder
from remask.evaluation.stats.scores import mean, share
from remask.evaluation.suite import Score
from remask.evaluation.suites.text_suite import Question, TextSuite
from remask.models import Backbone
from remask.models.text.prompts import check_room

SHOWN = 8
"""Answers for the report."""

FLAGS = ("is_right", "has_ended")
COUNTS = ("forward_passes", "remasked", "revealed", "replaced", "restored", "left_masked")
SCHEMA = pa.schema(
    {
        "sample_id": pa.string(),
        "subject": pa.string(),
        "level": pa.int32(),
        "prompt_sha256": pa.string(),
        "prompt_tokens": pa.int32(),
        "response": pa.string(),
        "answer": pa.string(),
        "verdict": pa.string(),
        "is_right": pa.bool_(),
        "has_ended": pa.bool_(),
        "answer_tokens": pa.int32(),
        "forward_passes": pa.int32(),
        "remasked": pa.int32(),
        "revealed": pa.int32(),
        "replaced": pa.int32(),
        "restored": pa.int32(),
        "left_masked": pa.int32(),
        "passes": pa.list_(pa.int32()),
        "right_after": pa.list_(pa.bool_()),
    }
)
"""Of predictions: a row per question. `right_after` is whether the answer was there, and right,
after each number of `passes`."""


@dataclass(frozen=True)
class Verdict:
    """What is found in a response."""

    answer: str | None
    """Taken from the response; none if there is none."""
    is_right: bool
    detail: str = ""


Judge = Callable[[Question, str], Verdict]


@dataclass(frozen=True, kw_only=True)
class GenerationSuite(TextSuite):
    """Questions answered by a text of at most `gen_length` tokens, decoded from MASKs."""

    metric: ClassVar[str] = "accuracy"
    is_judged_along: ClassVar[bool] = True
    """Judge the answer on the way too, after some of the forward passes."""
    plain_stops: ClassVar[tuple[str, ...]] = ()
    """Where an answer ends that was asked for without a chat."""
    chat_stops: ClassVar[tuple[str, ...]] = ()

    gen_length: int = 256
    """Tokens of an answer."""
    steps: int | None = None
    """Forward passes at most, the same for every decoder that names no max_steps; as many as
    tokens when none. Revision gets one less, for its closing pass."""
    block_length: int | None = None
    """Decode blocks of so many tokens from left to right, where a decoder can and names none."""
    ends: Literal["free", "late", "never"] = "free"
    """Tokens that end an answer: revealed like others; `late`, after all others of their block
    (LLaDA's confidence_eos_eot_inf); or `never` (logits_eos_inf)."""
    stops: tuple[str, ...] | None = None
    """Texts that end an answer; those of the suite when none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("gen_length", "steps", "block_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    @abstractmethod
    def judging(self) -> AbstractContextManager[Judge]:
        """What tells a right response from a wrong one, with all that it needs to run."""

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
        prompts = [self.prompt(question) for question in questions]
        passes = milestones(decoder.steps) if self.is_judged_along else []
        answers = generate(
            backbone, prompts, self.gen_length, decoder, row_ids=samples, passes=passes
        )
        with self.judging() as judge:
            rows = [
                self._row(judge, *one, passes)
                for one in zip(questions, prompts, answers, strict=True)
            ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def score(self, predictions: pa.Table) -> list[Score]:
        table = {name: predictions[name].to_numpy() for name in (*FLAGS, *COUNTS, "answer_tokens")}
        right = table["is_right"].astype(bool)
        answered = np.array([x.is_valid for x in predictions["answer"]])
        scores = [
            share(self.metric, right),
            *_by_subject(self.metric, right, predictions["subject"].to_pylist()),
            share("answered", answered, better="neither"),
            share("ended", table["has_ended"].astype(bool), better="neither"),
            mean("forward_passes", table["forward_passes"], better="lower"),
        ]
        for name in ("answer_tokens", "remasked", "revealed", "replaced", "restored"):
            scores.append(mean(name, table[name], better="neither"))
        scores.append(mean("left_masked", table["left_masked"], better="lower"))
        return [
            *scores,
            *_by_level(self.metric, right, predictions["level"].to_pylist()),
            *_by_passes(self.metric, predictions, int(table["forward_passes"].max())),
        ]

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """Right and wrong answers in turn, those that were revised most first."""
        rows = sorted(predictions.to_pylist(), key=lambda row: -row["remasked"])
        ends = [[row for row in rows if row["is_right"] == end] for end in (True, False)]
        names = ("sample_id", "response", "answer", "is_right", "verdict", "remasked")
        chosen = [*ends[0][: SHOWN // 2], *ends[1][: SHOWN // 2]]
        return [{name: row[name] for name in names} for row in chosen]

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
        known: dict[str, Verdict] = {}

        def look(ids: list[int]) -> tuple[str, Verdict]:
            response = self._response(ids)
            if response not in known:
                known[response] = judge(question, response)
            return response, known[response]

        response, verdict = look(answer.ids)
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
            "passes": passes,
            "right_after": [
                self.codec.mask_id not in state[: self._length(state)] and look(state)[1].is_right
                for state in answer.states
            ],
        }

    def _length(self, ids: list[int]) -> int:
        """Tokens before the first end."""
        ends = {*self.codec.end_ids}
        return next((i for i, token in enumerate(ids) if token in ends), len(ids))


@functools.lru_cache(maxsize=8)
def _longest_prompt(suite: GenerationSuite) -> tuple[int, str]:
    """Its tokens, and whose it is."""
    return max((len(suite.prompt(question)), question.sample_id) for question in suite.questions)


def _by_subject(metric: str, right: np.ndarray, subjects: list[str | None]) -> list[Score]:
    found = sorted({subject for subject in subjects if subject is not None})
    return [
        share(f"{metric}_{slug(name)}", right[[subject == name for subject in subjects]])
        for name in found
    ]


def _by_level(metric: str, right: np.ndarray, levels: list[int | None]) -> list[Score]:
    found = sorted({level for level in levels if level is not None})
    return [
        share(metric, right[[level == one for level in levels]], by="level", at=float(one))
        for one in found
    ]


def _by_passes(metric: str, predictions: pa.Table, most: int) -> list[Score]:
    """Right after so many passes; an answer with a MASK in it is not there yet."""
    passes = predictions["passes"][0].as_py()
    after = np.array(predictions["right_after"].to_pylist(), dtype=bool)  # [B, P]
    return [
        share(metric, after[:, i], by="forward passes", at=float(number))
        for i, number in enumerate(passes)
        if i == 0 or passes[i - 1] < most
    ]


def slug(name: str) -> str:
    """A subject as part of a metric's name: `Counting & Probability` is counting_probability."""
    words = "".join(x if x.isalnum() else " " for x in name.lower()).split()
    return "_".join(words)
