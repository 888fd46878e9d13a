"""How examples and trajectories lie in files."""
