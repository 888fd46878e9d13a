"""What every stage runs on: storage, jobs, recipes, progress, errors."""
