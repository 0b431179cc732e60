"""How many predictions a second a server gives, and how long each takes: `python benchmarks/serving.py`.

A model of FB15k-237, CompGCN and DistMult at random weights, is served by `compgcn serve` in a process of its own; 32
connections ask it for tails, heads and relations of test facts, each the next as soon as it has an answer. The client
shares the cores. The result is `benchmarks/cpu/serving.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "cpu" / "serving.json"
DATA, TOP = "fb15k-237", 10
START_SECONDS = 180


def requests(run: Path, count: int) -> list[bytes]:
    """Whole requests, of test facts: 45 % ask for the tail, 45 % for the head, 10 % for the relation."""
    from compgcn.train.folder import Folder

    graph = Folder(run).data(DATA)
    rng = random.Random(0)
    made = []
    for s, r, o in rng.choices(graph.test.tolist(), k=count):
        fact = {"head": graph.entities.ids[s], "relation": graph.relations.ids[r], "tail": graph.entities.ids[o]}
        del fact[rng.choices(("tail", "head", "relation"), (45, 45, 10))[0]]
        body = json.dumps({**fact, "top": TOP}).encode()
        head = ("POST /api/predict HTTP/1.1", "Host: localhost", "Content-Type: application/json")
        made.append("\r\n".join((*head, f"Content-Length: {len(body)}", "", "")).encode() + body)
    return made


async def client(port: int, questions: list[bytes], until: float, seen: list[float], errors: list[str]) -> None:
    """One connection that asks until its time is up; seconds of each answer go to `seen`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = random.Random(id(reader)).randrange(len(questions))
    while time.perf_counter() < until:
        begun = time.perf_counter()
        writer.write(questions[turn % len(questions)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        body = await reader.readexactly(int(length[1]))
        seen.append(time.perf_counter() - begun)
        if not head.startswith(b"HTTP/1.1 200") or body.count(b'"rank"') != TOP:
            errors.append(head.split(b"\r\n")[0].decode())
        turn += 1
    writer.close()


async def drive(port: int, pid: int, questions: list[bytes], connections: int, seconds: float) -> dict[str, Any]:
    """What all connections together measured, and the memory of the server on the way."""
    seen: list[float] = []
    errors: list[str] = []
    begun, memory = time.perf_counter(), [resident(pid)]
    until = begun + seconds
    clients = [asyncio.create_task(client(port, questions, until, seen, errors)) for _ in range(connections)]
    await asyncio.sleep(seconds / 2)
    memory.append(resident(pid))
    broken = [each for each in await asyncio.gather(*clients, return_exceptions=True) if each is not None]
    taken = time.perf_counter() - begun
    memory.append(resident(pid))
    cuts = statistics.quantiles(seen, n=1000)
    return {
        "seconds": round(taken, 1),
        "requests": len(seen),
        "requests_per_second": round(len(seen) / taken, 1),
        "ms": {"p50": ms(cuts[499]), "p90": ms(cuts[899]), "p99": ms(cuts[989]), "max": ms(max(seen))},
        "errors": len(errors) + len(broken),
        "resident_mib": dict(zip(("begin", "middle", "end"), memory, strict=True)),
    }


def ms(seconds: float) -> float:
    return round(1000 * seconds, 1)


def resident(pid: int) -> float:
    """MiB of memory that a process holds."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith("VmRSS"))


def start(run: Path) -> tuple[subprocess.Popen[str], int]:
    """A server on a free port, once it says where."""
    command = [sys.executable, "-m", "compgcn", "serve", str(run), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    said = server.stdout.readline()
    port = re.search(r":(\d+) ", said)
    if port is None:
        server.kill()
        raise SystemExit(f"the server did not start: {said}")
    return server, int(port[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="a run folder; one is made if not given")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--to", type=Path, default=RESULT)
    given = parser.parse_args()

    import torch
    from reproduction.bench.measure import environment

    with tempfile.TemporaryDirectory() as folder:
        run = given.run or Path(folder) / "run"
        if given.run is None:
            options = ["--decoder", "distmult", "--epochs", "0", "--run-dir", str(run)]
            subprocess.run([sys.executable, "-m", "compgcn", "train", DATA, *options], check=True)
        questions = requests(run, 5000)
        server, port = start(run)
        try:
            asyncio.run(drive(port, server.pid, questions, given.connections, 5))  # caches fill, buffers grow
            load = os.getloadavg()[0]
            measured = asyncio.run(drive(port, server.pid, questions, given.connections, given.seconds))
        finally:
            server.terminate()
            server.wait(30)
    report = {
        "bench": "serving",
        "data": DATA,
        "model": "compgcn + distmult at random weights",
        "connections": given.connections,
        "environment": environment(torch.device("cpu")),
        "load_before": round(load, 2),
        **measured,
    }
    given.to.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
