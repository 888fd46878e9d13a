"""What policies say about themselves, and the names that recipes know them by."""

from dataclasses import dataclass

import pytest
import torch

from remask.models import P2, Absorbing, Policy, ReMDM, RevisionPolicy, TwoPhase, register_policy
from remask.models.decoding import POLICIES
from tests.models.toys import Scripted, revise

M = 0  # MASK


def test_every_policy_is_registered_by_its_name():
    kinds = (Absorbing, P2, ReMDM, RevisionPolicy, TwoPhase)
    assert {kind.name: kind for kind in kinds} == POLICIES


@pytest.mark.parametrize("kind", [x for x in POLICIES.values() if not x.may_leave_masks])
@pytest.mark.parametrize("max_steps", [1, 2, 7])
def test_a_policy_that_leaves_no_masks_needs_no_closing_step(kind, max_steps):
    def script(call, tokens):
        generator = torch.Generator().manual_seed(call)
        return torch.randn(*tokens.shape, 5, generator=generator)

    start = torch.full((40, 9), M)
    result = revise(Scripted(script, 5), start, policy=kind(), max_steps=max_steps)
    assert not result.stats.left_masked.any()
    assert (result.stats.forward_passes <= max_steps).all()


@pytest.mark.parametrize("kind", [Absorbing, P2, ReMDM, TwoPhase])
def test_only_revision_reveals_all(kind):
    assert not kind().reveals_all(8)
    assert RevisionPolicy().reveals_all(8)


def test_a_name_belongs_to_one_policy():
    with pytest.raises(ValueError, match=r"Other cannot be registered as 'p2': that is .*\.P2; ch"):

        @register_policy
        @dataclass(frozen=True, kw_only=True)
        class Other(P2):
            pass

    assert POLICIES["p2"] is P2


def test_a_policy_defined_again_replaces_itself(monkeypatch):
    monkeypatch.setitem(POLICIES, "again", P2)
    del POLICIES["again"]

    def define() -> type[Policy]:
        @register_policy
        class Again(P2):
            name = "again"

        return Again

    first, second = define(), define()
    assert first is not second
    assert POLICIES["again"] is second
