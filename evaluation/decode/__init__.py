"""How samples are decoded or scored by a model."""
