"""Training: the loop, one step of it, whole models by name, and the run folder on disk."""
