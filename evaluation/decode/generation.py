"""Answers decoded from MASKs alone, by any decoder, with counts of what happened on the way.

A canvas is a prompt and `gen_length` MASKs. It is padded on the right to a length that depends on
the canvas and the model alone, and canvases of one length are decoded together. So an answer does
not depend on the batch.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.evaluation.decode.text_path import TextPath, make_path
from remask.evaluation.decoder import TUNED, Decoder
from remask.models import Backbone, Revision

LENGTHS = 32
"""Canvases are padded to a multiple of this number of tokens, so that many share a length."""
PACE = 0.5
"""Share of the steps over which the printed rule spreads its reveals where all is masked."""


@dataclass(frozen=True)
class Answer:
    """One decoded answer."""

    ids: list[int]
    """All tokens, including end tokens and whatever follows them."""
    forward_passes: int
    remasked: int
    """Number of times that a token became MASK."""
    revealed: int
    """Number of times that MASK became a token."""
    replaced: int
    """Positions whose final token is not the one first revealed there."""
    restored: int
    """Positions that were re-masked and end with the token first revealed there."""
    left_masked: int
    """MASKs that a closing pass revealed all at once."""
    states: list[list[int]]
    """The answer after each of the requested numbers of forward passes; it may contain MASKs."""
    first_written: list[int]
    """The token first revealed at each position."""
    path: TextPath
    """States on the way to the answer."""


def generate(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    gen_length: int,
    decoder: Decoder,
    *,
    row_ids: Sequence[int] | None = None,
    passes: Sequence[int] = (),
) -> list[Answer]:
    """Decode an answer to each prompt, in their order.

    Args:
        backbone: The model.
        prompts: Token ids.
        gen_length: Tokens of an answer.
        decoder: The decoder, with max_steps set.
        row_ids: Keys of the rows' random draws. Defaults to the rows' indices.
        passes: Numbers of forward passes after which to record the answer.
    """
    numbers = list(range(len(prompts))) if row_ids is None else list(row_ids)
    lengths = [padded_length(len(p) + gen_length, backbone.max_length) for p in prompts]
    answers: dict[int, Answer] = {}
    for length in sorted(set(lengths)):
        rows = [i for i, own in enumerate(lengths) if own == length]
        for first in range(0, len(rows), decoder.batch_size):
            batch = rows[first : first + decoder.batch_size]
            canvas = [prompts[i] for i in batch]
            own_ids = torch.tensor([numbers[i] for i in batch])
            decoded = _decode(backbone, canvas, gen_length, length, decoder, own_ids, passes)
            answers |= dict(zip(batch, decoded, strict=True))
    return [answers[i] for i in range(len(prompts))]


def fit_to_masks(decoder: Decoder, steps: int) -> Decoder:
    """The decoder for answers that start from MASKs alone, limited to `steps` forward passes.

    The decoder's own max_steps takes precedence. A policy that may leave MASKs gets one step less,
    because the closing step needs a forward pass. A decoder `tuned` that would reveal everything at
    once spreads its reveals by `PACE`, since that is what an untuned checkpoint is decoded with.

    Raises:
        ValueError: The decoder would reveal everything at once.
    """
    policy = decoder.make_policy()
    max_steps = decoder.max_steps or max(1, steps - policy.may_leave_masks)
    if decoder.policy == TUNED and policy.reveals_all(max_steps):
        decoder = dataclasses.replace(decoder, settings={**decoder.settings, "reveal_within": PACE})
        policy = decoder.make_policy()
    if policy.reveals_all(max_steps):
        raise ValueError(
            f"policy {policy.name} reveals every MASK at once here, in the first of {max_steps} "
            "steps, and answers start from MASKs alone; spread its reveals over the steps (for "
            "revision, set reveal_within, such as 0.6, reveal_count or "
            "reveal_threshold)"
        )
    return dataclasses.replace(decoder, max_steps=max_steps)


def padded_length(length: int, max_length: int | None) -> int:
    """The length rounded up so that many canvases share it, within the model's limit."""
    rounded = -(-length // LENGTHS) * LENGTHS
    return rounded if max_length is None else max(length, min(rounded, max_length))


def _decode(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    gen_length: int,
    length: int,
    decoder: Decoder,
    row_ids: Tensor,
    passes: Sequence[int],
) -> list[Answer]:
    starts = torch.tensor([len(p) for p in prompts])
    at = torch.arange(length)
    editable = (at >= starts[:, None]) & (at < starts[:, None] + gen_length)  # [B, N]
    filler = int(backbone.mask_id == 0)  # any token but MASK; attention never sees it
    tokens = torch.full(editable.shape, filler).masked_fill(editable, backbone.mask_id)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt, dtype=torch.long)
    attended = at < starts[:, None] + gen_length
    revision = decoder.revise(backbone, tokens, editable, is_token=attended, row_ids=row_ids)
    return _read(revision, editable, backbone.mask_id, passes)


def _read(
    revision: Revision, editable: Tensor, mask_id: int, passes: Sequence[int]
) -> list[Answer]:
    """The answers, from what happened at the editable positions of each row."""
    steps, (rows, _) = revision.trajectory.shape[0], editable.shape
    states = revision.trajectory[:, editable].view(steps, rows, -1)  # [K+1, B, G]
    is_visible = states != mask_id
    first = states.gather(0, is_visible.to(torch.int8).argmax(0, keepdim=True))[0]  # [B, G]
    was_remasked = (is_visible[:-1] & ~is_visible[1:]).any(0)
    is_replaced = states[-1] != first
    counts = {
        name: getattr(revision.stats, name).tolist()
        for name in ("forward_passes", "remasked", "revealed", "left_masked")
    }
    ends = revision.stats.steps.tolist()
    return [
        Answer(
            ids=states[-1, row].tolist(),
            replaced=int(is_replaced[row].sum()),
            restored=int((was_remasked[row] & ~is_replaced[row]).sum()),
            states=[states[min(p, steps - 1), row].tolist() for p in passes],
            first_written=first[row].tolist(),
            path=make_path(states[: ends[row] + 1, row].cpu().numpy(), mask_id),
            **{name: values[row] for name, values in counts.items()},
        )
        for row in range(rows)
    ]


def milestones(max_steps: int, count: int = 8) -> list[int]:
    """Numbers of forward passes after which to record an answer: `count` at equal distances, and
    one more for a closing pass."""
    return sorted({math.ceil(max_steps * i / count) for i in range(1, count + 1)} | {max_steps + 1})
