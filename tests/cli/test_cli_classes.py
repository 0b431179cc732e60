"""The commands on classifications of nodes and of graphs, from files to answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import toy
from compgcn.cli.console import doubts
from compgcn.data import GraphCollection
from compgcn.run.run import Run, open_run
from toy import Command, refused

SETTINGS = toy.flags({"encoder.dims": (8, 8), "lr": 0.1, "folds": 3, "device": "cpu", "weight_decay": 0.0})
nodes = toy.trained(toy.labelled(), toy.classify)
graphs = toy.trained(toy.molecules(), toy.classify)


def test_nodes_are_classified_from_a_table_of_triples_and_one_of_labels(command: Command, tmp_path: Path) -> None:
    toy.write_tsv(tmp_path / "shops.tsv", toy.labelled())
    toy.write_labels(tmp_path / "labels.tsv", toy.labelled())
    done = command("train", "shops.tsv", "--labels", "labels.tsv", "--epochs", 25, *SETTINGS)
    assert done.code == 0, done
    assert "labelled nodes: 14 train, 2 valid, 8 test" in done.out
    assert "protocol 'refit'" in done.out
    assert "100.0" in done.out
    run = "runs/shops-compgcn-refit-0"
    asked = command("predict", run, "--item", "p0", "--item", "P1", "--json")
    found = [(row["item"], row["label"], row["known"]) for row in json.loads(asked.out)]
    assert found == [("p0", "buyer", "buyer"), ("p1", "seller", "seller")]


@pytest.mark.parametrize("form", ["TU", "table"])
def test_graphs_are_classified_from_a_folder_or_a_table(command: Command, tmp_path: Path, form: str) -> None:
    data = toy.molecules()
    if form == "TU":
        toy.write_tu(tmp_path / "rings", data)
        source: list[object] = ["rings"]
    else:
        node = [f"n{i}" for i in range(data.num_nodes)]
        graph = [data.graph_ids[g] for g in data.graph_of]
        lines = [f"{graph[s]}\t{node[s]}\t{data.relations.ids[r]}\t{node[o]}\n" for s, r, o in data.triples]
        (tmp_path / "rings.tsv").write_text("".join(lines))
        classes = [f"{name}\t{data.classes[c]}\n" for name, c in zip(data.graph_ids, data.targets, strict=True)]
        (tmp_path / "classes.tsv").write_text("".join(classes))
        source = ["rings.tsv", "--labels", "classes.tsv", "--task", "graph-classification"]
    words = ("train", *source, "--epochs", 15, "--protocol", "nested", *SETTINGS, "--set", "inner_folds=2")
    report = json.loads(command(*words, "--json").out)
    assert (report["run"], report["protocol"]) == ("runs/rings-compgcn-nested-0", "nested")
    assert (report["test"]["accuracy"], len(report["test"]["folds"])) == (1.0, 3)
    shown = command(*words)
    assert "protocol 'nested'" in shown.out
    assert "test, mean ± sd of 3 folds" in shown.out
    assert "100.0 ± 0.0" in shown.out


def labels_of(people: int, classes: tuple[str, ...] = ("buyer", "seller"), split: str = "\ttrain") -> str:
    return "".join(f"p{i}\t{classes[i % len(classes)]}{split}\n" for i in range(people))


@pytest.mark.parametrize(
    ("labels", "settings", "works", "words"),
    [
        (labels_of(6, ("buyer",)), {}, False, ["one class", "'buyer'"]),
        (labels_of(4), {"protocol": "holdout"}, False, ["no validation label", "refit", "data.valid_fraction"]),
        (labels_of(4), {"data.valid_fraction": 0.0, "protocol": "holdout"}, True, ["no label was held out"]),
        (labels_of(4, split=""), {}, True, ["no class is large enough for a test part"]),
        (labels_of(4) + "p5\tthief\ttest\n", {}, True, ["1 class without a training label to learn it from: 'thief'"]),
        (labels_of(5), {"folds": 3}, True, ["1 class with fewer training labels than the 3 folds", "'seller'"]),
    ],
)
def test_labels_that_do_not_suffice_are_refused_without_a_folder_or_noted(
    command: Command, tmp_path: Path, labels: str, settings: dict[str, object], works: bool, words: list[str]
) -> None:
    toy.write_tsv(tmp_path / "shops.tsv", toy.labelled())
    (tmp_path / "labels.tsv").write_text(labels)
    given = toy.flags(toy.CLASSES | {"epochs": 1, "folds": 2} | settings)
    done = command("train", "shops.tsv", "--labels", "labels.tsv", *given)
    assert (done.code == 0, (tmp_path / "runs").exists()) == (works, works), done
    assert all(word in (done.out if works else done.err) for word in words), done


def test_a_table_of_graphs_read_as_triples_is_recognised(command: Command, tmp_path: Path) -> None:
    (tmp_path / "headed.tsv").write_text("graph\tsource\trelation\ttarget\nm\ta\tr\tb\n")
    (tmp_path / "plain.tsv").write_text("m\ta\tr\tb\n")
    (tmp_path / "classes.tsv").write_text("m\tno\n")
    refused(command("train", "headed.tsv"), "--task graph-classification", "--columns")
    refused(command("train", "plain.tsv", "--task", "graph-classification"), "needs a table of graphs", "--labels")
    refused(command("train", "plain.tsv", "--labels", "classes.tsv"), "expected 3 columns", "(train --columns)")
    assert "graph-classification" not in command("train", "plain.tsv").err


def test_the_metrics_of_the_papers_protocol_are_those_of_validation(graphs: Run, command: Command) -> None:
    done = command("evaluate", graphs.path, "--split", "valid")
    assert "valid, mean ± sd of 3 folds" in done.out
    assert "true, predicted as" in done.out
    unasked = command("evaluate", graphs.path)
    assert unasked.out == f"the protocol 'paper' reports on valid, so these are its metrics\n{done.out}"
    assert graphs.evaluate() == graphs.metrics["valid"]
    refused(
        command("evaluate", graphs.path, "--split", "test"), "the test split of ", " is empty; give another --split"
    )


def test_evaluate_by_class_and_the_stored_metrics_agree(nodes: Run, command: Command) -> None:
    assert json.loads(command("evaluate", nodes.path, "--json").out) == nodes.metrics["test"]
    by_class = json.loads(command("evaluate", nodes.path, "--by", "class", "--json").out)
    assert by_class == nodes.metrics["test"]["by_class"]
    assert "precision" in command("evaluate", nodes.path, "--by", "class").out
    refused(command("evaluate", nodes.path, "--by", "relation"), "unknown way to split metrics 'relation'", "class")


def test_a_classification_is_drawn(nodes: Run, graphs: Run, command: Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for run, split in ((nodes, "test"), (graphs, "valid")):
        done = command("evaluate", run.path, "--split", split, "--plot", tmp_path / f"{split}.png")
        assert f"the figure is {tmp_path / split}.png" in done.out
        assert (tmp_path / f"{split}.png").read_bytes()[:4] == b"\x89PNG"


def test_a_run_is_asked_what_it_can_answer(nodes: Run, graphs: Run, command: Command, tmp_path: Path) -> None:
    refused(command("predict", nodes.path, "--head", "p0", "--relation", "buys"), "--relation and --head ask", "--item")
    refused(command("predict", nodes.path, "--item", "p0", "--new"), "--new asks for links", "node-classification")
    refused(command("predict", graphs.path), "--item", "--graphs")
    refused(command("predict", graphs.path, "--item", "m99"), "unknown graph 'm99'")
    links = toy.train(tmp_path / "links").path
    refused(command("predict", links), "a prediction needs two of head, relation and tail")
    refused(command("predict", links, "--item", "p0"), "predicts links")
    refused(command("discover", nodes.path), "predicts no links", f"compgcn predict {nodes.path} --item")
    refused(command("evaluate", links, "--by", "class"), "unknown way to split metrics 'class'")
    refused(command("evaluate", links, "--by", "sid"), "unknown way to split metrics 'sid'; did you mean 'side'?")
    refused(command("evaluate", links, "--split", "tset"), "unknown split 'tset'; did you mean 'test'?")
    with pytest.raises(ValueError, match="predicts links and has no classes"):
        open_run(links).classify(["p0"])
    with pytest.raises(ValueError, match="is a run of graph-classification and predicts no links"):
        graphs.predict(head="a", relation="b")


def test_the_most_certain_nodes_are_shown_and_all_are_written(
    nodes: Run, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compgcn.cli.answers._TOP", 5)
    found = nodes.classify()
    assert all(answer.known is None for answer in found)
    certain = sorted((answer.probability for answer in found), reverse=True)
    for words, number in (((), 5), (("--top", 3), 3)):
        rows = json.loads(command("predict", nodes.path, *words, "--json").out)
        assert [row["probability"] for row in rows] == pytest.approx(certain[:number])
        last = command("predict", nodes.path, *words).out.splitlines()[-1]
        assert last == f"the {number} most certain of {len(found)} nodes without a label; --top N shows others"
    shown = command("predict", nodes.path, "--to", "all.csv").out
    assert len(Path("all.csv").read_text().splitlines()) == 1 + len(found)
    assert shown.splitlines()[-1] == f"all {len(found)} nodes without a label, the most certain first"
    command("predict", nodes.path, "--to", "few.csv", "--top", 3)
    assert len(Path("few.csv").read_text().splitlines()) == 1 + 3


def test_only_nodes_like_the_labelled_are_shown_where_there_are_such(tmp_path: Path, command: Command) -> None:
    data = toy.labelled()
    fewer = replace(data.labels, train=data.labels.train[2:])
    run = toy.classify(tmp_path / "run", replace(data, labels=fewer), epochs=2)
    freed = {data.entities.ids[row] for row in data.labels.train[:2, 0]}
    assert run.classes.alike() == freed
    found = command("predict", run.path, "--top", 9).out
    assert {line.split()[0] for line in found.splitlines()[1:3]} == freed
    assert f"{data.num_entities - 24:,} more have other relations than those with a label" in found
    note = "'t1' has other relations than those with a label, so its class may mean nothing"
    for item, odd in (("t1", True), (min(freed), False), ("p5", False)):
        assert (command("predict", run.path, "--item", item).out.splitlines()[-1] == note) == odd


def test_classes_are_written_to_a_table(nodes: Run, command: Command) -> None:
    assert command("predict", nodes.path, "--item", "p1", "--item", "p2", "--to", "out.parquet").code == 0
    assert pq.read_table("out.parquet").to_pylist() == [answer._asdict() for answer in nodes.classify(["p1", "p2"])]
    refused(command("predict", nodes.path, "--item", "p1", "--to", "out.txt"), "a .parquet, .csv or .tsv file")
    refused(command("predict", nodes.path, "--item", "p1", "--graphs", "others"), "one of them at a time")


def test_a_run_stopped_in_a_fold_is_refused(command: Command, tmp_path: Path) -> None:
    with pytest.raises(toy.Killed):
        toy.classify(tmp_path / "run", toy.labelled(), notify=toy.killed_at_event(5))
    refused(command("predict", "run", "--item", "p0"), "give the same train command again")


def test_a_model_that_learned_nothing_is_doubted() -> None:
    def said(test: list[list[int]], accuracy: float) -> list[str]:
        report = {"accuracy": accuracy, "confusion": test}
        return doubts({"classes": ["a", "b"], "test": report, "valid": {}, "facts": {"test": {"accuracy": 0.6}}})

    assert said([[3, 0], [0, 3]], 1.0) == []
    assert said([[3, 0], [0, 3]], 0.6) == []
    assert "no better than the regression" in said([[1, 2], [2, 1]], 1 / 3)[0]
    assert "all 6 test items are predicted as 'a'" in said([[3, 0], [3, 0]], 0.7)[0]
    assert said([[3, 0], [0, 0]], 1.0) == []


def test_graphs_of_another_collection_are_classified(graphs: Run, command: Command, tmp_path: Path) -> None:
    others = toy.molecules(graphs=8, seed=5)
    found = graphs.classify(others)
    assert [answer.label for answer in found] == [others.classes[c] for c in others.targets]
    # the same graphs, their relations and labels numbered in another order
    turned = GraphCollection(
        "turned",
        type(others.relations)("relation", ["double", "single"]),
        others.classes,
        others.graph_of,
        others.triples * [1, -1, 1] + [0, 1, 0],
        others.targets,
        node_labels=2 - np.asarray(others.node_labels),
        node_classes=("H", "N", "C"),
        graph_ids=others.graph_ids,
    )
    assert graphs.classify(turned) == found
    toy.write_tu(tmp_path / "others", others)
    refused(command("predict", graphs.path, "--graphs", tmp_path / "others"), "unknown relation in the graphs '0'")


def test_events_name_the_fold_that_trains(nodes: Run) -> None:
    lines = [json.loads(line) for line in (nodes.path / "events.jsonl").read_text().splitlines()]
    assert lines[0]["task"] == "node-classification"
    parts = list(dict.fromkeys(line["part"] for line in lines if line["event"] == "epoch"))
    assert parts == ["fold 1 of 3", "fold 2 of 3", "fold 3 of 3", "final"]
    assert not list((nodes.path / "checkpoint").iterdir())
