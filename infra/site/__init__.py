"""The documentation site: the repository's documents, and references made from the code."""
