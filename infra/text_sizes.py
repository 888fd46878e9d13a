"""Sizes of a recipe for one's own text: by its rows and their lengths, and by the machine."""

import math
import os
from dataclasses import dataclass

import numpy as np
import psutil
import torch

from remask.infra.doctor import bf16_ratio
from remask.infra.text_data import TextFacts
from remask.models.backbones.llada import SIZES

MAX_LENGTH = {"cpu": 512, "gpu": 2048}
"""Limit on the tokens of a row; longer rows are left out."""
SPEED = {"cpu": 20e9, "cpu with bf16": 35e9, "gpu": 2e13}
"""Operations per second that a core or a GPU is taken to reach in training."""
BASE_S, REVISER_S = 240, 180
"""Seconds that the two training stages may take."""
BATCH_TOKENS = {"cpu": 4096, "gpu": 16384}
MAX_REPLICAS = 64
ROUNDS = 10
"""Rounds of own decodes."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What training runs on."""

    cores: int
    gpus: int
    memory: int
    """Bytes of this machine."""
    is_bf16_fast: bool
    """Whether matrix products in bf16 are faster than in fp32."""

    @property
    def kind(self) -> str:
        return "gpu" if self.gpus else "cpu"

    @property
    def speed(self) -> float:
        """Operations per second."""
        kind = "cpu with bf16" if self.is_bf16_fast and not self.gpus else self.kind
        return SPEED[kind] * (self.gpus or self.cores)

    def __str__(self) -> str:
        count, unit = (self.gpus, "GPU") if self.gpus else (self.cores, "core")
        what = f"{count} {unit}{'s' * (count > 1)}{'' if self.gpus else ' without a GPU'}"
        return f"{what}, {self.memory / 1e9:.0f} GB of memory"


def this_machine() -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Machine(
        cores=cores or 1,
        gpus=torch.cuda.device_count(),
        memory=psutil.virtual_memory().total,
        is_bf16_fast=torch.cuda.is_available() or bf16_ratio() > 1.2,
    )


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers of a recipe."""

    size: str
    max_length: int
    """Tokens of a row."""
    gen_length: int
    """Tokens of a response."""
    left_out_share: float
    """Rows that are longer than `max_length`."""
    eos_bucket: int
    batch_size: int
    base_steps: int
    steps: int
    """Steps of the reviser."""
    replicas: int
    """Rows with mistakes that are made of each row."""
    every: int
    """Steps of a round."""
    decodes: int
    """Examples of a shard of own decodes."""
    shards: int
    """Shards of a round."""
    looks: int
    decode_steps: tuple[int, ...]
    budgets: tuple[int, int]
    """Forward passes that decoders are compared at."""
    seconds: float
    """A guess at the time of the whole run."""


def choose_sizes(facts: TextFacts, machine: Machine) -> Sizes:
    """Sizes with which a run takes minutes on two cores.

    Raises:
        ValueError: All rows are too long for this machine.
    """
    prompt, response = (_usual_limit(x) for x in (facts.prompt_tokens, facts.response_tokens))
    limit = MAX_LENGTH[machine.kind]
    if prompt + response > limit:
        response = min(response, max(limit // 2, limit - prompt))
        prompt = limit - response
    max_length = max(prompt + response, 2)
    fits = facts.tokens <= max_length
    if not fits.any():
        raise ValueError(
            f"all rows are too long: the shortest has {facts.tokens.min()} tokens, and {limit} are "
            f"the most that a recipe for {machine} is written for; cut the rows into pieces"
        )
    eos_bucket = max_length if max_length <= 128 else 64
    length = min(max_length, float(np.mean(facts.tokens[fits])) + eos_bucket / 2)
    rows = max(1, round(facts.rows * float(fits.mean()) * (1 - facts.held_out_share)))
    size = _model_size(rows * length, machine)
    power = round(math.log2(max(1.0, BATCH_TOKENS[machine.kind] / length)))
    batch_size = int(np.clip(2 ** min(power, round(math.log2(rows)) - 2), 8, 128))
    step_s = _step_flops(size, facts.vocab_size, batch_size * length) / machine.speed
    base_steps = _steps(BASE_S / step_s, rows, batch_size, most=2000)
    every = _steps(REVISER_S / step_s / 1.5, rows, batch_size, most=600) // ROUNDS
    decodes, shards, looks = _decodes(every * batch_size // 2, rows)
    decode_steps = _decode_steps(response)
    few = max(4, math.ceil(response / 8))  # fewer steps would reveal all in the first
    return Sizes(
        size=size,
        max_length=max_length,
        gen_length=response,
        left_out_share=float(1 - fits.mean()),
        eos_bucket=eos_bucket,
        batch_size=batch_size,
        base_steps=base_steps,
        steps=every * ROUNDS,
        replicas=int(np.clip(math.ceil(every * ROUNDS * batch_size / 2 / rows), 1, MAX_REPLICAS)),
        every=every,
        decodes=decodes,
        shards=shards,
        looks=looks,
        decode_steps=decode_steps,
        budgets=(few, max(2 * few, math.ceil(response / 2))),
        seconds=60 + step_s * (base_steps + 1.5 * every * ROUNDS),
    )


def _usual_limit(lengths: np.ndarray) -> int:
    """The longest, unless a few are far longer than the rest."""
    longest, usual = int(lengths.max()), math.ceil(np.quantile(lengths, 0.99))
    return longest if longest <= 1.5 * usual else usual


def _model_size(tokens: float, machine: Machine) -> str:
    if not machine.gpus:
        return "tiny"
    return "small" if tokens < 5e6 else "base" if tokens < 2e8 else "large"


def _step_flops(size: str, vocab_size: int, tokens: float) -> float:
    shape = SIZES[size]
    width, inner = shape["d_model"], shape["mlp_hidden_size"]
    weights = shape["n_layers"] * (4 * width**2 + 3 * width * inner) + width * vocab_size
    return 6 * weights * tokens


def _steps(steps: float, rows: int, batch_size: int, *, most: int) -> int:
    """Steps that there is time for, within limits, of at most 300 passes over the rows."""
    passes = max(200, 300 * rows // batch_size)
    return max(100, round(min(steps, passes, most) / 50) * 50)


def _decodes(needed: int, rows: int) -> tuple[int, int, int]:
    """Examples of a shard, shards and looks that give a round its rows."""
    looks = 2 if needed <= 2 * rows else 4
    decodes = min(rows, math.ceil(needed / looks))
    return max(1, decodes), max(1, min(8, math.ceil(needed / (looks * decodes)))), looks


def _decode_steps(response: int) -> tuple[int, ...]:
    """Numbers of steps of own decodes: few enough that there are mistakes."""
    if response <= 32:
        return (3, 5, 7, 11)
    return tuple(sorted({min(32, math.ceil(response / x)) for x in (16, 8, 4, 3)}))
