"""Benchmarks, one per file: samples, prompts, scores, glossary, showcase."""
