"""The time of an event loop, which leaps when it is told to.

Limits of minutes are over in a test so, and none is over on its own where the machine is busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

HANGS = 300.0  # seconds after which a test that waits for something gives up


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < HANGS
        time.sleep(0.01)


class Clock:
    """Fake time of one event loop."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that goes by this clock."""
        self._loop = asyncio.new_event_loop()
        self._loop.time = lambda: time.monotonic() + self._ahead  # type: ignore[method-assign]
        return self._loop

    def leap(self, seconds: float) -> None:
        """Let time pass, and what is due by then happen."""
        self._ahead += seconds
        self._loop.call_soon_threadsafe(lambda: None)  # wakes it
