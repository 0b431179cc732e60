"""A run conditioned on the query answers about graphs it never saw; entities have no vectors, and it says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compgcn.cli.console import calibration_note
from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.errors import InputError
from compgcn.run.run import Run, fit
from compgcn.train.loop import Interrupted
from toy import CONDITIONAL, Command, contents, facts, graph, lasting, molecules, refused, trained, write_tsv

FACTS = [("ann", "lives", "t1"), ("ann", "born", "t2"), ("p3", "knows", "ann"), ("ann", "knows", "bob")]
run = trained(graph(12, 4, valid=8, test=8), **CONDITIONAL)
other = trained(epochs=0)


def scores(run: Run) -> torch.Tensor:
    """The scores of all queries, inverses included, [N, 2R, N]."""
    data = run.data
    N, width = data.num_entities, 2 * data.num_relations
    with torch.inference_mode():
        return run.answers.scores("entities", np.arange(N * width)).view(N, width, N)


def renamed(data: KnowledgeGraph) -> tuple[KnowledgeGraph, torch.Tensor]:
    """The same graph with other names of entities, numbered otherwise, and with its relations in another order."""
    row, relation = np.random.default_rng(1).permutation(data.num_entities), np.array([2, 0, 1])
    ids, relations = [""] * data.num_entities, [""] * data.num_relations
    for old, new in enumerate(row):
        ids[new] = f"renamed {old}"
    for old, new in enumerate(relation):
        relations[new] = data.relations.ids[old]
    columns = ((name, *triples.T) for name, triples in data.splits.items())
    splits = {name: np.column_stack((row[s], relation[r], row[o])) for name, s, r, o in columns}
    return (
        replace(data, entities=Vocabulary("entity", ids), relations=Vocabulary("relation", relations), **splits),
        torch.from_numpy(row),
    )


# Other graphs


def test_a_graph_with_renamed_entities_gives_the_same_answers(run: Run) -> None:
    data, row = renamed(run.data)
    asked = run.with_graph(data)
    torch.testing.assert_close(scores(asked)[row][:, :, row], scores(run), atol=1e-5, rtol=1e-5)
    for by in (None, "relation", "category", "side"):
        ours, theirs = asked.evaluate("test", by), run.evaluate("test", by)
        assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)
    new = int(row[0])
    assert data.entities.ids[new] == "renamed 0"
    found, expected = (one.predict(head, "lives", top=4) for one, head in ((asked, "renamed 0"), (run, "p0")))
    assert [one.known for one in found] == [one.known for one in expected]
    np.testing.assert_allclose([one.probability for one in found], [one.probability for one in expected], atol=1e-5)


def test_more_facts_are_the_larger_graph_and_change_no_weight(run: Run) -> None:
    larger = run.with_facts(FACTS)
    e, r = larger.data.entities, larger.data.relations
    assert e.ids[-2:] == ("ann", "bob")
    again = run.with_graph(replace(larger.data, relations=Vocabulary("relation", r.ids)))
    assert torch.equal(scores(larger), scores(again))
    before = run.ranker.model.state_dict()
    for name, weight in larger.ranker.model.state_dict().items():
        assert torch.equal(weight, before[name]), name  # the mean of log-degrees is that of training, too
    assert [one.known for one in larger.predict("ann", "lives", top=20) if one.id == "t1"] == ["train"]
    assert {"ann", "bob"} < {one.id for one in larger.predict(relation="lives", tail="t1", top=100)}
    twice = larger.with_facts([("cid", "knows", "ann")])
    assert twice.newcomers == 3


def test_all_answers_are_about_the_other_graph_and_the_folder_stays(run: Run, tmp_path: Path) -> None:
    before = contents(run.path)
    file = tmp_path / "other.tsv"
    file.write_text("x\tlives\ty\nz\tlives\ty\nx\tknows\tz\nz\tknows\tx\n")
    asked = run.with_graph(file)
    assert asked.data.entities.ids == ("x", "y", "z")
    assert len(asked.data.train) == 4  # a file's facts are all seen
    assert asked.data.num_relations == run.data.num_relations
    assert {one.id for one in asked.predict("x", "lives")} == {"y", "z"}
    assert {one.id for one in asked.predict("x", tail="z")} == {"lives", "born", "knows"}
    assert asked.score([("x", "lives", "y")])[0].known == "train"
    assert all({one.head, one.tail} <= {"x", "y", "z"} for one in asked.discover(top=5))
    assert asked.calibrated() == run.calibrated()
    assert asked.calibrated("discoveries") is None  # without validation there are no rates to weigh
    assert calibration_note(asked) == "probabilities calibrated on the graph of training"
    with pytest.raises(InputError, match="calibrate that run"):
        asked.calibrate()
    with pytest.raises(InputError, match="unknown entity 'p0'"):
        asked.predict("p0", "lives")
    assert contents(run.path) == before


def test_relations_of_one_meaning_count_a_fact_once(run: Run) -> None:
    one, both = (
        run.with_graph(KnowledgeGraph.from_triples(rows, valid_fraction=0, test_fraction=0))
        for rows in ([("x", "lives", "y")], [("x", "lives", "y"), ("x", "LIVES", "y")])
    )
    assert len(both.data.train) == 1
    assert torch.equal(scores(one), scores(both))


def test_a_fact_that_the_model_sees_is_no_question_to_it(run: Run) -> None:
    rows = [("x", "lives", "y"), ("x", "LIVES", "y"), ("y", "knows", "x")]
    whole = KnowledgeGraph.from_triples(rows, valid_fraction=0, test_fraction=0)
    asked = run.with_graph(replace(whole, train=whole.train[:1], test=whole.train[1:]))
    assert [len(triples) for triples in asked.data.splits.values()] == [1, 0, 1]
    with pytest.raises(InputError, match="sees the facts of train, so their ranks say nothing"):
        run.evaluate("train")


def test_facts_of_train_are_scored_on_the_graph_without_them(run: Run) -> None:
    data = run.data
    for row, fact in zip(data.train, facts(data, "train")[:4], strict=False):
        (scored,) = run.score([fact])
        explained = run.explain(*fact, method="gradient")
        assert scored.score == pytest.approx(explained.score, abs=1e-5)
        less = replace(data, train=data.train[(data.train != row).any(1)])
        view = run.with_graph(less)
        if run.config.training.hide == "facts":
            assert scored.score == pytest.approx(view.score([fact])[0].score, abs=1e-5)


def test_the_score_of_a_fact_does_not_depend_on_the_facts_scored_with_it(run: Run) -> None:
    asked = [*facts(run.data, "train"), *facts(run.data, "valid"), ("p0", "lives", "t3")]
    for together, fact in zip(run.score(asked), asked, strict=True):
        (alone,) = run.score([fact])
        assert together._replace(score=0, probability=0) == alone._replace(score=0, probability=0)
        assert together.score == pytest.approx(alone.score, abs=1e-5)
        assert together.probability == pytest.approx(alone.probability, abs=1e-5)


def test_only_a_graph_is_asked_about_and_only_a_model_without_entities_can(run: Run, other: Run) -> None:
    with pytest.raises(InputError, match="with_graph takes a graph"):
        run.with_graph(molecules())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="this model has learned vectors of the entities"):
        other.with_graph(graph())


# Vectors


def test_entities_have_no_vectors_and_relations_do(run: Run, tmp_path: Path) -> None:
    for ask in (run.entity_embeddings, lambda: run.similar("p0"), lambda: run.encoded):
        with pytest.raises(InputError, match="gives no entity a vector of its own; take a run of another model"):
            ask()
    names, vectors = run.relation_embeddings()
    assert vectors.shape == (6, 8)
    assert len(run.similar("lives", kind="relation")) == 5
    assert names[0] == "lives"
    assert run.export(tmp_path / "vectors.tsv") == 6


# Commands


def test_commands_ask_about_another_graph(run: Run, command: Command) -> None:
    one = write_tsv(Path("one.tsv"), run.data)
    Path("three").mkdir()
    for split in run.data.splits:
        write_tsv(Path(f"three/{split}.tsv"), run.data, split)
    same = command("evaluate", run.path, "--graph", "three", "--json")
    np.testing.assert_allclose(json.loads(same.out)["mrr"], run.metrics["test"]["mrr"], atol=1e-6)
    divided = command("evaluate", run.path, "--graph", one)
    assert "split into" in divided.err
    assert "test, filtered" in divided.out
    seen = command("predict", run.path, "--graph", one, "--head", "p0", "--relation", "lives", "--json")
    assert "split into" not in seen.err
    assert {answer["known"] for answer in json.loads(seen.out)} <= {"train", None}
    Path("more.tsv").write_text("ann\tlives\tt1\n")
    both = command(
        *("predict", run.path, "--graph", one, "--facts", "more.tsv", "--head", "ann", "--relation", "lives", "--json"),
        *("--top", "100"),
    )
    assert ("t1", "train") in {(answer["id"], answer["known"]) for answer in json.loads(both.out)}
    refused(
        command("predict", run.path, "--graph", "wrld", "--head", "x", "--relation", "lives"), "did you mean 'world"
    )
    empty = command("evaluate", run.path, "--graph", "more.tsv")
    assert (empty.code, "the test split of 'more.tsv' is empty" in empty.err) == (1, True)
    Path("bad.tsv").write_text("a\tlivs\tb\n")
    refused(command("predict", run.path, "--graph", "bad.tsv", "--head", "a", "--relation", "lives"), "'lives'")


def test_a_run_resumes_where_memory_holds_another_number_of_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = graph(12, 4, valid=8, test=8)
    settings: dict[str, Any] = {"encoder": "conditional", "dims": (8, 8, 8), "epochs": 2}

    def memory(queries: int) -> None:
        states = queries * (2 + 6) * data.num_entities * 8 * 4
        monkeypatch.setattr("compgcn.nn.conditional.memory", lambda device: 4 * states)

    memory(3)
    undisturbed = fit(data, run_dir=tmp_path / "whole", **settings)
    with pytest.raises(Interrupted):
        fit(data, run_dir=tmp_path / "run", interrupted=lambda: True, **settings)
    memory(5)
    with pytest.raises(InputError, match=r"training\.batch_size: 3 -> 5"):
        fit(data, run_dir=tmp_path / "run", batch_size=5, **settings)
    assert fit(data, run_dir=tmp_path / "run", **settings).config.training.batch_size == 3
    assert lasting(tmp_path / "run") == lasting(undisturbed.path)
    assert fit(data, run_dir=tmp_path / "run", overwrite=True, **settings).config.training.batch_size == 5
