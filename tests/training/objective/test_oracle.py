"""The oracle loss against a per-position Python loop, its parts, floor, weights and chunks."""

import dataclasses
import math

import pytest
import torch

from remask.training import ObjectiveConfig, oracle_action, oracle_loss
from remask.training.objective import StateWeights, chunks

MASK, VOCAB = 0, 6
EVEN, UNEVEN = StateWeights(), StateWeights(reveal=3.0, mask=0.7, keep=0.0)


def batch(seed=0, batch_size=4, positions=7):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(1, VOCAB, (batch_size, positions), generator=generator)
    wrong = 1 + (target - 1 + torch.randint(1, VOCAB - 1, target.shape, generator=generator)) % 5
    kind = torch.randint(0, 3, target.shape, generator=generator)
    state = torch.where(kind == 0, target, torch.where(kind == 1, MASK, wrong))
    moves = (kind > 0) | (torch.rand(target.shape, generator=generator) < 0.3)
    wrong = torch.where(moves, wrong, target)
    editable = torch.rand(target.shape, generator=generator) < 0.8
    logits = torch.randn(*target.shape, VOCAB, generator=generator, dtype=torch.float64) * 3
    return logits, {
        "state": state, "target": target, "rejected": wrong, "moves": moves, "editable": editable
    }  # fmt: skip


def run(logits, rows, **settings):
    return oracle_loss(
        lambda hidden: hidden,
        logits,
        **rows,
        mask_id=MASK,
        vocab_size=VOCAB,
        config=ObjectiveConfig(**settings),
    )


def by_loops(logits, rows, edit_weight=1.0, floor=1e-8, state_weights=EVEN):
    """Total, and {part: [sum, count, correct]}, straight from SPEC §4 and the rule of SPEC §1."""
    parts = {name: [0.0, 0, 0] for name in ("reveal", "mask", "keep")}
    weighted = weights = 0.0
    for place in rows["editable"].nonzero().tolist():
        b, n = place
        z, x = int(rows["state"][b, n]), int(rows["target"][b, n])
        exps = [math.exp(v) for v in logits[b, n].float().tolist()]
        probs = [v / sum(exps) for v in exps]
        label = MASK if z not in (MASK, x) else x
        loss = -math.log(max(probs[label], floor))
        if z == MASK:
            name, action = "reveal", max(range(1, VOCAB), key=probs.__getitem__)
        else:
            name = "keep" if z == x else "mask"
            action = MASK if probs[MASK] > probs[z] else z
        parts[name][0] += loss
        parts[name][1] += 1
        parts[name][2] += action == label
        weight = edit_weight if rows["moves"][b, n] else 1.0
        weight *= getattr(state_weights, name)
        weighted += weight * loss
        weights += weight
    return weighted / weights, parts


