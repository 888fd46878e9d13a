"""ARC-Challenge without decoding: the choice with the highest likelihood counts."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from remask.evaluation.decode.likelihood import Likelihood, log_likelihood
from remask.evaluation.decoder import Decoder
from remask.evaluation.stats.scores import FORWARD_PASSES, mean, share
from remask.evaluation.suite import Outcome, Score
from remask.evaluation.suites.arc_generation import WORKED, listed
from remask.evaluation.suites.text_suite import Question, TextSuite
from remask.models import Backbone
from remask.models.text.prompts import check_room
from remask.pipeline.benchmarks.arc import ARC, read_arc
from remask.pipeline.benchmarks.task import QUESTION

SHOWN = 8
"""Number of questions in the showcase."""
SCHEMA = pa.schema(
    {
        "sample_id": pa.string(),
        "prompt_sha256": pa.string(),
        "labels": pa.list_(pa.string()),
        "log_likelihoods": pa.list_(pa.float64()),
        "characters": pa.list_(pa.int32()),
        "gold": pa.string(),
        "forward_passes": pa.int32(),
    }
)


@dataclass(frozen=True, kw_only=True)
class ArcSuite(TextSuite):
    """Questions of ARC, scored by likelihood. Nothing is decoded, so decoders do not matter.

    The paper's preset lists the choices and scores their letters, which is our guess: the paper's
    score of its base model is far above what LLaDA's likelihood of the choices' texts gives.
    """

    kind: ClassVar[str] = "arc"
    glossary: ClassVar[Mapping[str, str]] = {
        "accuracy": "questions whose likeliest choice is right",
        "accuracy_by_length": "accuracy with likelihoods divided by the choices' characters",
        **FORWARD_PASSES,
    }
    outcome: ClassVar[Outcome] = Outcome(
        metric="accuracy", samples="questions", success="are answered right"
    )
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"chat": True, "shots": 0, "scored": "letters"},
        "llada_base": {"chat": False, "bos": False, "scored": "texts", "mc_num": 128, "cfg": 0.5},
    }
    plain_template: ClassVar[str] = ARC.plain_template
    chat_template: ClassVar[str] = ARC.chat_template

    data: str = "allenai/ai2_arc"
    scored: Literal["texts", "letters"] = "texts"
    """What is scored after the question: the text of each choice, or its letter, with the choices
    listed in the question."""
    mc_num: int = 128
    """Number of mask draws for a choice of several tokens."""
    cfg: float = 0.0
    """Classifier-free guidance: the weight against logits without the question."""
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._likelihood  # checks itself

    def read(self, data: str, *, is_example: bool) -> Sequence[Question]:
        questions = read_arc(data, "train" if is_example else self.split)
        return [self._asked(listed(question)) for question in questions]

    def own_examples(self) -> Sequence[Question]:
        return [self._asked(listed(question)) for question in WORKED]

    def default_template(self) -> str:
        is_bare = self.chat and self.scored == "texts"  # no letters to ask for
        return QUESTION if is_bare else super().default_template()

    def adapt(self, decoder: Decoder) -> Decoder:
        super().adapt(decoder)
        return Decoder(max_steps=1, batch_size=decoder.batch_size)  # the same for all decoders

    def check(self, backbone: Backbone) -> None:
        super().check(backbone)
        _, prefix, target, sample_id = _longest(self)
        check_room(prefix, target, backbone.max_length, sample_id)

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        rows = []
        for question in self.questions[samples.start : samples.stop]:
            pairs = self.pairs(question)
            rows.append(
                {
                    "sample_id": question.sample_id,
                    "prompt_sha256": hashlib.sha256(repr(pairs[0][0]).encode()).hexdigest(),
                    "labels": list(question.record.labels),
                    "log_likelihoods": [
                        log_likelihood(
                            backbone, *pair, self._likelihood, batch_size=decoder.batch_size
                        )
                        for pair in pairs
                    ],
                    "characters": [len(text) for text in self._answers(question)],
                    "gold": question.record.answer,
                    "forward_passes": sum(
                        self._likelihood.forward_passes(len(target)) for _, target in pairs
                    ),
                }
            )
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def score(self, predictions: pa.Table) -> list[Score]:
        rows = predictions.to_pylist()
        hits = {"accuracy": [], "accuracy_by_length": []}
        for row in rows:
            gold = row["labels"].index(row["gold"])
            log_likelihoods = np.array(row["log_likelihoods"])
            by_length = log_likelihoods / row["characters"]
            hits["accuracy"].append(log_likelihoods.argmax() == gold)
            hits["accuracy_by_length"].append(by_length.argmax() == gold)
        passes = predictions["forward_passes"].to_numpy()
        return [
            *(share(name, np.array(is_right, dtype=bool)) for name, is_right in hits.items()),
            mean("forward_passes", passes, better="lower"),
        ]

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """The first questions, with the likelihood of each choice."""
        questions = {question.sample_id: question for question in self.questions}
        return [
            self._shown(questions[row["sample_id"]], row)
            for row in predictions.slice(0, SHOWN).to_pylist()
        ]

    def _shown(self, question: Question, row: dict[str, Any]) -> dict[str, Any]:
        likelihoods, answers = row["log_likelihoods"], self._answers(question)
        chosen = row["labels"][int(np.argmax(likelihoods))]
        choices = zip(row["labels"], answers, likelihoods, strict=True)
        return {
            "sample_id": question.sample_id,
            "prompt": self.messages(question)[-1]["content"],
            "response": "\n".join(f"{label}: {x}  (log p {p:.2f})" for label, x, p in choices),
            "answer": chosen,
            "expected": row["gold"],
            "is_right": chosen == row["gold"],
        }

    @property
    def _likelihood(self) -> Likelihood:
        return Likelihood(mc_num=self.mc_num, cfg=self.cfg, seed=self.seed)

    def _asked(self, question: Question) -> Question:
        """A listed question as this suite asks it."""
        if self.scored == "letters":
            return replace(question, worked=ARC.solve(question.record))
        record = question.record
        right = record.texts[record.labels.index(record.answer)]
        return replace(question, text=record.question, worked=right)

    def _answers(self, question: Question) -> Sequence[str]:
        record = question.record
        return record.labels if self.scored == "letters" else record.texts

    def pairs(self, question: Question) -> list[tuple[list[int], list[int]]]:
        """The prompt and each choice, as token ids."""
        answers, codec = self._answers(question), self.codec
        if self.chat:
            prompt = self.prompt_ids(question)
            return [(prompt, codec.encode(text)) for text in answers]
        text = "".join(r["content"] for r in self.messages(question))
        return [codec.encode_pair(text, f" {answer}", bos=self.bos) for answer in answers]


@functools.lru_cache(maxsize=8)
def _longest(suite: ArcSuite) -> tuple[int, int, int, str]:
    """The longest row: its tokens, those of the prompt and of the choice, and the sample's id."""
    return max(
        (len(prefix) + len(target), len(prefix), len(target), question.sample_id)
        for question in suite.questions
        for prefix, target in suite.pairs(question)
    )
