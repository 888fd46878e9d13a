"""The revision rule and the denoising loop. Reads beside SPEC §1.

At every step and position the model keeps, re-masks or reveals. `RevisionPolicy` is that rule with
its options; `revise` runs any policy, the baselines of `models/baselines.py` among them, and
records what happened.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from models.backbone import Backbone
from models.beliefs import Beliefs, Contrast, Ranking, Sampling, read_beliefs
from models.guidance import Guidance, Guide
from models.history import HistoryConfig, HistoryState
from models.noise import Noise
from models.revision import Action, Record, Revision, join


@dataclass(frozen=True)
class Standing:
    """Where a decode stands before the model is asked; tensors are [B, N] unless noted."""

    tokens: Tensor
    start: Tensor
    """The state that decoding began with."""
    editable: Tensor
    is_masked: Tensor
    """Editable and now MASK."""
    is_visible: Tensor
    """Editable and now a token."""
    idle_steps: Tensor
    """Steps without an action up to now, [B]."""
    revealed_with: Tensor
    """log p of each token when it was revealed; 0 for those given at the start."""
    times_remasked: Tensor
    """How often each position was re-masked before."""
    step: int
    max_steps: int
    mask_id: int
    noise: Noise


@dataclass(frozen=True)
class View(Standing):
    """All that a policy may look at when it decides on a step."""

    beliefs: Beliefs


class Policy(Protocol):
    """How beliefs become actions. A frozen dataclass: whatever varies is in the view."""

    @property
    def sampling(self) -> Sampling: ...

    @property
    def ranking(self) -> Ranking: ...

    def reads(self, now: Standing) -> Tensor:
        """Where beliefs are needed for the step, bool [B, N]."""
        ...

    def act(self, view: View) -> tuple[Tensor, Tensor]:
        """What to re-mask among the visible and what to reveal among the masked, bool [B, N]."""
        ...

    def is_finished(self, now: Standing) -> Tensor:
        """Which rows need no further step, bool [B]. Rows that still hold a MASK go on whatever the
        answer."""
        ...


@dataclass(frozen=True, kw_only=True)
class RevisionPolicy:
    """Reflective Masking: re-mask what MASK is likelier than, keep the rest, reveal the masked."""

    reveal_count: int | None = None
    """Reveal this many per step, the most confident first; all when none."""
    reveal_threshold: float | None = None
    """Reveal those at least this probable, and always the most confident one."""
    reveal_within: float | None = None
    """Reveal as many per step, the most confident first, as keep a row on course to be full after
    this share of the steps; what is left of them is for revision."""
    draft_share: float | None = None
    """Write a draft in this share of the steps, the most confident first, without a second look;
    then revise it. The past starts anew with the draft: a model is trained on wrong tokens that
    stand from the start, so one that sees its past trusts whatever it saw revealed."""
    block_length: int | None = None
    """Open blocks of this many editable positions from left to right, each when those before it
    hold no MASK; one block when none."""
    margin: float = 0.0
    """Re-mask when log p(MASK) exceeds log p(token) by more than this many nats. Below 0 is eager:
    where tokens contradict each other, each of them is likelier right than wrong."""
    remask_cap: int | None = None
    """Re-mask at most this many per step, the most doubted first."""
    max_remasks: int | None = None
    """Re-mask a position at most this many times; then it keeps what it has."""
    abstain: bool = False
    """Leave a masked position masked while MASK is likelier there than any token."""
    patience: int = 1
    """End a row after this many steps without action."""
    sampling: Sampling = field(default_factory=Sampling)

    ranking: Ranking = field(default="probability", init=False)

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {"paper": {}, "released": {"reveal_count": 1, "max_remasks": 6, "abstain": True}}
    )
    """`preset: released` is as the authors' code for text decodes, at most 512 steps by default.
    Unlike theirs, ours goes on while a MASK is left and reveals what is left at the end."""

    def __post_init__(self) -> None:
        ways = (self.reveal_count, self.reveal_threshold, self.reveal_within)
        if sum(x is not None for x in ways) > 1:
            raise ValueError("give one of reveal_count, reveal_threshold and reveal_within")
        if self.reveal_within is not None and not 0 < self.reveal_within <= 1:
            raise ValueError(f"reveal_within must lie in (0, 1], got {self.reveal_within}")
        if self.draft_share is not None and not 0 < self.draft_share < 1:
            raise ValueError(f"draft_share must lie between 0 and 1, got {self.draft_share}")
        if self.reveal_threshold is not None and not 0 < self.reveal_threshold <= 1:
            raise ValueError(f"reveal_threshold must lie in (0, 1], got {self.reveal_threshold}")
        if not math.isfinite(self.margin):
            raise ValueError(f"margin must be a number of nats, got {self.margin}")
        least_values = {"reveal_count": 1, "block_length": 1, "remask_cap": 0, "max_remasks": 0}
        for name, least in least_values.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if self.patience < 1:
            raise ValueError(f"patience must be at least 1 step, got {self.patience}")

    def reads(self, now: Standing) -> Tensor:
        return now.editable

    def act(self, view: View) -> tuple[Tensor, Tensor]:
        may_remask, may_reveal = view.is_visible, view.is_masked
        if view.step < self.draft_steps(view.max_steps):
            return torch.zeros_like(may_remask), self._on_course(
                view, may_reveal, self.draft_steps(view.max_steps)
            )
        if self.block_length is not None:
            block = block_index(view.editable, self.block_length)
            opened = open_block(block, view.is_masked)
            may_remask = may_remask & (block <= opened)
            may_reveal = may_reveal & (block == opened)
        if self.max_remasks is not None:
            may_remask = may_remask & (view.times_remasked < self.max_remasks)
        if self.abstain:
            may_reveal = may_reveal & (view.beliefs.doubt <= 0)
        return self._remask(view.beliefs, may_remask), self._reveal(view, may_reveal)

    def is_finished(self, now: Standing) -> Tensor:
        is_drafting = now.step <= self.draft_steps(now.max_steps) != 0
        return (now.idle_steps >= self.patience) & (not is_drafting)

    def draft_steps(self, max_steps: int) -> int:
        """How many steps write the draft."""
        if self.draft_share is None:
            return 0
        return min(max(1, round(self.draft_share * max_steps)), max_steps - 1)

    def _remask(self, beliefs: Beliefs, eligible: Tensor) -> Tensor:
        remask = eligible & (beliefs.doubt > self.margin)  # a tie keeps
        if self.remask_cap is None:
            return remask
        return highest(beliefs.doubt, remask, self.remask_cap)

    @property
    def reveals_all(self) -> bool:
        """Is every masked position revealed at once, as the rule is printed?"""
        ways = (self.reveal_count, self.reveal_threshold, self.reveal_within, self.draft_share)
        return all(way is None for way in ways)

    def _reveal(self, view: View, eligible: Tensor) -> Tensor:
        beliefs = view.beliefs
        if self.reveal_within is not None:
            steps = max(1, round(self.reveal_within * view.max_steps))
            return self._on_course(view, eligible, steps)
        if self.reveal_count is not None:
            return highest(beliefs.confidence, eligible, self.reveal_count)
        if self.reveal_threshold is not None:
            sure = eligible & (beliefs.confidence >= math.log(self.reveal_threshold))
            return sure | highest(beliefs.confidence, eligible, 1)
        return eligible

    def _on_course(self, view: View, eligible: Tensor, steps: int) -> Tensor:
        """As many, the most confident first, as keep a row on course to be full after `steps`."""
        total = view.editable.sum(-1, keepdim=True)
        due = -(-total * min(view.step + 1, steps) // steps)
        count = (due - view.is_visible.sum(-1, keepdim=True)).clamp(min=1)
        return highest(view.beliefs.confidence, eligible, count)


@torch.no_grad()
def revise(
    backbone: Backbone,
    tokens: Tensor,
    editable: Tensor | None = None,
    *,
    history: HistoryConfig | None = None,
    policy: Policy | None = None,
    guidance: Guidance | None = None,
    max_steps: int,
    attention_mask: Tensor | None = None,
    seed: int = 0,
    row_ids: Tensor | None = None,
    batch_size: int | None = None,
) -> Revision:
    """Denoise sequences step by step, revising what is already there.

    A row ends when its policy says so or after `max_steps`; any MASK left is then revealed in one
    closing step. Finished rows leave the batch. A row's result does not depend on its batch.

    Args:
        backbone: The model.
        tokens: Start states, [B, N]; MASK is allowed at editable positions.
        editable: E, bool [B, N]; all positions but padding when none. Others never change.
        history: How past states are seen; as the backbone was trained when none.
        policy: The rule; `RevisionPolicy()` when none.
        guidance: Away from what the model would do without instruction or source; for images.
        max_steps: Steps at most, besides the closing one.
        attention_mask: Bool [B, N], false at padding.
        seed: Of policies that draw, from 0 to 2^63 - 1.
        row_ids: What makes each row's draws its own, [B]; its index when none.
        batch_size: Rows decoded at once; all when none.

    Returns:
        Final tokens, trajectory, actions and counts, on the device of `tokens`. No rows give an
        empty result; a row with nothing editable comes back as it was, without a forward pass.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must lie in 0 .. 2^63 - 1, got {seed}")
    if editable is None:
        everywhere = torch.ones_like(tokens, dtype=torch.bool)
        editable = everywhere if attention_mask is None else attention_mask
    _check_start(backbone, tokens, editable, attention_mask, row_ids)
    if row_ids is None:
        row_ids = torch.arange(tokens.shape[0])
    device = backbone.token_embedding.device
    parts = [
        _revise_batch(
            backbone,
            tokens[rows].to(device, torch.long),
            editable[rows].to(device),
            history or backbone.history,
            policy or RevisionPolicy(),
            guidance,
            max_steps,
            None if attention_mask is None else attention_mask[rows].to(device),
            seed,
            row_ids[rows].to(device, torch.long),
        )
        for rows in torch.arange(tokens.shape[0]).split(batch_size or max(1, tokens.shape[0]))
    ]
    return join(parts, tokens)


