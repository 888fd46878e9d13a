"""Checkpoints: folders of safetensors weights and the config that shaped them."""
