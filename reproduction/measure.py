"""Measure the answers of a trained model on facts it never saw, and the speed of reading and of serving.

`python -m reproduction measure NAME` trains the model, measures it, and writes reproduction/benchmarks/NAME.json.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

import compgcn
from compgcn.answers import discover
from compgcn.answers.calibrate import calibration_error
from compgcn.answers.explain import Method, contributions, is_small, left_out, receptive_field, score_of, scores_without
from compgcn.answers.links import Kind, Links, fitted, reliability
from compgcn.answers.paths import Triple
from compgcn.data import KnowledgeGraph
from compgcn.data.graph import restricted
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.run.portfolio import search as compare
from compgcn.run.run import Run
from compgcn.run.search import Budget, journalled
from compgcn.tasks.facts import Answers
from compgcn.tasks.ranking import Popularity, Scorer, metrics, rank_triples
from reproduction import BENCHMARKS
from reproduction.bench import Report, environment
from reproduction.experiment import chosen, experiments
from reproduction.large import settings_of, sizes_of
from reproduction.synthetic import synthetic, write

CPU = torch.device("cpu")


def write_report(name: str, report: Report) -> Path:
    """Write a report to its file."""
    path = BENCHMARKS / f"{name}.json"
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return path


def store(name: str, source: str, row: Report) -> Path:
    """Put a measurement into its file, in place of the one on the same data set."""
    report = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))
    report["data"][source] = row
    return write_report(name, report)


def graph_of(source: str) -> KnowledgeGraph:
    """Load a graph for link prediction."""
    data = compgcn.load(source)
    assert isinstance(data, KnowledgeGraph)
    return data


@contextmanager
def trained(data: KnowledgeGraph, source: str, device: str, seed: int = 0, model: str | None = None) -> Iterator[Run]:
    """Train a model, or the recommended one, in a temporary folder; with the settings of an experiment if it has any.

    The recommended one on FB15k-237 is the paper's DistMult + CompGCN (Mult).
    """
    settings: dict[str, Any] = {"seed": seed, "device": device}
    names, row = ["encoders"], "distmult-compgcn-mult" if source == "fb15k-237" else ""
    if model is not None:
        names, row = ["conditional", "defaults"], f"{source}-{model}"
    for table in experiments(names).values():
        if any(one.name == row for one in table.rows):
            given = chosen(table, table.row(row))
            settings = {key: value for key, value in given.items() if not key.startswith("data.")} | settings
    with tempfile.TemporaryDirectory() as folder:
        yield compgcn.fit(data, model=model, run_dir=Path(folder) / "run", **settings)


def about(run: Run) -> Report:
    """Describe a run: model, accuracy, settings, and the machines that trained and measured it."""
    made = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    config, mrr = json.loads(run.config.model_dump_json()), round(run.metrics["test"]["mrr"], 4)
    return {"model": run.model_name, "mrr": mrr, "config": config, "trained": made, "environment": environment()}


def links_of(run: Run) -> Links:
    """Return the answers of a run of link prediction."""
    assert isinstance(run.answers, Links)
    return run.answers


# Calibration and discoveries


def calibration(run: Run) -> Report:
    """Return the calibration error on test, before and after calibration."""
    links = links_of(run)
    asked: dict[str, tuple[Kind, int]] = {
        "the ten best entities": ("entities", 10),
        "the best entity": ("entities", 1),
        "the ten best relations": ("relations", 10),
        "the best relation": ("relations", 1),
    }
    rows: Report = {}
    for what, (kind, top) in asked.items():
        found = reliability(links, "test", kind, top)
        rows[what] = {"answers": len(found.right), "right": round(found.right.double().mean().item(), 4)}
        for name, scaling in (("before", None), ("after", (links.scalings or {}).get(kind))):
            rows[what][name] = {"error": round(calibration_error(found.bins(scaling)), 4)}
    return {**about(run), "answers": rows}


def discoveries(run: Run) -> Report:
    """Hide the test split, and return the share of the first discoveries that it holds, and their mean probability."""
    links, data = links_of(run), run.data
    assert isinstance(data, KnowledgeGraph)
    hidden = Links(run.config, dataclasses.replace(data, test=data.test[:0]), links.task)
    hidden.scalings = fitted(hidden)
    hidden.weighing = discover.weighing(hidden)
    tops = (20, 100, 500, 2000)
    found = discover.discover(hidden, top=max(tops))
    entity, relation, test = data.entities.index, data.relations.index, set(map(tuple, data.test.tolist()))
    right = [(entity(one.head), relation(one.relation), entity(one.tail)) in test for one in found]
    chances = [one.probability for one in found]
    shares = [
        {"top": top, "in_test": round(np.mean(right[:top]), 4), "probability": round(np.mean(chances[:top]), 4)}
        for top in tops
    ]
    return {**about(run), "fitted": shares}


# Explanations

TOP, DRAWS, FACTS = 3, 10, 200


class Named(NamedTuple):
    """The facts that an explanation lists first."""

    edges: Tensor
    others: Tensor  # edges to draw random ones from
    exact: bool
    scores: Callable[[list[Tensor]], Tensor]  # without each of some sets of edges


def _first(weighed: Tensor, values: Tensor) -> Tensor:
    return weighed[values.abs().topk(min(TOP, len(values))).indices]


def _in_field(links: Links, triple: Triple, method: str) -> Named:
    model, graph = links.task.predictor, links.task.graph
    field = receptive_field(model, graph, triple)
    small = method == "auto" and is_small(field)
    best = _first(*contributions(links, triple, field, exact=small))
    return Named(best, field.edges, small, lambda sets: scores_without(model, graph, triple, field, sets))


def _on_paths(links: Links, triple: Triple, method: str) -> Named:
    """Return the facts or the paths of a model conditioned on the query; random facts are at the head or the tail."""
    asked, (s, _, o) = score_of(links, triple), triple
    slopes, number = asked.slopes(), 0 if method == "paths" else left_out(asked, TOP, cast(Method, method))
    if method == "paths":
        taken = [message for walk in asked.walks(slopes, TOP) for message in walk.messages]
        best = torch.unique(torch.tensor(taken, dtype=torch.long, device=asked.edges.device) % asked.graph.num_edges)
    else:
        best = _first(*asked.contributions(slopes, number))
    ends = torch.stack((asked.graph.src, asked.graph.dst))[:, asked.edges]
    return Named(best, asked.edges[((ends == s) | (ends == o)).any(0)], number > 0, asked.scores_without)


def explanations(run: Run) -> Report:
    """Compare the facts that explanations list first with random facts, exactly where that is quick and by gradient."""
    links, rows = links_of(run), []
    conditional = isinstance(links.task.model, ConditionalCompGCN)
    for method in ("auto", "gradient", *(["paths"] if conditional else [])):
        rng = np.random.default_rng(0)
        losses, exact = list[Tensor](), 0
        for i in rng.permutation(len(links.data.test)):
            if len(losses) == FACTS:
                break
            named = (_on_paths if conditional else _in_field)(links, tuple(links.data.test[i].tolist()), method)
            if not 0 < len(named.edges) < len(named.others):
                continue
            size = len(named.edges)
            drawn = [torch.from_numpy(rng.choice(len(named.others), size, replace=False)) for _ in range(DRAWS)]
            sets = [named.edges[:0], named.edges, *(named.others[places] for places in drawn)]
            scores = named.scores(sets).double()
            lost = scores[0] - scores[1:]
            losses.append(torch.stack((lost[0], lost[1:].mean())))
            exact += named.exact
        listed, random_ones = torch.stack(losses).unbind(1)
        more = listed - random_ones
        compared = {
            "drop": round(listed.mean().item(), 4),
            "difference": round(more.mean().item(), 4),
            "standard_error": round((more.std() / len(more) ** 0.5).item(), 4),
            "larger": round((more > 0).double().mean().item(), 3),
        }
        row = {"method": method, "facts": len(losses), "exact": exact}
        rows.append({**row, "drop_random": round(random_ones.mean().item(), 4), "listed": compared})
    return {**about(run), "rows": rows}


# Unseen entities

SHARE, LEAST = 0.05, 2  # share of entities to hide, and the training facts that a hidden entity must have
DEGREES = (1, 9), (10, 99), (100, 10**9)  # ranges of training facts, to tell hubs from the rest
Facts = list[tuple[str, str, str]]


def hide(data: KnowledgeGraph, seed: int) -> tuple[KnowledgeGraph, dict[str, Facts], list[str]]:
    """Return the graph without some entities, the facts about them by split, and their ids."""
    facts = np.bincount(data.train[:, [0, 2]].ravel(), minlength=data.num_entities)
    drawn = np.flatnonzero(facts >= LEAST)
    count = min(len(drawn), round(SHARE * data.num_entities))
    hidden = np.random.default_rng(seed).choice(drawn, count, replace=False)
    about = {part: np.asarray(np.isin(rows[:, [0, 2]], hidden).any(axis=1)) for part, rows in data.splits.items()}
    e, r = data.entities.ids, data.relations.ids
    told = {part: [(e[s], r[p], e[o]) for s, p, o in rows[about[part]].tolist()] for part, rows in data.splits.items()}
    return restricted(data, {part: ~those for part, those in about.items()}), told, [e[row] for row in hidden]


@torch.inference_mode()
def ask(
    data: KnowledgeGraph, queries: Facts, degrees: dict[str, int], score: Scorer, device: torch.device = CPU
) -> dict[str, float]:
    """Rank queries among all entities, given the training facts of each hidden one.

    Return the MRR of queries about hidden entities: all, where they are given, where they answer, on average over
    entities, and by degree; and the MRR of ordinary queries.
    """
    rows = [(data.entities.index(s), data.relations.index(r), data.entities.index(o)) for s, r, o in queries]
    asked = torch.tensor(rows, device=device)
    every = [torch.from_numpy(triples).to(device) for triples in data.splits.values()]
    known = Answers.from_triples(torch.cat([*every, asked]), data.num_relations)
    degree = torch.zeros(data.num_entities, dtype=torch.long, device=device)
    degree[[data.entities.index(text) for text in degrees]] = torch.tensor(list(degrees.values()), device=device)
    sides = rank_triples(score, asked, known, data.num_entities)
    ranks = torch.cat((sides.tail.realistic, sides.head.realistic))
    s, _, o = asked.unbind(1)
    given, answer = torch.cat((s, o)), torch.cat((o, s))
    parts = {
        "mrr": degree[given] + degree[answer] > 0,
        "newcomer_given_mrr": degree[given] > 0,
        "newcomer_answer_mrr": degree[answer] > 0,
        "ordinary_mrr": degree[given] + degree[answer] == 0,
    }
    found = {name: metrics(ranks[part])["mrr"] for name, part in parts.items() if part.any()}
    owner, own = torch.cat((given, answer)), ranks.repeat(2)  # a query belongs to both of its ends
    each = [metrics(own[owner == one])["mrr"] for one in torch.unique(owner[degree[owner] > 0])]
    found["entity_mrr"] = statistics.fmean(each)
    for least, most in DEGREES:
        those = (degree[owner] >= least) & (degree[owner] <= most)
        if those.any():
            found[f"degree_{least}_mrr"] = metrics(own[those])["mrr"]
    return {name: round(value, 4) for name, value in found.items()}


def unseen(data: KnowledgeGraph, source: str, device: str, seed: int, model: str | None = None) -> Report:
    """Hide entities, train without them, add them by their facts, and compare with a model trained with them."""
    known, told, hidden = hide(data, seed)
    with trained(known, source, device, seed, model) as run, trained(data, source, device, seed, model) as whole:
        placed, place = run.with_facts(told["train"]), run.device
        graph = placed.data
        assert isinstance(graph, KnowledgeGraph)
        entity = torch.tensor([data.entities.index(text) for text in graph.entities.ids], device=place)
        both = torch.tensor([data.relations.index(text) for text in graph.relations.ids], device=place)
        relation = torch.cat((both, both + data.num_relations))
        answers = Answers.from_triples(torch.from_numpy(graph.train).to(place), graph.num_relations)
        generator = torch.Generator().manual_seed(seed)
        scorers: dict[str, Scorer] = {
            "newcomers": links_of(placed).scorer,
            "popularity": Popularity(answers, graph.num_entities).score,
            "random": lambda s, r: torch.rand(len(s), graph.num_entities, generator=generator).to(place),
            "trained": lambda s, r: links_of(whole).scorer(entity[s], relation[r])[:, entity],
        }
        e, r = graph.entities.ids, graph.relations.ids
        there, counts = set(e), Counter(end for s, _, o in told["train"] for end in {s, o})
        queries = [fact for fact in told["test"] if {fact[0], fact[2]} <= there]
        ordinary = [(e[s], r[p], e[o]) for s, p, o in graph.test.tolist()]
        degrees = {one: counts[one] for one in hidden if one in there}
        test = {name: ask(graph, queries + ordinary, degrees, score, place) for name, score in scorers.items()}
        return {"seed": seed, "hidden": len(hidden), "asked": len(queries), "test": test, **about(run)}


# Reading and serving

_READ = """
import json, resource, sys, time
start = time.perf_counter()
import compgcn
graph = compgcn.read(sys.argv[1])
seconds = round(time.perf_counter() - start, 1)
peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
print(json.dumps({"seconds": seconds, "peak_gib": peak, **graph.statistics(), "notes": graph.notes}))
"""


def in_process(code: str, *words: str, **variables: str) -> Any:
    """Run code in a process of its own, and return the JSON that it prints."""
    command = [sys.executable, "-c", code, *words]
    return json.loads(subprocess.run(command, capture_output=True, check=True, env=os.environ | variables).stdout)


def reading(path: Path) -> Path:
    """Time the reading of a file."""
    row = {"megabytes": path.stat().st_size // 10**6, **in_process(_READ, str(path)), "environment": environment()}
    return store("reading", path.name, row)


_TRAIN = """
import json, resource, sys, time
import compgcn, torch
from compgcn.run.plan import measure
rates = measure(torch.device("cpu"), time.process_time)._asdict()
ends, settings = [], json.loads(sys.argv[3])
notify = lambda event: ends.append(time.process_time()) if event["event"] == "epoch" else None
compgcn.fit(compgcn.read(sys.argv[1]), run_dir=sys.argv[2], device="cpu", notify=notify, **settings)
peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"measured": {"peak": peak, "seconds": round(ends[1] - ends[0], 1)}, "rates": rates}))
"""


def planned(size: str, model: str | None) -> Path:
    """Measure the rates of this machine, then two epochs on a synthetic graph, in a process of one thread.

    The model is the recommended one, or that of large graphs, "large". All times are those of the processor.
    """
    key = size if model is None else f"{size}, {model}"
    settings = json.dumps(settings_of(key) | {"training.epochs": 2})
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "graph.tsv"
        write(data, synthetic(*sizes_of(size)))
        words = (str(data), f"{folder}/run", settings)
        found = in_process(_TRAIN, *words, OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    return store("plan", key, {**found, "environment": environment()})


_CONNECTIONS, _ANSWERS = 32, 10


def serving(source: str, seconds: float) -> Path:
    """Serve a model at random weights in a process of its own, and let 32 connections query it without pause."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", source, "--decoder", "distmult", "--epochs", "0", "--run-dir", folder]
        subprocess.run([sys.executable, "-m", "compgcn", *words], check=True)
        command = [sys.executable, "-m", "compgcn", "serve", folder, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                port = re.search(r":(\d+) ", server.stdout.readline() if server.stdout else "")
                assert port is not None, "the server did not start"
                bodies = _queries(graph_of(source), 5000)
                drive(int(port[1]), bodies, 5)  # fills caches
                measured = drive(int(port[1]), bodies, seconds)
            finally:
                server.terminate()
    report = {"bench": "serving", "data": source, "connections": _CONNECTIONS, "environment": environment(), **measured}
    return write_report("cpu/serving", report)


def _queries(graph: KnowledgeGraph, count: int) -> list[bytes]:
    """Return questions about test facts: 45 % ask for the tail, 45 % for the head, 10 % for the relation."""
    rng, made = random.Random(0), []
    for s, r, o in rng.choices(graph.test.tolist(), k=count):
        fact = {"head": graph.entities.ids[s], "relation": graph.relations.ids[r], "tail": graph.entities.ids[o]}
        del fact[rng.choices(("tail", "head", "relation"), (45, 45, 10))[0]]
        made.append(json.dumps({**fact, "top": _ANSWERS}).encode())
    return made


def drive(port: int, bodies: list[bytes], seconds: float) -> Report:
    """Query a server from all connections, each as soon as it has an answer."""
    seen: list[float] = []
    errors: list[int] = []
    until = time.perf_counter() + seconds

    def client(turn: int) -> None:
        connection = HTTPConnection("127.0.0.1", port)
        while (begun := time.perf_counter()) < until:
            connection.request("POST", "/api/predict", bodies[turn % len(bodies)], {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
            seen.append(1000 * (time.perf_counter() - begun))
            if answer.status != 200 or body.count(b'"rank"') != _ANSWERS:
                errors.append(answer.status)
            turn += 1

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(client, range(0, len(bodies), len(bodies) // _CONNECTIONS + 1)))
    cuts = statistics.quantiles(seen, n=100)
    times = {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "max": max(seen)}
    report: Report = {"seconds": seconds, "requests": len(seen), "requests_per_second": round(len(seen) / seconds, 1)}
    return {**report, "ms": {name: round(value, 1) for name, value in times.items()}, "errors": len(errors)}


OF_RUNS: dict[str, Callable[[Run], Report]] = {
    "calibration": calibration,
    "discoveries": discoveries,
    "explanations": explanations,
}


def search(source: str, seconds: float, device: str) -> Path:
    """Let models compete for a graph, as `compgcn train --minutes` does; write benchmarks/search/SOURCE-DEVICE.json."""
    data, begun = graph_of(source), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        run = compare({"data.source": source, "training.device": device}, data, Budget(seconds), place)
        took, found = time.monotonic() - begun, journalled(run.path)
        assert found is not None
        report = {
            **environment(run.device),
            "command": f"python -m reproduction measure search --data {source} --seconds {seconds:g}",
            "data": source,
            "seconds": round(took, 1),
            "winner": found.trials[0].name,
            "valid": run.metrics["valid"]["mrr"],
            "test": run.metrics["test"]["mrr"],
            "candidates": [trial._asdict() for trial in found.trials],
        }
    return write_report(f"search/{source}-{run.device.type}", report)


def measure(name: str, source: str, device: str, seeds: int, model: str | None = None) -> Path:
    """Train the model of a data set, or one by its name, measure it, and store the measurement."""
    data, key = graph_of(source), source if model is None else f"{source}, {model}"
    if name == "unseen":
        rows = [unseen(data, source, device, seed, model) for seed in range(seeds)]
        return store(name, key, {"environment": environment(), "rows": rows})
    with trained(data, source, device, model=model) as run:
        return store(name, key, OF_RUNS[name](run))
