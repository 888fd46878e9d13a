"""Countdown decoded from MASKs alone: is it solved, are its steps true, what did revision do?

The task itself, also in the form of running sums, is `pipeline/sources/countdown.py`.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch

from remask.evaluation.decode.generation import fit_to_masks
from remask.evaluation.decode.paths import Paths, path_columns
from remask.evaluation.decoder import MAX_STEPS, Decoder
from remask.evaluation.player import PlayerSample, TextAnswer
from remask.evaluation.stats.scores import (
    AS_FIRST_WRITTEN,
    FORWARD_PASSES,
    REVISION_GLOSSARY,
    mean,
    ratio,
    share,
)
from remask.evaluation.suite import Outcome, Score
from remask.evaluation.suites.text_showcase import MASK as SHOWN_MASK
from remask.evaluation.suites.text_showcase import choose, is_repaired, note
from remask.models import Backbone
from remask.models.ranges import Range, check_fields
from remask.pipeline.sources.countdown import (
    ALPHABET,
    END,
    MASK,
    CountdownSource,
    decode,
    encode,
    is_solution,
    work_out,
)

STEP = re.compile(r"(\d)([+-])(\d)=(\d)")


@dataclass(frozen=True, kw_only=True)
class CountdownSuite:
    """Prompts of the split `test`, whose responses start fully masked. Neither training nor
    `remask tune` sees that split."""

    kind: ClassVar[str] = "countdown"
    version: ClassVar[int] = 2
    glossary: ClassVar[Mapping[str, str]] = {
        "solved": "responses whose steps are all true and reach the target",
        "true_steps": "share of the written steps that are true on their own",
        "returned": "share of the re-masked positions that end as the token they first showed",
        **{name: REVISION_GLOSSARY[name] for name in ("remasked", "revealed", "oscillating")},
        AS_FIRST_WRITTEN: "responses that would solve it had every position kept its first token",
        **FORWARD_PASSES,
    }
    outcome: ClassVar[Outcome] = Outcome(
        metric="solved",
        samples="prompts",
        success="are solved",
        before=AS_FIRST_WRITTEN,
        before_label="as first written",
    )

    prompts: Annotated[int, Range("[1, inf)")] = 1000
    """Number of prompts."""
    numbers: tuple[int, int] = (5, 5)
    """Least and greatest number of digits in a prompt."""
    largest: int = 4
    """Largest digit after the first one."""
    signs: Literal["free", "given"] = "free"
    """`free` gives the number to reach and asks for the signs; `given` gives the signs."""
    held_out_share: float = 0.1
    """The share in the recipe that built the training data, so that no prompt is in both."""
    seed: Annotated[int, Range("[0, inf)")] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        self._source()  # checks the other fields

    @property
    def num_samples(self) -> int:
        return self.prompts

    def identity(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def with_absolute_paths(self) -> "CountdownSuite":
        return self

    def check(self, backbone: Backbone) -> None:
        length = self._source().length
        if backbone.vocab_size != len(ALPHABET) or backbone.mask_id != ALPHABET.index(MASK):
            raise ValueError(
                f"countdown is written in {len(ALPHABET)} characters with MASK first, the model "
                f"has {backbone.vocab_size} tokens and MASK {backbone.mask_id}"
            )
        if backbone.max_length is not None and length > backbone.max_length:
            raise ValueError(f"these rows take {length} tokens, the model {backbone.max_length}")

    def sample(self, index: int) -> tuple[str, str]:
        """A test prompt and one response to it, as a function of the settings and the index."""
        return self._source().draw("test", np.random.default_rng([self.seed, index]))

    def adapt(self, decoder: Decoder) -> Decoder:
        if decoder.start == "oracle":
            raise ValueError("decoder start oracle is for samples that begin with wrong tokens")
        return fit_to_masks(decoder, MAX_STEPS)

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        drawn = [self.sample(i) for i in samples]
        length = self._source().length
        rows = [encode(prompt + response, length) for prompt, response in drawn]
        solution = torch.from_numpy(np.stack(rows)).long()
        lengths = torch.tensor([len(prompt) for prompt, _ in drawn])
        editable = torch.arange(length) >= lengths[:, None]
        start = solution.masked_fill(editable, backbone.mask_id)
        revision = decoder.revise(backbone, start, editable, row_ids=torch.tensor(list(samples)))
        names = [f"countdown-{self.seed}-{i:06d}" for i in samples]
        return pa.table({"sample_id": names, **path_columns(solution, start, revision)})

    def score(self, predictions: pa.Table) -> list[Score]:
        paths = Paths.read(predictions)
        remasks, reveals = paths.remasks(), paths.reveals()  # [K, B, N]
        was_remasked = remasks.any(0)
        first = paths.first_written()
        returned = was_remasked & (paths.final == first)
        solved = self._solved(paths.final)
        num_true, num_steps = _count_steps(paths.final)
        return [
            share("solved", solved),
            share(AS_FIRST_WRITTEN, self._solved(first), better="neither"),
            ratio("true_steps", num_true, num_steps),
            mean("forward_passes", paths.forward_passes, better="lower"),
            mean("remasked", remasks.sum((0, 2)), better="neither"),
            mean("revealed", reveals.sum((0, 2)), better="neither"),
            ratio("returned", returned.sum(-1), was_remasked.sum(-1), better="lower"),
            mean("oscillating", (remasks.sum(0) > 1).sum(-1), better="lower"),
        ]

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """The first samples, those that revision put right, and others with many re-masks."""
        paths = Paths.read(predictions)
        facts = zip(
            paths.remasks().sum((0, 2)).tolist(),
            self._solved(paths.final).tolist(),
            self._solved(paths.first_written()).tolist(),
            strict=True,
        )
        rows = [
            {"row": i, "remasked": count, "is_right": is_right, "right_as_written": as_written}
            for i, (count, is_right, as_written) in enumerate(facts)
        ]
        return [_shown(paths, x["row"], x["is_right"], is_repaired(x)) for x in choose(rows)]

    @classmethod
    def player_sample(cls, sample: dict[str, Any]) -> PlayerSample:
        if not isinstance(sample["symbols"], str):
            raise ValueError(f"a text needs symbols, got {sample['symbols']!r}")
        answer = None
        if "prompt" in sample:
            answer = TextAnswer(
                prompt=sample["prompt"],
                response=sample["response"],
                is_right=sample["is_right"],
            )
        return PlayerSample(
            sample_id=str(sample["sample_id"]),
            note=str(sample.get("note") or ""),
            symbols=sample["symbols"],
            states=sample["states"],
            answer=answer,
        )

    def _solved(self, rows: np.ndarray) -> np.ndarray:
        texts = [decode(row).partition(":") for row in rows]
        return np.array([is_solution(f"{prompt}:", response) for prompt, _, response in texts])

    def _source(self) -> CountdownSource:
        return CountdownSource(
            train=0,
            held_out=1,
            numbers=self.numbers,
            largest=self.largest,
            signs=self.signs,
            held_out_share=self.held_out_share,
        )


def _shown(paths: Paths, row: int, is_right: bool, repaired: bool) -> dict[str, Any]:
    """A sample of the showcase; the cells are those of the response."""
    prompt, colon, response = decode(paths.final[row]).partition(":")
    first = len(prompt + colon)
    return {
        "sample_id": paths.sample_ids[row],
        "symbols": SHOWN_MASK + ALPHABET[1:],
        "prompt": prompt + colon,
        "response": response.rstrip(END),
        "is_right": is_right,
        "note": note(is_right, repaired),
        "states": paths.states[: paths.steps[row] + 1, row, first:].tolist(),
    }


def _count_steps(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of steps that are true on their own, and of all steps, [B] each."""
    written = [decode(row).partition(":")[2].rstrip(END).split(";") for row in rows]
    num_true = [sum(_is_true(step) for step in steps) for steps in written]
    return np.array(num_true), np.array([len(steps) for steps in written])


def _is_true(step: str) -> bool:
    match = STEP.fullmatch(step)
    return match is not None and step == work_out([int(match[1]), int(match[3])], match[2])[0]
