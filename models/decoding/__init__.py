"""Decoding: the loop, the policies that it runs, and what a decode returns.

Importing a policy's module registers it, so every policy is imported here.
"""

from remask.models.decoding.baselines import P2, Absorbing, ReMDM
from remask.models.decoding.beliefs import Sampling
from remask.models.decoding.loop import revise
from remask.models.decoding.policy import (
    POLICIES,
    DecodeState,
    Observation,
    Policy,
    register_policy,
)
from remask.models.decoding.revision import Action, Revision
from remask.models.decoding.revision_rule import RevisionPolicy
from remask.models.decoding.two_phase import TwoPhase

__all__ = [
    "P2",
    "POLICIES",
    "Absorbing",
    "Action",
    "DecodeState",
    "Observation",
    "Policy",
    "ReMDM",
    "Revision",
    "RevisionPolicy",
    "Sampling",
    "TwoPhase",
    "register_policy",
    "revise",
]
