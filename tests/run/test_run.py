"""A run: the same bits for the same seed, reopened as it was left, asked by id and by name."""

from __future__ import annotations

import dataclasses
import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import compgcn
from compgcn.config import Config, changes, configure, differences
from compgcn.data.datasets import LARGE_RECIPE, OWN_RECIPES, large_batch
from compgcn.errors import InputError
from compgcn.nn.encoder import PRESETS, Encoder
from compgcn.run.build import build_links
from compgcn.run.resolve import expand, recommended, resolve
from compgcn.run.run import Run, fit, open_run
from compgcn.train.folder import default_folder
from compgcn.train.loop import Interrupted
from compgcn.train.recipes import MODELS
from toy import graph, lasting, numbered, train, trained

run = trained()


# seeds


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(tmp_path: Path, run: Run) -> None:
    torch.rand(17)  # whatever came before does not matter
    again, other = train(tmp_path / "again"), train(tmp_path / "other", seed=1)
    assert lasting(again.path) == lasting(run.path)
    assert lasting(other.path)["model.safetensors"] != lasting(run.path)["model.safetensors"]


def test_training_and_asking_leave_the_random_numbers_of_the_caller_alone(tmp_path: Path) -> None:
    torch.manual_seed(5), np.random.seed(5), random.seed(5)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    run = train(tmp_path / "run", graph="random")
    run.predict("p0", "lives"), run.evaluate(), run.entity_embeddings()
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


# the same command


@pytest.mark.parametrize(
    "settings", [{}, {"device": "auto", "checkpoint_seconds": 1.0, "data.source": "elsewhere"}], ids=["same", "moved"]
)
def test_a_finished_run_is_opened_and_not_trained_again_wherever_it_is_made(run: Run, settings: dict[str, Any]) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()}
    assert train(run.path, **settings).metrics == run.metrics
    assert before == {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()}


def test_the_default_folder_is_named_after_data_encoder_decoder_and_seed() -> None:
    asked = {"data.source": "/a/b/family.tsv.gz", "encoder": "gcn", "decoder": "distmult", "seed": 7}
    assert default_folder(configure(Config(), asked)) == Path("runs/family-gcn-distmult-7")


# what is in a run


def test_the_config_of_a_run_leaves_nothing_open(run: Run) -> None:
    config = open_run(run.path).config
    assert config.encoder.composition == "corr"
    assert config.encoder.norm == "symmetric"
    assert config.decoder.entity_bias is True
    assert config.fingerprint == graph().fingerprint()
    assert differences(config, expand(config, graph())) == []


@pytest.mark.parametrize("name", [name for name, row in PRESETS.items() if row.composition])
def test_an_encoder_with_a_composition_of_its_own_takes_no_other(name: str) -> None:
    config = expand(configure(Config(), {"encoder": name}), graph())
    assert config.encoder.composition == PRESETS[name].composition
    with pytest.raises(InputError, match=f"encoder '{name}' has composition"):
        expand(configure(Config(), {"encoder": name, "composition": "rotate"}), graph())


@pytest.mark.parametrize("name", PRESETS)
def test_an_encoder_without_bases_takes_none(name: str) -> None:
    own, asked = PRESETS[name].bases, configure(Config(), {"encoder": name, "bases": 4})
    assert expand(configure(Config(), {"encoder": name}), graph()).encoder.bases == (own or 0)
    if own is None:
        for make in (lambda: expand(asked, graph()), lambda: Encoder(9, 2, [4, 4], name, bases=4)):
            with pytest.raises(InputError, match=f"encoder '{name}' has no bases"):
                make()
    else:
        assert expand(asked, graph()).encoder.bases == 4


def test_embeddings_have_a_row_per_entity_and_two_per_relation(run: Run) -> None:
    names, vectors = run.entity_embeddings()
    assert names == list(graph().entities.names)
    assert (vectors.shape, vectors.dtype) == ((12, 16), np.float32)
    names, vectors = run.relation_embeddings()
    assert names == ["lives", "born", "knows", "lives (inverse)", "born (inverse)", "knows (inverse)"]
    assert vectors.shape == (6, 16)


