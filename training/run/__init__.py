"""The folder of a run: checkpoints, resuming, logs, locks, and how the run ended."""
