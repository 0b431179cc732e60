"""Filtered metrics equal those of PyKEEN's evaluator on the same scores, ties included."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from compgcn.tasks.facts import Answers
from compgcn.tasks.ranking import HITS, metrics, rank_triples

pytestmark = pytest.mark.peers

N, R = 25, 3
SCORES = {
    "all different": lambda noise: noise,
    "many ties": lambda noise: noise.round(),
    "all the same": torch.zeros_like,
}
METRICS = {"mrr": "inverse_harmonic_mean_rank", "mr": "arithmetic_mean_rank"} | {
    f"hits@{k}": f"hits_at_{k}" for k in HITS
}


def facts() -> tuple[Tensor, Tensor]:
    """Triples without repetition, and those of them that are ranked: some queries have many answers."""
    numbers = torch.randperm(N * R * N, generator=torch.Generator().manual_seed(0))[:400]
    triples = torch.stack((numbers // (R * N) % (N // 3), numbers // N % R, numbers % N), 1).unique(dim=0)
    return triples, triples[torch.randperm(len(triples), generator=torch.Generator().manual_seed(1))[:60]]


@pytest.mark.parametrize("kind", SCORES)
def test_metrics_are_those_of_pykeen(pykeen: ModuleType, kind: str) -> None:
    known, ranked = facts()
    noise = torch.randn(N, 2 * R, N, generator=torch.Generator().manual_seed(2))
    scores = SCORES[kind](noise)  # of every query (s, r) and, by inverse relations, (o, r + R)
    sides = rank_triples(lambda s, r: scores[s, r], ranked, Answers.from_triples(known, R), N)

    evaluator = pykeen.evaluation.RankBasedEvaluator(
        metrics=["mrr", "mr", *("hits@k" for _ in HITS)],
        metrics_kwargs=[{}, {}, *({"k": k} for k in HITS)],
        add_defaults=False,
    )
    s, r, o = ranked.unbind(1)
    for side, table, target in (("tail", scores[s, r], o), ("head", scores[o, r + R], s)):
        true = table.gather(1, target.unsqueeze(1))
        known_too = (
            (known[:, 0] == s[:, None]) & (known[:, 1] == r[:, None])
            if side == "tail"
            else (known[:, 2] == o[:, None]) & (known[:, 1] == r[:, None])
        )  # [ranked, known]
        row, fact = known_too.nonzero(as_tuple=True)
        left_out = table.clone()
        left_out[row, known[fact, 2 if side == "tail" else 0]] = torch.nan  # which is how it is told to leave them out
        left_out.scatter_(1, target.unsqueeze(1), true)
        evaluator.process_scores_(hrt_batch=ranked, target=side, scores=left_out, true_scores=true)
    theirs = evaluator.finalize().to_flat_dict()

    for reading in ("optimistic", "realistic", "pessimistic"):
        parts = {side: getattr(getattr(sides, side), reading) for side in ("head", "tail")}
        parts["both"] = torch.cat((parts["head"], parts["tail"]))
        for side, ranks in parts.items():
            found = metrics(ranks)
            assert found.keys() == METRICS.keys()
            for ours, name in METRICS.items():
                assert found[ours] == pytest.approx(theirs[f"{side}.{reading}.{name}"], abs=1e-6, rel=1e-6), (
                    side,
                    ours,
                )
