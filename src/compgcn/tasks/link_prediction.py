"""Link prediction: complete (s, r, ?) and (?, r, o), the latter asked as (o, r + R, ?) through the inverse relation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.config import Training
from compgcn.errors import InputError
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.nn.decoders import Decoder, biases
from compgcn.nn.encoder import Backwards, Encoder, RelationTable
from compgcn.nn.graph import RelationalGraph
from compgcn.processes import World
from compgcn.tasks import losses
from compgcn.tasks.edge_masking import HiddenEdges
from compgcn.tasks.facts import Answers, search
from compgcn.tasks.objectives import OBJECTIVES, batch_loss, must_agree, rows_alone
from compgcn.tasks.ranking import ALL, Candidates, Popularity, Report, Scorer, SideRanks, Watch, rank_triples, summary
from compgcn.tasks.sampling import SAMPLERS, Adversary, Batches, Negatives

NO_VECTORS = (
    "a model conditioned on the query gives no entity a vector of its own; take a run of another model, such as "
    "--model complex, or compare relations"
)
_STALE = 10  # evaluations without gain after which the margin falls
_LOWEST_MARGIN = 5.0  # at or below it the margin stays, as in the released code
# On a CPU: scores that fit in the cache, queries that make a product fast, and the most scores that these may take.
_CACHED, _QUERIES, _HELD = 2**21, 128, 2**25


class Encoded(NamedTuple):
    """A graph turned into vectors, once for many queries."""

    entities: Tensor  # [N, d]
    relations: Tensor  # [2R, d]
    nodes: Tensor | None = None  # [n], the entities that the rows stand for, where not all have one


class LinkPredictor(nn.Module):
    """An encoder and a decoder; where the encoder has no relation vectors, the decoder's own table [2R, d].

    Shapes: s, r int64 [B]; candidates as in `Decoder.forward`; scores are logits [B, C].

    Args:
        tie_inverse: maps a relation to its inverse in the decoder's own table; None: an inverse has its own vector.
        init_scale: initial standard deviation of this table; None for Xavier's.
        adversary: chooses the negatives in training and takes no part in any score.
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

    def encode(self, graph: RelationalGraph) -> Encoded:
        """Return the vectors of all entities and relations."""
        x, z = self.encoder(graph)
        return Encoded(x, z if self.relations is None else self.relations())

    def encode_some(self, graph: RelationalGraph, nodes: Tensor, fanout: Sequence[int], *, sparse: bool) -> Encoded:
        """Return the vectors of distinct entities [n] alone, of messages sampled as in `RelationalGraph.sampled`."""
        around = graph.sampled(nodes, fanout, self.encoder.flow)
        x, z = self.encoder(around.layers, around.nodes, sparse=sparse)
        return Encoded(x, z if self.relations is None else self.relations(), nodes)

    def scorer(self, graph: RelationalGraph) -> Scorer:
        """Return the function from queries (s, r) to the logits of all entities, for the graph encoded once."""
        return partial(self.score, self.encode(graph))

    def score(self, encoded: Encoded, s: Tensor, r: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Return the logits of the candidates for queries (s, r)."""
        scores: Tensor = self.decoder(
            F.embedding(s, encoded.entities), F.embedding(r, encoded.relations), encoded.entities, candidates
        )
        return scores


LinkModel = LinkPredictor | ConditionalCompGCN


class Ranker:
    """A link predictor on its graph, with the facts that filter its ranks: all that answering takes.

    Args:
        model: with or without trained weights.
        graph: the edges that the model encodes, on the model's device.
        splits: triples [n, 3] on the same device: train, valid, test.
    """

    candidates: Candidates = ALL

    def __init__(self, model: LinkModel, graph: RelationalGraph, splits: dict[str, Tensor]) -> None:
        self.model: LinkModel = model
        self.graph, self.splits = graph, splits
        self.num_entities, self.num_relations = graph.num_nodes, graph.num_relations
        self.num_candidates = self.num_entities  # that are scored here

    @property
    def predictor(self) -> LinkPredictor:
        """The model, where it gives every entity a vector."""
        if isinstance(self.model, ConditionalCompGCN):
            raise InputError(NO_VECTORS)
        return self.model

    @cached_property
    def known(self) -> Answers:
        """The answers in all splits."""
        return Answers.from_triples(torch.cat(list(self.splits.values())), self.num_relations)

    def encode(self) -> Encoded:
        """Return the vectors of the whole graph; refused where entities have none."""
        return self.predictor.encode(self.graph)

    def score(self, encoded: Encoded, s: Tensor, r: Tensor) -> Tensor:
        """Return the logits of the candidates for queries (s, r), [B, C] of [B]."""
        return self.predictor.score(encoded, s, r)

    def scorer(self) -> Scorer:
        """Return the function from queries (s, r) to the logits of the candidates, for the graph encoded once."""
        return self.model.scorer(self.graph)

    def vectors(self, encoded: Encoded, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the vectors of entities [B, d], and their biases [B] where they have any."""
        bias = self.predictor.decoder.entity_bias
        return F.embedding(ids, encoded.entities), None if bias is None else biases(bias, ids)

    def whole(self, x: Tensor) -> Tensor:
        """Return the rows of all entities [N, ..] of those that are kept here."""
        return x

    def ranks(self, split: str, max_elements: int = 2**26, notify: Watch | None = None) -> SideRanks:
        """Return the filtered ranks of all triples of a split from both sides; see `rank_triples`."""
        return self.rank(self.splits[split], max_elements, notify)

    @torch.inference_mode()
    def rank(
        self, triples: Tensor, max_elements: int = 2**26, notify: Watch | None = None, score: Scorer | None = None
    ) -> SideRanks:
        """Return the filtered ranks of triples [n, 3] from both sides; the graph is encoded once.

        `score` ranks by other scores than the model's.
        """
        self.model.eval()
        score, device, here = score or self.scorer(), self.graph.src.device, self.num_candidates
        if device.type == "cpu":  # the scores of a few queries stay in the cache
            most = self.candidates.chunk or here  # the same in every process
            max_elements = min(max_elements, max(_CACHED, min(_QUERIES * most, _HELD)))
        given = score, triples.to(device), self.known, here
        return rank_triples(*given, max_elements=max_elements, notify=notify, owned=self.candidates)

    def popular(self, triples: Tensor, notify: Watch | None = None) -> SideRanks:
        """Return the filtered ranks of triples [n, 3] by the popularity baseline."""
        baseline = Popularity(Answers.from_triples(self.splits["train"], self.num_relations), self.num_entities)
        return self.rank(triples, notify=notify, score=baseline.score)


class Batch(NamedTuple):
    """Queries (s, r) [B] with their answers as (row, entity) pairs [k]; for losses over triples, one answer each.

    Negatives, where they are drawn already, and all entities may be rows of `Encoded.entities`.
    """

    s: Tensor
    r: Tensor
    row: Tensor
    answer: Tensor
    negatives: Negatives | None = None


class _Task(Ranker):
    """The common part of the tasks: batches of training facts, filtered ranking on validation.

    Args:
        by_query: whether an example is a query with all its answers, or a single answer.
    """

    goal = "mrr"

    def __init__(
        self, model: LinkModel, graph: RelationalGraph, splits: dict[str, Tensor], settings: Training, *, by_query: bool
    ) -> None:
        super().__init__(model, graph, splits)
        self.module, self.settings = model, settings
        self.judged_by = sample(splits["valid"], settings.valid_sample)
        self.train = self._index(splits["train"])
        self.num_examples = self._number(len(self.train) if by_query else len(self.train.answers))
        batch, seed, device = settings.batch_size, settings.seed, self.train.keys.device
        self.batches = Batches(self.num_examples, batch, seed, device, settings.epoch_size)
        self.steps_per_epoch, self.batch_size = self.batches.per_epoch, self.batches.size

    def _index(self, train: Tensor) -> Answers:
        """Return the training facts that are kept here."""
        return Answers.from_triples(train, self.num_relations)

    def _number(self, here: int) -> int:
        """Return the number of all examples, by that of those kept here."""
        return here

    def examples(self, epoch: int, step: int) -> Tensor:
        return self.batches(epoch, step)

    def validate(self, notify: Watch | None = None) -> Report:
        """Return filtered metrics on the validation split, or on the same `valid_sample` of its triples each time."""
        return summary(self.rank(self.judged_by, notify=notify))

    def evaluated(self, without_gain: int) -> None:
        """Do nothing after evaluations without gain."""


class LinkPrediction(_Task):
    """The task of an encoder and a decoder: one-to-all or sampled training.

    Args:
        margin_decay: subtracted from the decoder's margin after every `_STALE` evaluations without gain, while the
            margin is above `_LOWEST_MARGIN`.
        fanout: for each layer, the most messages that an entity receives in training; (): all of them.
    """

    model: LinkPredictor

    def __init__(
        self,
        model: LinkPredictor,
        graph: RelationalGraph,
        splits: dict[str, Tensor],
        settings: Training,
        margin_decay: float = 0.0,
        fanout: Sequence[int] = (),
    ) -> None:
        must_agree(settings, model.decoder)
        self.objective, self.sampler = OBJECTIVES[settings.loss], SAMPLERS[settings.sampler]
        super().__init__(model, graph, splits, settings, by_query=self.objective.by_query)
        self.margin_decay, self.fanout = margin_decay, fanout
        # A GPU records a step, so all batches must have one shape: entities may repeat, or the whole table is taken.
        self.sparse, self.one_shape = rows_alone(settings), graph.src.device.type == "cuda" and not fanout
        drawn = settings.negatives * (1 if settings.sampler == "shared" else self.batch_size)
        few = not self.one_shape or 2 * self.batch_size + drawn < self.num_entities
        self.in_part = bool(fanout) or (self.sparse and not len(model.encoder.layers) and few)
        # On a GPU the pairs of a batch are padded to this many.
        on_gpu = self.objective.by_query and graph.src.device.type == "cuda"
        self._most = self.train.most(self.batch_size) if on_gpu else None

    def batch(self, examples: Tensor) -> Batch:
        """Return the queries of examples and their answers."""
        if self.objective.by_query:
            s, r = self.train.queries[examples].unbind(1)
            if self._most is None:
                return Batch(s, r, *self.train.pairs(examples))
            row, place = self.train.padded_places(examples, self._most)
            return Batch(s, r, row, self.train.at(place))
        query = torch.searchsorted(self.train.offsets, examples, right=True) - 1
        s, r = self.train.queries[query].unbind(1)
        return Batch(s, r, torch.arange(len(examples), device=examples.device), self.train.answers[examples])

    @cached_property
    def _facts(self) -> Tensor:
        return self.train.facts(self.num_entities)

    def is_true(self, s: Tensor, r: Tensor, entities: Tensor) -> Tensor:
        """Return which entities [B, K] answer queries (s, r) [B] of training, without waiting for the device."""
        index = torch.searchsorted(self.train.keys, s * (2 * self.num_relations) + r)
        return search(self._facts, index.unsqueeze(1) * self.num_entities + entities)[1]

    def loss(self, examples: Tensor) -> Tensor:
        batch = self.batch(examples)
        if self.in_part:
            return batch_loss(self, *self._part(batch))
        return batch_loss(self, self.model.encode(self.graph), batch)

    def _part(self, batch: Batch) -> tuple[Encoded, Batch]:
        """Encode the entities of a batch alone, and return it by their rows."""
        negatives = self.sampler.draw(self, batch)
        every = torch.cat((batch.s, batch.answer, negatives.entities.flatten()))
        if self.one_shape:  # rows that come again have no gradient
            nodes = every.sort().values
            place = torch.searchsorted(nodes, every)
        else:
            nodes, place = torch.unique(every, return_inverse=True)
        s, answer, others = torch.split(place, [len(batch.s), len(batch.answer), negatives.entities.numel()])
        drawn = negatives._replace(entities=others.view_as(negatives.entities))
        encoded = self.model.encode_some(self.graph, nodes, self.fanout, sparse=self.sparse)
        return encoded, batch._replace(s=s, answer=answer, negatives=drawn)

    def evaluated(self, without_gain: int) -> None:
        """Lower the decoder's margin, where the settings ask for it."""
        margin = self.model.decoder.margin
        due = without_gain and without_gain % _STALE == 0
        if self.margin_decay and margin is not None and due and margin.item() > _LOWEST_MARGIN:
            margin.sub_(self.margin_decay)


class ConditionalPrediction(_Task):
    """The task of a model conditioned on the query: hide some answers of each query and find them again.

    A batch holds distinct queries. Up to `hidden_answers` answers of each leave the graph for the whole batch, as
    `training.hide` says, and its degrees with them; the other answers stay and take no part in the loss. Each of
    several processes hides the same answers and scores a part of the queries.
    """

    model: ConditionalCompGCN

    def __init__(
        self, model: ConditionalCompGCN, graph: RelationalGraph, splits: dict[str, Tensor], settings: Training
    ) -> None:
        super().__init__(model, graph, splits, settings, by_query=True)
        self.world = World()
        if self.batch_size < self.world.size:
            raise InputError(
                f"a batch of {self.batch_size} cannot be shared out among {self.world.size} processes; raise "
                "training.batch_size or start fewer"
            )
        self.hidden_edges = HiddenEdges(graph, self.train, settings.hide or "facts")
        self._most = self.train.most(self.batch_size)

    def hide(self, examples: Tensor, row: Tensor, place: Tensor) -> Tensor:
        """Draw the answers to hide, 1 to `hidden_answers` of every query: places in `train` [B, k], padded with A.

        `row` and `place` are the answers of the batch, see `Answers.padded_places`.
        """
        B, most = len(examples), self.settings.hidden_answers
        count = self.train.offsets[examples + 1] - self.train.offsets[examples]  # [B]
        row = torch.where(place < len(self.train.answers), row, B)
        shuffled = place[torch.argsort(row + torch.rand(len(row), dtype=torch.double, device=row.device))]
        wanted = (torch.rand(B, device=row.device) * count.clamp_max(most)).long() + 1  # uniform on 1 .. min(n, most)
        nth = torch.arange(most, device=row.device)
        first = (count.cumsum(0) - count).unsqueeze(1) + nth  # [B, k]
        chosen = shuffled[first.clamp_max(len(shuffled) - 1)]
        return torch.where(nth < torch.minimum(wanted, count).unsqueeze(1), chosen, len(self.train.answers))

    def loss(self, examples: Tensor) -> Tensor:
        """Return the cross-entropy of the hidden answers against all entities that are no known answer.

        It is the same number in every process.
        """
        row, place = self.train.padded_places(examples, self._most)
        hidden = self.hide(examples, row, place)
        view = self.model.view(self.graph, self.hidden_edges.keep(hidden))
        B, (p, W), every = len(examples), (self.world.rank, self.world.size), hidden
        if W > 1:
            own = slice(p * B // W, (p + 1) * B // W)
            examples, hidden = examples[own], hidden[own]
            row, place = self.train.padded_places(examples, self._most)
        s, r = self.train.queries[examples].unbind(1)
        loss = losses.hidden_answers(self.model(view, s, r), row, self.train.at(place), self.train.at(hidden))
        if W == 1:
            return loss
        here, everywhere = ((some < len(self.train.answers)).sum() for some in (hidden, every))
        return self.world.summed(loss * (here / everywhere))


LinkTask = LinkPrediction | ConditionalPrediction


def sample(triples: Tensor, size: int | None) -> Tensor:
    """Return `size` of the triples [n, 3] in their order, drawn with a fixed seed; all if there are no more."""
    if size is None or len(triples) <= size:
        return triples
    chosen = torch.randperm(len(triples), generator=torch.Generator().manual_seed(0))[:size].sort().values
    return triples[chosen.to(triples.device)]
