"""Held-out rows that decoding settings are tuned on: targets, start states, and what is solved."""

from dataclasses import dataclass
from typing import Literal, Never

import numpy as np

from remask.models.ranges import Range, check_number
from remask.pipeline.format.examples import Examples, pad
from remask.pipeline.moves import Bools, Ints
from remask.pipeline.proposal_kinds import PROPOSALS, ProposalInputs
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.sources.source import Source
from remask.pipeline.targets import check_ends
from remask.pipeline.trajectory import sample_moves

HELD_OUT = "held_out"
MIN_RECORDS = 256
"""Fewest records read at once; of some sources only a small share is held out."""
STREAM, START_STREAM = 0x74756E65, 0x73746172
"""Set the draws of tuning apart from those of the pipeline's stages, which have the same seed."""

Start = Literal["blank", "given"]


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows and the states that they are decoded from."""

    source: Source
    examples: Examples
    starts: Ints
    """[B, N]."""

    @property
    def num_rows(self) -> int:
        return len(self.examples.lengths)


def read_held_out(
    recipe: BuildRecipe | RolloutRecipe, max_rows: int, start: Start = "blank"
) -> HeldOut:
    """The first held-out rows of a recipe's source.

    Args:
        recipe: Names the source and the seed.
        max_rows: Number of rows; fewer if the source has fewer.
        start: `blank` masks every editable position. `given` takes the tokens that the source wants
            revised, or else the first states of the build recipe's trajectories.

    Raises:
        ValueError: There are no such rows, or they are a suite's test set.
    """
    check_number("rows", max_rows, Range("[1, inf)"))
    source = recipe.source
    if isinstance(source, ImageEditSource):
        raise ValueError(
            "image edits cannot be tuned: their held-out pairs are the test set of the suite "
            "image_edit"
        )
    total, first, parts = source.num_records().get(HELD_OUT, 0), 0, []
    while first < total and (missing := max_rows - sum(len(x.lengths) for x in parts)) > 0:
        count = min(max(missing, MIN_RECORDS), total - first)
        rng = np.random.default_rng([recipe.seed, STREAM, first])
        parts.append(source.examples(HELD_OUT, first, count, rng))
        first += count
    if not any(len(x.lengths) for x in parts):
        raise ValueError(
            f"source {source.kind} has no held-out rows; raise source.held_out or "
            "source.held_out_share"
        )
    examples = _join(parts, max_rows)
    return HeldOut(source, examples, _make_starts(recipe, examples, start))


def solved_rows(held_out: HeldOut, tokens: Ints) -> Bools:
    """Which rows of a decode [B, N] are solved, [B]: by the source's checker if it has one."""
    examples = held_out.examples
    answers = np.where(examples.editable, tokens, examples.target)
    return check_ends(held_out.source.checker(), examples, answers).is_right


def _make_starts(recipe: BuildRecipe | RolloutRecipe, examples: Examples, start: Start) -> Ints:
    target, mask_id = examples.target, examples.vocabulary.mask_id
    if start == "blank":
        return np.where(examples.editable, target.dtype.type(mask_id), target)
    if examples.starts is not None:
        return np.where(examples.editable, examples.starts, target)
    if not isinstance(recipe, BuildRecipe) or recipe.proposal.kind == "top_k":
        raise ValueError(
            f"source {recipe.source.kind} has no tokens to start from; decode from blank, or use a "
            "build recipe whose proposal is not top_k"
        )
    proposal = PROPOSALS[recipe.proposal.kind].make(ProposalInputs(examples, _absent, _absent))
    moves = sample_moves(
        target,
        examples.editable,
        proposal,
        recipe.trajectories,
        np.random.default_rng([recipe.seed, START_STREAM]),
        mask_id=mask_id,
    )
    return moves.over(target).state_at(0)


def _absent() -> Never:
    raise AssertionError("neither starts nor probed guesses are read here")


def _join(parts: list[Examples], max_rows: int) -> Examples:
    """The first rows of several examples, padded to the longest of them."""

    def joined(rows: list[np.ndarray]) -> np.ndarray:
        kept = [x[:n] for x, n in zip(rows, lengths, strict=False)]
        return pad(kept, rows[0].dtype)[0]

    lengths = np.concatenate([x.lengths for x in parts])[:max_rows]
    starts = [row for x in parts if x.starts is not None for row in x.starts]
    return Examples(
        example_ids=[name for x in parts for name in x.example_ids][:max_rows],
        target=joined([row for x in parts for row in x.target]),
        editable=joined([row for x in parts for row in x.editable]),
        lengths=lengths,
        prompt_lengths=np.concatenate([x.prompt_lengths for x in parts])[:max_rows],
        vocabulary=parts[0].vocabulary,
        starts=joined(starts) if starts else None,
    )
