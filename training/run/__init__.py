"""The folder of a run: checkpoints, logs, locks, how it ended."""
