"""The one training loop: any task, early stopping on validation, checkpoints that resume to the bit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from compgcn import processes
from compgcn.config import Training
from compgcn.errors import InputError
from compgcn.train.step import RecordedStep, Step, deterministic

Event = dict[str, Any]

_REPAID = 10_000  # steps of a run on a GPU from which on compiling saves more time than it takes
_SAVING = 0.01  # share of the time that checkpoints may take: those of a large graph are hundreds of megabytes
_PAUSE = 0.1  # seconds between the events of steps on a GPU, where reading the loss waits for the device


class Task(Protocol):
    """A model with its examples, its loss and its validation."""

    @property
    def module(self) -> nn.Module: ...  # to train

    @property
    def goal(self) -> str: ...  # the validation metric to raise

    @property
    def steps_per_epoch(self) -> int: ...

    def examples(self, epoch: int, step: int) -> Tensor:
        """Return the examples of a batch: a tensor of one shape that depends on the two numbers and the seed alone."""

    def loss(self, examples: Tensor) -> Tensor:
        """Return the loss of one batch."""

    def validate(self, notify: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Return metrics on the validation split, {} if there is none; report the part done and the total."""

    def evaluated(self, without_gain: int) -> None:
        """Take note, after every evaluation, of the number of them since the last gain."""


class Store(Protocol):
    """A place for the checkpoint and the best weights."""

    def load(self) -> tuple[dict[str, Tensor], str] | None:
        """Return the tensors and the note of the last checkpoint, if there is one."""

    def bad_checkpoint(self, reason: Exception) -> InputError:
        """Return the error for a checkpoint that cannot be used."""

    def save(self, tensors: dict[str, Tensor], note: str) -> None:
        """Replace the checkpoint, all or nothing."""

    def keep_best(self, module: nn.Module) -> None:
        """Replace the best weights, all or nothing."""


class Interrupted(Exception):  # noqa: N818 - a request, not an error
    """The caller asked to stop; the checkpoint holds everything done so far."""


@dataclass
class Progress:
    """The state of the loop, kept in the checkpoint."""

    step: int = 0  # over all epochs
    best: float = -math.inf
    best_epoch: int = 0
    best_step: int = -1
    stale: int = 0  # evaluations since the best
    stopped: bool = False
    due: bool = False  # the steps of an epoch are done, and its evaluation is not
    loss_sum: float = 0.0  # of the epoch under way
    seconds: float = 0.0


def optimise(
    task: Task,
    settings: Training,
    store: Store,
    notify: Callable[[Event], None],
    interrupted: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = processes.clock,
    make: Callable[[Task, Training, int], Step] | None = None,
) -> Progress:
    """Train until the epochs are over or validation has stopped improving; the best weights are in the store.

    A killed call resumes from the last checkpoint when repeated; on a CPU it ends with the same bits. `make` makes the
    step where `make_step` should not.
    """
    device = next(task.module.parameters()).device
    pause = 0.0 if device.type == "cpu" else _PAUSE
    last = settings.epochs * task.steps_per_epoch
    update = (make or make_step)(task, settings, last)
    progress = _resume(task, update.optimiser, store)
    started = saved = told = clock()
    wait = settings.checkpoint_seconds
    before = progress.seconds
    if progress.step == 0:
        store.keep_best(task.module)  # a run of no epochs is a model too
    total = torch.tensor(progress.loss_sum, dtype=torch.float64, device=device)
    with deterministic(settings.deterministic):
        while progress.due or (progress.step < last and not progress.stopped):
            epoch, step = divmod(progress.step - progress.due, task.steps_per_epoch)
            if not progress.due:
                task.module.train()
                total += update(
                    task.examples(epoch, step), settings.lr * rate(settings, progress.step / last, progress.step)
                )
                progress.step += 1
            now = clock()  # once a step: several processes have to agree on it
            progress.seconds = before + now - started
            improved = False
            if step + 1 == task.steps_per_epoch:
                progress.loss_sum, progress.due = total.item(), True
                try:
                    improved = _end_epoch(task, settings, progress, epoch + 1, notify, interrupted)
                except Interrupted:
                    progress.loss_sum = total.item()
                    store.save(*_snapshot(task.module, update.optimiser, progress))
                    raise
                total.zero_()
            elif now - told >= pause:
                progress.loss_sum, told = total.item(), now
                if not math.isfinite(progress.loss_sum):
                    raise _diverged(progress.loss_sum, epoch + 1)
                notify(_event("step", progress, epoch + 1, progress.loss_sum / (step + 1), settings, task))
            stop = interrupted()
            over = progress.stopped or progress.step == last
            if improved or stop or over or now - saved >= wait:
                due = clock()
                progress.seconds, progress.loss_sum = before + due - started, total.item()
                store.save(*_snapshot(task.module, update.optimiser, progress))
                saved = clock()
                wait = until_next(settings, saved - due)
            if improved:  # after the checkpoint: `_resume` makes good for a kill in between
                store.keep_best(task.module)
            if stop:
                raise Interrupted
    return progress


def make_step(task: Task, settings: Training, steps: int) -> Step:
    """Return the step for a run of so many: on a GPU recorded, and compiled where that saves time."""
    on_gpu = next(task.module.parameters()).device.type == "cuda"
    compiled = settings.step == "compiled" or (settings.step == "auto" and on_gpu and steps >= _REPAID)
    kind = RecordedStep if on_gpu and settings.step != "eager" else Step
    return kind(task.module, task.loss, settings, compiled=compiled)


