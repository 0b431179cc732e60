"""Batching of concurrent questions: a bounded queue in front of one worker thread.

While the thread answers one batch the next one gathers, so batches grow with the load and the event loop stays free.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from fastapi import HTTPException
from prometheus_client import Counter, Gauge

Question = TypeVar("Question")
Answer = TypeVar("Answer")

_LABELS = ("model", "lane")
WAITING = Gauge("compgcn_waiting", "Questions in the queue.", _LABELS)
BATCHES = Counter("compgcn_batches", "Batches computed.", _LABELS)
ANSWERED = Counter("compgcn_answered", "Questions answered by these batches.", _LABELS)


class Batcher(Generic[Question, Answer]):
    """Answer questions in batches, on one thread."""

    def __init__(
        self,
        labels: tuple[str, str],  # names of the model and of the queue, for the counters
        work: Callable[[list[Question]], Sequence[Answer]],  # an error reaches everyone who asked in that batch
        batch: int,  # most questions in a batch
        queue: int,  # most questions that wait
        seconds: float,  # most time for an answer, waiting included
    ) -> None:
        self._work, self._batch, self._seconds = work, batch, seconds
        self._queue: asyncio.Queue[tuple[Question, asyncio.Future[Answer]]] = asyncio.Queue(queue)
        self._thread = ThreadPoolExecutor(1)
        self._task: asyncio.Task[None] | None = None
        self._batches, self._answered = BATCHES.labels(*labels), ANSWERED.labels(*labels)
        WAITING.labels(*labels).set_function(self._queue.qsize)

    def open(self) -> None:
        """Start to answer, in the running event loop."""
        self._task = asyncio.create_task(self._run())

    async def close(self, seconds: float = 10.0) -> None:
        """Refuse new questions, answer those that wait if time allows, and release the thread."""
        task, self._task = self._task, None
        if task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._queue.join(), seconds)
            task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: Question) -> Answer:
        """Return the answer, or raise 503 where the queue is full and 504 where the time is up.

        A question whose time is up before its batch starts costs no computation.
        """
        if self._task is None:
            raise HTTPException(503, "the server is stopping")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((question, future))
            return await asyncio.wait_for(future, self._seconds)
        except asyncio.QueueFull:
            detail = "too many questions wait already; ask again in a second"
            raise HTTPException(503, detail, {"Retry-After": "1"}) from None
        except TimeoutError:
            detail = "the answer took too long; ask for less, or when the server is less busy"
            raise HTTPException(504, detail) from None

    async def _run(self) -> None:
        while True:
            taken = [await self._queue.get()]
            while len(taken) < self._batch and not self._queue.empty():
                taken.append(self._queue.get_nowait())
            if asked := [(question, future) for question, future in taken if not future.done()]:
                await self._answer(asked)
            for _ in taken:
                self._queue.task_done()

    async def _answer(self, asked: list[tuple[Question, asyncio.Future[Answer]]]) -> None:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self._thread, self._work, [question for question, _ in asked])
            for (_, future), answer in zip(asked, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        except Exception as error:
            for _, future in asked:
                if not future.done():
                    future.set_exception(error)
        self._batches.inc()
        self._answered.inc(len(asked))
