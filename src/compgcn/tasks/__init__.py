"""Tasks: objectives, samplers and metrics. `LinkPrediction` and `Classification` fit `compgcn.train.loop.Task`."""
