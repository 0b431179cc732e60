"""The principal plane shows vectors as they lie."""

from __future__ import annotations

import numpy as np

from compgcn.answers.similar import pca


def test_the_plane_keeps_distances_of_flat_vectors_and_tells_its_share() -> None:
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(30, 2)) * [5, 1]
    turned = flat @ np.linalg.qr(rng.normal(size=(7, 7)))[0][:2]
    places, explained = pca(turned.astype(np.float32))
    distances = [np.linalg.norm(points[:, None] - points, axis=-1) for points in (flat, places)]
    np.testing.assert_allclose(*distances, atol=1e-4)
    assert explained[0] > explained[1]
    np.testing.assert_allclose(sum(explained), 1, atol=1e-6)


def test_a_plane_of_equal_or_single_numbers_is_finite() -> None:
    for vectors in (np.ones((4, 3)), np.arange(4.0)[:, None]):
        places, explained = pca(vectors)
        assert np.isfinite(places).all()
        assert places.shape == (4, 2)
        assert len(explained) == 2
        assert np.isfinite(explained).all()