def block_index(editable: Tensor, length: int) -> Tensor:
    """Which block each editable position is in, counting from the left, [B, N]."""
    return (editable.cumsum(-1) - 1).clamp(min=0) // length


def open_block(block: Tensor, is_masked: Tensor) -> Tensor:
    """The first block that holds a MASK, [B, 1]; the last block where there is none."""
    return torch.where(is_masked, block, block.amax(-1, keepdim=True)).amin(-1, keepdim=True)


def highest(score: Tensor, eligible: Tensor, count: Tensor | int) -> Tensor:
    """The `count` eligible positions of highest score in each row, bool [B, N]; ties go left.

    Args:
        score: [B, N].
        eligible: Bool [B, N].
        count: One number, or [B, 1].
    """
    ranked = score.masked_fill(~eligible, -math.inf)
    # Eligible first, so that an eligible -inf still comes before what may not be chosen.
    order = torch.argsort(ranked, dim=-1, descending=True, stable=True)
    order = order.gather(-1, torch.argsort((~eligible).gather(-1, order), dim=-1, stable=True))
    rank = torch.empty_like(order)
    rank.scatter_(-1, order, torch.arange(score.shape[-1], device=score.device).expand_as(order))
    return eligible & (rank < count)


def _revise_batch(
    backbone: Backbone,
    tokens: Tensor,
    editable: Tensor,
    history: HistoryConfig,
    policy: Policy,
    guidance: Guidance | None,
    max_steps: int,
    attention_mask: Tensor | None,
    seed: int,
    row_ids: Tensor,
) -> Revision:
    past = HistoryState(history, backbone.token_embedding, editable)
    rows = _Rows(tokens, editable, attention_mask, row_ids, past)
    if guidance is not None:
        without_text = HistoryState(history, backbone.token_embedding, editable)
        rows.guide = Guide(guidance, backbone, without_text)
    record = Record(tokens)
    rows.keep(editable.any(-1))
    for step in range(max_steps):
        now = rows.standing(backbone.mask_id, step, max_steps, seed)
        rows.keep(now.is_masked.any(-1) | ~policy.is_finished(now))
        if rows.index.numel() == 0:
            break
        if isinstance(policy, RevisionPolicy) and step == policy.draft_steps(max_steps):
            rows.start_anew()
        view, passes = _look(backbone, rows, policy, step, max_steps, seed)
        remask, reveal = policy.act(view)
        _apply(rows, record, view, remask, reveal, passes)
    left_masked = torch.zeros_like(record.steps)
    rows.keep(rows.is_masked(backbone.mask_id).any(-1))
    if rows.index.numel() > 0:
        view, passes = _look(backbone, rows, policy, max_steps, max_steps, seed)
        left_masked[rows.index] = view.is_masked.sum(-1)
        nothing = torch.zeros_like(view.is_masked)
        _apply(rows, record, view, nothing, view.is_masked, passes)
    return record.finish(left_masked)


