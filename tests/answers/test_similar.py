"""Neighbours are those of the cosine in a fixed order; a projection keeps the distances of flat vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from compgcn.answers.similar import Neighbours, pca
from compgcn.errors import InputError
from compgcn.run.run import Run
from compgcn.train.storage import Table
from toy import CLASSES, classify, labelled, molecules, trained

WHOLE = hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=st.integers(-3, 3))
run = trained(epochs=1)


def table(vectors: np.ndarray) -> Table:
    ids = [f"e{k}" for k in range(len(vectors))]
    return Table("entity", ids, [f"name of {text}" for text in ids], vectors.astype(np.float32))


def test_the_neighbours_of_a_run_are_those_of_its_vectors_by_definition(run: Run) -> None:
    names, vectors = run.entity_embeddings()
    own = vectors[names.index("name of p3")].astype(np.float64)
    cosine = vectors @ own / np.linalg.norm(vectors, axis=1) / np.linalg.norm(own)
    expected = [names[k] for k in np.argsort(-cosine) if names[k] != "name of p3"]
    found = run.similar("p3", top=100)
    assert [one.name for one in found] == expected
    assert [one.similarity for one in found] == pytest.approx(sorted(cosine, reverse=True)[1:], abs=1e-6)
    assert run.similar("name of p3", top=3) == found[:3]


def test_relations_and_their_inverses_are_neighbours(run: Run) -> None:
    found = {one.id for one in run.similar("lives (inverse)", kind="relation")}
    assert found == {"lives", "born", "knows", "born (inverse)", "knows (inverse)"}


@given(WHOLE, st.integers(1, 12))
def test_ties_keep_the_order_of_the_table_and_zero_is_similar_to_nothing(vectors: np.ndarray, top: int) -> None:
    neighbours = Neighbours(table(vectors))
    for row in range(len(vectors)):
        found = neighbours.nearest(f"e{row}", top)
        places = [int(one.id[1:]) for one in found]
        assert len(set(places)) == len(found) == min(top, len(vectors) - 1)
        assert row not in places
        keys = [(-one.similarity, place) for one, place in zip(found, places, strict=True)]
        assert keys == sorted(keys)
        for one, place in zip(found, places, strict=True):
            if not vectors[row].any() or not vectors[place].any():
                assert one.similarity == 0
            elif (vectors[row] == vectors[place]).all():
                assert 1 - 1e-6 <= one.similarity <= 1


@given(WHOLE, st.sampled_from([1e-30, 1e-3, 1e5, 1e30]))
def test_the_length_of_vectors_does_not_matter(vectors: np.ndarray, scale: float) -> None:
    plain, scaled = (Neighbours(table(given)).nearest("e0") for given in (vectors, vectors * scale))
    assert [one.similarity for one in plain] == pytest.approx([one.similarity for one in scaled], abs=1e-6)


def test_many_equal_rows_keep_their_order() -> None:
    """A matrix product may round its last rows differently from its first."""
    row = np.random.default_rng(0).normal(size=37)
    found = Neighbours(table(np.tile(row, (1003, 1)))).nearest("e500", 1002)
    assert [int(one.id[1:]) for one in found] == [k for k in range(1003) if k != 500]


def test_classified_nodes_and_graphs_have_neighbours(tmp_path: Path) -> None:
    nodes = classify(tmp_path / "nodes", labelled(), epochs=1)
    assert nodes.similar("p0", top=1)[0].id in nodes.data.entities.ids  # type: ignore[union-attr]
    with pytest.raises(InputError, match="has vectors of entity, and none of relation"):
        nodes.similar("buys", kind="relation")
    graphs = classify(tmp_path / "graphs", molecules(), **CLASSES | {"epochs": 1, "folds": 2})
    assert graphs.similar("m0", top=2) == graphs.similar("m0", top=2, kind="graph")


def test_wrong_questions_and_vectors_are_refused(run: Run) -> None:
    with pytest.raises(InputError, match="unknown entity 'p33'; did you mean"):
        run.similar("p33")
    with pytest.raises(InputError, match="top must be"):
        run.similar("p3", 0)
    with pytest.raises(InputError, match="not finite"):
        Neighbours(table(np.array([[1.0, 2.0], [np.nan, 0.0]])))


def test_a_projection_keeps_the_distances_of_flat_vectors_and_tells_their_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("compgcn.answers.similar._BLOCK", 7)
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(30, 2)) * [5, 1]
    turned = flat @ np.linalg.qr(rng.normal(size=(7, 7)))[0][:2]
    places, explained = pca(turned.astype(np.float32))
    distances = [np.linalg.norm(points[:, None] - points, axis=-1) for points in (flat, places)]
    np.testing.assert_allclose(*distances, atol=1e-4)
    assert explained[0] > explained[1]
    np.testing.assert_allclose(sum(explained), 1, atol=1e-6)
    np.testing.assert_array_equal(pca(turned.astype(np.float32), np.array([7, 3])).places, places[[7, 3]])


@pytest.mark.parametrize("vectors", [np.ones((4, 3)), np.arange(4.0)[:, None]], ids=["equal", "one column"])
def test_a_projection_of_flat_data_is_finite(vectors: np.ndarray) -> None:
    places, explained = pca(vectors)
    assert places.shape == (4, 2)
    assert len(explained) == 2
    assert np.isfinite([*places.ravel(), *explained]).all()
