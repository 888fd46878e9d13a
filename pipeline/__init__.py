"""Clean sequences to revision trajectories."""

from pipeline.proposal import Source, TopK, Uniform, objective_shift_bound, wrong_digit
from pipeline.trajectory import (
    Rule,
    Trajectories,
    TrajectoryConfig,
    check_trajectories,
    oracle_action,
    sample_trajectories,
    state_at,
    states,
)

__all__ = [
    "Rule",
    "Source",
    "TopK",
    "Trajectories",
    "TrajectoryConfig",
    "Uniform",
    "check_trajectories",
    "objective_shift_bound",
    "oracle_action",
    "sample_trajectories",
    "state_at",
    "states",
    "wrong_digit",
]