class _Rows:
    """The rows still being decoded; `index` says which of the batch they are."""

    def __init__(
        self,
        tokens: Tensor,
        editable: Tensor,
        attention_mask: Tensor | None,
        row_ids: Tensor,
        history: HistoryState,
    ) -> None:
        self.index = torch.arange(tokens.shape[0], device=tokens.device)
        self.tokens = self.start = tokens
        self.editable = editable
        self.attention_mask = attention_mask
        self.row_ids = row_ids
        self.history = history
        self.idle_steps = torch.zeros_like(self.index)
        self.revealed_with = torch.zeros(tokens.shape, device=tokens.device)
        self.times_remasked = torch.zeros_like(tokens)
        self.guide: Guide | None = None

    def is_masked(self, mask_id: int) -> Tensor:
        return self.editable & (self.tokens == mask_id)

    def standing(self, mask_id: int, step: int, max_steps: int, seed: int) -> Standing:
        is_masked = self.is_masked(mask_id)
        return Standing(
            tokens=self.tokens,
            start=self.start,
            editable=self.editable,
            is_masked=is_masked,
            is_visible=self.editable & ~is_masked,
            idle_steps=self.idle_steps,
            revealed_with=self.revealed_with,
            times_remasked=self.times_remasked,
            step=step,
            max_steps=max_steps,
            mask_id=mask_id,
            noise=Noise(seed, step, self.row_ids),
        )

    def start_anew(self) -> None:
        """Forget all states before the next."""
        self.history.clear()
        if self.guide is not None:
            self.guide.clear()

    def keep(self, wanted: Tensor) -> None:
        """Let the other rows go."""
        if wanted.all():
            return
        for name in ("index", "tokens", "start", "editable", "row_ids", "idle_steps"):
            setattr(self, name, getattr(self, name)[wanted])
        self.revealed_with = self.revealed_with[wanted]
        self.times_remasked = self.times_remasked[wanted]
        if self.attention_mask is not None:
            self.attention_mask = self.attention_mask[wanted]
        self.history.select(wanted)
        if self.guide is not None:
            self.guide.select(wanted)


