"""Clean sequences to revision trajectories."""

from remask.pipeline.format.manifest import open_manifest
from remask.pipeline.format.rows import Row, read_rows, states
from remask.pipeline.proposal import SourceTokens, TopK, Uniform, objective_shift_bound, wrong_digit
from remask.pipeline.rules import RULES
from remask.pipeline.trajectory import TrajectoryConfig, oracle_action, sample_trajectories

__all__ = [
    "RULES",
    "Row",
    "SourceTokens",
    "TopK",
    "TrajectoryConfig",
    "Uniform",
    "objective_shift_bound",
    "open_manifest",
    "oracle_action",
    "read_rows",
    "sample_trajectories",
    "states",
    "wrong_digit",
]
