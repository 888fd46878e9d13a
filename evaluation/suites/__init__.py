"""Benchmarks: samples and their scoring, one per file."""
