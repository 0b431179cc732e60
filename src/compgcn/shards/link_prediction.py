"""Link prediction of one rank: its rows of the entity vectors, its slice of the candidates, the loss of all ranks.

A model conditioned on the query has no entity vectors, see `compgcn.tasks.link_prediction.ConditionalPrediction`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compgcn.config import Training
from compgcn.errors import InputError
from compgcn.kernels.backend import wide
from compgcn.nn.decoders import DECODERS
from compgcn.nn.encoder import PRESETS
from compgcn.nn.graph import RelationalGraph
from compgcn.shards.graph import Part, SharedNorm, edges_at
from compgcn.shards.rows import Lookup, Rows
from compgcn.tasks import losses
from compgcn.tasks.facts import Answers
from compgcn.tasks.link_prediction import Batch, Encoded, LinkPrediction, LinkPredictor
from compgcn.tasks.objectives import OBJECTIVES, REGULARISERS, Vectors, add_terms
from compgcn.tasks.ranking import Popularity, Scorer, SideRanks, Watch
from compgcn.tasks.sampling import SAMPLERS, randomness

# The weights and buffers of a link predictor that have an entity axis: the rank's rows of each.
ENTITY_ROWS = ("encoder.nodes", "encoder.node_features", "encoder.residual.nodes", "decoder.entity_bias")


class Support(NamedTuple):
    """Parts of a config that can be shared out."""

    part: str  # the section of a config, or "setting" for settings by name
    names: tuple[str, ...]
    how: str  # what the ranks do
    same: bool = True  # whether W ranks have the numbers of one process, to rounding


SUPPORTED: tuple[Support, ...] = (
    Support("encoder", tuple(PRESETS), "messages go to the rank of their receiver; each layer looks its halo up"),
    Support("decoder", tuple(DECODERS), "every rank makes all queries of a batch and scores its slice of the entities"),
    Support("loss", tuple(OBJECTIVES), "over all entities, by slices of them; over negatives, by triples of the batch"),
    Support(
        "sampler",
        tuple(name for name, row in SAMPLERS.items() if not row.adversary),
        "every rank draws the same negatives and looks those of its triples up",
    ),
    Support("regulariser", tuple(REGULARISERS), "by triples of the batch"),
    Support("setting", ("relation_prediction",), "by triples of the batch"),
    Support("setting", ("batch_norm",), "mean and variance are over the rows of all ranks"),
    Support("setting", ("encoder.residual",), "the raw vectors are cut like the entity table"),
    Support("setting", ("grad_clip",), "the norm is over the gradients of all ranks"),
    Support("setting", ("feature_dropout", "decoder.hidden_dropout"), "every rank draws the same numbers"),
    Support("setting", ("encoder.dropout", "encoder.hidden_dropout"), "every rank draws for its own rows", same=False),
)


def must_be_supported(settings: Training) -> None:
    """Refuse settings that cannot be shared out."""
    if SAMPLERS[settings.sampler].adversary:
        names = next(row.names for row in SUPPORTED if row.part == "sampler")
        raise InputError(
            f"the sampler '{settings.sampler}' trains a second model, which is not shared out over several processes; "
            f"choose training.sampler = {' or '.join(names)}, or train in one process"
        )


class ShardedLinkPrediction(LinkPrediction):
    """The task of `LinkPrediction` on one of several ranks; see `compgcn.shards` for its use.

    Args:
        model: with the rank's rows of everything that has an entity axis: a decoder of n entities, and an encoder of n
            nodes whose tables `Rows.learned` draws.
        graph: all edges, or at least those at the rank's rows.
        splits: triples [n, 3]: train, valid, test, all of them on every rank, on a CPU.
    """

    def __init__(
        self,
        model: LinkPredictor,
        graph: RelationalGraph,
        splits: dict[str, Tensor],
        settings: Training,
        margin_decay: float,
        rows: Rows,
    ) -> None:
        must_be_supported(settings)
        self.rows = self.candidates = rows
        self.world, self.device = rows.world, next(model.parameters()).device
        super().__init__(model, edges_at(rows, graph).to(self.device), splits, settings, margin_decay)
        self.part, self._most, self.num_candidates = Part(rows, self.graph), None, rows.size
        encoder = model.encoder
        if rows.world.size > 1:
            norms = [SharedNorm(norm, rows) if isinstance(norm, nn.BatchNorm1d) else norm for norm in encoder.norms]
            encoder.norms = nn.ModuleList(norms)
        self._draws = bool(encoder.hidden_dropout) or any(layer.dropout for layer in encoder.layers)

    # Facts: a rank has the queries about its own entities, in their order among all, and filters its own answers

    def _index(self, train: Tensor) -> Answers:
        return self._readings([train], 0)

    def _number(self, here: int) -> int:
        counts = self.world.gathered(torch.tensor([here])).tolist()
        self._first, self._here = sum(counts[: self.world.rank]), here
        return sum(counts)

    @cached_property
    def known(self) -> Answers:
        """The answers in all splits that are the rank's entities: they alone leave its slice."""
        return self._readings(list(self.splits.values()), 2)

    def _readings(self, splits: list[Tensor], column: int) -> Answers:
        """Index (s, r, o) and (o, r + R, s) where the entity in a column is the rank's."""
        own = []
        for s, r, o in (triples.unbind(1) for triples in splits):
            for reading in ((s, r, o), (o, r + self.num_relations, s)):
                mine = self.rows.hold(reading[column])
                own.append(torch.stack([one[mine] for one in reading], 1))
        return Answers.from_triples(torch.cat(own).to(self.device), self.num_relations, inverse=False)

    def batch(self, examples: Tensor) -> Batch:
        """Return the queries of examples and their answers, which the ranks that have them tell all."""
        here = examples - self._first
        place = ((here >= 0) & (here < self._here)).nonzero().squeeze(1)
        found, columns = super().batch(here[place]), examples.new_zeros(3, len(examples))
        columns[0, place], columns[1, place] = found.s, found.r
        if self.objective.by_query:
            s, r, _ = self.world.reduced(columns)
            row, answer = self.world.joined(torch.stack((place[found.row], found.answer), 1)).unbind(1)
            return Batch(s, r, row, answer)
        columns[2, place] = found.answer
        s, r, answer = self.world.reduced(columns)
        return Batch(s, r, torch.arange(len(examples), device=examples.device), answer)

    def encode(self) -> Encoded:
        """Return the vectors of the rank's entities [n, d] and of all relations."""
        draws = self._draws and self.model.training and self.rows.world.size > 1
        seed = int(torch.randint(2**62, ())) + self.rows.world.rank if draws else 0
        # Ranks drop other numbers out, each of its own rows, and go on with the same random numbers.
        with randomness(seed, self.graph.src.device) if draws else nullcontext():
            return self.model.encode(self.part)

    def loss(self, examples: Tensor) -> Tensor:
        """Return the loss of one batch, the same number on every rank."""
        batch = self.batch(examples)
        return self._batch_loss(self.encode(), batch)

    def _batch_loss(self, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the loss over all entities by slices of them, and all other terms by triples, each for its share."""
        settings, decoder, world = self.settings, self.model.decoder, self.rows.world
        of_scores, B = self.objective.of_scores, len(batch.s)
        others = settings.regulariser != "none" or settings.relation_prediction > 0
        mine = torch.arange(min(world.rank, B - 1), B, world.size, device=batch.s.device)  # the rank's triples
        wanted = [batch.s]
        if of_scores is not None or others:
            wanted.append(batch.answer[mine].unsqueeze(1))
        if of_scores is not None:
            drawn = self.sampler.draw(self, batch).entities
            wanted.append(drawn if drawn.ndim == 1 else drawn[mine])
        (x, _), *found = self._vectors(encoded, wanted)
        z = F.embedding(batch.r, encoded.relations)
        q = decoder.query(x, z)  # [B, d]
        if len(wanted) == 1:
            return _OVER_ALL[settings.loss](self, encoded, batch, q)
        terms = x.new_zeros(())
        if of_scores is not None:
            positive, negative = (decoder.between(q[mine], *some) for some in found)
            terms = of_scores(self, positive.squeeze(1), negative)
        if others:
            of = Vectors(x[mine], z[mine], found[0].vectors.squeeze(1))
            terms = terms + add_terms(x.new_zeros(()), self, encoded, of, batch.r[mine])
        loss = world.summed(terms * (len(mine) / B if world.rank < B else 0.0))
        return loss if of_scores is not None else loss + _OVER_ALL[settings.loss](self, encoded, batch, q)

    def _vectors(self, encoded: Encoded, wanted: list[Tensor]) -> list[_Found]:
        """Look entities of any shapes up at once."""
        bias = self.model.decoder.entity_bias
        tables = [encoded.entities] if bias is None else [encoded.entities, bias.unsqueeze(1)]
        found = Lookup(self.rows, torch.cat([ids.flatten() for ids in wanted]))(*tables)
        parts = zip(*(torch.split(table, [ids.numel() for ids in wanted]) for table in found), strict=True)
        return [
            _Found(vectors.view(*ids.shape, -1), *(some.view_as(ids) for some in biases))
            for ids, (vectors, *biases) in zip(wanted, parts, strict=True)
        ]

    def score(self, encoded: Encoded, s: Tensor, r: Tensor) -> Tensor:
        """Return the logits of the rank's slice of the entities for queries (s, r), [B, n] of [B]."""
        (x,) = Lookup(self.rows, s)(encoded.entities)
        scores: Tensor = self.model.decoder(x, F.embedding(r, encoded.relations), encoded.entities)
        return scores

    def scorer(self) -> Scorer:
        return partial(self.score, self.encode())

    def vectors(self, encoded: Encoded, ids: Tensor) -> _Found:
        return self._vectors(encoded, [ids])[0]

    def whole(self, x: Tensor) -> Tensor:
        """Return the rows of all ranks, [n, ..] -> [N, ..]."""
        return self.world.joined(x)

    def popular(self, triples: Tensor, notify: Watch | None = None) -> SideRanks:
        baseline = Popularity(self.train, self.rows.size, self.rows.start)
        return self.rank(triples, notify=notify, score=baseline.score)


class _Found(NamedTuple):
    """Vectors of entities [.., d], and their biases [..] where they have any."""

    vectors: Tensor
    biases: Tensor | None = None


def _binary_cross_entropy(task: ShardedLinkPrediction, encoded: Encoded, batch: Batch, q: Tensor) -> Tensor:
    settings, rows = task.settings, task.rows
    smoothing = settings.label_smoothing
    floor = losses.SMOOTHING_FLOORS[settings.smoothing_floor](smoothing, rows.total)
    mine = rows.hold(batch.answer)
    row, col = batch.row[mine], batch.answer[mine] - rows.start
    logits = task.model.decoder.scores(q, encoded.entities)  # [B, n]
    mean = losses.binary_cross_entropy(logits, row, col, smoothing=smoothing, floor=floor)
    return rows.world.summed(mean * (rows.size / rows.total))


def _cross_entropy(task: ShardedLinkPrediction, encoded: Encoded, batch: Batch, q: Tensor) -> Tensor:
    rows, smoothing = task.rows, task.settings.label_smoothing
    logits = task.model.decoder.scores(q, encoded.entities)
    logits = logits.to(wide(logits.dtype))  # [B, n]
    labelled = (1 - smoothing) * rows.chosen(logits, batch.row, batch.answer)
    if smoothing:
        labelled = labelled + smoothing / rows.total * logits.sum(1)
    return (rows.log_sum_exp(logits) - rows.world.summed(labelled)).mean()


_OVER_ALL: dict[str, Callable[[ShardedLinkPrediction, Encoded, Batch, Tensor], Tensor]] = {
    "bce": _binary_cross_entropy,
    "cross-entropy": _cross_entropy,
}
