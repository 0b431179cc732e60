"""Questions that wait share a batch, and each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fastapi import HTTPException

from clock import HANGS, Clock
from compgcn.serve.batching import Batcher


class Work:
    """Double numbers once allowed to; remember the batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, questions: list[int]) -> list[int]:
        self.batches.append(questions)
        self.begun.set()
        assert self.go.wait(HANGS)
        if -1 in questions:
            raise ValueError("minus")
        return [2 * question for question in questions]


def batches(
    body: Callable[[Batcher[int, int], Work], Coroutine[Any, Any, None]], clock: Clock | None = None
) -> list[list[int]]:
    """Return the batches of a batcher that `body` used."""
    work = Work()

    async def run() -> None:
        batcher = Batcher(("model", "test"), work, 4, 8, HANGS)
        batcher.open()
        await body(batcher, work)
        work.go.set()
        await batcher.close()

    with asyncio.Runner(loop_factory=(clock or Clock()).loop) as runner:
        runner.run(run())
    return work.batches


async def asked(batcher: Batcher[int, int], *questions: int) -> list[asyncio.Task[int]]:
    """Return tasks that wait for the answers."""
    tasks = [asyncio.create_task(batcher.ask(question)) for question in questions]
    await asyncio.sleep(0)
    return tasks


async def first(batcher: Batcher[int, int], work: Work) -> list[asyncio.Task[int]]:
    """Return a question that the thread works on."""
    tasks = await asked(batcher, 0)
    await asyncio.to_thread(work.begun.wait, HANGS)
    return tasks


def test_questions_that_gather_during_one_batch_form_the_next() -> None:
    async def body(batcher: Batcher[int, int], work: Work) -> None:
        tasks = [*await first(batcher, work), *await asked(batcher, 1, 2, 3, 4, 5, 6)]
        assert batcher._queue.qsize() == 6
        work.go.set()
        assert await asyncio.gather(*tasks) == [0, 2, 4, 6, 8, 10, 12]

    assert batches(body) == [[0], [1, 2, 3, 4], [5, 6]]


def test_a_late_question_is_not_computed() -> None:
    clock = Clock()

    async def body(batcher: Batcher[int, int], work: Work) -> None:
        tasks = [*await first(batcher, work), *await asked(batcher, 1)]
        clock.leap(HANGS + 1)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(answer, HTTPException) and answer.status_code for answer in answers] == [504] * 2
        work.go.set()
        assert await batcher.ask(2) == 4

    assert batches(body, clock=clock) == [[0], [2]]


def test_an_error_reaches_everyone_in_the_batch_and_the_next_batch_works() -> None:
    async def body(batcher: Batcher[int, int], work: Work) -> None:
        work.go.set()
        answers = await asyncio.gather(*await asked(batcher, 1, -1), return_exceptions=True)
        assert [type(answer) for answer in answers] == [ValueError] * 2
        assert await batcher.ask(3) == 6

    batches(body)


def test_closing_answers_waiting_questions_and_refuses_new_ones() -> None:
    async def body(batcher: Batcher[int, int], work: Work) -> None:
        tasks = [*await first(batcher, work), *await asked(batcher, 1)]
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(HTTPException, match="503"):
            await batcher.ask(2)
        work.go.set()
        assert await asyncio.gather(*tasks, closing) == [0, 2, None]

    batches(body)
