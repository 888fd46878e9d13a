"""Sums worked out step by step, from nothing but MASK: are answer and steps right, and what did
revision do? The small text task, `pipeline/sources/arithmetic.py`."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch

from evaluation.decoder import Decoder
from evaluation.paths import Paths, path_columns, replays
from evaluation.scores import mean, ratio, share
from evaluation.suite import Score, register
from models import Backbone, RevisionPolicy, revise
from pipeline.sources.arithmetic import (
    ALPHABET,
    MASK,
    ArithmeticSource,
    answer,
    decode,
    encode,
    solve,
)

SHOWN = 8
"""Sums for the player."""


@register
@dataclass(frozen=True, kw_only=True)
class ArithmeticSuite:
    """Held-out sums, their responses all masked."""

    kind: ClassVar[str] = "arithmetic"
    version: ClassVar[int] = 1

    sums: int = 1000
    numbers: tuple[int, int] = (3, 3)
    digits: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sums < 1:
            raise ValueError(f"sums must be at least 1, got {self.sums}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")
        self._source()

    @property
    def num_samples(self) -> int:
        return self.sums

    def identity(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def with_absolute_paths(self) -> "ArithmeticSuite":
        return self

    def check(self, backbone: Backbone) -> None:
        source = self._source()
        if backbone.vocab_size != len(ALPHABET) or backbone.mask_id != ALPHABET.index(MASK):
            raise ValueError(
                f"the sums are written in {len(ALPHABET)} characters with MASK first, the model "
                f"has {backbone.vocab_size} tokens and MASK {backbone.mask_id}"
            )
        if backbone.max_length is not None and source.length > backbone.max_length:
            raise ValueError(
                f"these sums take {source.length} tokens, the model {backbone.max_length}"
            )

    def sample(self, index: int) -> str:
        """A held-out sum, by seed and number alone."""
        return self._source().draw("held_out", np.random.default_rng([self.seed, index]))

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        if decoder.start == "oracle":
            raise ValueError("decoder start oracle is for samples that begin with mistakes")
        policy = decoder.make_policy()
        if isinstance(policy, RevisionPolicy) and policy.reveals_all:
            raise ValueError(
                "a response that starts all masked cannot be revealed at once; set reveal_count, "
                "reveal_threshold or reveal_within in the decoder's settings"
            )
        prompts = [self.sample(i) for i in samples]
        length = self._source().length
        rows = [encode(prompt + solve(prompt), length) for prompt in prompts]
        solution = torch.from_numpy(np.stack(rows)).long()
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        editable = torch.arange(length) >= lengths[:, None]
        start = solution.masked_fill(editable, backbone.mask_id)
        revision = revise(
            backbone,
            start,
            editable,
            policy=policy,
            max_steps=decoder.max_steps,
            seed=decoder.seed,
            row_ids=torch.tensor(list(samples)),
            batch_size=decoder.batch_size,
        )
        names = [f"sum-{self.seed}-{i:06d}" for i in samples]
        columns = path_columns(solution, start, revision)
        return pa.table({"sample_id": names, "prompt": prompts, **columns})

    def score(self, predictions: pa.Table) -> list[Score]:
        paths = Paths.read(predictions)
        answers = zip(_answers(paths, paths.final), _answers(paths, paths.solution), strict=True)
        wrong, replayed = replays(paths)
        was_right = (paths.remasks() & (paths.states[:-1] == paths.solution)).any(0)
        is_right = paths.final == paths.solution
        remasks = paths.remasks().sum(0)  # [B, N]
        return [
            share("answer", np.array([found == right for found, right in answers])),
            share("steps_right", paths.exact(paths.final)),
            mean("forward_passes", paths.forward_passes, better="lower"),
            mean("remasked", remasks.sum(-1), better="neither"),
            mean("fixed", (wrong & is_right).sum(-1)),
            mean("broken", (was_right & ~is_right).sum(-1), better="lower"),
            ratio("replay", replayed.sum(-1), wrong.sum(-1), better="lower"),
            mean("oscillating", (remasks > 1).sum(-1), better="lower"),
        ]

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """Sums of which most happened: right and wrong ends in turn, the most re-masks first."""
        paths = Paths.read(predictions)
        busy = np.argsort(-paths.remasks().sum((0, 2)), kind="stable")
        exact = paths.exact(paths.final)[busy]
        chosen = [*busy[exact][: SHOWN // 2], *busy[~exact][: SHOWN // 2]]
        return [
            {
                "sample_id": paths.sample_ids[row],
                "symbols": ALPHABET,
                "solution": paths.solution[row].tolist(),
                "states": paths.states[: paths.steps[row] + 1, row].tolist(),
                "note": "right" if paths.exact(paths.final)[row] else "wrong",
            }
            for row in chosen
        ]

    def _source(self) -> ArithmeticSource:
        return ArithmeticSource(train=0, held_out=1, numbers=self.numbers, digits=self.digits)


def _answers(paths: Paths, state: np.ndarray) -> list[int | None]:
    """What each response comes to; the prompt has no = that it could be mistaken for."""
    return [answer(decode(row).partition(":")[2]) for row in state]
