"""Backbones: embeddings in, logits out."""
