"""Link prediction: complete (s, r, ?) and (?, r, o), the latter asked as (o, r + R, ?) through the inverse relation."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.config import Training
from compgcn.nn.decoders import Decoder
from compgcn.nn.encoder import Backwards, Encoder, RelationTable
from compgcn.nn.graph import RelationalGraph
from compgcn.tasks.facts import Answers
from compgcn.tasks.objectives import OBJECTIVES, batch_loss, must_agree
from compgcn.tasks.ranking import SideRanks, Watch, rank_triples, summary
from compgcn.tasks.sampling import SAMPLERS, Adversary, Batches


class BatchEdges:
    """Which edges of a graph a batch asks about: known beforehand, so that a step only looks them up.

    An edge (s, r, o) is asked about by the examples of (s, r, ?) and of (o, r + R, ?). Shapes do not depend on the
    batch, and nothing waits for the device.

    Args:
        graph: of E edges; those that are no training triples are never taken out.
        train: the training triples as questions and answers.
        by_query: whether an example is a question with all its answers, or a single answer.
    """

    def __init__(self, graph: RelationalGraph, train: Answers, *, by_query: bool) -> None:
        self.size = len(train) if by_query else len(train.answers)
        asked = (graph.src, graph.rel, graph.dst), (graph.dst, graph.rel + graph.num_relations, graph.src)
        places = [_place(train, *triples) for triples in asked]
        self.examples = torch.stack([query if by_query else answer for query, answer in places])  # [2, E]

    def keep(self, examples: Tensor) -> Tensor:
        """0 for the edges that examples [B] ask about and 1 for the others, [E]."""
        others = torch.ones(self.size + 1, device=examples.device)
        return others.index_fill_(0, examples, 0.0)[self.examples].amin(0)


def _place(train: Answers, s: Tensor, r: Tensor, o: Tensor) -> tuple[Tensor, Tensor]:
    """Where the question (s, r, ?) stands and where its answer o does, [E] each; one past the last where it does not.

    A search by halves among the answers of each question, which ascend.
    """
    if not len(train):
        return torch.zeros_like(s), torch.zeros_like(s)
    key = s * (2 * train.num_relations) + r
    query = torch.searchsorted(train.keys, key).clamp_(max=len(train) - 1)
    low, end = train.offsets[query], train.offsets[query + 1]
    high, last = end, len(train.answers) - 1
    for _ in range(int((end - low).max()).bit_length() if len(s) else 0):
        middle = (low + high) // 2
        below = (low < high) & (train.answers[middle.clamp(max=last)] < o)
        low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
    there = (train.keys[query] == key) & (low < end) & (train.answers[low.clamp(max=last)] == o)
    return torch.where(there, query, len(train)), torch.where(there, low, len(train.answers))


_CACHED, _QUERIES = 2**21, 128  # scores at a time on a CPU, and the queries there should be for its products


class Encoded(NamedTuple):
    """A graph turned into vectors, once for many queries."""

    entities: Tensor  # [N, d]
    relations: Tensor  # [2R, d]


class LinkPredictor(nn.Module):
    """An encoder and a decoder; where the encoder has no relation vectors, the decoder's own table [2R, d].

    Shapes: s, r int64 [B]; candidates as in `Decoder.forward`; scores are logits [B, C].

    Args:
        encoder, decoder: its parts.
        tie_inverse: what makes an inverse of its original in the decoder's own table; None: it has a vector of its own.
        init_scale: standard deviation that this table begins with; None for Xavier's.
        adversary: what chooses the negatives it is trained with; it has no part in any score.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        *,
        tie_inverse: Backwards | None = None,
        init_scale: float | None = None,
        adversary: Adversary | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.adversary = encoder, decoder, adversary
        self.relations = None
        if encoder.relations is None:
            self.relations = RelationTable(
                encoder.num_relations, encoder.dim, tie_inverse=tie_inverse, init_scale=init_scale
            )

    def encode(self, graph: RelationalGraph, keep: Tensor | None = None) -> Encoded:
        """Vectors of all entities and relations; `keep` as in `Encoder.forward`."""
        x, z = self.encoder(graph, keep=keep)
        return Encoded(x, z if self.relations is None else self.relations())

    def score(self, encoded: Encoded, s: Tensor, r: Tensor, candidates: Tensor | slice | None = None) -> Tensor:
        """Logits of the candidates for queries (s, r)."""
        scores: Tensor = self.decoder(
            F.embedding(s, encoded.entities), F.embedding(r, encoded.relations), encoded.entities, candidates
        )
        return scores


class Batch(NamedTuple):
    """Queries (s, r) [B] with their answers as (row, entity) pairs [k]; for losses over triples, one answer each."""

    s: Tensor
    r: Tensor
    row: Tensor
    answer: Tensor


