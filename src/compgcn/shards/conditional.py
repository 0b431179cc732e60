"""The task of a model conditioned on the query on one of several ranks: queries are shared out, the graph is whole."""

from __future__ import annotations

from torch import Tensor

from compgcn.config import Training
from compgcn.errors import InputError
from compgcn.nn.conditional import ConditionalCompGCN
from compgcn.nn.graph import RelationalGraph
from compgcn.shards.rows import World
from compgcn.tasks.link_prediction import ConditionalPrediction


class SharedConditionalPrediction(ConditionalPrediction):
    """The task of `ConditionalPrediction`: a rank scores its part of the queries of a batch.

    Args:
        model, graph, splits, settings: as for `ConditionalPrediction`, the same on every rank.
        world: the ranks.
    """

    def __init__(
        self,
        model: ConditionalCompGCN,
        graph: RelationalGraph,
        splits: dict[str, Tensor],
        settings: Training,
        world: World,
    ) -> None:
        super().__init__(model, graph, splits, settings)
        self.world = world
        if self.batch_size < world.size:
            raise InputError(
                f"a batch of {self.batch_size} cannot be shared out among {world.size} processes; raise "
                "training.batch_size or start fewer"
            )

    def loss(self, examples: Tensor) -> Tensor:
        """Return the loss of one batch, the same number on every rank.

        All ranks draw the same hidden answers, and those of the whole batch leave the graph of each.
        """
        hidden = self.hide(examples, *self.train.padded_places(examples, self._most))
        view = self.model.view(self.graph, self.hidden_edges.keep(hidden))
        B, (p, W) = len(examples), (self.world.rank, self.world.size)
        own = slice(p * B // W, (p + 1) * B // W)
        loss = self._loss(view, examples[own], *self.train.padded_places(examples[own], self._most), hidden[own])
        there = hidden < len(self.train.answers)  # a rank weighs by its hidden answers
        return self.world.summed(loss * (there[own].sum() / there.sum()))
