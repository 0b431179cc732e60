"""How much one client may ask for; what is beyond is refused with a sentence."""

from __future__ import annotations

from typing import NamedTuple

TOP = 1000  # answers to one query
FOUND = 100  # entities of a search
FACTS = 500  # facts of a neighbourhood, or of an explanation
POINTS = 20_000  # of the map
NAME = 2000  # letters of a name that is asked for; an IRI may be long


class Limits(NamedTuple):
    """What the server takes on at once, and how long it waits."""

    batch: int = 64  # queries scored together
    queue: int = 512  # questions that wait for a model; one more is answered 503
    seconds: float = 30.0  # for an answer, waiting included; after that it is 504
    body: int = 64 * 1024  # bytes of a request; more is 413
    read_seconds: float = 10.0  # for a client to send a request whole
    write_seconds: float = 30.0  # for a client that does not take its answer
    idle_seconds: int = 15  # a connection may stay open without a request
    connections: int = 1000  # open at once; one more is answered 503
    stop_seconds: int = 40  # for what is in flight when the server is told to stop
