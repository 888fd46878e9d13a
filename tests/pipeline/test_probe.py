"""Probing a frozen backbone, against a direct computation."""

import math

import numpy as np
import pytest
import torch

from remask.models import SudokuConfig, SudokuMDM
from remask.models.history import HistoryState
from remask.pipeline import probe
from remask.pipeline.format.examples import Examples, Vocabulary
from remask.pipeline.probe import batches_by_length, probe_examples
from remask.pipeline.recipe import ProposalConfig
from remask.pipeline.sources.sudoku_rules import all_boards


@pytest.fixture(scope="module")
def backbone():
    torch.manual_seed(0)
    return SudokuMDM(SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)).eval()


def boards(count=6, prompt=4):
    target = all_boards()[:count]
    editable = np.ones(target.shape, np.bool_)
    editable[:, :prompt] = False
    return Examples(
        example_ids=[f"b{i}" for i in range(count)],
        target=target,
        editable=editable,
        lengths=np.full(count, 16),
        prompt_lengths=np.full(count, prompt),
        vocabulary=Vocabulary(5, mask_id=0),
    )


def config(**changes):
    return ProposalConfig(**({"kind": "top_k", "backbone": "x", "k": 2} | changes))


def run(backbone, examples, tokens_per_batch=16384, **changes):
    rng = np.random.default_rng(0)
    return probe_examples(backbone, examples, config(**changes), rng, tokens_per_batch)


@pytest.mark.parametrize("tokens_per_batch", [1, 40, 10_000])
def test_clean_probing_finds_the_best_wrong_digits(backbone, tokens_per_batch):
    examples = boards()
    candidates, log_probs = run(backbone, examples, tokens_per_batch=tokens_per_batch)
    ids = torch.from_numpy(examples.target).long()
    inputs = HistoryState(backbone.history, backbone.token_embedding).update(ids)
    logits = backbone.logits(inputs).detach()
    for (b, n), target in np.ndenumerate(examples.target):
        others = [d for d in (1, 2, 3, 4) if d != target]
        law = logits[b, n, others].log_softmax(-1)
        best = law.argsort(descending=True)[:2].tolist()
        if examples.editable[b, n]:
            assert candidates[b, n].tolist() == [others[i] for i in best]
            assert log_probs[b, n] == pytest.approx(law[best].numpy(), abs=2e-3)
        else:
            assert np.isneginf(log_probs[b, n]).all()
    assert (candidates.dtype, log_probs.dtype) == (np.uint8, np.float16)


def test_chunks_change_nothing(backbone, monkeypatch):
    whole = run(backbone, boards())
    monkeypatch.setattr(probe, "CHUNK_ELEMENTS", 15)
    for a, b in zip(run(backbone, boards()), whole, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("mask_rate", [0.1, 0.3, 1.0])
def test_masked_probing_masks_every_position_once(backbone, mask_rate, monkeypatch):
    examples = boards()
    seen = []
    plain = probe._hidden
    monkeypatch.setattr(
        probe, "_hidden", lambda b, tokens, mask: seen.append(tokens) or plain(b, tokens, mask)
    )
    candidates, log_probs = run(backbone, examples, mode="masked", mask_rate=mask_rate)
    masked = torch.stack([tokens == 0 for tokens in seen])
    assert len(seen) == round(1 / mask_rate)
    assert torch.equal(masked.sum(0), torch.from_numpy(examples.editable).long())
    sizes = masked.sum(-1)
    assert sizes.max() - sizes.min() <= 1
    assert np.isfinite(log_probs[examples.editable]).all()
    assert (candidates[examples.editable] != examples.target[examples.editable][:, None]).all()


def test_the_batch_size_does_not_change_what_is_found(backbone):
    whole = run(backbone, boards(), mode="masked")
    small = run(backbone, boards(), mode="masked", tokens_per_batch=20)
    assert np.array_equal(whole[0], small[0])


def test_k_is_at_most_what_there_is(backbone):
    candidates, log_probs = run(backbone, boards(), k=50)
    assert candidates.shape[-1] == 4
    assert (np.isfinite(log_probs[:, 4:]).sum(-1) == 3).all()


@pytest.mark.parametrize("limit", [1, 7, 50, 10_000])
def test_batches_cover_all_rows_within_the_budget(limit):
    lengths = np.random.default_rng(0).integers(1, 30, 40)
    rows = []
    for chosen, longest in batches_by_length(lengths, limit):
        assert lengths[chosen].max() == longest
        assert len(chosen) * longest <= limit or len(chosen) == 1
        rows += chosen.tolist()
    assert sorted(rows) == list(range(40))


def test_nan_names_the_example(backbone):
    class Broken(SudokuMDM):
        def head(self, hidden):
            logits = super().head(hidden)
            logits[17] = math.nan  # the second board's sixth editable cell
            return logits

    torch.manual_seed(0)
    broken = Broken(backbone.config)
    with pytest.raises(ValueError, match="the backbone gave NaN on example b1; check"):
        run(broken, boards())


def test_a_backbone_of_another_kind_is_refused(backbone):
    other = SudokuMDM(SudokuConfig(side=9, layers=1, width=32, heads=2, feed_forward=32))
    examples = boards()
    longer = Examples(**(vars(examples) | {"lengths": np.full(6, 99)}))
    with pytest.raises(ValueError, match="example b0 has 99 tokens, the backbone takes 81"):
        run(other, longer)
    foreign = Examples(**(vars(examples) | {"vocabulary": Vocabulary(7, mask_id=6)}))
    with pytest.raises(ValueError, match="has 5 ids with MASK 0, the source 7 with MASK 6"):
        run(backbone, foreign)