def until_next(settings: Training, took: float) -> float:
    """Return the seconds from one checkpoint to the next, if writing one `took` so many; 0: after every step."""
    return max(settings.checkpoint_seconds, took / _SAVING) if settings.checkpoint_seconds else 0.0


def _end_epoch(
    task: Task,
    settings: Training,
    progress: Progress,
    epoch: int,
    notify: Callable[[Event], None],
    interrupted: Callable[[], bool],
) -> bool:
    """Evaluate if this epoch is due for it; return whether these are the best weights so far."""

    def watch(done: int, total: int) -> None:
        notify({"event": "progress", "what": "evaluating", "done": done, "total": total})
        if done < total and interrupted():  # at the end the loop asks
            raise Interrupted

    loss = progress.loss_sum / task.steps_per_epoch
    if not math.isfinite(loss):
        raise _diverged(loss, epoch)
    progress.loss_sum = 0.0
    improved, valid = False, {}
    if epoch % settings.evaluate_every == 0 or epoch == settings.epochs:
        task.module.eval()
        valid = task.validate(watch)
        # Without a validation split every epoch counts as a gain: the last weights are kept.
        improved = not valid or valid[task.goal] > progress.best
        progress.stale = 0 if improved else progress.stale + 1
        if improved:
            progress.best = valid.get(task.goal, -math.inf)
            progress.best_epoch, progress.best_step = epoch, progress.step
        task.evaluated(progress.stale)
        progress.stopped = progress.stale >= settings.patience
    progress.due = False
    figures = {name: value for name, value in valid.items() if isinstance(value, float)}
    notify({**_event("epoch", progress, epoch, loss, settings, task), "valid": figures})
    return improved


def _event(kind: str, progress: Progress, epoch: int, loss: float, settings: Training, task: Task) -> Event:
    every, spared = settings.evaluate_every, settings.patience - progress.stale
    evaluated = progress.step // task.steps_per_epoch // every
    return {
        "event": kind,
        "epoch": epoch,
        "epochs": settings.epochs,
        "step": progress.step,
        "steps": settings.epochs * task.steps_per_epoch,
        "stop": min((evaluated + spared) * every, settings.epochs),  # the last epoch if validation gains nothing more
        "loss": loss,
        "best": progress.best if math.isfinite(progress.best) else None,
        "best_epoch": progress.best_epoch,
        "goal": task.goal,
        "seconds": round(progress.seconds, 3),
    }


def rate(settings: Training, done: float, step: int) -> float:
    """Return the learning rate as a share of `lr` after a share `done` of all steps: constant, then falling.

    In the first `warm_up` steps it rises to that.
    """
    start, floor = settings.schedule_start, settings.schedule_floor
    risen = min(1.0, (step + 1) / settings.warm_up) if settings.warm_up else 1.0
    if settings.schedule == "constant" or done <= start:
        return risen
    fallen = (done - start) / (1 - start)
    if settings.schedule == "cosine":
        fallen = (1 - math.cos(math.pi * fallen)) / 2
    return risen * (1.0 - (1.0 - floor) * fallen)


def _diverged(loss: float, epoch: int) -> InputError:
    return InputError(f"the loss is {loss} in epoch {epoch}: training has diverged; lower training.lr or set grad_clip")


def _snapshot(module: nn.Module, optimiser: torch.optim.Optimizer, progress: Progress) -> tuple[dict[str, Tensor], str]:
    tensors = {f"model.{name}": value for name, value in module.state_dict().items()}
    names = _names(module, optimiser)
    for index, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{names[index]}.{key}": value for key, value in state.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    device = next(module.parameters()).device
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    return tensors, json.dumps(asdict(progress))


def _names(module: nn.Module, optimiser: torch.optim.Optimizer) -> list[str]:
    """Return the names of the parameters in the order of the optimiser."""
    names = {weight: name for name, weight in module.named_parameters()}
    return [names[weight] for group in optimiser.param_groups for weight in group["params"]]


def _resume(task: Task, optimiser: torch.optim.Optimizer, store: Store) -> Progress:
    found = store.load()
    if found is None:
        return Progress()
    try:
        progress = Progress(**json.loads(found[1]))
        _take_up(task.module, optimiser, found[0])
    except (ValueError, TypeError, LookupError, RuntimeError) as error:
        raise store.bad_checkpoint(error) from None
    if progress.best_step == progress.step:
        store.keep_best(task.module)
    return progress


def _take_up(module: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Set module, optimiser and random numbers to the state of a snapshot."""
    weights, state = {}, dict[int, dict[str, Tensor]]()
    index = {name: number for number, name in enumerate(_names(module, optimiser))}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        if part == "model":
            weights[rest] = value
        elif part == "optimiser":
            weight, _, key = rest.rpartition(".")
            state.setdefault(index[weight], {})[key] = value
    module.load_state_dict(weights)
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    torch.set_rng_state(tensors["random.cpu"])
    device = next(module.parameters()).device
    if "random.cuda" in tensors and device.type == "cuda":
        torch.cuda.set_rng_state(tensors["random.cuda"], device)
