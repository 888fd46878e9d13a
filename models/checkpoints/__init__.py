"""Checkpoints: folders of safetensors and the config that shaped them."""
