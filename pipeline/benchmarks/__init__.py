"""Text benchmarks, one per file: its record, its reader, its prompt and its answer format."""