# predictions


def test_predictions_are_all_entities_by_score_with_the_split_a_fact_stands_in(run: Run) -> None:
    data = graph()
    for split, triples in data.splits.items():
        s, r, o = triples[0]
        answers = run.predict(data.entities.ids[s], data.relations.ids[r], top=99)
        assert len(answers) == 11  # all entities but the one asked about
        assert [a.score for a in answers] == sorted((a.score for a in answers), reverse=True)
        for answer in answers:
            assert answer.probability == pytest.approx(1 / (1 + np.exp(-answer.score)))
            assert answer.name == f"name of {answer.id}"
        known = {a.id: a.known for a in answers}
        assert known[data.entities.ids[o]] == split
        facts = {tuple(row) for part in data.splits.values() for row in part.tolist()}
        for i, text in enumerate(data.entities.ids):
            assert (known.get(text) is not None) == ((s, r, i) in facts)


def test_heads_are_predicted_through_the_inverse_relation(run: Run) -> None:
    data = graph()
    answers = {a.id: a for a in run.predict(tail="t1", relation="lives", top=99)}
    t1 = data.entities.index("t1")
    with torch.inference_mode():
        scores = run.task.model.score(run.encoded, torch.tensor([t1]), torch.tensor([0 + data.num_relations]))[0]
    others = [i for i in range(data.num_entities) if i != t1]
    assert [answers[data.entities.ids[i]].score for i in others] == pytest.approx(scores[others].tolist())
    heads = {data.entities.ids[s] for part in data.splits.values() for s, r, o in part if (r, o) == (0, t1)}
    assert {text for text, answer in answers.items() if answer.known} == heads


def test_scores_that_are_not_finite_are_an_error_and_no_answer(tmp_path: Path) -> None:
    run = train(tmp_path / "run", epochs=0)
    with torch.no_grad():
        run.task.model.encoder.nodes.fill_(float("nan"))
    with pytest.raises(InputError, match="not finite"):
        run.predict("p0", "lives")
    with pytest.raises(InputError, match="not finite"):
        run.evaluate()


# evaluation


@pytest.mark.parametrize("empty", [("valid",), ("test",), ("valid", "test")])
def test_empty_splits_train_and_have_no_metrics(tmp_path: Path, empty: tuple[str, ...]) -> None:
    run = train(tmp_path / "run", graph(empty=empty))
    for split in ("valid", "test"):
        assert bool(run.metrics[split]) == (split not in empty)
        for by in (None, "side", "relation", "category"):
            assert bool(run.evaluate(split, by)) == (split not in empty)
    if "valid" in empty:
        assert run.metrics["best_epoch"] == 3
    assert open_run(run.path).metrics == run.metrics


# what can be trained


@pytest.mark.parametrize(
    ("encoder", "nodes", "relations"),
    [("compgcn", 12, 0), ("compgcn", 12, 3), ("compgcn", 12, 6), ("compgcn", 0, 3), ("gcn", 12, 0), ("none", 12, 0)],
)
def test_given_features_are_trained_on_and_come_back_with_the_run(
    tmp_path: Path, encoder: str, nodes: int, relations: int
) -> None:
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(rows, 6)) if rows else None for rows in (nodes, relations)]
    data = graph().with_features(*given)
    settings = {"encoder": encoder, "decoder": "distmult"}
    run = train(tmp_path / "run", data, **settings)
    assert run.config.encoder.dims == ((6,) if encoder == "none" else (6, 16))
    if nodes:
        tensors = load_file(run.path / "model.safetensors")
        np.testing.assert_allclose(tensors["encoder.node_features"].numpy(), given[0], rtol=1e-6)
    before = run.predict("p0", "lives")
    assert open_run(run.path).predict("p0", "lives") == before
    assert open_run(run.path).evaluate() == run.metrics["test"]
    with pytest.raises(InputError, match=r"the triples, features or labels of '.*' have changed"):
        train(tmp_path / "run", graph(), **settings)


