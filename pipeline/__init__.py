"""Clean sequences to revision trajectories."""

from remask.pipeline.format.manifest import open_manifest
from remask.pipeline.format.rows import Row, read_rows, states
from remask.pipeline.proposal import Source, TopK, Uniform, objective_shift_bound, wrong_digit
from remask.pipeline.trajectory import (
    Rule,
    Trajectories,
    TrajectoryConfig,
    check_trajectories,
    oracle_action,
    sample_trajectories,
    state_at,
)

__all__ = [
    "Row",
    "Rule",
    "Source",
    "TopK",
    "Trajectories",
    "TrajectoryConfig",
    "Uniform",
    "check_trajectories",
    "objective_shift_bound",
    "open_manifest",
    "oracle_action",
    "read_rows",
    "sample_trajectories",
    "state_at",
    "states",
    "wrong_digit",
]
