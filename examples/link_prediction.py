"""Train a small link predictor on the graph that comes with the package, and ask it."""

import compgcn

data = compgcn.load("world")
run = compgcn.fit(data, dims=[32, 32], epochs=10, run_dir="runs/example")
print(f"test MRR {run.metrics['test']['mrr']:.4f}, best epoch {run.metrics['best_epoch']}")
for answer in run.predict(head="France", relation="borders", top=5):
    print(f"{answer.probability:.4f}  {answer.name}  ({answer.known or 'new'})")
