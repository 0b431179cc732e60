"""Record hashes of every number the package makes, and compare a later version of it with them.

`python tools/golden.py --write golden.json` records, `--check golden.json` runs all again and lists the differences.
The script uses the command line, the names of `compgcn` and `compgcn.nn` alone; `golden.toml` lists the runs and the
questions. An entry holds a hash of everything (`full`) and, where text stands beside numbers, one of the numbers in
their order (`numbers`), so that a rewording can be told from a changed number. Bits depend on the machine and on the
versions of its libraries: write and check with the same ones.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import html
import io
import json
import os
import re
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file

import compgcn
from compgcn.__main__ import main as command
from compgcn.nn import CompGCNConv, Encoder

COMPOSITIONS = ("copy", "sub", "add", "mult", "corr", "conv", "rotate", "cmul", "ntn")
NORMS = ("none", "symmetric", "mean", "relation-mean", "kipf", "released")
PRESETS = ("none", "gcn", "dgcn", "rgcn", "rgcn-basis", "rgcn-block", "wgcn", "vrgcn", "compgcn", "released")
NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
PLAN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def normalise(value: Any) -> Any:
    """Blank what is no result: times, durations, memory, versions, the commit, the machine and absolute paths."""
    if isinstance(value, dict):
        keys = {"seconds", "time", "date", "commit", "version", "versions", "machine", "host", "peak_memory_mib"}
        return {key: None if key in keys else normalise(one) for key, one in value.items()}
    if isinstance(value, list):
        return [normalise(one) for one in value]
    if isinstance(value, str):
        value = re.sub(r"<h2>Environment</h2>.*", "", value, flags=re.DOTALL)  # the last part of a report
        value = re.sub(r"\b\d+(\.\d+)? (s|ms|seconds|minutes|MiB|GiB)\b", "", value)
        return value.replace(str(Path.cwd()), "").replace(compgcn.__version__, "")
    return value


def digest(*parts: bytes) -> str:
    """Hash parts so that no two sequences of them look alike."""
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()[:24]


def values(content: Any) -> list[str]:
    """List the numbers of a JSON value in their order, without its keys and strings."""
    if isinstance(content, (dict, list)):
        inner = content.values() if isinstance(content, dict) else content
        return [number for one in inner for number in values(one)]
    return [] if isinstance(content, str) else [repr(content)]


def structured(content: Any) -> dict[str, str]:
    """Hash a JSON value."""
    content = normalise(content)
    return {"full": digest(json.dumps(content).encode()), "numbers": digest(*(n.encode() for n in values(content)))}


def text(content: str) -> dict[str, str]:
    """Hash text; of a page the numbers are those a reader sees, and those of drawings are apart."""
    content = normalise(content)
    drawings = "".join(re.findall(r"<svg.*?</svg>", content, flags=re.DOTALL))
    seen = re.sub(r"<(svg|style|script)\b.*?</\1>|<[^>]*>", " ", content, flags=re.DOTALL)
    parts = {"numbers": html.unescape(seen), "drawings": drawings}
    numbers = {kind: digest(*(n.encode() for n in NUMBER.findall(part))) for kind, part in parts.items() if part}
    return {"full": digest(content.encode()), **numbers}


def tensors(found: dict[str, torch.Tensor]) -> dict[str, str]:
    """Hash tensors with their names, and without them."""
    arrays = {name: tensor.detach().contiguous().numpy() for name, tensor in found.items()}
    one = {name: digest(f"{a.shape} {a.dtype}".encode(), a.tobytes()) for name, a in arrays.items()}
    return {
        "full": digest(*(part.encode() for name in sorted(one) for part in (name, one[name]))),
        "numbers": digest(*(part.encode() for part in sorted(one.values()))),
    }


def file(path: Path) -> dict[str, str]:
    """Hash what a file says, however it is written down."""
    if path.suffix == ".parquet":
        return structured(pq.read_table(path).to_pydict())
    if path.suffix in (".json", ".jsonl"):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        return structured([json.loads(line) for line in lines])
    if path.suffix == ".npy":
        return {"full": digest(path.read_bytes())}
    return text(path.read_text())


def call(words: list[str]) -> str:
    """Run a command in this process; return what it prints on stdout."""
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["compgcn", *words]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command()
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv = argv
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if code:
        raise RuntimeError(f"compgcn {' '.join(words)}: exit {code}: {err.getvalue().strip()}")
    return out.getvalue()


def run_entries(run: Path) -> dict[str, dict[str, str]]:
    """Hash what a run folder holds."""
    weights = {name: t for part in sorted(run.glob("model*.safetensors")) for name, t in load_file(part).items()}
    if not weights:
        raise RuntimeError(f"{run} has no weights")
    kept = ("metrics.json", "calibration.json", "events.jsonl", "config.toml", "triples.parquet", "vocabulary.parquet")
    return {"weights": tensors(weights)} | {name: file(run / name) for name in kept if (run / name).exists()}


def train(name: str, line: str) -> dict[str, dict[str, str]]:
    """Train a run as its line says."""
    words = [w for word in line.split() for w in (["--set", word] if "=" in word else [word])]
    call(["train", *words, "--run-dir", f"runs/{name}", "--device", "cpu", "--json"])
    return run_entries(Path("runs", name))


def answer(line: str, run: str, name: str) -> dict[str, dict[str, str]]:
    """Ask a run; hash what is printed and what is written."""
    out = Path("out", f"{run}-{name}".replace(" ", "-"))
    said = call([word.format(run=f"runs/{run}", out=out) for word in line.split()])
    entries = {"": structured(json.loads(said)) if line.endswith("--json") else text(said)}
    written = sorted(path for path in out.parent.iterdir() if path.name.startswith(f"{out.name}."))
    return entries | {path.name.removeprefix(out.name): file(path) for path in written}


def resumed() -> dict[str, dict[str, str]]:
    """Stop a run twice, after so many questions whether to stop, and let it end."""
    settings = {"encoder.dims": (8, 8), "epochs": 4, "batch_size": 64, "device": "cpu", "run_dir": "runs/resumed"}
    data = compgcn.read("people.tsv")
    for most in (3, 7):
        asked = iter([False] * most)
        try:
            compgcn.fit(data, interrupted=lambda asked=asked: next(asked, True), **settings)
        except Exception as stop:
            if type(stop).__name__ != "Interrupted":
                raise
        else:
            raise RuntimeError("the run ended before it was stopped")
    compgcn.fit(data, **settings)
    return {key: entry for key, entry in run_entries(Path("runs/resumed")).items() if key != "events.jsonl"}


def python() -> dict[str, dict[str, str]]:
    """Hash what the Python interface gives of data and of a run."""
    run, world = compgcn.open_run("runs/bases-pieces", device="cpu"), compgcn.load("world")
    names, vectors = run.entity_embeddings()
    return {
        "world": structured([world.statistics(), world.fingerprint(), world.train.tolist()]),
        "embeddings": structured([list(names), vectors.tolist()]),
        "predict": structured([list(one) for one in run.predict("p3", "lives_in")]),
    }


def layer(build: Callable[[], torch.nn.Module], dtype: torch.dtype, rows: tuple[int, ...] = (12, 6)) -> dict[str, str]:
    """Hash what a layer gives for inputs of so many rows, or an encoder without any, and its gradients."""
    torch.manual_seed(0)
    module = build().to(dtype)
    graph = compgcn.RelationalGraph(*torch.randint(12, (2, 40)), torch.randint(3, (40,)), 12, 3)
    given = [torch.randn(size, 8, dtype=dtype, requires_grad=True) for size in rows]
    results = [one for one in module(*given, graph) if one is not None]
    sum((one * torch.randn_like(one)).sum() for one in results).backward()
    found = dict(module.named_parameters()) | {f"input {i}": one for i, one in enumerate(given)}
    gradients = {f"gradient {name}": one.grad for name, one in found.items() if one.grad is not None}
    return tensors(found | gradients | {f"result {i}": one for i, one in enumerate(results)})


def write_data() -> None:
    """Write people in towns, their jobs, and two collections of rings whose class is their kind of edge."""
    facts = [(f"p{i}", "lives_in", f"t{i % 7}") for i in range(60)]
    facts += [(f"p{i}", "born_in", f"t{(3 * i + i // 7) % 7}") for i in range(60)]
    facts += [(f"p{i}", "knows", f"p{(i * k + k) % 60}") for i in range(60) for k in (1, 7)]
    facts += [(f"p{i}", ("buys", "sells")[i % 2], f"shop{i % 4}") for i in range(60)]
    facts += [(f"t{i}", "near", f"t{(i + 1) % 7}") for i in range(7)]
    jobs = [(f"p{i}", ("buyer", "seller")[i % 2], ("train", "train", "valid", "test")[i // 2 % 4]) for i in range(40)]
    rings = [(g, 3 + g % 4, g // 2 % 2) for g in range(18)]
    tables = {
        "people": facts,
        "jobs": [("node", "label", "split"), *jobs],
        "queries": [("p3", "lives_in", "?"), ("?", "knows", "p4"), ("p5", "?", "t1")],
        "arrivals": [("newcomer", "knows", "p3"), ("newcomer", "buys", "shop1"), ("p9", "knows", "newcomer")],
        "bonds": [(f"m{g}", f"a{i}", f"kind{c}", f"a{(i + 1) % n}") for g, n, c in rings for i in range(n)],
        "classes": [(f"m{g}", ("no", "yes")[c]) for g, _, c in rings],
    }
    for name, rows in tables.items():
        Path(f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    starts = [1 + sum(size for _, size, _ in rings[:g]) for g in range(len(rings))]
    edges = [(starts[g] + i, starts[g] + (i + 1) % size, c) for g, size, c in rings for i in range(size)]
    edges += [(target, source, c) for source, target, c in edges]
    files = {
        "A": [f"{source}, {target}" for source, target, _ in edges],
        "edge_labels": [c for _, _, c in edges],
        "graph_indicator": [g + 1 for g, size, _ in rings for _ in range(size)],
        "graph_labels": [c for _, _, c in rings],
        "node_labels": [i % 3 for _, size, _ in rings for i in range(size)],
    }
    Path("rings").mkdir()
    for name, lines in files.items():
        Path("rings", f"rings_{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    Path("search.toml").write_text('[search]\nencoder.composition = ["sub", "mult"]\n')


def record() -> dict[str, dict[str, str]]:
    """Run everything in the current folder, which is empty; return the entries by their names."""
    entries: dict[str, dict[str, str]] = {}

    def add(name: str, make: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        try:
            made = make(*arguments)
        except Exception as error:  # the others go on; its entries are missing
            print(f"failed: {name}: {type(error).__name__}: {error}")
            return
        parts = {"": made} if all(isinstance(one, str) for one in made.values()) else made
        entries.update({f"{name} {part}".strip(): one for part, one in parts.items()})

    write_data()
    Path("out").mkdir()
    for dtype in (torch.float32, torch.float64):
        for phi in COMPOSITIONS:
            for norm in NORMS:
                add(f"layer {phi} {norm} {dtype}", layer, lambda a=phi, b=norm: CompGCNConv(8, 8, 3, a, b), dtype)
        for name in PRESETS:
            add(f"encoder {name} {dtype}", layer, lambda a=name: Encoder(12, 3, (8, 8, 8), a, dropout=0.2), dtype, ())
    for name, line in (PLAN["links"] | PLAN["classes"]).items():
        add(f"run {name}", train, name, f"{PLAN['small']} {line}" if name in PLAN["links"] else line)
        for asked, question in PLAN["answers"].get(PLAN["asked"].get(name), {}).items():
            add(f"answer {name}: {asked}", answer, question, name, asked)
    add("run resumed", resumed)
    add("python", python)
    for name, line in PLAN["others"].items():
        add(f"answer {name}", answer, line, "", name)
    return entries


def compare(old: dict[str, Any], new: dict[str, Any], removed: list[str], numbers: bool) -> bool:
    """Print each entry that differs, is missing or is new; return whether all is as it should be."""
    missing = {name: any(fnmatchcase(name, one) for one in removed) for name in old if name not in new}
    both = {name: (one, new[name]) for name, one in old.items() if name in new}
    differing = {name: [k for k in a | b if a.get(k) != b.get(k)] for name, (a, b) in both.items() if a != b}
    for name, kinds in differing.items():
        print(f"differs: {name} ({', '.join(kinds)})")
    for name, told in missing.items():
        print(f"missing{', as told' if told else ''}: {name}")
    for name in sorted(new.keys() - old.keys()):
        print(f"new: {name}")
    worded = {name for name, kinds in differing.items() if kinds == ["full"] and "numbers" in new[name]}
    wrong = differing.keys() - worded if numbers else differing.keys()
    return not wrong and all(missing.values())


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    does = parser.add_mutually_exclusive_group(required=True)
    does.add_argument("--write", type=Path, metavar="FILE", help="record into this file")
    does.add_argument("--check", type=Path, metavar="FILE", help="compare with this file")
    parser.add_argument("--removed", action="append", default=[], metavar="NAME", help="entries that may be missing")
    parser.add_argument("--numbers", action="store_true", help="let wording differ as long as the numbers are the same")
    options = parser.parse_args()
    path, begun = (options.write or options.check).resolve(), time.monotonic()
    os.environ["NUMBA_NUM_THREADS"] = "1"  # Numba is loaded later, and gives torch as many threads as it has
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ.update(COLUMNS="200", COMPGCN_DATA=f"{folder}/data", COMPGCN_CACHE=folder)
        new = record()
    print(f"{len(new)} entries, {time.monotonic() - begun:.0f} seconds")
    if options.write:
        path.write_text(json.dumps(new, indent=1) + "\n")
    else:
        raise SystemExit(not compare(json.loads(path.read_text()), new, options.removed, options.numbers))


if __name__ == "__main__":
    main()
