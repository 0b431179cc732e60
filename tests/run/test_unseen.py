"""Facts added to a trained run: new entities get rows that fit their facts, and nothing else changes by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import compgcn
import toy
from compgcn.cli.console import calibration_note
from compgcn.errors import InputError
from compgcn.nn.graph import RelationalGraph
from compgcn.run import unseen
from compgcn.run.run import Run
from compgcn.run.unseen import _examples, _tables
from compgcn.tasks.link_prediction import LinkPrediction
from toy import Command, contents, graph, refused, train, trained

FACTS = [("ann", "lives", "t1"), ("ann", "born", "t2"), ("p3", "knows", "ann"), ("ann", "knows", "bob")]

# Where a model can have a row for each entity: tables, biases, raw vectors, the adversary's tables.
KINDS: dict[str, dict[str, Any]] = {
    "compgcn + conve": {},
    "two layers": {"encoder.dims": (8, 8, 16), "decoder": "transe"},
    "basis vectors": {"bases": 2, "decoder": "distmult"},
    "raw vectors": {"encoder.residual": 16},
    "vrgcn": {"encoder": "vrgcn", "decoder": "distmult"},
    "rgcn-block": {"encoder": "rgcn-block"},
    "kbgan": {"decoder": "transe", "loss": "margin", "sampler": "kbgan"},
}
run = trained(graph(12, 4))


def vector(run: Run, name: str) -> torch.Tensor:
    return run.encoded.entities[run.data.entities.index(name)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_newcomer_is_an_entity_like_any_other_but_for_where_its_rows_come_from(kind: str, tmp_path: Path) -> None:
    """Give a trained entity the rows of a newcomer with the same facts, and they have the same vector."""
    run = train(tmp_path / "run", graph(12, 4), epochs=2, **KINDS[kind])
    data, p5 = run.data, run.data.entities.index("p5")
    about = (data.train[:, [0, 2]] == p5).any(axis=1)
    told = (fact for fact, own in zip(toy.facts(data, "train"), about, strict=True) if own)
    clone = [tuple("ann" if text == "p5" else text for text in fact) for fact in told]
    larger = run.with_facts(clone).task
    with torch.no_grad():
        for ours, theirs in zip(_tables(run.task.model), _tables(larger.model), strict=True):
            assert theirs[-1].abs().max() > 0
            ours[p5] = theirs[-1]
            assert torch.equal(theirs[:p5], ours[:p5])
    g, stay = larger.graph, torch.ones(larger.graph.num_edges, dtype=torch.bool)
    stay[: len(about)] = torch.from_numpy(~about)  # without the entity itself, or its neighbours had twice its facts
    smaller = RelationalGraph(g.src[stay], g.dst[stay], g.rel[stay], g.num_nodes, g.num_relations)
    with torch.inference_mode():
        placed = larger.model.encode(smaller).entities
    torch.testing.assert_close(placed[-1], vector(run, "p5"), atol=1e-5, rtol=1e-5)
    others = [i for i in range(16) if i != p5]
    torch.testing.assert_close(placed[others], run.encoded.entities[others], atol=1e-5, rtol=1e-5)


def test_the_rows_of_newcomers_learn_their_facts_and_no_other_weight_changes(run: Run) -> None:
    larger = run.with_facts([(name, "lives", "t1") for name in ("ann", "bob", "cid")])
    model, known = larger.task.model, run.data.num_entities
    after = model.state_dict()
    for name, weights in run.task.model.state_dict().items():
        assert torch.equal(after[name][: len(weights)] if weights.dim() else after[name], weights), name
    task = LinkPrediction(model, larger.task.graph, larger.task.splits, run.config.training)
    about, _ = _examples(task, known)
    with torch.no_grad():
        learned = task.loss(about)
        for table in _tables(model):
            table[known:] = table[:known].mean(0)
        assert learned < task.loss(about)


def test_other_facts_keep_newcomers_from_answering_queries_that_are_not_theirs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [(name, "lives", "t1") for name in ("ann", "bob", "cid")]
    lost = []
    for weight in (0, 1):
        monkeypatch.setattr(unseen, "_OTHERS", weight)
        larger = run.with_facts(facts).task
        task = LinkPrediction(larger.model, larger.graph, larger.splits, run.config.training)
        with torch.no_grad():
            lost.append(task.loss(_examples(task, run.data.num_entities)[1]).item())
    assert lost[1] < lost[0]


def test_facts_that_are_known_change_nothing_and_another_is_one_more_edge(run: Run) -> None:
    s, p, o = toy.facts(run.data, "train")[0]
    same = run.with_facts([(s, p, o), (f"name of {s}", p, o)])
    assert torch.equal(same.encoded.entities, run.encoded.entities)
    assert np.array_equal(same.data.train, run.data.train)
    larger = run.with_facts([("p0", "knows", "p7")])
    assert larger.task.graph.num_edges == run.task.graph.num_edges + 1
    assert not torch.equal(vector(larger, "p0"), vector(run, "p0"))


def test_newcomers_are_asked_about_answers_and_reasons(run: Run) -> None:
    larger = run.with_facts(FACTS)
    assert torch.equal(larger.encoded.entities, run.with_facts(FACTS).encoded.entities)
    assert larger.data.num_entities == run.data.num_entities + 2
    answers = larger.predict(head="ann", relation="lives", top=100)
    assert [p.known for p in answers if p.id == "t1"] == ["train"]
    assert {"ann", "bob"} < {p.id for p in larger.predict(relation="lives", tail="t1", top=100)}
    found = larger.explain("ann", "lives", "t1", top=100)
    assert {("ann", "lives", "t1"), ("p3", "knows", "ann")} < {fact[:3] for fact in found.facts}
    again = larger.with_facts([("cid", "knows", "ann")])  # and so on
    assert again.data.entities.ids[-3:] == ("ann", "bob", "cid")


def test_the_run_and_its_folder_stay_as_they_are(run: Run) -> None:
    before, entities = contents(run.path), run.encoded.entities.clone()
    run.with_facts(FACTS).predict(head="ann", relation="lives")
    assert contents(run.path) == before
    assert torch.equal(run.encoded.entities, entities)
    with pytest.raises(InputError, match="unknown entity 'ann'"):
        run.predict(head="ann", relation="lives")


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ([("ann", "livs", "t1")], "unknown relation 'livs'; did you mean 'lives'"),
        (
            [("ann", "livs", "t1"), ("ann", "eats", "t1"), ("ann", "known", "t1")],
            r"unknown relations 'livs' \(did you mean 'lives'\?\), 'eats', 'known' \(did you mean 'knows'\?\); ",
        ),
        ([("ann", "lives")], r"'triples', row 1: expected \(subject, relation, object\), found \('ann', 'lives'\)"),
        ([], "'triples' is empty: it holds no triple"),
        ("nowhere.tsv", "there is no file 'nowhere.tsv'"),
    ],
)
def test_facts_that_cannot_be_added_are_refused(facts: Any, message: str, run: Run) -> None:
    with pytest.raises(InputError, match=message):
        run.with_facts(facts)


def test_a_model_that_facts_tell_nothing_takes_none(tmp_path: Path) -> None:
    none = train(tmp_path / "none", graph(), epochs=1, encoder="none", **{"encoder.dims": (16,)})
    with pytest.raises(
        InputError, match=r"has no graph encoder.* takes no more facts; train one that has, such as --model conditional"
    ):
        none.with_facts(FACTS)
    with_features = graph().with_features(np.eye(12, 8))
    given = train(tmp_path / "features", with_features, epochs=1)
    assert given.with_facts([("p0", "knows", "p7")]).data.num_entities == 12
    with pytest.raises(InputError, match="starts its entities from features, and the unseen entity 'ann' has none"):
        given.with_facts(FACTS)


def test_who_is_taken_for_new_and_what_was_dropped_is_said(run: Run, command: Command, tmp_path: Path) -> None:
    known = toy.facts(run.data, "train")[0]
    rows = [("ann", "lives", "t1"), ("ann", "lives", "t1"), ("P 1", "knows", "P3"), known]
    assert run.with_facts(rows).data.notes == (
        "2 facts added, 3 new entities: 'P3' (did you mean 'p3'?), 'ann', 'P 1'",
        "1 repeated fact dropped",
        "1 fact dropped that train has already",
    )
    near = run.with_facts([("nameof p1", "lives", "nme of p14")]).data.notes[0]
    assert near == "1 fact added, 2 new entities: 'nameof p1' (did you mean 'name of p1'?), 'nme of p14'"
    iri = "http://example.org/a/long/vocabulary#"
    assert unseen._near(f"{iri}anna", [f"{iri}oslo", "oslo"]) is None, "all begin like this"
    many = run.with_facts([(f"e{i}", "lives", "t1") for i in range(7)])
    assert many.data.notes == ("7 facts added, 7 new entities: 'e0', 'e1', 'e2', 'e3', 'e4' and 2 more",)
    assert run.with_facts([known]).data.notes[0] == "0 facts added, 0 new entities"
    (tmp_path / "new.tsv").write_text("".join("\t".join(fact) + "\n" for fact in rows))
    shown = command("predict", run.path, "--head", "ann", "--relation", "lives", "--facts", "new.tsv", "--json")
    assumed = "note: the data hold an answer already; the probabilities assume that another is missing"
    assert shown.err.splitlines() == [*(f"note: new.tsv: {note}" for note in run.with_facts(rows).data.notes), assumed]
    expected = run.with_facts(rows).predict(head="ann", relation="lives")
    assert [one["id"] for one in json.loads(shown.out)] == [one.id for one in expected]


def test_probabilities_of_newcomers_are_said_to_be_calibrated_without_them(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    larger, same = run.with_facts(FACTS), run.with_facts([("p0", "knows", "p7")])
    again = larger.with_facts([("p0", "knows", "p7")])
    for one in (run, same, larger, again):
        assert calibration_note(one) == "probabilities not calibrated"
        monkeypatch.setattr(one.answers, "scalings", {"entities": object()})
    assert calibration_note(run) == calibration_note(same) == "probabilities calibrated on valid"
    assert calibration_note(larger) == "probabilities calibrated on the graph of training"
    assert calibration_note(again) == calibration_note(larger)


@pytest.mark.parametrize("columns", [("who", "how", "whom"), (3, 1, 0)], ids=["names", "positions"])
def test_facts_are_read_as_the_file_that_was_trained_on(
    columns: tuple[str | int, ...], tmp_path: Path, command: Command
) -> None:
    def write(name: str, facts: list[tuple[str, ...]]) -> Path:
        path, header = tmp_path / name, "" if columns[0] == 3 else "whom,how,year,who\n"
        path.write_text("# from the office\n" + header + "".join(f"{o},{r},1999,{s}\n" for s, r, o in facts))
        return path

    data = graph()
    table = compgcn.read(write("table.csv", toy.facts(data)), columns=columns, comment="#")
    run = train(tmp_path / "run", table, epochs=1)
    larger = run.with_facts(write("new.csv", FACTS))
    assert np.array_equal(larger.data.train, run.with_facts(FACTS).data.train)
    (tmp_path / "three.csv").write_text("".join(f"{s},{r},{o}\n" for s, r, o in FACTS))
    assert np.array_equal(run.with_facts(tmp_path / "three.csv").data.train, larger.data.train)
    plain = train(tmp_path / "plain", data, epochs=1)
    (tmp_path / "four.csv").write_text("ann,lives,1999,t1\n")
    asked = command("predict", plain.path, "--head", "ann", "--relation", "lives", "--facts", "four.csv")
    refused(asked, "'four.csv' has 4 columns, and not the columns of the training file", "keep three")


def test_what_is_wrong_with_facts_in_a_file_names_the_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "new.tsv"
    file.write_text("ann\tlivez\tt1\n")
    with pytest.raises(InputError, match=rf"{file}: .*'livez'.*'lives'"):
        run.with_facts(file)
