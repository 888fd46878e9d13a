"""Text benchmarks: records, prompts and answers, one file per benchmark."""
