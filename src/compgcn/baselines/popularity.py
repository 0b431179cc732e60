"""The popularity baseline of link prediction: answer with the most common entities of a relation."""

from __future__ import annotations

import torch
from torch import Tensor

from compgcn.tasks.facts import Answers


class Popularity:
    """score(s, r, o) = the number of distinct training triples with relation r and object o, whatever s is."""

    def __init__(self, answers: Answers, num_entities: int) -> None:
        self.num_entities = num_entities
        relation = answers.queries[:, 1].repeat_interleave(answers.offsets.diff())  # [A]
        key, self.counts = torch.unique(relation * num_entities + answers.answers, return_counts=True)
        self.objects = key % num_entities
        steps = torch.arange(2 * answers.num_relations + 1, device=key.device)
        self.offsets = torch.searchsorted(key // num_entities, steps)  # of each relation in objects and counts

    def score(self, s: Tensor, r: Tensor) -> Tensor:
        """Return the scores of all entities for queries (s, r), [B, N] of [B]."""
        relations, row = torch.unique(r, return_inverse=True)
        table = torch.zeros(len(relations), self.num_entities, device=r.device)
        ends = zip(self.offsets[relations].tolist(), self.offsets[relations + 1].tolist(), strict=True)
        for i, (start, end) in enumerate(ends):
            table[i, self.objects[start:end]] = self.counts[start:end].float()
        return table[row]
