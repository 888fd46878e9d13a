"""The sandbox in which generated code runs."""
