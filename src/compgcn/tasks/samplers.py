"""Where the negatives of a triple come from: drawn uniformly, or chosen by an adversary that learns which are hard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from compgcn import losses
from compgcn.sampling import drawn, uniform_negatives

if TYPE_CHECKING:
    from compgcn.graph import RelationalGraph
    from compgcn.tasks.link_prediction import Batch, LinkPrediction, LinkPredictor

_PACE = 0.1  # how far the mean reward moves towards that of a batch
_NEVER = -1e9  # the score of what is not to be drawn; finite, so that there are probabilities where nothing else is


class Negatives(NamedTuple):
    """Entities in the place of the answer, [B, K], or [K] for all; where an adversary chose them, its log p [B]."""

    entities: Tensor
    log_probability: Tensor | None = None


class Adversary(nn.Module):
    """KBGAN's generator (Cai & Wang, 2018): a second model that chooses the negatives of the first.

    Of K uniform candidates for a query it draws one, with the softmax of its own scores as probabilities. It is
    rewarded with the score that the first model gives this negative, and learns by REINFORCE; what counts is how much
    the reward exceeds its running mean, the buffer `baseline`.

    Args:
        generator: a predictor; one without layers has tables of its own and needs nothing of the graph.
    """

    baseline: Tensor

    def __init__(self, generator: LinkPredictor) -> None:
        super().__init__()
        self.generator = generator
        self.register_buffer("baseline", torch.zeros(()))

    def forward(
        self, graph: RelationalGraph, s: Tensor, r: Tensor, candidates: Tensor, true: Tensor | None = None
    ) -> Negatives:
        """One of the candidates [B, K] for each query (s, r) [B]; those that are true [B, K] only where all are."""
        scores = self.generator.score(self.generator.encode(graph), s, r, candidates).float()
        scores = scores if true is None else scores.masked_fill(true, _NEVER)
        log_probability = torch.log_softmax(scores, 1)  # [B, K]
        choice = drawn(log_probability)  # [B, 1]
        return Negatives(candidates.gather(1, choice), log_probability.gather(1, choice).squeeze(1))

    def lesson(self, log_probability: Tensor, reward: Tensor) -> Tensor:
        """The loss to learn from: of choices made with these log-probabilities, and the reward for each [B]."""
        reward = reward.detach().float()
        loss = losses.reinforce(log_probability, reward, self.baseline)
        if self.training:
            self.baseline.lerp_(reward.mean(), _PACE)
        return loss


Draw = Callable[["LinkPrediction", "Batch"], Negatives]


class Sampler(NamedTuple):
    """How negatives are drawn, whether that takes an adversary, what that is in words, and whose it is."""

    draw: Draw
    adversary: bool
    description: str
    reference: str


def _uniform(task: LinkPrediction, batch: Batch) -> Negatives:
    return Negatives(uniform_negatives(len(batch.s), task.settings.negatives, task.num_entities, device=batch.s.device))


def _shared(task: LinkPrediction, batch: Batch) -> Negatives:
    return Negatives(uniform_negatives(1, task.settings.negatives, task.num_entities, device=batch.s.device)[0])


def _kbgan(task: LinkPrediction, batch: Batch) -> Negatives:
    assert task.model.adversary is not None
    candidates = _uniform(task, batch).entities
    # What scores highest of all is what is true: an adversary would soon choose nothing else.
    true = task.is_true(batch.s, batch.r, candidates)
    chosen: Negatives = task.model.adversary(task.graph, batch.s, batch.r, candidates, true)
    return chosen


SAMPLERS: dict[str, Sampler] = {
    "uniform": Sampler(
        _uniform,
        adversary=False,
        description="entities drawn uniformly, true answers not excluded",
        reference="Bordes et al., NeurIPS 2013",
    ),
    "shared": Sampler(
        _shared,
        adversary=False,
        description="entities drawn uniformly, the same for all triples of a batch: their scores are one product",
        reference="Zheng et al., DGL-KE, SIGIR 2020",
    ),
    "kbgan": Sampler(
        _kbgan,
        adversary=True,
        description="of uniform ones the one that an adversary draws, which learns what the model scores high",
        reference="Cai & Wang, NAACL 2018",
    ),
}
