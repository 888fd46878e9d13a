"""The objectives on batches, each against another way to compute it."""

import dataclasses
from itertools import islice

import pytest
import torch
from torch.nn import functional as F

from remask.models import HistoryConfig, LladaConfig, LladaMDM
from remask.models.history import HistoryState
from remask.training.learner import Learner
from remask.training.loader import Loader
from remask.training.mixture import Mixture
from remask.training.objective import BINS, ObjectiveConfig, StateWeights
from remask.training.shard_set import ShardSet
from remask.training.tally import Tally
from tests.training.data import LAW, VOCABULARY, write_data_set


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    lengths = [[9, 12, 5, 7, 12, 12, 3, 8] * 4] * 3
    uri = write_data_set(tmp_path_factory.mktemp("rows"), lengths)
    shards = ShardSet(uri, "train")
    loader = Loader(Mixture.single(shards, 8, 0, 1))
    return [x[0] for x in islice(loader.batches(), 4)]


def make(kind="rm", objective=None, **history):
    torch.manual_seed(0)
    model = LladaMDM(
        LladaConfig(
            d_model=16,
            n_layers=2,
            n_heads=2,
            n_kv_heads=2,
            mlp_hidden_size=24,
            vocab_size=VOCABULARY.size,
            mask_token_id=VOCABULARY.mask_id,
            max_sequence_length=16,
        ),
        HistoryConfig(**({"decay": 0.6} | history)),
    )
    for x in model.parameters():
        torch.nn.init.normal_(x, mean=float(x.ndim == 1), std=0.3)
    config = ObjectiveConfig(kind=kind, **(objective or {}))
    return Learner(model, config, horizon=LAW.horizon, seed=5)


@pytest.mark.parametrize(
    "history", [{}, HistoryConfig.PRESETS["released"]], ids=["paper", "released"]
)
def test_the_revision_loss_is_that_of_rows_rolled_out_one_by_one(batches, history):
    learner = make(**history)
    model, mask_id = learner.backbone, VOCABULARY.mask_id
    for batch in batches:
        total = count = 0
        for i in range(len(batch.row_ids)):
            row = batch[i : i + 1]
            history = HistoryState(model.history, model.token_embedding, row.editable)
            for step in range(int(row.segments.step) + 1):
                state = row.segments.state_at(step).long()
                embeds = history.update(state)
            log_probs = model.logits(embeds).log_softmax(-1)[0]
            for j in range(row.target.shape[1]):
                if row.editable[0, j]:
                    seen, target = int(state[0, j]), int(row.target[0, j])
                    label = mask_id if seen not in (mask_id, target) else target
                    total = total - log_probs[j, label].clamp(min=-18.42)
                    count += 1
        loss, sums = learner(batch, 0)
        torch.testing.assert_close(loss, total / count, rtol=1e-4, atol=1e-5)
        assert Tally(sums).summary()["loss"] == pytest.approx(float(loss.detach()))
        assert Tally(sums).rows == len(batch.row_ids)
        assert Tally(sums).tokens == int(batch.is_token.sum())


WEIGHTED = {"edit_weight": 1.7, "state_weights": StateWeights(reveal=0.3, mask=2.5, keep=0.9)}


def test_the_weight_of_a_batch_is_the_sum_over_its_editable_positions(batches):
    objective = make(objective=WEIGHTED).objective
    for batch in batches:
        state, target = batch.segments.state_at(batch.segments.step), batch.target
        total, names = 0.0, set()
        for b, n in batch.editable.nonzero().tolist():
            is_masked, is_kept = state[b, n] == VOCABULARY.mask_id, state[b, n] == target[b, n]
            name = "reveal" if is_masked else "keep" if is_kept else "mask"
            names.add(name)
            weight = 1.7 if batch.segments.moves[b, n] else 1.0
            total += weight * getattr(WEIGHTED["state_weights"], name)
        assert objective.weight(batch) == pytest.approx(total, rel=1e-12)
        assert names == {"reveal", "mask", "keep"}


def test_without_weights_of_states_a_batch_weighs_what_it_did(batches):
    objective = make(objective={"edit_weight": 1.7}).objective
    for batch in batches:
        moving = int((batch.editable & batch.segments.moves).sum())
        assert objective.weight(batch) == int(batch.editable.sum()) + moving * (1.7 - 1)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_weighted_loss_is_the_mean_over_any_split(batches, size):
    """Micro-batches and ranks are averaged by their weights, as the trainer scales them."""
    learner = make(objective=WEIGHTED)
    for batch in batches:
        parts = [batch[i : i + size] for i in range(0, 8, size)]
        weights = [learner.objective.weight(part) for part in parts]
        assert sum(weights) == pytest.approx(learner.objective.weight(batch), rel=1e-12)
        mean = sum(w * learner(x, 0)[0] for w, x in zip(weights, parts, strict=True)) / sum(weights)
        torch.testing.assert_close(mean, learner(batch, 0)[0])


