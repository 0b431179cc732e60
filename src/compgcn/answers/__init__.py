"""Questions that a trained model answers: missing facts, classes, explanations, neighbours, vectors."""