def _look(
    backbone: Backbone, rows: _Rows, policy: Policy, step: int, max_steps: int, seed: int
) -> tuple[View, Tensor | int]:
    """Run the model on the rows' current state, with their past; and how often it was run."""
    now = rows.standing(backbone.mask_id, step, max_steps, seed)
    where = policy.reads(now)
    embeds = rows.history.update(rows.tokens).to(backbone.token_embedding.dtype)
    hidden = backbone.hidden(embeds, attention_mask=rows.attention_mask)
    contrasts: list[Contrast] = []
    if rows.guide is not None:
        contrasts = rows.guide.look(rows.tokens, embeds, rows.attention_mask, where, now.is_masked)
    beliefs = read_beliefs(
        backbone,
        hidden,
        rows.tokens,
        where,
        sampling=policy.sampling,
        ranking=policy.ranking,
        noise=now.noise,
        contrasts=contrasts,
    )
    passes = 1 + sum(contrast.is_run for contrast in contrasts)
    return View(**vars(now), beliefs=beliefs), passes


def _apply(
    rows: _Rows, record: Record, view: View, remask: Tensor, reveal: Tensor, passes: Tensor | int
) -> None:
    """Carry the actions out and write them down."""
    revealed = torch.where(reveal, view.beliefs.candidate, rows.tokens)
    rows.tokens = torch.where(remask, view.mask_id, revealed)
    rows.revealed_with = torch.where(reveal, view.beliefs.log_prob, rows.revealed_with)
    rows.times_remasked = rows.times_remasked + remask
    acted = (remask | reveal).any(-1)
    rows.idle_steps = torch.where(acted, 0, rows.idle_steps + 1)
    actions = torch.where(view.is_masked, Action.WAIT, Action.KEEP).to(torch.int8)
    actions[remask] = Action.REMASK
    actions[reveal] = Action.REVEAL
    record.add(rows.index, rows.tokens, actions, passes)


def _check_start(
    backbone: Backbone,
    tokens: Tensor,
    editable: Tensor,
    attention_mask: Tensor | None,
    row_ids: Tensor | None,
) -> None:
    if tokens.dim() != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise ValueError(f"tokens must be integers [B, N], got {tokens.dtype} {list(tokens.shape)}")
    for name, mask in (("attention_mask", attention_mask), ("editable", editable)):
        if mask is not None and (mask.shape != tokens.shape or mask.dtype != torch.bool):
            raise ValueError(
                f"{name} must be bool {list(tokens.shape)} like tokens, got {mask.dtype} "
                f"{list(mask.shape)}"
            )
    if row_ids is not None and row_ids.shape != tokens.shape[:1]:
        raise ValueError(f"row_ids must be [{tokens.shape[0]}], got {list(row_ids.shape)}")
    ids = tokens.long()  # comparisons of narrow unsigned types are not everywhere implemented
    outside = (ids < 0) | (ids >= backbone.vocab_size)
    stuck = (ids == backbone.mask_id) & ~editable
    padding = torch.zeros_like(editable) if attention_mask is None else ~attention_mask
    for bad, rule in (
        (outside, f"tokens must be ids below {backbone.vocab_size}"),
        (stuck, "MASK may stand only where it is editable, or it could never be revealed"),
        (editable & padding, "padding must not be editable"),
    ):
        if bad.any():
            place = bad.nonzero()[0].tolist()
            raise ValueError(f"{rule}; got {int(tokens[tuple(place)])} at {place}")
