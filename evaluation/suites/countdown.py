"""Countdown from nothing but MASK: is it solved, are the steps true, and what did revision do? The
small text task of `pipeline/sources/countdown.py`."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch

from remask.evaluation.decode.generation import fit_to_masks
from remask.evaluation.decode.paths import Paths, path_columns
from remask.evaluation.decoder import MAX_STEPS, Decoder
from remask.evaluation.stats.scores import mean, ratio, share
from remask.evaluation.suite import Score, register
from remask.models import Backbone
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

SHOWN = 8
"""Samples for the player."""
STEP = re.compile(r"(\d)([+-])(\d)=(\d)")


@register
@dataclass(frozen=True, kw_only=True)
class CountdownSuite:
    """Held-out prompts, their responses all masked."""

    kind: ClassVar[str] = "countdown"
    version: ClassVar[int] = 1

    prompts: int = 1000
    numbers: tuple[int, int] = (5, 5)
    largest: int = 4
    signs: Literal["free", "given"] = "free"
    held_out_share: float = 0.1
    """As in the recipe that the data were built by."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.prompts < 1:
            raise ValueError(f"prompts must be at least 1, got {self.prompts}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")
        self._source()

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
        """A held-out prompt and one response to it, by seed and number alone."""
        return self._source().draw("held_out", np.random.default_rng([self.seed, index]))

    def adapt(self, decoder: Decoder) -> Decoder:
        if decoder.start == "oracle":
            raise ValueError("decoder start oracle is for samples that begin with mistakes")
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
        ever = remasks.any(0)
        returned = ever & (paths.final == _first_revealed(paths))
        solved = self._solved(paths.final)
        true, steps = _true_steps(paths.final)
        return [
            share("solved", solved),
            ratio("true_steps", true, steps),
            mean("forward_passes", paths.forward_passes, better="lower"),
            mean("remasked", remasks.sum((0, 2)), better="neither"),
            mean("revealed", reveals.sum((0, 2)), better="neither"),
            ratio("returned", returned.sum(-1), ever.sum(-1), better="lower"),
            mean("oscillating", (remasks.sum(0) > 1).sum(-1), better="lower"),
        ]

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """Samples of which most happened: right and wrong ends in turn, the most re-masks first."""
        paths = Paths.read(predictions)
        busy = np.argsort(-paths.remasks().sum((0, 2)), kind="stable")
        solved = self._solved(paths.final)
        chosen = [*busy[solved[busy]][: SHOWN // 2], *busy[~solved[busy]][: SHOWN // 2]]
        return [
            {
                "sample_id": paths.sample_ids[row],
                "symbols": ALPHABET,
                "states": paths.states[: paths.steps[row] + 1, row].tolist(),
                "note": "solved" if solved[row] else "not solved",
            }
            for row in chosen
        ]

    def _solved(self, rows: np.ndarray) -> np.ndarray:
        texts = [decode(row).partition(":") for row in rows]
        return np.array([is_solution(f"{prompt}:", end) for prompt, _, end in texts])

    def _source(self) -> CountdownSource:
        return CountdownSource(
            train=0,
            held_out=1,
            numbers=self.numbers,
            largest=self.largest,
            signs=self.signs,
            held_out_share=self.held_out_share,
        )


def _first_revealed(paths: Paths) -> np.ndarray:
    """The first token that each position showed, [B, N]; MASK where it never did."""
    first = paths.states[0].copy()
    for state in paths.states[1:]:
        first = np.where(first == 0, state, first)
    return first


def _true_steps(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps that are true by themselves, and steps in all, [B] each."""
    found = [decode(row).partition(":")[2].rstrip(END).split(";") for row in rows]
    true = [sum(_is_true(step) for step in steps) for steps in found]
    return np.array(true), np.array([len(steps) for steps in found])


def _is_true(step: str) -> bool:
    match = STEP.fullmatch(step)
    return match is not None and step == work_out([int(match[1]), int(match[3])], match[2])[0]
