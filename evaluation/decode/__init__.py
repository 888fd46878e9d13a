"""How a model decodes samples or scores their likelihood."""
