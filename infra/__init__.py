"""The outermost package: the `remask` command, the Python surface, set-up and benches."""
