"""A checkpoint to a report."""
