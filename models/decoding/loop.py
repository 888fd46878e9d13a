"""The denoising loop: runs any policy on a batch of sequences and records what happened."""

import torch
from torch import Tensor

from remask.models.backbones.backbone import Backbone
from remask.models.decoding.beliefs import Contrast, read_beliefs
from remask.models.decoding.policy import Policy, RevisionPolicy, Standing, View
from remask.models.decoding.revision import Action, Record, Revision, join
from remask.models.history import HistoryConfig, HistoryState
from remask.models.images.guidance import Guidance, Guide
from remask.models.noise import Noise


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
