"""Pages that people read: of experiments, and of a run."""
