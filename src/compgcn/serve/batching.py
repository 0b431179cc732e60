"""Questions to a model wait in a lane, and a thread of its own answers those that have gathered, together.

While one batch is being worked on, the next gathers: the busier the server, the larger its batches. The event loop
never waits for a computation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class BusyError(Exception):
    """The lane is full, or about to close."""


class LateError(Exception):
    """The answer took too long."""


class Lane:
    """A queue in front of one thread.

    Args:
        work: answers a batch: as many answers as there are questions; an exception as one is raised where it was asked.
        batch: questions answered together at most.
        queue: questions that may wait.
    """

    def __init__(self, work: Callable[[list[Any]], Sequence[Any]], batch: int, queue: int) -> None:
        self._work, self._batch = work, batch
        self._queue: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue(queue)
        self._thread = ThreadPoolExecutor(1)
        self._task: asyncio.Task[None] | None = None
        self.batches = self.answered = 0

    def open(self) -> None:
        """Begin to answer; in a running event loop."""
        self._task = asyncio.create_task(self._serve())

    async def close(self, seconds: float = 10.0) -> None:
        """Take no more, answer what waits if that can be done in time, and let the thread go."""
        task, self._task = self._task, None
        if task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._queue.join()
            task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    async def ask(self, question: Any, seconds: float) -> Any:
        """The answer, once there is one; a question nobody waits for any longer is not begun."""
        if self._task is None:
            raise BusyError
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((question, future))
        except asyncio.QueueFull:
            raise BusyError from None
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise LateError from None

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            taken = [await self._queue.get()]
            while len(taken) < self._batch and not self._queue.empty():
                taken.append(self._queue.get_nowait())
            asked = [(question, future) for question, future in taken if not future.done()]
            if asked:
                answers = await loop.run_in_executor(self._thread, self._answer, [question for question, _ in asked])
                self.batches, self.answered = self.batches + 1, self.answered + len(asked)
                for (_, future), answer in zip(asked, answers, strict=True):
                    if future.done():  # its time was up
                        continue
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
            for _ in taken:
                self._queue.task_done()

    def _answer(self, questions: list[Any]) -> Sequence[Any]:
        try:
            answers = self._work(questions)
            if len(answers) != len(questions):
                raise RuntimeError(f"{len(questions)} questions were given {len(answers)} answers")
            return answers
        except Exception as error:  # everyone who asked is told, and the lane goes on
            return [error] * len(questions)
