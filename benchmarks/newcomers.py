"""How well entities are placed that training never saw, from their facts alone.

    python benchmarks/newcomers.py prepare --data fb15k-237 --to FOLDER     # hides some entities
    compgcn train FOLDER/train.tsv --valid FOLDER/valid.tsv --test FOLDER/test.tsv --run-dir RUN OPTIONS
    compgcn train fb15k-237 --run-dir TRAINED OPTIONS
    python benchmarks/newcomers.py measure RUN FOLDER --data fb15k-237 --trained TRAINED
    python benchmarks/newcomers.py world                                    # all of that on `world`, three seeds

where OPTIONS are --composition mult --decoder distmult --set encoder.dims=[100,200] --set loss=cross-entropy
--set batch_size=1000 --set lr=0.002 --set epochs=30 --set evaluate_every=10 --set schedule=cosine
--set schedule_start=0.3 --set schedule_floor=0.0. The result has every setting, and what the runs were made with.

Hidden are 5 % of the entities, drawn among those with at least two facts in train, and with them every fact they occur
in. Their facts of train come back as `support.tsv`; their facts of valid and test are the questions, which the model is
never given: `asked-valid.tsv` and `asked-test.tsv`. Every entity is a candidate, newcomers too; ranks are filtered by
all facts of the data, and realistic. Beside the newcomers stand random scores, the popularity of an answer for its
relation (newcomers' facts counted), and with --trained a run that was trained on all of train, hidden facts included.
The result is `benchmarks/newcomers.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reproduction.bench.measure import header, trained
from torch import Tensor

import compgcn
from compgcn.baselines.popularity import Popularity
from compgcn.data import KnowledgeGraph
from compgcn.data.split import Triples
from compgcn.errors import InputError
from compgcn.run import Run, fit, open_run
from compgcn.tasks.facts import Answers
from compgcn.tasks.ranking import Scorer, metrics, rank_triples

RESULT = Path(__file__).with_suffix(".json")
SHARE, LEAST = 0.05, 2  # of the entities that are hidden, and the facts in train that one must have to be drawn
SEEDS = 3
FILES = "FOLDER/train.tsv --valid FOLDER/valid.tsv --test FOLDER/test.tsv"


def hidden_entities(data: KnowledgeGraph, seed: int) -> Triples:
    """Which entities are hidden, by their rows, ascending."""
    facts = np.bincount(data.train[:, [0, 2]].ravel(), minlength=data.num_entities)
    drawn = np.flatnonzero(facts >= LEAST)
    count = min(len(drawn), round(SHARE * data.num_entities))
    return np.sort(np.random.default_rng(seed).choice(drawn, count, replace=False))


def prepare(data: KnowledgeGraph, folder: Path, seed: int) -> None:
    """Write the facts without the hidden entities, what is known of these, and what will be asked of them."""
    hidden = np.zeros(data.num_entities, dtype=bool)
    hidden[hidden_entities(data, seed)] = True
    folder.mkdir(parents=True, exist_ok=True)
    for split, triples in data.splits.items():
        about = hidden[triples[:, [0, 2]]].any(axis=1)
        write(folder / f"{split}.tsv", data, triples[~about])
        write(folder / ("support.tsv" if split == "train" else f"asked-{split}.tsv"), data, triples[about])
    ids = "".join(f"{data.entities.ids[row]}\n" for row in np.flatnonzero(hidden))
    (folder / "hidden.txt").write_text(ids, encoding="utf-8")


def write(path: Path, data: KnowledgeGraph, triples: Triples) -> None:
    """Facts by their ids, with a header."""
    e, r = data.entities.ids, data.relations.ids
    lines = [f"{e[s]}\t{r[p]}\t{e[o]}\n" for s, p, o in triples.tolist()]
    path.write_text("".join(["head\trelation\ttail\n", *lines]), encoding="utf-8")
    print(f"{len(lines):,} facts in {path}")


class Questions:
    """What is asked of newcomers, in the rows of a run that knows them.

    Args:
        run: with the newcomers in its graph.
        folder: that `prepare` wrote.
    """

    def __init__(self, run: Run, folder: Path) -> None:
        self.data, self.left_out = run.data, 0
        self.asked = {split: self._rows(folder / f"asked-{split}.tsv") for split in ("valid", "test")}
        every = [torch.from_numpy(triples) for triples in self.data.splits.values()]
        self.known = Answers.from_triples(torch.cat([*every, *self.asked.values()]), self.data.num_relations)
        ids = (folder / "hidden.txt").read_text(encoding="utf-8").splitlines()
        self.new = torch.zeros(self.data.num_entities, dtype=torch.bool)
        self.new[[self.data.entities.index(text) for text in ids]] = True

    def _rows(self, path: Path) -> Tensor:
        """Those whose entities all occur in some fact that is known; the others are counted."""
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            s, r, o = line.split("\t")
            try:
                rows.append((self.data.entities.index(s), self.data.relations.index(r), self.data.entities.index(o)))
            except InputError:
                self.left_out += 1
        return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)

    def figures(self, split: str, score: Scorer) -> dict[str, float]:
        """MRR of both sides, of what is said of a newcomer, and of newcomers as answers; hits@10 of both sides."""
        s, _, o = self.asked[split].unbind(1)
        sides = rank_triples(score, self.asked[split], self.known, self.data.num_entities)
        ranks = torch.cat((sides.tail.realistic, sides.head.realistic))
        given, answer = self.new[torch.cat((s, o))], self.new[torch.cat((o, s))]
        both = metrics(ranks)
        parts = {"newcomer_given_mrr": ranks[given], "newcomer_answer_mrr": ranks[answer]}
        return {
            "mrr": round(both["mrr"], 4),
            "hits@10": round(both["hits@10"], 4),
            **{name: round(metrics(part)["mrr"], 4) for name, part in parts.items()},
        }


def scorer(run: Run, vocabulary: KnowledgeGraph | None = None) -> Scorer:
    """Scores of all entities as a run gives them; those of another vocabulary of the same ids, in its order."""
    model, encoded = run.task.model, run.encoded
    if vocabulary is None:
        return lambda s, r: model.score(encoded, s, r)
    entity = torch.tensor([run.data.entities.index(text) for text in vocabulary.entities.ids])
    both = torch.tensor([run.data.relations.index(text) for text in vocabulary.relations.ids])
    relation = torch.cat((both, both + run.data.num_relations))
    return lambda s, r: model.score(encoded, entity[s], relation[r])[:, entity]


def with_rows(run: Run, folder: Path, mean: bool) -> Run:
    """The run with newcomers whose row of the input is the mean of the table, or zero: the other choices there are."""
    other = run.with_facts(folder / "support.tsv")
    with torch.no_grad():
        table = other.task.model.encoder.nodes
        table[run.data.num_entities :] = table[: run.data.num_entities].mean(0) if mean else 0.0
    return other


@torch.inference_mode()
def measure(run: Run, folder: Path, seed: int, whole: Run | None) -> dict[str, Any]:
    """The figures of one run."""
    placed = run.with_facts(folder / "support.tsv")
    questions = Questions(placed, folder)
    train = torch.from_numpy(placed.data.train)
    popularity = Popularity(Answers.from_triples(train, placed.data.num_relations), placed.data.num_entities)
    generator = torch.Generator().manual_seed(seed)
    scorers: dict[str, Scorer] = {
        "newcomers": scorer(placed),
        "popularity": popularity.score,
        "random": lambda s, r: torch.rand(len(s), placed.data.num_entities, generator=generator),
    }
    if whole is not None:
        scorers["trained"] = scorer(whole, placed.data)
    rows = {
        "fitted": scorers["newcomers"],
        "mean": scorer(with_rows(run, folder, mean=True)),
        "zero": scorer(with_rows(run, folder, mean=False)),
        "popularity": popularity.score,
    }
    return {
        "seed": seed,
        "model": run.model_name,
        "known_entities": run.data.num_entities,
        "hidden": int(questions.new.sum()),
        "support_facts": len(placed.data.train) - len(run.data.train),
        "asked": {split: len(triples) for split, triples in questions.asked.items()},
        "left_out": questions.left_out,
        "valid_mrr": {name: questions.figures("valid", score)["mrr"] for name, score in rows.items()},
        "test": {name: questions.figures("test", score) for name, score in scorers.items()},
        "run": trained(run, FILES),
        "trained": None if whole is None else trained(whole),
    }


def world(seeds: int) -> list[dict[str, Any]]:
    """Hide, train and measure on `world`."""
    data, found = compgcn.load("world"), []
    assert isinstance(data, KnowledgeGraph)
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "hidden"
            prepare(data, folder, seed)
            parts = {split: folder / f"{split}.tsv" for split in ("train", "valid", "test")}
            known = compgcn.read(**parts, name="world")
            recipe = {"epochs": 20, "evaluate_every": 2, "patience": 5, "seed": seed, "device": "cpu"}
            run = fit(known, run_dir=Path(temporary) / "run", **recipe)
            whole = fit(data, run_dir=Path(temporary) / "trained", **recipe)
            found.append(measure(run, folder, seed, whole))
            print(json.dumps(found[-1]))
    return found


def store(name: str, rows: list[dict[str, Any]]) -> None:
    """Put the rows of a data set into the result, in place of older ones."""
    before = json.loads(RESULT.read_text(encoding="utf-8"))["data"] if RESULT.is_file() else {}
    result = {"share": SHARE, "ties": "realistic", "data": {**before, name: {**header(), "rows": rows}}}
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """The commands above."""
    parser = argparse.ArgumentParser(description="How well entities are placed that training never saw.")
    commands = parser.add_subparsers(dest="command", required=True)
    hide = commands.add_parser("prepare", help="hide some entities of a data set")
    hide.add_argument("--data", required=True, help="its name")
    hide.add_argument("--to", required=True, type=Path, help="the folder to write to")
    ask = commands.add_parser("measure", help="add them to a run trained without them, and ask")
    ask.add_argument("run", type=Path)
    ask.add_argument("folder", type=Path, help="that prepare wrote")
    ask.add_argument("--data", required=True, help="the name of the data set")
    ask.add_argument("--trained", type=Path, help="a run trained on all of it, to compare with")
    for command in (hide, ask):
        command.add_argument("--seed", default=0, type=int)
    commands.add_parser("world", help="all of it on world").add_argument("--seeds", default=SEEDS, type=int)
    given = parser.parse_args()
    if given.command == "prepare":
        data = compgcn.load(given.data)
        assert isinstance(data, KnowledgeGraph)
        prepare(data, given.to, given.seed)
    elif given.command == "measure":
        whole = None if given.trained is None else open_run(given.trained, "cpu")
        store(given.data, [measure(open_run(given.run, "cpu"), given.folder, given.seed, whole)])
    else:
        store("world", world(given.seeds))


if __name__ == "__main__":
    main()
