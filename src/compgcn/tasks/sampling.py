"""Where the negatives of a triple come from: drawn uniformly, or chosen by an adversary that learns which are hard."""

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


def uniform_negatives(
    batch: int,
    num_negatives: int,
    num_entities: int,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Draw K entities for each of B queries, uniformly and with replacement, true answers not excluded.

    Args:
        batch: B.
        num_negatives: K.
        num_entities: N.
        generator: where the randomness comes from; torch's own for the device if not given.
        device: where the result is wanted. The numbers of a generator are drawn on its device and then moved, so that
            one on the CPU gives the same negatives whatever the model runs on.

    Returns:
        Entities in [0, N) [B, K].
    """
    source = device if generator is None else generator.device
    drawn = torch.randint(num_entities, (batch, num_negatives), generator=generator, device=source)
    return drawn if device is None else drawn.to(device)


def drawn(logits: Tensor) -> Tensor:
    """One of K for each of B rows, with probabilities softmax(logits): [B, K] -> [B, 1].

    The largest of logits − log(exponential numbers): unlike torch.multinomial it never waits for the device.
    """
    noise = torch.empty_like(logits).exponential_().log()
    return (logits.detach() - noise).argmax(1, keepdim=True)


def seeded(*numbers: int) -> torch.Generator:
    """A generator that depends on these numbers alone, such as seed, epoch and step."""
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


@contextmanager
def randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Every random number inside comes from the seed, and none outside is touched."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which reaches every device
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


class Batches:
    """Numbers 0 .. n-1 in batches of one size, shuffled anew in every epoch.

    Args:
        number: n, how many examples there are.
        largest: the size asked for; the batches are made alike, so that hardly any example comes twice, and if they can
            be of a multiple of 8, which is what tensor cores take whole.
        seed: of the shuffling.
        device: where the batches are wanted.
    """

    def __init__(self, number: int, largest: int, seed: int, device: torch.device) -> None:
        self.number, self.seed, self.device = number, seed, device
        self.per_epoch = -(-number // largest)
        least = -(-number // self.per_epoch)
        whole = -(-least // 8) * 8
        self.size = whole if whole <= min(largest, number) else least
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def __call__(self, epoch: int, step: int) -> Tensor:
        """Which examples make a batch, [B]: an epoch meets every one, and fewer than 8 a step twice."""
        if self._order[0] != epoch:
            order = torch.randperm(self.number, generator=seeded(self.seed, epoch))
            self._order = (epoch, order.to(self.device))
        first = min(step * self.size, self.number - self.size)
        return self._order[1][first : first + self.size]


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
