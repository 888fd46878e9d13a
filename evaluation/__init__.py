"""From checkpoints to scores and a report."""
