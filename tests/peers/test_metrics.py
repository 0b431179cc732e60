"""Filtered metrics equal those of PyKEEN's evaluator on the same scores, ties included."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from compgcn.tasks.facts import Answers
from compgcn.tasks.ranking import metrics, rank_triples

pytestmark = pytest.mark.peers

N, R = 25, 3
SCORES = {"all different": lambda noise: noise, "many ties": torch.round, "all the same": torch.zeros_like}
HITS = (1, 3, 10)
METRICS = {"mrr": "inverse_harmonic_mean_rank", "mr": "arithmetic_mean_rank"} | {
    f"hits@{k}": f"hits_at_{k}" for k in HITS
}


@pytest.mark.parametrize("kind", SCORES)
def test_metrics_are_those_of_pykeen(pykeen: ModuleType, kind: str) -> None:
    draw = torch.Generator().manual_seed(0)
    numbers = torch.randperm(N * R * N, generator=draw)[:400]
    known = torch.stack((numbers // (R * N) % (N // 3), numbers // N % R, numbers % N), 1).unique(dim=0)
    ranked = known[torch.randperm(len(known), generator=draw)[:60]]  # some queries have many answers
    scores = SCORES[kind](torch.randn(N, 2 * R, N, generator=draw))  # of queries (s, r) and (o, r + R)
    sides = rank_triples(lambda s, r: scores[s, r], ranked, Answers.from_triples(known, R), N)

    evaluator = pykeen.evaluation.RankBasedEvaluator(
        metrics=["mrr", "mr", *("hits@k" for _ in HITS)],
        metrics_kwargs=[{}, {}, *({"k": k} for k in HITS)],
        add_defaults=False,
    )
    s, r, o = ranked.unbind(1)
    for side, table, given, target in (("tail", scores[s, r], 0, 2), ("head", scores[o, r + R], 2, 0)):
        place = ranked[:, target].unsqueeze(1)
        true = table.gather(1, place)
        same = (known[:, given] == ranked[:, given, None]) & (known[:, 1] == r[:, None])  # [ranked, known]
        row, fact = same.nonzero(as_tuple=True)
        left_out = table.clone()
        left_out[row, known[fact, target]] = torch.nan  # PyKEEN leaves out NaN
        left_out.scatter_(1, place, true)
        evaluator.process_scores_(hrt_batch=ranked, target=side, scores=left_out, true_scores=true)
    theirs = evaluator.finalize().to_flat_dict()

    for reading in ("optimistic", "realistic", "pessimistic"):
        parts = {side: getattr(getattr(sides, side), reading) for side in ("head", "tail")}
        for side, ranks in {**parts, "both": torch.cat((parts["head"], parts["tail"]))}.items():
            expected = {ours: theirs[f"{side}.{reading}.{name}"] for ours, name in METRICS.items()}
            assert metrics(ranks) == pytest.approx(expected, abs=1e-6, rel=1e-6), side
