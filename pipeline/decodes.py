"""A checkpoint's own decodes as trajectories: each looked at after random numbers of its steps.

A row's past is what the model saw when it decoded: its own reveals, right and wrong, in their
order. The states after the one that is looked at are left out, since no label depends on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from remask.kernels import Segments
from remask.models import Backbone, RevisionPolicy, revise
from remask.pipeline.checkers import Checker
from remask.pipeline.format.examples import Examples
from remask.pipeline.moves import Bools, Ints, Moves
from remask.pipeline.probe import batches_by_length
from remask.pipeline.rollout_recipe import DecodeSpread
from remask.pipeline.targets import Ends, check_ends, find_targets


@dataclass(frozen=True)
class Draws:
    """What the B examples of a unit draw before they are decoded."""

    decoder: Ints
    """Index into `DecodeSpread.decoders`, [B]."""
    moment: np.ndarray
    """When each decode is looked at, as shares of its states, in [0, 1), [B, looks]."""
    seed: int
    """Seed of the decoders' own draws, which are keyed by the index of an example."""

    @property
    def looks(self) -> int:
        """Rows made of each decode."""
        return self.moment.shape[1]


@dataclass(frozen=True)
class Decodes:
    """Decodes that are looked at, a row per look, with counts per row, [B] each."""

    target: Ints
    """[B, N]."""
    moves: Moves
    """From the start to the state looked at, then the target."""
    num_wrong: Ints
    """Wrong tokens in the state looked at."""
    passes: Ints
    """Forward passes of the whole decode."""
    is_right: Bools
    """Does the whole decode end right?"""
    is_unchecked: Bools
    """Has the checker failed?"""
    dropped_runs: Ints
    """Runs that the limit on S left out."""


def make_draws(
    spread: DecodeSpread, num_examples: int, rng: np.random.Generator, *, looks: int = 1
) -> Draws:
    """Draw a decoder and the moments of all looks for each example."""
    return Draws(
        rng.integers(len(spread.decoders()), size=num_examples),
        rng.random((num_examples, looks)),
        int(rng.integers(1 << 63)),
    )


def decode_examples(
    backbone: Backbone,
    examples: Examples,
    starts: Ints,
    spread: DecodeSpread,
    draws: Draws,
    *,
    checker: Checker | None = None,
    max_segments: int,
    mixed: bool = False,
    tokens_per_batch: int = 16384,
) -> Decodes:
    """Decode every example by the decoder that it drew; the looks at a decode are adjacent rows.

    Args:
        backbone: The model.
        examples: Clean sequences.
        starts: Tokens to decode from, [B, N].
        spread: The decoders.
        draws: What each example drew.
        checker: Finds the targets; defaults to the clean sequences as targets.
        max_segments: Limit on S.
        mixed: Run matrix products in bf16.
        tokens_per_batch: Padded tokens in one forward pass; does not change the result.
    """
    places, parts, device = [], [], backbone.token_embedding.device.type
    for index, (max_steps, policy) in enumerate(spread.decoders()):
        group = np.flatnonzero(draws.decoder == index)
        for order, width in batches_by_length(examples.lengths[group], tokens_per_batch):
            rows = group[order]
            with torch.autocast(device, torch.bfloat16, enabled=mixed):
                recording = _record(
                    backbone,
                    examples.take(rows, width),
                    starts[rows, :width],
                    max_steps=max_steps,
                    policy=policy,
                    seed=draws.seed,
                    row_ids=rows,
                )
            ends = check_ends(checker, recording.examples, recording.states[-1])
            for look, moment in enumerate(draws.moment[rows].T):
                places.append((rows * draws.looks + look, width))
                parts.append(_look(recording, ends, moment, checker, max_segments))
    return _join(places, parts, np.repeat(examples.target, draws.looks, axis=0))


@dataclass(frozen=True)
class _Recording:
    """The decodes of a batch."""

    examples: Examples
    states: Ints
    """[K, B, N]; a decode that is over repeats its last state."""
    num_states: Ints
    """[B]."""
    passes: Ints
    """Forward passes, [B]."""