class LinkPrediction:
    """The task: one-to-all or sampled training, filtered ranking on validation.

    Args:
        model: what is trained.
        graph: what it is encoded from, on the model's device.
        splits: triples [n, 3] on the same device: train, valid, test.
        settings: of training.
        stale_margin: how much TransE's margin falls after every so many evaluations without gain, as (amount, every).
    """

    goal = "mrr"

    def __init__(
        self,
        model: LinkPredictor,
        graph: RelationalGraph,
        splits: dict[str, Tensor],
        settings: Training,
        stale_margin: tuple[float, int] = (0.0, 10),
    ) -> None:
        self.model, self.graph, self.splits, self.settings = model, graph, splits, settings
        self.judged_by = _sample(splits["valid"], settings.valid_sample)
        self.stale_margin = stale_margin
        self.num_entities, self.num_relations = graph.num_nodes, graph.num_relations
        self.train = Answers.from_triples(splits["train"], self.num_relations)
        self.known = Answers.from_triples(torch.cat(list(splits.values())), self.num_relations)
        must_agree(settings, model.decoder)
        self.objective, self.sampler = OBJECTIVES[settings.loss], SAMPLERS[settings.sampler]
        self.num_examples = len(self.train) if self.objective.by_query else len(self.train.answers)
        self.batches = Batches(self.num_examples, settings.batch_size, settings.seed, self.train.keys.device)
        self.steps_per_epoch, self.batch_size = self.batches.per_epoch, self.batches.size
        self.removal = None
        if settings.remove_batch_edges:
            self.removal = BatchEdges(graph, self.train, by_query=self.objective.by_query)
        self._facts = self.train.facts(self.num_entities) if self.sampler.adversary else None
        # On a GPU the pairs of a batch are padded to this many: their number must not depend on the batch.
        on_gpu = self.objective.by_query and graph.src.device.type == "cuda"
        self._most = self.train.most(self.batch_size) if on_gpu else None

    @property
    def module(self) -> nn.Module:
        return self.model

    def examples(self, epoch: int, step: int) -> Tensor:
        """Which examples make a batch, [B]: an epoch meets every one, and fewer than 8 a step twice."""
        return self.batches(epoch, step)

    def batch(self, examples: Tensor) -> Batch:
        """The queries of examples and their answers."""
        if self.objective.by_query:
            s, r = self.train.queries[examples].unbind(1)
            pairs = self.train.pairs(examples) if self._most is None else self.train.padded_pairs(examples, self._most)
            return Batch(s, r, *pairs)
        query = torch.searchsorted(self.train.offsets, examples, right=True) - 1
        s, r = self.train.queries[query].unbind(1)
        return Batch(s, r, torch.arange(len(examples), device=examples.device), self.train.answers[examples])

    def is_true(self, s: Tensor, r: Tensor, entities: Tensor) -> Tensor:
        """Which entities [B, K] answer queries (s, r) [B] of the training triples."""
        assert self._facts is not None
        index = torch.searchsorted(self.train.keys, s * (2 * self.num_relations) + r)
        return self.train.contains(self._facts, index, entities, self.num_entities)

    def loss(self, examples: Tensor) -> Tensor:
        """The loss of one batch."""
        keep = None if self.removal is None else self.removal.keep(examples)
        return batch_loss(self, self.model.encode(self.graph, keep), self.batch(examples))

    def validate(self, notify: Watch | None = None) -> dict[str, Any]:
        """Filtered metrics on the validation split, or on `valid_sample` of its triples, always the same ones."""
        return summary(self._ranks(self.judged_by, notify=notify))

    def stale(self, evaluations: int) -> None:
        """Lower TransE's margin, where that is asked for."""
        amount, every = self.stale_margin
        margin = self.model.decoder.margin
        if amount and margin is not None and evaluations and evaluations % every == 0:
            margin.sub_(amount)

    def ranks(self, split: str, max_elements: int = 2**26, notify: Watch | None = None) -> SideRanks:
        """Filtered ranks of all triples of a split from both sides; the graph is encoded once. See `rank_triples`."""
        return self._ranks(self.splits[split], max_elements, notify)

    @torch.inference_mode()
    def _ranks(self, triples: Tensor, max_elements: int = 2**26, notify: Watch | None = None) -> SideRanks:
        self.model.eval()
        encoded = self.model.encode(self.graph)
        if self.graph.src.device.type == "cpu":  # what a few queries need stays in the cache
            max_elements = min(max_elements, max(_CACHED, _QUERIES * self.num_entities))
        return rank_triples(
            lambda s, r: self.model.score(encoded, s, r),
            triples,
            self.known,
            self.num_entities,
            max_elements=max_elements,
            notify=notify,
        )


def _sample(triples: Tensor, size: int | None) -> Tensor:
    """So many of the triples [n, 3], drawn with a fixed seed, in their order; all where there are no more."""
    if size is None or len(triples) <= size:
        return triples
    chosen = torch.randperm(len(triples), generator=torch.Generator().manual_seed(0))[:size].sort().values
    return triples[chosen.to(triples.device)]
