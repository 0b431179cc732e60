"""How well entities are placed that training never saw, from their facts alone.

    python benchmarks/newcomers.py prepare --data fb15k-237 --to FOLDER     # hides some entities
    compgcn train FOLDER/train.tsv --valid FOLDER/valid.tsv --test FOLDER/test.tsv --run-dir RUN
    python benchmarks/newcomers.py measure RUN FOLDER                       # adds them to benchmarks/newcomers.json
    python benchmarks/newcomers.py world                                    # all of that on `world`, three seeds

Hidden are 5 % of the entities, drawn among those with at least two facts in train, and with them every fact they occur
in. Their facts of train come back as `support.tsv`; their facts of valid and test are the questions, which the model is
never given: `asked-valid.tsv` and `asked-test.tsv`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import compgcn
from compgcn.data import KnowledgeGraph
from compgcn.data.split import Triples

SHARE, LEAST = 0.05, 2  # of the entities that are hidden, and the facts in train that one must have to be drawn


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


def main() -> None:
    """The commands above."""
    parser = argparse.ArgumentParser(description="How well entities are placed that training never saw.")
    commands = parser.add_subparsers(dest="command", required=True)
    hide = commands.add_parser("prepare", help="hide some entities of a data set")
    hide.add_argument("--data", required=True, help="its name")
    hide.add_argument("--to", required=True, type=Path, help="the folder to write to")
    hide.add_argument("--seed", default=0, type=int)
    given = parser.parse_args()
    if given.command == "prepare":
        data = compgcn.load(given.data)
        assert isinstance(data, KnowledgeGraph)
        prepare(data, given.to, given.seed)


if __name__ == "__main__":
    main()
