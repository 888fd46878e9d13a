"""The denoising loop: runs a policy on a batch of sequences and records every step."""

import torch
from torch import Tensor

from remask.models.backbones.backbone import Backbone
from remask.models.decoding.active_rows import ActiveRows
from remask.models.decoding.beliefs import Contrast, read_beliefs
from remask.models.decoding.policy import Observation, Policy
from remask.models.decoding.revision import Action, Recorder, Revision, join
from remask.models.decoding.revision_rule import RevisionPolicy
from remask.models.history import HistoryConfig, HistoryState
from remask.models.images.guidance import Guidance, Guide
from remask.models.ranges import Range, check_number


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
    """Denoise sequences step by step, revising tokens that are already visible.

    A row ends when the policy has finished it or after `max_steps`; MASKs that are left are then
    revealed in one closing step. Finished rows leave the batch. The result of a row does not depend
    on the other rows.

    Args:
        backbone: The model.
        tokens: Start states, [B, N]; MASK is allowed at editable positions.
        editable: E, bool [B, N]; other positions never change. Defaults to everything but padding.
        history: How past states reach the model. Defaults to what the backbone was trained with.
        policy: The decoding rule. Defaults to `RevisionPolicy()`.
        guidance: Classifier-free guidance of image edits. Defaults to no guidance.
        max_steps: Maximum number of steps, not counting the closing one.
        attention_mask: Bool [B, N], false at padding. Defaults to no padding.
        seed: Seed of policies that draw, in [0, 2^63).
        row_ids: Key of each row's draws, [B]. Defaults to the index of the row.
        batch_size: Number of rows decoded at once. Defaults to all.

    Returns:
        Final tokens, trajectory, actions and counts, on the device of `tokens`. An empty batch
        gives an empty result; a row without editable positions is returned unchanged, without a
        forward pass.
    """
    check_number("max_steps", max_steps, Range("[1, inf)"))
    if batch_size is not None:
        check_number("batch_size", batch_size, Range("[1, inf)"))
    check_number("seed", seed, Range("[0, 2^63)"))
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
    rows = ActiveRows(tokens, editable, attention_mask, row_ids, past)
    if guidance is not None:
        without_text = HistoryState(history, backbone.token_embedding, editable)
        rows.guide = Guide(guidance, backbone, without_text)
    recorder = Recorder(tokens)
    rows.keep(editable.any(-1))
    for step in range(max_steps):
        state = rows.state(backbone.mask_id, step, max_steps, seed)
        rows.keep(state.is_masked.any(-1) | ~policy.is_finished(state))
        if rows.index.numel() == 0:
            break
        observation, passes = _observe(backbone, rows, policy, step, max_steps, seed)
        remask, reveal = policy.act(observation)
        _apply(rows, recorder, observation, remask, reveal, passes)
    left_masked = torch.zeros_like(recorder.steps)
    rows.keep(rows.is_masked(backbone.mask_id).any(-1))
    if rows.index.numel() > 0:
        observation, passes = _observe(backbone, rows, policy, max_steps, max_steps, seed)
        is_masked = observation.is_masked
        left_masked[rows.index] = is_masked.sum(-1)
        _apply(rows, recorder, observation, torch.zeros_like(is_masked), is_masked, passes)
    return recorder.finish(left_masked)


def _observe(
    backbone: Backbone, rows: ActiveRows, policy: Policy, step: int, max_steps: int, seed: int
) -> tuple[Observation, Tensor | int]:
    """Run the model on the current state and its past.

    Returns:
        What the policy observes, and the number of forward passes, for all rows or per row [B].
    """
    state = rows.state(backbone.mask_id, step, max_steps, seed)
    where = policy.reads(state)
    embeds = rows.history.update(rows.tokens).to(backbone.token_embedding.dtype)
    hidden = backbone.hidden(embeds, attention_mask=rows.attention_mask)
    contrasts: list[Contrast] = []
    if rows.guide is not None:
        contrasts = rows.guide.contrasts(
            rows.tokens, embeds, rows.attention_mask, where, state.is_masked
        )
    beliefs = read_beliefs(
        backbone,
        hidden,
        rows.tokens,
        where,
        sampling=policy.sampling,
        ranking=policy.ranking,
        noise=state.noise,
        contrasts=contrasts,
    )
    passes = 1 + sum(contrast.is_run for contrast in contrasts)
    return Observation(**vars(state), beliefs=beliefs), passes


def _apply(
    rows: ActiveRows,
    recorder: Recorder,
    observation: Observation,
    remask: Tensor,
    reveal: Tensor,
    passes: Tensor | int,
) -> None:
    """Carry out the actions and record them."""
    beliefs = observation.beliefs
    revealed = torch.where(reveal, beliefs.candidate, rows.tokens)
    rows.tokens = torch.where(remask, observation.mask_id, revealed)
    rows.revealed_with = torch.where(reveal, beliefs.log_prob, rows.revealed_with)
    rows.times_remasked = rows.times_remasked + remask
    acted = (remask | reveal).any(-1)
    rows.idle_steps = torch.where(acted, 0, rows.idle_steps + 1)
    actions = torch.where(observation.is_masked, Action.WAIT, Action.KEEP).to(torch.int8)
    actions[remask] = Action.REMASK
    actions[reveal] = Action.REVEAL
    recorder.add(rows.index, rows.tokens, actions, passes)


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
    ids = tokens.long()  # torch lacks comparisons of narrow unsigned types on some devices
    outside = (ids < 0) | (ids >= backbone.vocab_size)
    stuck = (ids == backbone.mask_id) & ~editable
    padding = torch.zeros_like(editable) if attention_mask is None else ~attention_mask
    for bad, rule in (
        (outside, f"tokens must be ids below {backbone.vocab_size}"),
        (stuck, "MASK is allowed only at editable positions, or it could never be revealed"),
        (editable & padding, "padding must not be editable"),
    ):
        if bad.any():
            place = bad.nonzero()[0].tolist()
            raise ValueError(f"{rule}; got {int(tokens[tuple(place)])} at {place}")
