"""Feed the readers arbitrary bytes for a while, guided by coverage: `python tools/fuzz_readers.py -max_total_time=300`.

Needs atheris (`pip install atheris`), whose options these are; a folder of examples to begin with may follow. The first
byte of an input picks the kind of file. Anything but a graph or one InputError is a crash, and written to a file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["compgcn"]):
    from compgcn.data import read
    from compgcn.errors import InputError

FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
TRIPLES = FOLDER / "graph.tsv"
TRIPLES.write_text("a\tr\tb\nb\tr\tc\nc\tq\ta\n")

# Name of the file -> how it is read.
KINDS = {
    "x.tsv": {},
    "y.tsv": {"columns": (2, 0, 1), "comment": "#"},
    "z.tsv": {"columns": ("a", "b", "c")},
    "x.csv": {},
    "y.csv": {"columns": (2, 0, 1), "comment": "#"},
    "x.tsv.gz": {},
    "x.csv.zst": {},
    "x.parquet": {},
    "x.nt": {"literals": "nodes"},
    "y.nt": {"literals": "keep"},
    "x.ttl": {"literals": "nodes"},
    "x.rdf": {"literals": "nodes"},
    "labels.tsv": {},
    "labels.parquet": {},
    "names.tsv": {},
    "nodes.npy": {},
    "nodes.parquet": {},
}
WITH_LINES = (".tsv", ".csv", ".nt", ".ttl", ".rdf")
WITHOUT = ("is empty", "cannot be read", "column", "labelled nodes", "no triple is left")  # what is wrong has no line


def one(content: bytes) -> None:
    """Read one file, and complain of whatever is neither a graph nor a clear answer."""
    name, options = list(KINDS.items())[content[0] % len(KINDS) if content else 0]
    path = FOLDER / name
    path.write_bytes(content[1:])
    files = {"labels": "labels", "names.t": "names", "nodes": "node_features"}
    option = next((option for start, option in files.items() if name.startswith(start)), None)
    try:
        graph = read(TRIPLES, **{option: path}) if option else read(path, **options)
    except InputError as error:
        text = str(error)
        if name.endswith(WITH_LINES) and "line " not in text and not any(word in text for word in WITHOUT):
            raise RuntimeError(f"no line in: {text}") from None
        return
    if not graph.statistics()["triples"]:
        raise RuntimeError("a graph without triples")
    graph.fingerprint()


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