@pytest.mark.parametrize("kind", ["sft", "pretrain"])
def test_the_masked_loss_weighs_rows_by_rate_and_length(batches, kind):
    learner = make(kind, variant="none")
    model = learner.backbone
    for step, batch in enumerate(batches):
        seen = []
        original = model.hidden

        def spy(embeds, attention_mask=None, original=original, seen=seen):
            seen.append((embeds, attention_mask))
            return original(embeds, attention_mask=attention_mask)

        model.hidden = spy
        loss, sums = learner(batch, step)
        model.hidden = original
        ((embeds, attention_mask),) = seen
        # What was masked can be read off the input.
        plain = F.normalize(model.token_embedding, dim=-1)
        guess = (F.normalize(embeds, dim=-1) @ plain.T).argmax(-1)
        is_masked = (guess == VOCABULARY.mask_id) & batch.is_token
        maskable = batch.editable if kind == "sft" else batch.is_token
        assert not (is_masked & ~maskable).any()
        log_probs = model.logits(embeds, attention_mask=attention_mask).log_softmax(-1)
        rates = learner_rates(learner, batch, step)
        total = 0
        for i in range(len(batch.row_ids)):
            row = sum(
                -log_probs[i, j, int(batch.target[i, j])]
                for j in range(batch.target.shape[1])
                if is_masked[i, j]
            )
            total = total + row / rates[i] / int(maskable[i].sum())
        torch.testing.assert_close(
            loss.double(), torch.as_tensor(total / len(rates)).double(), rtol=1e-4, atol=1e-5
        )
        assert Tally(sums).summary()["reveal_count"] == int(is_masked.sum())


def learner_rates(learner, batch, step):
    from remask.models.noise import RATE, KeyedNoise

    return 1e-3 + (1 - 1e-3) * KeyedNoise(5, step, batch.row_ids).uniform(1, RATE)[:, 0]


def test_masks_are_a_rows_own_and_change_with_the_step(batches):
    learner = make("sft", variant="none")
    batch = batches[0]
    whole = learner(batch, 3)[0]
    parts = [learner(batch[i : i + 1], 3)[0] for i in range(len(batch.row_ids))]
    torch.testing.assert_close(torch.stack(parts).mean(), whole)
    assert learner(batch, 4)[0] != whole


def test_mask_rates_are_uniform_and_positions_masked_at_their_rate(batches):
    learner = make("sft", variant="none")
    sums = []
    for step in range(300):
        for batch in batches:
            rates = learner_rates(learner, batch, step)
            masked = learner(batch, step)[1]
            sums.append(
                (float(rates.mean()), float(Tally(masked).summary().get("reveal_count", 0)))
            )
    editable = sum(float(b.editable.sum()) for b in batches) / len(batches)
    means = torch.tensor(sums, dtype=torch.float64).mean(0)
    assert means[0] == pytest.approx(0.5, abs=0.01)
    assert means[1] == pytest.approx(editable / 2, rel=0.03)


def test_the_calibration_error_is_counted_bin_by_bin(batches):
    learner = make()
    model = learner.backbone
    batch = batches[1]
    _, sums = learner(batch, 0)
    state = batch.segments.state_at(batch.segments.step)
    embeds = []
    original = model.hidden
    model.hidden = lambda x, attention_mask=None: (
        embeds.append(x) or original(x, attention_mask=attention_mask)
    )
    learner(batch, 0)
    model.hidden = original
    belief = model.logits(embeds[0], attention_mask=batch.is_token).softmax(-1)
    belief = belief[..., VOCABULARY.mask_id]
    bins = {}
    for i, j in batch.editable.nonzero().tolist():
        if state[i, j] != VOCABULARY.mask_id:
            p = float(belief[i, j].detach())
            bins.setdefault(min(int(p * BINS), BINS - 1), []).append(
                (p, bool(state[i, j] != batch.target[i, j]))
            )
    count = sum(map(len, bins.values()))
    expected = sum(abs(sum(p for p, _ in x) - sum(w for _, w in x)) for x in bins.values()) / count
    assert Tally(sums).summary()["calibration_error"] == pytest.approx(expected, rel=1e-4)


def test_large_vocabularies_go_through_the_head_in_chunks(batches, monkeypatch):
    """The loss and its gradient are the same, and no logits of the whole batch exist."""
    from remask.training.objective import chunks

    results = []
    for limit in (1 << 24, VOCABULARY.size * 7):
        monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", limit)
        learner = make()
        sizes = []
        head = learner.backbone.head
        learner.backbone.head = lambda x, head=head, sizes=sizes: sizes.append(len(x)) or head(x)
        loss, _ = learner(batches[0], 0)
        loss.backward()
        results.append((loss.detach(), [p.grad for p in learner.parameters()]))
    assert max(sizes) == 7
    torch.testing.assert_close(results[0], results[1])


def test_padding_does_not_change_a_rows_loss(batches):
    learner = make()
    batch = batches[2]
    i = int(batch.is_token.sum(1).argmin())
    alone = learner(batch[i : i + 1], 0)[1]
    beside = dataclasses.replace(batch, editable=batch.editable & (torch.arange(8) == i)[:, None])
    same = learner(beside, 0)[1]
    torch.testing.assert_close(alone[6:15], same[6:15], rtol=1e-5, atol=1e-5)


def test_mixed_precision_multiplies_in_bf16_and_keeps_loss_and_gradients_in_fp32(batches):
    plain, mixed = make(), make()
    mixed._mixed = True
    (exact, _), (near, _) = plain(batches[0], 0), mixed(batches[0], 0)
    near.backward()
    assert near.dtype == torch.float32
    assert all(x.grad.dtype == torch.float32 for x in mixed.parameters() if x.grad is not None)
    torch.testing.assert_close(near, exact, rtol=0.02, atol=0.02)
    assert float(near.detach()) != float(exact.detach())
