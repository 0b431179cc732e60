"""What the server has done so far, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping

from compgcn.serve.lanes import Lane

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds, of the histogram

Family = tuple[str, str, str, list[tuple[str, float]]]  # name, kind, help, (labels, value)


class Counters:
    """Requests by route and status, and how long they took by route; only the event loop counts."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def count(self, route: str, status: int, seconds: float) -> None:
        """One more request."""
        self._requests[route, status] += 1
        buckets = self._buckets.setdefault(route, [0] * (len(BOUNDS) + 1))
        buckets[bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def text(self, lanes: Mapping[tuple[str, str], Lane]) -> str:
        """All of it; `lanes` by model and name."""
        lines = []
        for name, kind, what, values in (*self._of_requests(), *_of_lanes(lanes)):
            lines += [f"# HELP compgcn_{name} {what}", f"# TYPE compgcn_{name} {kind}"]
            lines += [f"compgcn_{suffix} {value}" for suffix, value in values]
        return "\n".join(lines) + "\n"

    def _of_requests(self) -> Iterator[Family]:
        served = [
            (f'requests_total{{route="{_escaped(route)}",status="{status}"}}', float(n))
            for (route, status), n in sorted(self._requests.items())
        ]
        yield "requests_total", "counter", "Requests answered; status 0 is a connection that broke.", served
        rows: list[tuple[str, float]] = []
        for route, buckets in sorted(self._buckets.items()):
            label, below = f'route="{_escaped(route)}"', 0
            for bound, n in zip((*BOUNDS, "+Inf"), buckets, strict=True):
                below += n
                rows.append((f'request_seconds_bucket{{{label},le="{bound}"}}', below))
            rows += [(f"request_seconds_sum{{{label}}}", self._seconds[route])]
            rows += [(f"request_seconds_count{{{label}}}", below)]
        yield "request_seconds", "histogram", "Seconds from request to answer.", rows


def _of_lanes(lanes: Mapping[tuple[str, str], Lane]) -> Iterator[Family]:
    labels = {key: f'{{model="{_escaped(key[0])}",lane="{key[1]}"}}' for key in lanes}
    for name, kind, what in (
        ("waiting", "gauge", "Questions in the queue."),
        ("batches", "counter", "Batches worked on."),
        ("answered", "counter", "Questions answered by them."),
    ):
        suffix = "_total" if kind == "counter" else ""
        values = [(f"{name}{suffix}{labels[key]}", float(getattr(lane, name))) for key, lane in lanes.items()]
        yield f"{name}{suffix}", kind, what, values


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
