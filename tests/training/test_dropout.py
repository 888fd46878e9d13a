"""Training without instruction or source, against rows that really are without."""

import pytest
import torch
from torch.nn import functional as F

from remask.kernels import Segments
from remask.models import HistoryConfig
from remask.training.batch import Batch
from remask.training.learner import Learner
from remask.training.objective import ObjectiveConfig
from remask.training.tally import Tally
from tests.models.backbones.test_lumina import LAYOUT, small
from tests.training import test_learner

SOURCE = torch.tensor([[0, 1, 2], [3, 4, 5]])
TARGET = torch.tensor([[0, 9, 2], [8, 4, 5]])


def make_batch(*prompts, source_in="canvas"):
    """Rows of one edit: at step 1 of 4 its two cells are wrong and masked."""
    rows = [LAYOUT.row(prompt, SOURCE, TARGET, source_in) for prompt in prompts]
    length = max(len(row.target) for row in rows)
    target, wrong, editable = (
        torch.stack([F.pad(getattr(row, name), (0, length - len(row.target))) for row in rows])
        for name in ("target", "wrong", "editable")
    )
    moves = editable & (target != wrong)
    if source_in == "prompt":
        moves = editable
    first = moves & (moves.cumsum(-1) == 1)
    masked = torch.full_like(target, small().mask_id)
    segments = Segments(
        tokens=torch.stack([wrong, masked, target]),
        ends=torch.stack([torch.where(first, 2, moves.int()), torch.where(moves, 3, 0)]),
        step=torch.full((len(rows),), 1),
    )
    return Batch(
        segments=segments.map(lambda x: x.int()),
        editable=editable,
        is_token=torch.stack([torch.arange(length) < len(row.target) for row in rows]),
        row_ids=torch.arange(len(rows)),
    )


def make(variant="hr+decay+her", **config):
    model = small()
    model.history = HistoryConfig(variant=variant, decay=0.6)
    return Learner(model, ObjectiveConfig(**config), horizon=4, seed=3)


def test_a_row_without_text_costs_what_the_unconditional_row_costs():
    said = make_batch([7, 8, 9], [7])
    unconditional = make_batch([LAYOUT.unconditional_id], [LAYOUT.unconditional_id])
    dropped, _ = make(text_dropout=1.0)(said, 0)
    expected, _ = make()(unconditional, 0)
    torch.testing.assert_close(dropped, expected, rtol=1e-5, atol=1e-6)
    assert float((make()(said, 0)[0] - expected).detach().abs()) > 1e-4


@pytest.mark.parametrize("source_in", ["canvas", "prompt"])
def test_without_image_the_source_is_read_as_mask_after_the_norm(source_in):
    learner = make(variant="none", image_dropout=1.0)
    batch = make_batch([7, 8, 9], source_in=source_in)
    model, mask_id = learner.backbone, learner.backbone.mask_id
    state = batch.target.long().clone()
    cells = batch.editable[0].nonzero()[:, 0]
    moving = cells[batch.segments.moves[0][cells]]
    state[0, moving] = mask_id  # by step 1 of a mask rule, but for the first
    state[0, moving[0]] = batch.segments.tokens[0, 0, moving[0]].long()
    embeds = F.embedding(state, model.token_embedding)
    embeds = embeds / (embeds.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    ends = (batch.target[0] == LAYOUT.image.end_id).nonzero()[:, 0]
    source = LAYOUT.image.is_code(batch.target[0]) & (torch.arange(len(state[0])) < ends[0])
    assert int(source.sum()) == 6
    embeds[0, source] = model.token_embedding[mask_id]
    labels = batch.target[0].long().clone()
    if source_in == "canvas":
        labels[moving[0]] = mask_id  # wrong and visible
    expected = F.cross_entropy(model.logits(embeds)[0, cells], labels[cells])
    torch.testing.assert_close(learner(batch, 0)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["rm", "sft", "pretrain"])
def test_what_is_dropped_follows_from_row_and_step_alone(kind):
    learner = make(kind=kind, text_dropout=0.5, image_dropout=0.5)
    batch = make_batch(*[[7, 8]] * 8)
    whole = [float(learner(batch, step)[0].detach()) for step in (3, 4, 3)]
    assert whole[0] == whole[2] != whole[1]
    seen = learner._model_input(batch, 3)
    for i in range(8):
        alone = learner._model_input(batch[i : i + 1], 3)
        assert torch.equal(alone.is_present[0], seen.is_present[i])
        assert torch.equal(alone.is_blank[0], seen.is_blank[i])
        assert torch.equal(alone.batch.target[0], seen.batch.target[i])


def test_as_many_rows_go_without_as_they_should_each_condition_by_itself():
    learner = make(text_dropout=0.1, image_dropout=0.3)
    batch = make_batch(*[[7, 8]] * 50)
    inputs = [learner._model_input(batch, step) for step in range(60)]
    no_text = torch.cat([~x.is_present.all(1) for x in inputs]).double()
    no_image = torch.cat([x.is_blank.any(1) for x in inputs]).double()
    assert float(no_text.mean()) == pytest.approx(0.1, abs=0.02)
    assert float(no_image.mean()) == pytest.approx(0.3, abs=0.03)
    assert float((no_text * no_image).mean()) == pytest.approx(0.03, abs=0.012)


def test_nothing_is_dropped_while_scoring():
    learner = make(text_dropout=1.0, image_dropout=1.0)
    batch = make_batch([7, 8, 9])
    plain = make()(batch, 0)[0]
    assert torch.equal(learner.eval()(batch, 0)[0], plain)
    assert not torch.equal(learner.train()(batch, 0)[0], plain)


def test_pretraining_masks_what_the_model_can_predict():
    learner = make(kind="pretrain")
    batch = make_batch([7, 8, 9], source_in="prompt")
    losses = [learner(batch, step) for step in range(20)]
    assert all(bool(loss.isfinite()) for loss, _ in losses)
    max_count = max(Tally(sums).summary().get("reveal_count", 0) for _, sums in losses)
    assert 6 < max_count <= 12  # of the cells of both images


def test_terms_are_logged_with_weight_and_share():
    config = {"unlikelihood_weight": 0.5, "ordering_weight": 0.2}
    learner, plain = make(**config), make()
    batch = make_batch([7, 8, 9], [7, 7])
    terms = Tally(learner(batch, 0)[1]).summary(learner.config)
    rest = Tally(plain(batch, 0)[1]).summary(plain.config)
    assert terms["unlikelihood_weight"] == 0.5
    assert terms["ordering_weight"] == 0.2
    for name, weight in (("unlikelihood", 0.5), ("ordering", 0.2)):
        assert terms[f"{name}_share"] == pytest.approx(weight * terms[name] / terms["loss"])
    shares = terms["unlikelihood_share"] + terms["ordering_share"]
    assert terms["loss"] * (1 - shares) == pytest.approx(rest["loss"], rel=1e-5)
    assert not any(x.startswith(("unlikelihood", "ordering")) for x in rest)


def test_a_model_without_images_cannot_go_without():
    backbone = test_learner.make().backbone
    learner = Learner(backbone, ObjectiveConfig(text_dropout=0.1), horizon=4, seed=3)
    with pytest.raises(ValueError, match="needs a model of image edits.* a llada has none"):
        learner(make_batch([7]), 0)


@pytest.mark.parametrize("kind", ["rm", "sft"])
def test_editable_positions_that_are_no_codes_are_refused(kind):
    batch = make_batch([7, 8])
    batch.editable[0, 1] = True
    with pytest.raises(ValueError, match="row 0 is editable at position 1, where its target is 8"):
        make(kind=kind)(batch, 0)
