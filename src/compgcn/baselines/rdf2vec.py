"""RDF2Vec: word2vec on random walks over the graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from compgcn.baselines.fitted import Adjacency, Variant, outgoing
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import Numbers

DEPTH = 4  # steps of a walk, along outgoing edges
WALKS, FEWER = 200, 4  # from a labelled node, and from any other
DIM, WINDOW, NEGATIVES, EPOCHS = 100, 5, 5, 5  # of the skip-gram
_CHUNK = 65_536  # walks made at a time


def rdf2vec_features(graph: KnowledgeGraph, nodes: Numbers, seed: int) -> list[Variant]:
    """Return vectors of nodes, standardised over the labelled ones."""
    vectors = embed(outgoing(graph.train, graph.num_entities), nodes, seed)
    known = vectors[nodes]
    centre, spread = known.mean(0), known.std(0) + 1e-12
    return [Variant({}, lambda chosen: (vectors[chosen] - centre) / spread / np.sqrt(vectors.shape[1]))]


def embed(edges: Adjacency, nodes: Numbers, seed: int) -> NDArray[np.float64]:
    """Return a vector for every node [N, d] from walks, most of which start at these [n]."""
    from gensim.models import Word2Vec

    number = len(edges.first) - 1
    often = np.full(number, FEWER)
    often[nodes] = WALKS
    rng = np.random.default_rng(seed)
    starts = rng.permutation(np.repeat(np.arange(number), often))
    chunks = (starts[i : i + _CHUNK] for i in range(0, len(starts), _CHUNK))
    corpus = [sentence for chunk in chunks for sentence in sentences(walks(edges, chunk, DEPTH, rng), number)]
    sizes = {"vector_size": DIM, "window": WINDOW, "negative": NEGATIVES, "epochs": EPOCHS}
    model = Word2Vec(corpus, sg=1, **sizes, min_count=1, seed=seed, workers=1)  # one worker gives the same bits
    places = [model.wv.key_to_index[str(node)] for node in range(number)]
    vectors: NDArray[np.float64] = model.wv.vectors[places].astype(np.float64)
    return vectors


def walks(edges: Adjacency, starts: Numbers, depth: int, rng: np.random.Generator) -> Numbers:
    """Walk from each start: node, relation, node, .., and -1 after a dead end, [n, 2 depth + 1] of [n]."""
    found = np.full((len(starts), 2 * depth + 1), -1, dtype=np.int64)
    found[:, 0] = starts
    alive = np.arange(len(starts))
    for step in range(depth):
        at = found[alive, 2 * step]
        ways = edges.first[at + 1] - edges.first[at]
        alive, at, ways = alive[ways > 0], at[ways > 0], ways[ways > 0]
        edge = edges.first[at] + rng.integers(0, ways)
        found[alive, 2 * step + 1], found[alive, 2 * step + 2] = edges.step[edge], edges.end[edge]
    return found


def sentences(found: Numbers, num_nodes: int) -> Iterator[list[str]]:
    """Yield walks as words: the number of a node, and of a relation after those of the nodes."""
    words = found.copy()
    words[:, 1::2] += np.where(words[:, 1::2] < 0, 0, num_nodes)
    lengths = (found >= 0).sum(1).tolist()
    for row, length in zip(words.tolist(), lengths, strict=True):
        yield [str(word) for word in row[:length]]
