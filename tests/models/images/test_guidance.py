"""Guidance against rows that really are without text, or without image."""

import pytest
import torch

from remask.models import (
    Absorbing,
    Guidance,
    HistoryConfig,
    RevisionPolicy,
    SudokuConfig,
    SudokuMDM,
)
from remask.models.decoding.loop import revise
from remask.models.history import HistoryState
from remask.models.images.guidance import hidden_of_kept
from tests.models.backbones.test_lumina import LAYOUT, small

SOURCE = torch.tensor([[0, 1, 2], [3, 4, 5]])
WORDS, NO_WORDS = [7, 8, 9, 10], [LAYOUT.unconditional_id, 10]


@pytest.fixture(scope="module")
def model():
    return small()


def edit(source_in, masked=()):
    """A row, and the same row written without its instruction; the last word is a template's."""
    rows = []
    for words in (WORDS, NO_WORDS):
        row = LAYOUT.row(words, SOURCE, SOURCE, source_in)
        cells = row.editable.nonzero()[:, 0]
        ids = row.wrong.clone()
        ids[cells[list(masked)]] = 39
        rows.append((ids[None], row.editable[None]))
    return rows


@pytest.mark.parametrize("at", ["all", "masked"])
@torch.no_grad()
def test_a_source_that_is_absent_is_cut_out_of_the_prompt(model, at):
    (tokens, editable), _ = edit("prompt", masked=(0, 2, 3))
    row = tokens[0].tolist()
    begin, end = row.index(LAYOUT.image.begin_id), row.index(LAYOUT.image.end_id)
    kept = [i for i in range(len(row)) if not begin <= i <= end]
    history = HistoryConfig(variant="none", norm="rms")
    out = revise(
        model,
        tokens,
        editable,
        history=history,
        guidance=Guidance(image=3.0, at=at, no_image="absent"),
        policy=Absorbing(),
        max_steps=1,
    )
    said, short, inside = (
        HistoryState(history, model.token_embedding, x).update(y)
        for x, y in ((editable, tokens), (editable[:, kept], tokens[:, kept]), (editable, tokens))
    )
    plain = model.logits(said)[editable]
    without = model.logits(short)[editable[:, kept]]
    masked = LAYOUT.image.is_code(tokens) & (torch.arange(len(row)) < end)
    inside[masked] = model.token_embedding[model.mask_id]
    assert not torch.allclose(without, model.logits(inside)[editable]), "two different rows"
    logits = torch.where(plain == -torch.inf, -torch.inf, plain + 3.0 * (plain - without))
    logits[:, model.mask_id] = -torch.inf
    is_masked = tokens[editable] == model.mask_id
    assert torch.equal(out.tokens[editable][is_masked], logits.argmax(-1)[is_masked])


def test_a_source_in_the_canvas_cannot_be_absent(model):
    (tokens, editable), _ = edit("canvas")
    with pytest.raises(ValueError, match="no_image absent .* but here it is in"):
        revise(model, tokens, editable, guidance=Guidance(image=1, no_image="absent"), max_steps=1)


def guided_logits(model, ids, short, states, text, image):
    """Three passes on three inputs, written out; [cells, V]."""
    (tokens, editable), (no_text_ids, short_editable) = ids, short
    said = states[0].update(tokens)
    blind = said.clone()
    cells = LAYOUT.image.is_code(tokens) | (tokens == model.mask_id)
    first_end = int((tokens[0] == LAYOUT.image.end_id).nonzero()[0])
    cells[:, first_end:] = False
    blind[cells] = model.token_embedding[model.mask_id]
    plain = model.logits(said)[editable]
    no_text = model.logits(states[1].update(no_text_ids))[short_editable]
    no_image = model.logits(blind)[editable]
    ruled_out = plain == -torch.inf
    moved = plain + text * (plain - no_text) + image * (plain - no_image)
    return torch.where(ruled_out, -torch.inf, moved)


