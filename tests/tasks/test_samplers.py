"""The adversary draws what it likes best, and learns to like what the model scores high."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from compgcn.config import Config, configure
from compgcn.run.resolve import expand
from compgcn.tasks.link_prediction import LinkPrediction
from compgcn.tasks.sampling import SAMPLERS, Negatives
from toy import SMALL, build_task, graph

KBGAN: dict[str, Any] = {"loss": "margin", "sampler": "kbgan", "decoder": "transe", "encoder": "none", "negatives": 5}


SHARED: dict[str, Any] = {"loss": "self-adversarial", "sampler": "shared", "negatives": 9, "encoder": "compgcn"}


def build(**settings: Any) -> LinkPrediction:
    data = graph()
    torch.manual_seed(0)
    return build_task(expand(configure(Config(), SMALL | KBGAN | settings), data), data, torch.device("cpu"))


def test_the_adversary_draws_by_the_softmax_of_its_own_scores() -> None:
    task = build()
    adversary = task.model.adversary
    for table in adversary.parameters():
        table.data.mul_(3)
    n = 20_000
    s, r = torch.full((n,), 2), torch.full((n,), 4)
    candidates = torch.tensor([1, 7, 3]).expand(n, 3)
    chosen = adversary(task.graph, s, r, candidates)
    scores = adversary.generator.score(adversary.generator.encode(task.graph), s[:1], r[:1], candidates[0])
    p = scores.softmax(1)[0]
    for k, entity in enumerate((1, 7, 3)):
        hit = chosen.entities[:, 0] == entity
        assert hit.float().mean().item() == pytest.approx(p[k].item(), abs=0.02)
        torch.testing.assert_close(chosen.log_probability[hit].exp(), p[k].expand(int(hit.sum())))


def test_an_adversary_draws_no_answer_of_the_training_triples() -> None:
    task = build(negatives=12)
    batch = task.batch(torch.arange(task.num_examples))
    everyone = torch.arange(12).expand(task.num_examples, 12)
    true = task.is_true(batch.s, batch.r, everyone)
    facts = set(zip(batch.s.tolist(), batch.r.tolist(), batch.answer.tolist(), strict=True))
    for i, (s, r) in enumerate(zip(batch.s.tolist(), batch.r.tolist(), strict=True)):
        assert true[i].tolist() == [(s, r, o) in facts for o in range(12)]
    for _ in range(5):
        chosen = task.model.adversary(task.graph, batch.s, batch.r, everyone, true).entities
        assert not true.gather(1, chosen).any()
    nothing = task.model.adversary(task.graph, batch.s, batch.r, everyone, torch.ones_like(true))
    assert torch.isfinite(nothing.log_probability).all(), "where all are true, one of them is drawn"


def test_the_reward_trains_the_adversary_and_not_the_model() -> None:
    task = build(loss_margin=0.0)
    adversary = task.model.adversary
    with torch.no_grad():  # all scores are equal, so that the loss of the model has no gradient
        for name, table in task.model.named_parameters():
            if not name.startswith("adversary."):
                table.zero_()
        adversary.baseline.fill_(task.model.decoder.margin.item() - 1.0)  # type: ignore[union-attr]
    task.model.train()
    task.loss(torch.arange(8)).backward()  # type: ignore[no-untyped-call]
    for name, table in task.model.named_parameters():
        trained = table.grad is not None and bool(table.grad.any())
        assert trained == name.startswith("adversary."), name


def test_the_baseline_moves_towards_the_mean_reward_and_only_in_training() -> None:
    adversary = build().model.adversary
    log_probability, reward = torch.tensor([-1.0, -2.0], requires_grad=True), torch.tensor([4.0, 8.0])
    first = adversary.lesson(log_probability, reward)
    assert first.item() == pytest.approx((4 * 1 + 8 * 2) / 2)  # before there is a baseline
    assert adversary.baseline.item() == pytest.approx(0.6)
    second = adversary.lesson(log_probability, reward)
    assert second.item() == pytest.approx((3.4 * 1 + 7.4 * 2) / 2)
    adversary.eval()
    adversary.lesson(log_probability, reward)
    assert adversary.baseline.item() == pytest.approx(0.6 + 0.1 * 5.4)


def test_an_adversary_learns_which_negative_a_model_that_stands_still_scores_highest() -> None:
    task = build(negatives=64, lr=0.1)
    adversary = task.model.adversary
    optimiser = torch.optim.Adam(adversary.parameters(), lr=0.05)
    s, r = torch.arange(8), torch.zeros(8, dtype=torch.long)
    everyone = torch.arange(12).expand(8, 12)
    with torch.no_grad():
        rewards = 3 * task.model.score(task.model.encode(task.graph), s, r)  # [8, 12]
    for _ in range(400):
        chosen = adversary(task.graph, s, r, everyone)
        loss = adversary.lesson(chosen.log_probability, rewards.gather(1, chosen.entities).squeeze(1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    scores = adversary.generator.score(adversary.generator.encode(task.graph), s, r)
    expected = (scores.softmax(1) * rewards).sum(1)
    assert (expected - rewards.mean(1)).mean() > 0.5 * (rewards.amax(1) - rewards.mean(1)).mean()


@pytest.mark.parametrize("decoder", ["distmult", "transe", "conve"])
def test_negatives_that_are_shared_give_the_loss_of_the_same_ones_drawn_for_every_triple(
    decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, found = build(**SHARED, decoder=decoder), []
    task.model.eval()
    entities = SAMPLERS["shared"].draw(task, task.batch(torch.arange(8))).entities
    assert entities.shape == (9,)
    for each in (entities, entities.expand(8, 9)):
        monkeypatch.setattr(task, "sampler", task.sampler._replace(draw=lambda *_, each=each: Negatives(each)))
        task.model.zero_grad()
        loss = task.loss(torch.arange(8))
        loss.backward()  # type: ignore[no-untyped-call]
        found.append([loss.detach(), *(p.grad for p in task.model.parameters() if p.grad is not None)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_every_entity_is_drawn_about_equally_often() -> None:
    torch.manual_seed(0)
    task = build(sampler="uniform", negatives=2000)
    negatives = SAMPLERS["uniform"].draw(task, task.batch(torch.arange(12))).entities
    assert negatives.shape == (12, 2000)
    counts = torch.bincount(negatives.flatten(), minlength=12)
    assert len(counts) == 12
    assert (counts - 2000).abs().max() < 6 * 2000**0.5
