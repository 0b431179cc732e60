"""From settings to objects: here names become models and tasks, and nowhere below."""