def _record(
    backbone: Backbone,
    examples: Examples,
    starts: Ints,
    *,
    max_steps: int,
    policy: RevisionPolicy,
    seed: int,
    row_ids: Ints,
) -> _Recording:
    """Decode a batch by one decoder; `starts` is [B, N]."""
    target, editable, is_token = examples.target, examples.editable, examples.is_token
    visible = 0 if examples.vocabulary.mask_id else 1  # padding must not be MASK
    revision = revise(
        backbone,
        torch.from_numpy(np.where(is_token, starts, visible).astype(np.int64)),
        torch.from_numpy(editable),
        policy=policy,
        max_steps=max_steps,
        attention_mask=None if is_token.all() else torch.from_numpy(is_token),
        seed=seed,
        row_ids=torch.from_numpy(row_ids),
    )
    return _Recording(
        examples,
        np.where(editable, revision.trajectory.numpy(), target).astype(target.dtype),
        revision.stats.steps.numpy() + 1,
        revision.stats.forward_passes.numpy(),
    )


def _look(
    recording: _Recording,
    ends: Ends,
    moment: np.ndarray,
    checker: Checker | None,
    max_segments: int,
) -> Decodes:
    """Look at each decode of a batch at its moment, [B]."""
    states, examples = recording.states, recording.examples
    step = (moment * recording.num_states).astype(np.int64)
    state = states[step, np.arange(len(step))]  # [B, N]
    target, is_unchecked = find_targets(checker, examples, state, ends)
    segments, dropped_runs = Segments.from_states(
        states, target=target, step=step, lengths=step + 1, max_segments=max_segments
    )
    return Decodes(
        target,
        Moves.of(segments),
        num_wrong=((state != target) & (state != examples.vocabulary.mask_id)).sum(1),
        passes=recording.passes,
        is_right=ends.is_right,
        is_unchecked=ends.is_unchecked | is_unchecked,
        dropped_runs=dropped_runs,
    )


def _join(places: Sequence[tuple[Ints, int]], parts: Sequence[Decodes], given: Ints) -> Decodes:
    """Put batches back in the order of their rows.

    Args:
        places: Rows and width of each batch.
        parts: What became of each.
        given: Clean tokens of all rows, [B, N].
    """
    num_rows, num_positions = given.shape
    target = given.copy()
    at = [np.zeros(0, np.int64)]
    for (rows, width), part in zip(places, parts, strict=True):
        target[rows, :width] = part.target
        row, position = np.divmod(part.moves.at, width)
        at.append(rows[row] * num_positions + position)
    at = np.concatenate(at)
    size = max((len(part.moves.ends) for part in parts), default=1)
    tokens = np.stack([target.ravel()[at]] * size)  # [S-1, P]
    ends = np.zeros(tokens.shape, np.int32)
    joined = Decodes(
        target,
        Moves(at, np.zeros(num_rows, np.int64), tokens, ends, np.zeros(num_rows, np.int32)),
        num_wrong=np.zeros(num_rows, np.int64),
        passes=np.zeros(num_rows, np.int64),
        is_right=np.zeros(num_rows, np.bool_),
        is_unchecked=np.zeros(num_rows, np.bool_),
        dropped_runs=np.zeros(num_rows, np.int64),
    )
    first = 0
    for (rows, _), part in zip(places, parts, strict=True):
        moves = part.moves
        chosen = slice(first, first := first + moves.at.size)
        tokens[size - len(moves.tokens) :, chosen] = moves.tokens
        ends[size - len(moves.ends) :, chosen] = moves.ends
        joined.moves.count[rows], joined.moves.step[rows] = moves.count, moves.step
        for name in ("num_wrong", "passes", "is_right", "is_unchecked", "dropped_runs"):
            getattr(joined, name)[rows] = getattr(part, name)
    order = np.argsort(at)
    moves = replace(joined.moves, at=at[order], tokens=tokens[:, order], ends=ends[:, order])
    return replace(joined, moves=moves)
