"""Classify the nodes of a random graph with two CompGCN layers inside a plain PyTorch model."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.nn import CompGCNConv

N, R, E, FEATURES, CLASSES = 200, 5, 1_000, 16, 4


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rel = nn.Parameter(torch.randn(2 * R, FEATURES))  # originals, then inverses
        self.first = CompGCNConv(FEATURES, 32, num_relations=R, composition="corr")
        self.second = CompGCNConv(32, CLASSES, num_relations=R, composition="corr")

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        x, rel = self.first(x, self.rel, edge_index, edge_type)
        x, _ = self.second(torch.tanh(x), rel, edge_index, edge_type)
        return x  # [N, CLASSES]


torch.manual_seed(0)
x, labels = torch.randn(N, FEATURES), torch.randint(CLASSES, (N,))
edge_index, edge_type = torch.randint(N, (2, E)), torch.randint(R, (E,))
model = Classifier()
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(1, 51):
    loss = F.cross_entropy(model(x, edge_index, edge_type), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 10 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
