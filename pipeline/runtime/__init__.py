"""The runtime of every stage: storage, jobs, recipes, progress, commands."""