@pytest.mark.parametrize("positions", ["all", "editable"])
@pytest.mark.parametrize("source_in", ["canvas", "prompt"])
@torch.no_grad()
def test_every_step_is_guided_away_from_both_unconditional_rows(model, source_in, positions):
    # In the prompt the template's last word follows the image and belongs to no instruction.
    words = NO_WORDS if source_in == "prompt" else NO_WORDS[:1]
    (tokens, editable), _ = edit(source_in, masked=(1, 4))
    short = LAYOUT.row(words, SOURCE, SOURCE, source_in)
    no_text_ids, short_editable = short.wrong[None].clone(), short.editable[None]
    history = HistoryConfig(variant="hr+decay+her", decay=0.5, norm="rms", positions=positions)
    states = [HistoryState(history, model.token_embedding, x) for x in (editable, short_editable)]
    out = revise(
        model,
        tokens,
        editable,
        history=history,
        guidance=Guidance(text=1.5, image=0.7),
        policy=RevisionPolicy(reveal_count=1, patience=9),
        max_steps=3,
    )
    for step in range(3):
        current = out.trajectory[step][editable].long()
        no_text_ids[short_editable] = current
        rows = (out.trajectory[step].long(), editable), (no_text_ids, short_editable)
        logits = guided_logits(model, *rows, states, text=1.5, image=0.7)
        is_masked = current == model.mask_id
        doubt = logits[:, model.mask_id] - logits.gather(1, current[:, None])[:, 0]
        expected = torch.where(~is_masked & (doubt > 0), model.mask_id, current)
        sure = logits.clone()
        sure[:, model.mask_id] = -torch.inf
        best = sure.log_softmax(-1).max(-1)
        if is_masked.any():
            chosen = best.values.masked_fill(~is_masked, -torch.inf).argmax()
            expected[chosen] = best.indices[chosen]
        assert out.trajectory[step + 1][editable].tolist() == expected.tolist()
    assert (out.trajectory[1] != out.trajectory[0]).any()


@torch.no_grad()
def test_guidance_changes_what_is_decoded(model):
    (tokens, editable), _ = edit("canvas", masked=range(6))
    plain, guided = (
        revise(model, tokens, editable, max_steps=3, guidance=guidance).tokens
        for guidance in (None, Guidance(text=9.0))
    )
    assert not torch.equal(plain, guided)


@torch.no_grad()
def test_removed_positions_leave_no_trace(model):
    ids = torch.randint(0, 39, (3, 12))
    kept = torch.rand(3, 12) < 0.6
    attention_mask = torch.ones(3, 12, dtype=torch.bool)
    attention_mask[2, 9:] = False
    actual = hidden_of_kept(model, model.embed(ids), kept, attention_mask)
    for i in range(3):
        there = kept[i] & attention_mask[i]
        alone = model.hidden(model.embed(ids[i][there][None]))[0]
        torch.testing.assert_close(actual[i][there], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("guidance", "passes"),
    [(None, 1), (Guidance(), 1), (Guidance(text=1.0), 2), (Guidance(text=1.0, image=1.0), 3)],
)
def test_each_pass_is_counted(model, guidance, passes):
    (tokens, editable), _ = edit("canvas", masked=(0, 1))
    out = revise(model, tokens, editable, guidance=guidance, policy=Absorbing(), max_steps=2)
    assert out.stats.steps.tolist() == [2]
    assert out.stats.forward_passes.tolist() == [2 * passes]


def test_rows_without_masks_need_no_guidance_where_only_masks_are_guided(model):
    (masked, editable), _ = edit("canvas", masked=(2,))
    (whole, _), _ = edit("canvas")
    out = revise(
        model,
        torch.cat([masked, whole]),
        editable.repeat(2, 1),
        guidance=Guidance(text=2.0, image=1.0, at="masked"),
        policy=RevisionPolicy(margin=1e6),  # re-masks nothing
        max_steps=1,
    )
    assert out.stats.forward_passes.tolist() == [3, 1]


def test_a_guided_row_is_the_same_in_any_batch(model):
    rows = [edit("prompt", masked=masked)[0] for masked in ((0,), (1, 2, 3), ())]
    tokens, editable = (torch.cat(x) for x in zip(*rows, strict=True))
    settings = {"guidance": Guidance(text=2.0, image=1.0), "max_steps": 4}
    whole = revise(model, tokens, editable, **settings)
    alone = revise(model, tokens, editable, batch_size=1, **settings)
    assert torch.equal(whole.tokens, alone.tokens)
    assert torch.equal(whole.stats.forward_passes, alone.stats.forward_passes)


def test_the_edit_mask_is_what_was_remasked(model):
    (tokens, editable), _ = edit("canvas", masked=(0,))
    out = revise(model, tokens, editable, max_steps=4)
    states = out.trajectory
    became = ((states[1:] == model.mask_id) & (states[:-1] != model.mask_id)).any(0)
    assert became.any()
    assert torch.equal(out.edit_mask(), became)


def test_guidance_needs_a_model_of_images():
    sudoku = SudokuMDM(SudokuConfig(side=4, layers=1, width=8, heads=1, feed_forward=8))
    with pytest.raises(
        ValueError, match="guidance needs a model of image edits.* a sudoku has none"
    ):
        revise(sudoku, torch.zeros(1, 16).long(), guidance=Guidance(text=1.0), max_steps=1)


@pytest.mark.parametrize(
    "bad", [{"text": -1.0}, {"image": float("inf")}, {"at": "nowhere"}, {"no_image": "x"}]
)
def test_wrong_settings_are_refused(bad):
    with pytest.raises(ValueError, match=f"guidance.{next(iter(bad))} must be"):
        Guidance(**bad)
