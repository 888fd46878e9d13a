import math

import pytest
import torch

from remask.models import Guidance, Sampling, TwoPhase, revise
from tests.models.images.test_guidance import edit, small
from tests.models.toys import Scripted, log_probs

GREEDY = Sampling(temperature=0.0)


def wrong_at(cells, positions, vocab=4):
    """MASK is sure at some visible cells, token 2 elsewhere and once they are masked."""

    def script(call, tokens):
        sure_mask = log_probs([[0.95, 0.02, 0.02, 0.01]])
        token = log_probs([[0.01, 0.02, 0.95, 0.02]])
        wrong = torch.zeros(positions, dtype=torch.bool)
        wrong[list(cells)] = True
        return torch.where((wrong & (tokens != 0))[..., None], sure_mask, token)

    return Scripted(script, vocab)


def test_wrong_cells_are_masked_and_then_filled_on_a_cosine_schedule():
    positions, cells = 40, range(0, 20)
    out = revise(
        wrong_at(cells, positions),
        torch.ones(1, positions).long(),
        policy=TwoPhase(sampling=GREEDY),
        max_steps=16,
    )
    masked = [int((state == 0).sum()) for state in out.trajectory]
    # Phase 1 finds all at once and nothing in its second step; token 2 where 1 stood is no mask.
    assert masked[:3] == [0, 20, 20]
    schedule = [max(1, math.floor(20 * math.cos(math.pi / 2 * k / 8))) for k in range(1, 8)]
    assert masked[3:] == [*schedule, 0]
    assert out.edit_mask()[0].nonzero()[:, 0].tolist() == list(cells)
    assert out.tokens[0].tolist() == [2] * 20 + [1] * 20
    assert out.stats.left_masked.tolist() == [0]


def test_few_cells_take_no_more_steps_than_they_need():
    out = revise(
        wrong_at([3], 6), torch.ones(1, 6).long(), policy=TwoPhase(sampling=GREEDY), max_steps=16
    )
    assert out.stats.steps.tolist() == [3]  # re-mask, find nothing more, fill
    assert out.tokens[0].tolist() == [1, 1, 1, 2, 1, 1]


def test_mask_must_be_likelier_than_the_threshold_and_than_the_token():
    rows = [[0.89, 0.05, 0.05, 0.01], [0.91, 0.05, 0.03, 0.01], [0.3, 0.2, 0.3, 0.2]]
    model = Scripted([log_probs(rows)], 4)
    start = torch.ones(1, 3).long()
    for threshold, expected in ((0.9, [1]), (0.8, [0, 1]), (0.0, [0, 1, 2])):
        out = revise(model, start, policy=TwoPhase(threshold=threshold), max_steps=1)
        assert out.edit_mask()[0].nonzero()[:, 0].tolist() == expected


def test_nothing_wrong_ends_after_one_step():
    out = revise(wrong_at([], 5), torch.ones(2, 5).long(), policy=TwoPhase(), max_steps=16)
    assert out.stats.steps.tolist() == [1, 1]


def test_what_max_steps_leaves_masked_is_filled_at_the_end():
    out = revise(
        wrong_at(range(20), 40),
        torch.ones(1, 40).long(),
        policy=TwoPhase(sampling=GREEDY),
        max_steps=1,
    )
    assert out.stats.left_masked.tolist() == [20]
    assert out.tokens[0].tolist() == [2] * 20 + [1] * 20


def test_only_the_second_phase_pays_for_guidance():
    model = small()
    (tokens, editable), _ = edit("canvas")
    out = revise(
        model,
        tokens,
        editable,
        policy=TwoPhase(threshold=0.0, mask_steps=2),
        guidance=Guidance(text=4.0, at="masked"),
        max_steps=10,
    )
    phases = (out.trajectory[:-1] == model.mask_id).any(-1)[:, 0]
    revealing = (out.actions == 2).any(-1)[:, 0]
    assert phases.any()
    steps = int(out.stats.steps)
    assert int(out.stats.forward_passes) == steps + int(revealing.sum())


@pytest.mark.parametrize(
    "bad", [{"mask_steps": 0}, {"fill_steps": 0}, {"threshold": 1.0}, {"threshold": -0.1}]
)
def test_wrong_settings_are_refused(bad):
    with pytest.raises(ValueError, match="must"):
        TwoPhase(**bad)
