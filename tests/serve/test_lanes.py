"""Questions that wait are answered together, each with its own answer, whatever happens to the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from clock import HANGS
from compgcn.serve.batching import BusyError, Lane, LateError


class Work:
    """Doubles numbers once it is let; remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, questions: list[int]) -> list[Any]:
        self.batches.append(questions)
        self.begun.set()
        assert self.go.wait(HANGS)
        return [ValueError("minus") if question < 0 else 2 * question for question in questions]


def asked(body: Callable[[Lane, Work], Coroutine[Any, Any, None]], batch: int = 4, queue: int = 8) -> Work:
    """What a lane did while `body` asked it."""
    work = Work()

    async def run() -> None:
        lane = Lane(work, batch, queue)
        lane.open()
        await body(lane, work)
        work.go.set()
        await lane.close()

    asyncio.run(run())
    return work


async def first(lane: Lane, work: Work, question: int = 0) -> asyncio.Task[Any]:
    """A question that is being worked on."""
    task = asyncio.create_task(lane.ask(question, HANGS))
    await asyncio.to_thread(work.begun.wait, HANGS)
    return task


def test_what_gathers_during_one_batch_is_the_next() -> None:
    async def body(lane: Lane, work: Work) -> None:
        begun = await first(lane, work)
        others = [asyncio.create_task(lane.ask(number, HANGS)) for number in range(1, 7)]
        await asyncio.sleep(0)
        assert lane.waiting == 6
        work.go.set()
        assert await asyncio.gather(begun, *others) == [0, 2, 4, 6, 8, 10, 12]
        assert (lane.batches, lane.answered) == (3, 7)

    assert asked(body).batches == [[0], [1, 2, 3, 4], [5, 6]]


def test_one_more_than_may_wait_is_turned_away_and_the_others_are_answered() -> None:
    async def body(lane: Lane, work: Work) -> None:
        begun = await first(lane, work)
        waiting = [asyncio.create_task(lane.ask(number, HANGS)) for number in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await lane.ask(3, HANGS)
        work.go.set()
        assert await asyncio.gather(begun, *waiting) == [0, 2, 4]

    asked(body, queue=2)


def test_a_question_nobody_waits_for_any_longer_is_not_begun() -> None:
    async def body(lane: Lane, work: Work) -> None:
        begun = await first(lane, work)
        with pytest.raises(LateError):
            await lane.ask(1, 0.01)
        work.go.set()
        assert await begun == 0
        assert await lane.ask(2, HANGS) == 4

    assert asked(body).batches == [[0], [2]]


def test_an_error_reaches_the_one_who_caused_it_and_one_of_the_whole_batch_everyone() -> None:
    async def body(lane: Lane, work: Work) -> None:
        work.go.set()
        answers = await asyncio.gather(*(lane.ask(number, HANGS) for number in (1, -1)), return_exceptions=True)
        assert answers[0] == 2
        assert isinstance(answers[1], ValueError)
        with pytest.raises(TypeError):
            await lane.ask("no number", HANGS)
        assert await lane.ask(3, HANGS) == 6

    asked(body)


def test_work_that_gives_too_few_answers_is_an_error_to_everyone_and_the_lane_goes_on() -> None:
    async def run() -> None:
        lane = Lane(lambda questions: questions[1:] if 0 in questions else questions, 4, 8)
        lane.open()
        wrong = await asyncio.gather(*(lane.ask(number, HANGS) for number in (0, 1)), return_exceptions=True)
        assert [type(answer) for answer in wrong] == [RuntimeError] * 2
        assert await lane.ask(2, HANGS) == 2
        await lane.close()

    asyncio.run(run())


def test_a_lane_that_closes_answers_what_waits_and_takes_no_more() -> None:
    async def body(lane: Lane, work: Work) -> None:
        begun = await first(lane, work)
        waiting = asyncio.create_task(lane.ask(1, HANGS))
        await asyncio.sleep(0)
        closing = asyncio.create_task(lane.close())
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await lane.ask(2, HANGS)
        work.go.set()
        assert await asyncio.gather(begun, waiting, closing) == [0, 2, None]

    asked(body)
