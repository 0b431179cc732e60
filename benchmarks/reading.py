"""How long it takes, and how much memory, from a large file to a ready graph: `python benchmarks/reading.py`.

Each reading is a process of its own, imports included. The table is generated; the N-Triples file is read where
COMPGCN_DATA names the folder that holds it. The result is `benchmarks/reading.json`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RESULT = Path(__file__).with_suffix(".json")
LINES, ENTITIES, RELATIONS, REPEATED = 10_000_000, 1_000_000, 100, 500_000
READ = """
import json, resource, sys, time
start = time.perf_counter()
import compgcn
graph = compgcn.read(sys.argv[1], **json.loads(sys.argv[2]))
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
measured = {"seconds": round(seconds, 1), "peak_gib": round(peak, 2)}
print(json.dumps({**measured, **graph.statistics(), "notes": graph.notes}))
"""


def generate(path: Path) -> None:
    """A table of distinct triples followed by repetitions of the first ones; every entity occurs."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(0)
    numbers = rng.integers((ENTITIES, RELATIONS, ENTITIES), size=(LINES, 3))
    numbers[:ENTITIES, 0] = np.arange(ENTITIES)
    numbers[-REPEATED:] = numbers[:REPEATED]
    ids = [
        pa.array([f"entity/{i:07d}" for i in range(ENTITIES)]),
        pa.array([f"relation/{i}" for i in range(RELATIONS)]),
    ]
    columns = [ids[kind].take(pa.array(numbers[:, place])) for place, kind in enumerate((0, 1, 0))]
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    csv.write_csv(pa.table(columns, names=["s", "r", "o"]), path, options)


def measure(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Read a file in its own process; return the times and sizes that it reports."""
    command = [sys.executable, "-c", READ, str(path), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "generated.tsv"
        apart = multiprocessing.get_context("spawn").Process(target=generate, args=(table,))
        apart.start()  # the peak of a process counts from that of its parent
        apart.join()
        cases: list[tuple[Path, dict[str, Any]]] = [(table, {})]
        triples = Path(os.environ.get("COMPGCN_DATA", "")) / "AM" / "am_rebuilt_stripped.nt.gz"
        if triples.is_file():
            cases.append((triples, {"literals": "nodes"}))
        for path, options in cases:
            rows.append({"file": path.name, "megabytes": path.stat().st_size // 10**6, **measure(path, options)})
            print(rows[-1])
    from reproduction.bench.measure import header  # now: the peak of a reading counts from that of this process

    RESULT.write_text(json.dumps({**header(), "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
