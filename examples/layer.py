"""Classify the nodes of a random graph with a CompGCN layer inside a plain PyTorch model."""

import torch
from torch import nn

from compgcn.nn import CompGCNConv

N, R, E = 200, 5, 1_000
x, labels = torch.randn(N, 16), torch.randint(4, (N,))
edge_index, edge_type = torch.randint(N, (2, E)), torch.randint(R, (E,))

# Two rows of `rel` per relation: originals first, then inverses.
model = nn.ModuleDict({"rel": nn.Embedding(2 * R, 16), "conv": CompGCNConv(16, 32, R), "out": nn.Linear(32, 4)})
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(50):
    h, _ = model["conv"](x, model["rel"].weight, edge_index, edge_type)  # [N, 32]
    loss = nn.functional.cross_entropy(model["out"](h.tanh()), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    print(f"step {step}  loss {loss.item():.4f}")
