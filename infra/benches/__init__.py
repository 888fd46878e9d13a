"""Benchmarks: each runs both sides in one process and prints a ratio."""
