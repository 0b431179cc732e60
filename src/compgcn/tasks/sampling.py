"""Batches of examples, and the negatives of a triple: drawn uniformly, or chosen by an adversary (KBGAN)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from compgcn.tasks import losses

if TYPE_CHECKING:
    from compgcn.nn.graph import RelationalGraph
    from compgcn.tasks.link_prediction import Batch, LinkPrediction, LinkPredictor

_PACE = 0.1  # how far the mean reward of an adversary moves towards that of a batch
_NEVER = -1e9  # the score of a true answer; finite, so that there are probabilities where all candidates are true


def seeded(*numbers: int) -> torch.Generator:
    """Return a generator that depends on these numbers alone, such as seed and epoch."""
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


@contextmanager
def randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Draw every random number inside from the seed, and leave the generators outside as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which reaches every device
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


class Batches:
    """Numbers 0 .. n-1 in batches of one size, shuffled anew in every epoch.

    Args:
        number: n, the number of examples.
        largest: an upper bound of the size. Batches are made alike, so that few examples come twice in an epoch, and
            where possible a multiple of 8, which tensor cores take whole.
        epoch_size: the examples of an epoch; None: all of them.
    """

    def __init__(
        self, number: int, largest: int, seed: int, device: torch.device, epoch_size: int | None = None
    ) -> None:
        self.number, self.seed, self.device = number, seed, device
        self.taken = min(number, epoch_size or number)
        self.per_epoch = -(-self.taken // largest)
        least = -(-self.taken // self.per_epoch)
        whole = -(-least // 8) * 8
        self.size = whole if whole <= min(largest, self.taken) else least
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def __call__(self, epoch: int, step: int) -> Tensor:
        """Return the examples of a batch [B]; an epoch meets each of its own, and fewer than 8 a step twice."""
        if self._order[0] != epoch:
            order = torch.randperm(self.number, generator=seeded(self.seed, epoch))
            self._order = (epoch, order.to(self.device))
        first = min(step * self.size, self.taken - self.size)
        return self._order[1][first : first + self.size]


class Negatives(NamedTuple):
    """Entities in the place of the answer, [B, K], or [K] for all; of an adversary's choices, the log p too [B]."""

    entities: Tensor
    log_probability: Tensor | None = None


class Adversary(nn.Module):
    """KBGAN's generator (Cai & Wang, 2018): a second model that chooses the negatives of the first.

    It draws one of K uniform candidates for a query, by the softmax of its own scores. Its reward is the score that
    the first model gives this negative, less the running mean `baseline`; it learns by REINFORCE.

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
        """Draw one of the candidates [B, K] for each query (s, r) [B]; true ones [B, K] only where all are true."""
        scores = self.generator.score(self.generator.encode(graph), s, r, candidates).float()
        scores = scores if true is None else scores.masked_fill(true, _NEVER)
        log_probability = torch.log_softmax(scores, 1)  # [B, K]
        choice = drawn(log_probability)  # [B, 1]
        return Negatives(candidates.gather(1, choice), log_probability.gather(1, choice).squeeze(1))

    def lesson(self, log_probability: Tensor, reward: Tensor) -> Tensor:
        """Return the loss of choices made with these log-probabilities, given the reward of each [B]."""
        reward = reward.detach().float()
        loss = losses.reinforce(log_probability, reward, self.baseline)
        if self.training:
            self.baseline.lerp_(reward.mean(), _PACE)
        return loss


def drawn(logits: Tensor) -> Tensor:
    """Draw one of K for each row with probabilities softmax(logits): [B, K] -> [B, 1].

    The largest of logits − log(exponential numbers): unlike torch.multinomial it never waits for the device.
    """
    noise = torch.empty_like(logits).exponential_().log()
    return (logits.detach() - noise).argmax(1, keepdim=True)


class Sampler(NamedTuple):
    """A way to draw negatives, and whether it takes an adversary."""

    draw: Callable[[LinkPrediction, Batch], Negatives]
    adversary: bool
    description: str
    reference: str


def _uniform(task: LinkPrediction, batch: Batch) -> Negatives:
    shape = (len(batch.s), task.settings.negatives)
    return Negatives(torch.randint(task.num_entities, shape, device=batch.s.device))


def _shared(task: LinkPrediction, batch: Batch) -> Negatives:
    return Negatives(torch.randint(task.num_entities, (task.settings.negatives,), device=batch.s.device))


def _kbgan(task: LinkPrediction, batch: Batch) -> Negatives:
    candidates = _uniform(task, batch).entities
    # True answers score highest of all: an adversary would soon choose nothing else.
    true = task.is_true(batch.s, batch.r, candidates)
    assert task.model.adversary is not None
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
        description="an adversary draws one of several uniform negatives and learns which ones the model scores high",
        reference="Cai & Wang, NAACL 2018",
    ),
}