@pytest.mark.parametrize("encoder", [name for name, row in PRESETS.items() if row.relations != "vectors"])
def test_features_of_relations_are_refused_where_nothing_would_use_them(tmp_path: Path, encoder: str) -> None:
    with pytest.raises(InputError, match=f"encoder '{encoder}' has no relation vectors"):
        train(tmp_path / "run", graph().with_features(relations=np.eye(3, 5)), encoder=encoder)


@pytest.mark.parametrize("ablation", ["none", "random"])
def test_ablated_graphs_train_and_come_back(tmp_path: Path, run: Run, ablation: str) -> None:
    ablated = train(tmp_path / "run", **{"encoder.graph": ablation})
    assert (ablated.task.graph.num_edges == 0) == (ablation == "none")
    assert open_run(ablated.path).evaluate() == ablated.metrics["test"]
    assert lasting(ablated.path)["model.safetensors"] != lasting(run.path)["model.safetensors"]


@pytest.mark.parametrize(
    "settings",
    [
        {"precision": "bfloat16"},
        {"precision": "bfloat16", "decoder": "transe", "loss": "self-adversarial"},
        {"grad_clip": 0.1},
        {"schedule": "cosine", "schedule_start": 1.0},
        {"encoder": "rgcn-basis", "bases": 2},
        {"encoder": "rgcn-block", "bases": 4},
        {"bases": 3},
        {"flow": "source_to_target", "activation": "relu", "bias": True, "batch_norm": False, "self_loop": False},
        {"dims": (8, 8, 16), "loop_dropout": True, "weight_decay": 0.01, "smoothing_floor": "1/N"},
        {"activation": "none", "entity_bias": False},
        {"decoder": "distmult", "entity_bias": True, "batch_size": 1},
        {"evaluate_every": 2, "label_smoothing": 0.0},
    ],
    ids=str,
)
def test_settings_train_to_finite_metrics_and_come_back(tmp_path: Path, settings: dict[str, Any]) -> None:
    run = train(tmp_path / "run", **settings)
    assert 0 < run.metrics["test"]["mrr"] <= 1
    assert open_run(run.path).evaluate() == run.metrics["test"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"encoder": "compgc"}, "unknown encoder 'compgc'; did you mean 'compgcn'"),
        ({"regulariser": "n2"}, "unknown regulariser 'n2'; did you mean 'n3'"),
        ({"kernel": 9}, "kernel does not fit"),
        ({"composition": "rotate", "encoder.dims": (7, 16)}, "even"),
        ({"encoder": "rgcn-block", "bases": 3}, "3"),
        ({"batch_size": 1}, "batch_size"),
        ({"decoder": "conve", "tie_inverse": True}, "'conve' reads no triple backwards"),
        ({"decoder": "rotate", "tie_inverse": True}, "'compgcn' maps the vectors of relations"),
        ({"device": "cuda:99"}, "there is no device 'cuda:99' here"),
    ],
    ids=str,
)
def test_a_model_that_cannot_be_built_is_one_sentence_and_no_folder(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        train(tmp_path / "run", **settings)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("decoder", ["distmult", "transe", "conve"])
def test_one_triple_is_enough_to_train_on(tmp_path: Path, decoder: str) -> None:
    run = train(tmp_path / "run", numbered([(0, 0, 1)], 2), decoder=decoder)
    assert run.predict("0", "0", top=1)[0].id in ("0", "1")


def test_a_graph_without_a_second_entity_or_a_triple_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one entity"):
        train(tmp_path / "run", numbered([(0, 0, 0)], 1))
    with pytest.raises(InputError, match="no training triples"):
        train(tmp_path / "run", graph(empty=("train",)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", sorted(MODELS))
def test_the_bits_do_not_depend_on_how_threads_are_scheduled(tmp_path: Path, model: str) -> None:
    """The weights, and the moments of their gradients, are the same after a step with work for two threads."""
    batch = 16 if MODELS[model].settings.get("encoder.name") == "conditional" else 200
    settings = {"model": model, "batch_size": batch, "entity_bias": True, "filters": 32, "device": "cpu"}
    threads, states = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        for place in (tmp_path / "one", tmp_path / "other"):
            with pytest.raises(Interrupted):
                fit(graph(people=340, towns=20), run_dir=place, interrupted=lambda: True, **settings)
            states.append(load_file(place / "checkpoint" / "state.safetensors"))
    finally:
        torch.set_num_threads(threads)
    assert [name for name in states[0] if not torch.equal(states[0][name], states[1][name])] == []


def test_a_recipe_goes_by_what_was_read_not_by_the_name_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "wn18rr.tsv"
    file.write_text("".join(f"a{i}\tr\ta{i + 1}\n" for i in range(30)))
    run = compgcn.fit(compgcn.read(file), run_dir=tmp_path / "run", epochs=0)
    assert (run.config.decoder.name, run.config.data.source) == ("distmult", str(file))


@pytest.mark.parametrize(("entities", "large"), [(100_000, False), (110_000, True), (1_000_000, True)])
def test_a_graph_of_ones_own_is_trained_on_with_negatives_where_scores_of_all_entities_do_not_fit(
    entities: int, large: bool
) -> None:
    found = recommended({"data.source": "big.tsv"}, _sized(entities)).training
    assert (found.loss, found.batch_size) == (("sampled-cross-entropy", 4096) if large else ("cross-entropy", 512))
    resolved = resolve({"data.source": "big.tsv"}, _sized(entities))
    assert bool(resolved.notes) == resolved.large == large
    assert found.epochs == (LARGE_RECIPE if large else OWN_RECIPES["link-prediction"])["training.epochs"]
    assert (found.valid_sample, found.test_sample) == ((2000, 10_000) if large else (None, None))
    asked = recommended({"data.source": "big.tsv", "encoder": "compgcn"}, _sized(entities)).encoder
    assert (asked.name, asked.composition) == ("compgcn", "mult" if large else None)


@given(st.integers(1, 10**8))
def test_an_epoch_over_a_large_graph_has_64_steps_unless_batches_would_be_very_small_or_very_large(
    triples: int,
) -> None:
    batch = large_batch(triples)
    assert 4096 <= batch <= 2**20
    steps = -(-2 * triples // batch)
    if batch == 4096:
        assert steps <= 64
    elif batch == 2**20:
        assert steps >= 64
    else:
        assert 60 <= steps <= 64


def test_what_is_recommended_for_a_large_graph_gives_way_to_every_setting_and_to_an_encoder_with_its_composition() -> (
    None
):
    large = _sized(1_000_000)
    found = recommended({"data.source": "big.tsv", "epochs": 3, "encoder": "gcn"}, large)
    assert (found.training.epochs, found.training.loss) == (3, "sampled-cross-entropy")
    assert found.encoder.composition is None
    plain = recommended({"data.source": "big.tsv"}, large)
    assert (plain.encoder.name, plain.training.optimiser) == ("none", "adagrad")
    assert recommended({"data.source": "big.tsv", "encoder.dims": [64]}, large).encoder.name == "none"
    assert recommended({"data.source": "big.tsv", "encoder.dims": [64, 64]}, large).encoder.name == "compgcn"
    features = large.with_features(nodes=np.ones((1_000_000, 2)))
    assert recommended({"data.source": "big.tsv"}, features).encoder.name == "compgcn", "it would not learn from them"


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ({"loss": "bce"}, None),
        ({"training.batch_size": 64}, None),
        ({"data.source": "fb15k-237"}, None),
        ({"training.regularisation": 0.1}, "complex"),
    ],
    ids=str,
)
def test_who_chooses_a_loss_a_batch_size_or_a_model_keeps_it_however_large_the_graph_is(
    settings: dict[str, Any], model: str | None
) -> None:
    asked = {"data.source": "big.tsv", **settings}
    large, small = (recommended(asked, _sized(size), model) for size in (1_000_000, 12))
    samples = {"training.valid_sample": 2000, "training.test_sample": 10_000}
    assert changes(small, large) == ({} if settings.get("data.source") else samples)
    assert resolve(asked, _sized(1_000_000), model).notes == [], "there are fewer validation triples"
    many = dataclasses.replace(_sized(1_000_000), valid=np.tile(graph().valid, (2000, 1)))
    said = "2,000 of 6,000 validation triples choose the epoch"
    notes = resolve(asked, many, model).notes
    assert [said in note for note in notes] == ([] if settings.get("data.source") else [True])
    assert recommended(asked | {"valid_sample": 7}, many, model).training.valid_sample == 7


def test_a_sample_of_validation_chooses_the_epoch_and_all_of_it_is_reported(tmp_path: Path) -> None:
    data, events = graph(people=40, towns=5, valid=30, test=30), list[dict[str, Any]]()
    run = train(tmp_path / "run", data, notify=events.append, valid_sample=7, epochs=4, lr=0.05)
    again = train(tmp_path / "again", data, valid_sample=7, epochs=4, lr=0.05)
    assert lasting(again.path) == lasting(run.path)
    told = [event["total"] for event in events if event.get("what") == "evaluating"]
    assert told == [7] * 4
    assert [event["total"] for event in events if event.get("what") == "evaluating valid"] == [30]
    assert run.metrics["valid"] == run.evaluate("valid") == open_run(run.path).evaluate("valid")
    best = max(event["valid"]["mrr"] for event in events if event["event"] == "epoch")
    task = build_links(run.config, data, torch.device("cpu"))
    run.folder.restore(task.model)
    rows = task.judged_by.tolist()
    assert len({tuple(row) for row in rows}) == 7
    assert all(row in data.valid.tolist() for row in rows)
    assert task.validate()["mrr"] == pytest.approx(best)
    assert run.metrics["valid"]["mrr"] != best


def test_a_sample_of_test_is_reported_as_one(tmp_path: Path) -> None:
    data = graph(people=40, towns=5, valid=30, test=20)
    run = train(tmp_path / "run", data, test_sample=25, epochs=1)
    assert run.metrics["ranked"] == {"valid": 25, "test": 20}
    assert run.metrics["test"] == run.evaluate("test")
    assert run.metrics["valid"] != run.evaluate("valid")
    assert "ranked" not in train(tmp_path / "all", data, epochs=1).metrics


@functools.cache
def _sized(entities: int) -> compgcn.KnowledgeGraph:
    """A graph of the toy's facts with so many entities."""
    data = graph()
    return dataclasses.replace(data, entities=compgcn.data.Vocabulary("entity", [str(i) for i in range(entities)]))


@pytest.mark.parametrize("data", ["films.tsv", None, 3])
def test_fit_takes_a_graph(data: Any) -> None:
    with pytest.raises(InputError, match="fit takes a graph"):
        compgcn.fit(data)


APART = {  # do not go together
    *((model, loss) for model in ("conditional", "nbfnet") for loss in ("sampled-cross-entropy", "margin")),
    ("kbgan", "cross-entropy"),
}


@pytest.mark.parametrize("loss", ["cross-entropy", "sampled-cross-entropy", "margin"])
@pytest.mark.parametrize("model", sorted(MODELS))
def test_threads_add_up_no_gradient_in_an_order_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, loss: str
) -> None:
    """The gradient of an index by a tensor is added up by atomic operations of all threads, whoever comes first."""
    found: set[str] = set()

    def backward(of: torch.Tensor, *given: Any, **named: Any) -> None:
        waiting = [of.grad_fn]
        seen = set(waiting)
        while waiting:
            node = waiting.pop()
            found.add(node.name())
            new = {after for after, _ in node.next_functions if after} - seen
            waiting, seen = [*waiting, *new], seen | new
        plain(of, *given, **named)

    plain = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", backward)
    settings = {"model": model, "epochs": 1, "loss": loss, "entity_bias": True, "device": "cpu"}
    apart = (model, loss) in APART
    with pytest.raises(InputError if apart else Interrupted):  # after the first step
        fit(graph(), run_dir=tmp_path / "run", interrupted=lambda: True, **settings)
    assert bool(found) is not apart
    assert not found & {"IndexBackward0", "TakeBackward0"}