@pytest.mark.parametrize("edit_weight", [1.0, 4.0, 0.0])
@pytest.mark.parametrize("floor", [1e-8, 0.05])
@pytest.mark.parametrize("state_weights", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_loss_and_parts_equal_the_loop(edit_weight, floor, state_weights):
    logits, rows = batch()
    if edit_weight == 0:  # a position that never moves must be left
        state_weights = dataclasses.replace(state_weights, keep=0.5)
    out = run(logits, rows, edit_weight=edit_weight, floor=floor, state_weights=state_weights)
    total, parts = by_loops(logits, rows, edit_weight, floor, state_weights)
    assert out.total.item() == pytest.approx(total, rel=1e-5)
    for name, (loss_sum, count, correct) in parts.items():
        part = getattr(out, name)
        assert part.loss_sum.item() == pytest.approx(loss_sum, rel=1e-5)
        assert (part.count.item(), part.num_correct.item()) == (count, correct)
        assert count > 0


def test_even_weights_of_states_change_no_bit():
    logits, rows = batch()
    editable = rows["editable"]
    label = oracle_action(rows["state"], rows["target"], MASK)[editable]
    loss = -logits[editable].float().log_softmax(-1).gather(-1, label[:, None])[:, 0]
    weight = torch.where(rows["moves"][editable], 1.7, 1.0)
    for settings in ({}, {"state_weights": EVEN}):
        out = run(logits, rows, edit_weight=1.7, **settings)
        assert torch.equal(out.total, (weight * loss).sum() / weight.sum())


def test_no_position_costs_more_than_the_floor_allows():
    logits, rows = batch()
    logits = logits * 1000
    out = run(logits, rows)
    worst = -math.log(1e-8)
    assert worst == pytest.approx(18.42, abs=0.01)
    assert out.mask.loss_sum <= out.mask.count * worst + 1e-3
    assert out.total <= worst


def test_positions_below_the_floor_still_learn():
    """A pretrained model gives MASK no probability at all; the gradient must lead out of there."""
    logits = torch.tensor([[[-40.0, 0.0, 3.0]]], requires_grad=True)
    one = torch.ones(1, 1, dtype=torch.long)
    out = oracle_loss(
        lambda x: x, logits, state=one, target=one * 2, rejected=one, moves=one == 1,
        editable=one == 1, mask_id=0, vocab_size=3, config=ObjectiveConfig(),
    )  # fmt: skip
    out.total.backward()
    assert out.total.item() == pytest.approx(-math.log(1e-8))
    expected = logits.detach().softmax(-1) - torch.tensor([1.0, 0.0, 0.0])
    torch.testing.assert_close(logits.grad, expected)


def test_chunks_change_neither_loss_nor_gradient(monkeypatch):
    logits, rows = batch()
    head = torch.nn.Linear(VOCAB, VOCAB, dtype=torch.float64)

    def grads():
        hidden = logits.clone().requires_grad_()
        out = oracle_loss(
            head, hidden, **rows, mask_id=MASK, vocab_size=VOCAB,
            config=ObjectiveConfig(unlikelihood_weight=0.3, ordering_weight=0.2),
        )  # fmt: skip
        return out.total, torch.autograd.grad(out.total, (hidden, head.weight))

    whole, whole_grads = grads()
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", 3 * VOCAB)
    parts, parts_grads = grads()
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(parts_grads, whole_grads)


def test_logits_of_a_large_vocabulary_are_never_all_held(monkeypatch):
    """Saved for the gradient: hidden states, not logits, once there is more than one chunk."""
    vocab_size, chunk = 500, 8
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", chunk * vocab_size)
    head = torch.nn.Linear(16, vocab_size)
    target = torch.randint(1, vocab_size, (4, 16))
    yes = torch.ones_like(target, dtype=torch.bool)
    largest = 0

    def note(tensor):
        nonlocal largest
        largest = max(largest, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        loss = oracle_loss(
            head, torch.randn(4, 16, 16, requires_grad=True), state=target * 0, target=target,
            rejected=target, moves=yes, editable=yes, mask_id=0, vocab_size=vocab_size,
            config=ObjectiveConfig(),
        )  # fmt: skip
    assert largest < chunk * vocab_size
    loss.total.backward()
    assert head.weight.grad is not None


def test_optional_terms_equal_their_formulas():
    logits, rows = batch()
    plain = run(logits, rows)
    out = run(logits, rows, unlikelihood_weight=0.5, ordering_weight=0.25, ordering_margin=2.0)
    unlikely, ordering = [], []
    for b, n in rows["editable"].nonzero().tolist():
        probs = logits[b, n].softmax(-1).tolist()
        z, x, w = (int(rows[name][b, n]) for name in ("state", "target", "rejected"))
        if z == x and not rows["moves"][b, n]:
            unlikely.append(-math.log(1 - probs[MASK]))
        if z == MASK and w != x:
            ordering.append(max(0.0, 2.0 - math.log(probs[x]) + math.log(probs[w])))
    assert out.unlikelihood.item() == pytest.approx(sum(unlikely) / len(unlikely), rel=1e-4)
    assert out.ordering.item() == pytest.approx(sum(ordering) / len(ordering), rel=1e-4)
    expected = plain.total + 0.5 * out.unlikelihood + 0.25 * out.ordering
    torch.testing.assert_close(out.total, expected)


def test_nothing_editable_gives_zero_loss_and_empty_parts():
    logits, rows = batch()
    rows["editable"] = torch.zeros_like(rows["editable"])
    out = run(logits.requires_grad_(), rows)
    out.total.backward()
    assert out.total.item() == 0
    assert [p.count.item() for p in (out.reveal, out.mask, out.keep)] == [0, 0, 0]


def test_mask_among_targets_is_refused():
    logits, rows = batch()
    rows["target"][2, 3] = MASK
    rows["editable"][2, 3] = True
    with pytest.raises(
        ValueError, match=r"target must not be MASK \(mask_id 0\), but is at \[2, 3\]"
    ):
        run(logits, rows)
