"""The loop itself, on a task of one number: schedules, early stopping, which weights are kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from compgcn.config import Training
from compgcn.errors import InputError
from compgcn.train.loop import Interrupted, optimise, rate, until_next


class Memory:
    """A store that forgets nothing."""

    def __init__(self) -> None:
        self.state: tuple[dict[str, Tensor], str] | None = None
        self.best: list[dict[str, Tensor]] = []

    def load(self) -> tuple[dict[str, Tensor], str] | None:
        return self.state

    def bad_checkpoint(self, reason: Exception) -> InputError:
        return InputError(str(reason))

    def save(self, tensors: dict[str, Tensor], note: str) -> None:
        self.state = ({name: value.clone() for name, value in tensors.items()}, note)

    def keep_best(self, module: nn.Module) -> None:
        self.best.append({name: value.clone() for name, value in module.state_dict().items()})


class Scripted:
    """A task whose validation metric follows a script."""

    goal = "mrr"
    steps_per_epoch = 2

    def __init__(self, script: list[float | None]) -> None:
        self.module = nn.Linear(1, 1)
        self.script = list(script)
        self.seen: list[int] = []
        self.after: list[Tensor] = []
        self.losses: list[tuple[int, int]] = []

    def examples(self, epoch: int, step: int) -> Tensor:
        return torch.tensor([epoch, step])

    def loss(self, examples: Tensor) -> Tensor:
        epoch, step = examples.tolist()
        self.losses.append((epoch, step))
        return (self.module.weight * (1 + epoch) - step).square().sum() + self.module.bias.sum()

    def validate(self, notify: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        for done in range(3):
            notify(done + 1, 3)
        self.after.append(self.module.weight.detach().clone())
        value = self.script.pop(0)
        return {} if value is None else {"mrr": value}

    def evaluated(self, without_gain: int) -> None:
        self.seen.append(without_gain)


def _train(script: list[float | None], **settings: Any) -> tuple[Scripted, Memory, Any, list[dict[str, Any]]]:
    task, store, events = Scripted(script), Memory(), []
    progress = optimise(task, Training(**settings), store, events.append)
    return task, store, progress, events


def test_training_stops_after_patience_evaluations_without_gain_and_keeps_the_best() -> None:
    task, store, progress, events = _train([0.1, 0.3, 0.2, 0.3, 0.1, 0.9], epochs=6, patience=3)
    assert (progress.best_epoch, progress.best, progress.stopped) == (2, 0.3, True)
    assert len(task.after) == 5, "an equal score is no gain"
    torch.testing.assert_close(store.best[-1]["weight"], task.after[1], rtol=0, atol=0)
    assert task.seen == [0, 0, 1, 2, 3]
    assert [(event["epoch"], event["stop"]) for event in events if event["event"] == "epoch"] == [
        (1, 4),
        (2, 5),
        (3, 5),
        (4, 5),
        (5, 5),
    ]


def test_evaluation_happens_every_so_many_epochs_and_after_the_last() -> None:
    _, _, progress, events = _train([0.1, 0.2, 0.3], epochs=5, evaluate_every=2)
    assert progress.best_epoch == 5
    assert [event["epoch"] for event in events if event.get("valid")] == [2, 4, 5]


def test_without_validation_the_last_weights_are_kept() -> None:
    task, store, progress, _ = _train([None] * 3, epochs=3, patience=1)
    assert progress.best_epoch == 3
    torch.testing.assert_close(store.best[-1]["weight"], task.after[-1], rtol=0, atol=0)


def test_no_epochs_keep_the_weights_as_they_began() -> None:
    task, store, progress, events = _train([], epochs=0)
    assert progress.best_epoch == 0
    assert events == []
    torch.testing.assert_close(store.best[0]["weight"], task.module.weight.detach())


def test_an_interruption_is_noticed_after_the_step_under_way_and_leaves_a_checkpoint() -> None:
    task, store = Scripted([0.1]), Memory()
    with pytest.raises(Interrupted):
        optimise(task, Training(epochs=3), store, lambda event: None, lambda: len(task.losses) == 1)
    assert task.losses == [(0, 0)]
    assert store.state is not None


@pytest.mark.parametrize("done", [1, 2])
def test_an_interruption_is_noticed_while_evaluating_and_no_step_is_made_again(done: int) -> None:
    torch.manual_seed(0)
    undisturbed, kept, _, expected = _train([0.2, 0.1, 0.3], epochs=3)
    torch.manual_seed(0)
    task, store, events, stops = Scripted([0.2, 0.1, 0.3]), Memory(), list[dict[str, Any]](), 0

    def interrupted() -> bool:
        """Every other time that the evaluation gets here: once in each epoch."""
        return events[-1].get("done") == done and sum(event.get("done") == done for event in events) % 2 == 1

    for _ in range(9):
        try:
            optimise(task, Training(epochs=3), store, events.append, interrupted)
            break
        except Interrupted:
            stops += 1
    assert stops == 3
    assert task.losses == undisturbed.losses
    torch.testing.assert_close(store.best[-1], kept.best[-1], rtol=0, atol=0)
    found, wanted = ([one | {"seconds": 0} for one in some if one["event"] == "epoch"] for some in (events, expected))
    assert found == wanted


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_training(value: float) -> None:
    task = Scripted([0.1])
    task.loss = lambda examples: task.module.weight.sum() * value  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"epoch 1: training has diverged; lower training\.lr or set grad_clip"):
        optimise(task, Training(epochs=1), Memory(), lambda event: None)


def test_the_gradient_is_clipped_to_its_bound() -> None:
    task = Scripted([0.1])
    optimise(task, Training(epochs=1, grad_clip=1e-3), Memory(), lambda event: None)
    norm = torch.stack([p.grad.norm() for p in task.module.parameters() if p.grad is not None]).norm()
    torch.testing.assert_close(norm, torch.tensor(1e-3), rtol=1e-3, atol=0)


class Straight(Scripted):
    """A task whose gradient never changes."""

    def loss(self, examples: Tensor) -> Tensor:
        out: Tensor = self.module(torch.ones(1, 1))
        self.dtype = out.dtype
        return out.sum()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_precision_is_used_where_asked_for_and_the_weights_stay_float32(precision: Any) -> None:
    task = Straight([0.1])
    optimise(task, Training(epochs=1, precision=precision), Memory(), lambda event: None)
    assert task.dtype == getattr(torch, precision)
    assert task.module.weight.dtype == torch.float32


def test_each_step_is_taken_at_the_rate_of_the_schedule() -> None:
    task = Straight([0.1, 0.2])
    before = task.module.weight.item()
    optimise(task, Training(epochs=2, lr=0.1, schedule="linear"), Memory(), lambda event: None)
    # Under a constant gradient Adam moves by the learning rate: four steps at 1, 3/4, 1/2 and 1/4 of it.
    assert before - task.module.weight.item() == pytest.approx(0.25, rel=1e-4)


@given(
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
    start=st.floats(0, 1),
    floor=st.floats(0, 1),
    done=st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted),
)
def test_a_rate_never_rises_and_stays_between_its_floor_and_one(
    schedule: Any, start: float, floor: float, done: list[float]
) -> None:
    settings = Training(schedule=schedule, schedule_start=start, schedule_floor=floor)
    early, late = (rate(settings, x, 0) for x in done)
    assert 1.0 >= early >= late - 1e-12
    assert late >= floor - 1e-12
    assert rate(settings, start, 0) == 1.0
    if schedule == "constant":
        assert late == 1.0
    elif start < 1:
        assert rate(settings, 1.0, 0) == pytest.approx(floor)
        half = 1 - (1 - floor) / 2
        assert rate(settings, (1 + start) / 2, 0) == pytest.approx(half)


def test_the_rate_rises_over_the_first_steps() -> None:
    settings = Training(warm_up=4)
    assert [rate(settings, 0.0, step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_the_last_evaluation_counts_as_training() -> None:
    events, clock = list[dict[str, Any]](), iter(range(99))  # one second from question to question
    progress = optimise(Scripted([0.1]), Training(epochs=1), Memory(), events.append, clock=lambda: float(next(clock)))
    assert progress.seconds > events[-1]["seconds"]


class Slow(Memory):
    """A store that takes two seconds of a clock to write a checkpoint."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__()
        self.clock, self.saves = clock, 0

    def save(self, tensors: dict[str, Tensor], note: str) -> None:
        super().save(tensors, note)
        self.clock[0] += 2.0
        self.saves += 1


def test_checkpoints_that_take_long_are_written_so_seldom_that_they_take_little_of_the_time() -> None:
    clock, task = [0.0], Scripted([0.5] * 300)
    plain = task.loss

    def loss(examples: Tensor) -> Tensor:
        clock[0] += 1.0
        return plain(examples)

    task.loss = loss  # type: ignore[method-assign]
    store = Slow(clock)
    settings = Training(epochs=300, patience=1000, checkpoint_seconds=3.0)
    optimise(task, settings, store, lambda event: None, clock=lambda: clock[0])
    assert 600 // 203 <= store.saves <= 600 // 200 + 2  # after the first evaluation, a gain, and after the last step
    assert store.state is not None


@given(st.floats(0, 1e4), st.floats(0, 1e4))
def test_a_checkpoint_comes_no_sooner_than_asked_and_none_at_all_is_put_off_where_every_step_was_asked_for(
    asked: float, took: float
) -> None:
    wait = until_next(Training(checkpoint_seconds=asked), took)
    assert wait >= asked
    assert took <= 0.01001 * wait if asked else wait == 0
