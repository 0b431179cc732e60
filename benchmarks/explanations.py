r"""Whether the facts that an explanation names are those a prediction rests on.

    compgcn train world --run-dir WORLD
    python benchmarks/explanations.py WORLD
    compgcn train fb15k-237 --run-dir RUN --composition mult --decoder distmult --set encoder.dims=[100,200] \
        --set loss=cross-entropy --set batch_size=1000 --set lr=0.002 --set epochs=30 --set evaluate_every=10 \
        --set schedule=cosine --set schedule_start=0.3 --set schedule_floor=0.0
    python benchmarks/explanations.py RUN

For 200 facts of test, drawn at random among those that more than three facts send messages to, the three that explain
names first are taken out of the graph at once and the fact is scored again, everything computed anew; so are three
facts drawn at random, ten times, among those that send it messages. The drop of the score is reported for both, with
the paired difference and its standard error: for the facts as explain lists them, by size, and for the three that speak
most for the prediction, since one that speaks against it raises the score when it goes. The result is
`benchmarks/explanations.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reproduction.bench.measure import header, trained
from torch import Tensor

from compgcn.answers.explain import Field, Triple, contributions, is_small, receptive_field, scores_without
from compgcn.answers.links import Links
from compgcn.run import Run, open_run

RESULT = Path(__file__).with_suffix(".json")
TOP, DRAWS = 3, 10


def drops(links: Links, triple: Triple, field: Field, exact: bool, rng: np.random.Generator) -> tuple[Tensor, float]:
    """What the score loses without the first three, three in favour and random threes [3]; seconds of a core."""
    start = time.process_time()
    weighed, values = contributions(links, triple, field, exact=exact)
    seconds = time.process_time() - start
    listed, favour = (weighed[size.topk(TOP).indices] for size in (values.abs(), values))
    random = [field.edges[torch.from_numpy(rng.choice(len(field.edges), TOP, replace=False))] for _ in range(DRAWS)]
    sets = [field.edges[:0], listed, favour, *random]
    scores = scores_without(links.task.model, links.task.graph, triple, field, sets).double()
    lost = scores[0] - scores[1:]
    return torch.stack((lost[0], lost[1], lost[2:].mean())), seconds


def measure(run: Run, method: str, facts: int, seed: int) -> dict[str, Any]:
    """The mean drops over some facts of test."""
    links = run.answers
    assert isinstance(links, Links)
    rng = np.random.default_rng(seed)
    rows, seconds, exact, sizes = [], [], 0, []
    for i in rng.permutation(len(links.data.test)):
        triple = tuple(links.data.test[i].tolist())
        field = receptive_field(links.task.model, links.task.graph, triple)
        if len(field.edges) <= TOP:
            continue
        small = method == "auto" and is_small(field)
        if not rows:
            drops(links, triple, field, small, np.random.default_rng(seed))  # what is compiled is compiled before
        row, took = drops(links, triple, field, small, rng)
        rows.append(row)
        seconds.append(took)
        sizes.append((len(field.edges), len(field.counted)))
        exact += small
        if len(rows) == facts:
            break
    listed, favour, random = torch.stack(rows).unbind(1)
    reach, depend = np.array(sizes).T
    return {
        "method": method,
        "facts": len(rows),
        "exact": exact,
        "facts_that_send_messages": {"mean": round(float(reach.mean()), 1), "most": int(reach.max())},
        "facts_depended_on": {"mean": round(float(depend.mean()), 1), "most": int(depend.max())},
        "seconds": {"median": round(float(np.median(seconds)), 4), "most": round(max(seconds), 3)},
        "drop_random": round(random.mean().item(), 4),
        "listed": compared(listed, random),
        "in_favour": compared(favour, random),
    }


def compared(drop: Tensor, random: Tensor) -> dict[str, float]:
    """The mean drop, and by how much it is larger than that of random facts, with the standard error."""
    more = drop - random
    return {
        "drop": round(drop.mean().item(), 4),
        "difference": round(more.mean().item(), 4),
        "standard_error": round((more.std() / len(more) ** 0.5).item(), 4),
        "larger": round((more > 0).double().mean().item(), 3),
    }


def main() -> None:
    """Measure one run, and put it into the result by the name of its data."""
    parser = argparse.ArgumentParser(description="Whether explanations name what a prediction rests on.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--name", help="of the data set; by default that of the run")
    parser.add_argument("--facts", default=200, type=int)
    parser.add_argument("--seed", default=0, type=int)
    given = parser.parse_args()
    run = open_run(given.run, "cpu")
    rows = [measure(run, method, given.facts, given.seed) for method in ("auto", "gradient")]
    made = {
        "model": run.model_name,
        "test_mrr": round(run.metrics["test"]["mrr"], 4),
        **header(),
        "run": trained(run),
        "seed": given.seed,
    }
    before = json.loads(RESULT.read_text(encoding="utf-8"))["data"] if RESULT.is_file() else {}
    data = {**before, given.name or run.data.name: {**made, "rows": rows}}
    RESULT.write_text(json.dumps({"deleted": TOP, "draws": DRAWS, "data": data}, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
