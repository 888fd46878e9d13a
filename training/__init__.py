"""Trains a model on trajectory shards."""

from remask.training.objective import ObjectiveConfig, OracleLoss, oracle_action, oracle_loss

__all__ = ["ObjectiveConfig", "OracleLoss", "oracle_action", "oracle_loss"]
