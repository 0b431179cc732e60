"""A run folder on disk: config, weights, vocabulary, triples, metrics, events, checkpoint. No pickle anywhere.

Every file is written under a temporary name and renamed, so that a kill at any moment leaves a folder that opens and
resumes; only `events.jsonl` is appended to.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors
import torch
from pyarrow import csv
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from compgcn import __version__
from compgcn.config import Config, read_config, to_toml
from compgcn.data import KnowledgeGraph, Vocabulary
from compgcn.errors import InputError

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

_SPLITS = ("train", "valid", "test")


class Folder:
    """The files of one run, by name."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def is_run(self) -> bool:
        """A folder is a run once its config is there, which is written last of the files that never change."""
        return (self.path / "config.toml").is_file()

    @property
    def is_finished(self) -> bool:
        return (self.path / "metrics.json").is_file()

    # What never changes

    def create(self, config: Config, graph: KnowledgeGraph) -> None:
        """Begin a run in an empty or new folder."""
        leftovers = {"vocabulary.parquet", "triples.parquet", "checkpoint"}  # of a run killed while it was created
        if self.path.exists() and (
            not self.path.is_dir() or any(p.name not in leftovers and p.name[0] != "." for p in self.path.iterdir())
        ):
            raise InputError(f"{self.path} exists and is not a run folder; choose another --run-dir")
        (self.path / "checkpoint").mkdir(parents=True, exist_ok=True)
        tables = [(graph.entities, "entity"), (graph.relations, "relation")]
        vocabulary = pa.table(
            {
                "kind": pa.array([kind for table, kind in tables for _ in table.ids]).dictionary_encode(),
                "id": [text for table, _ in tables for text in table.ids],
                "name": [text for table, _ in tables for text in table.names],
            }
        )
        triples = np.concatenate([graph.splits[split] for split in _SPLITS])
        splits = np.repeat(np.arange(3, dtype=np.int8), [len(graph.splits[split]) for split in _SPLITS])
        columns = {name: triples[:, i].astype(np.int32) for i, name in enumerate("sro")}
        facts = pa.table({"split": pa.DictionaryArray.from_arrays(splits, list(_SPLITS)), **columns})
        replace(self.path / "vocabulary.parquet", lambda path: pq.write_table(vocabulary, path, compression="zstd"))
        replace(self.path / "triples.parquet", lambda path: pq.write_table(facts, path, compression="zstd"))
        self._text("config.toml", to_toml(config))

    def config(self) -> Config:
        """The settings, fully expanded."""
        if not self.path.is_dir():
            raise InputError(f"there is no run folder {self.path}")
        if not self.is_run:
            raise InputError(f"{self.path} is not a run folder: it has no config.toml")
        return read_config(self.path / "config.toml")

    def graph(self, name: str) -> KnowledgeGraph:
        """The data the run was made from, without its features: those are among the weights."""
        try:
            vocabulary = pq.read_table(self.path / "vocabulary.parquet").to_pydict()
            facts = pq.read_table(self.path / "triples.parquet")
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"the run folder {self.path} is damaged: {error}") from None
        rows = list(zip(vocabulary["kind"], vocabulary["id"], vocabulary["name"], strict=True))
        entities, relations = (
            Vocabulary(kind, [i for k, i, _ in rows if k == kind], [n for k, _, n in rows if k == kind])
            for kind in ("entity", "relation")
        )
        split = facts["split"].combine_chunks().indices.to_numpy()
        triples = np.stack([facts[name].to_numpy().astype(np.int64) for name in "sro"], 1)  # [n, 3]
        train, valid, test = (triples[split == index] for index in range(3))
        return KnowledgeGraph(name, entities, relations, train, valid, test)

    # The store of the training loop

    def load(self) -> tuple[dict[str, Tensor], str] | None:
        """The last checkpoint."""
        path = self.path / "checkpoint" / "state.safetensors"
        if not path.is_file():
            return None
        try:
            with safetensors.safe_open(path, "pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()["progress"]  # noqa: SIM118
        except (safetensors.SafetensorError, OSError, KeyError) as error:
            raise InputError(f"the checkpoint {path} is damaged ({error}); delete it to train from the start") from None

    def save(self, tensors: dict[str, Tensor], note: str) -> None:
        """Replace the checkpoint."""
        self._weights("checkpoint/state.safetensors", tensors, {"progress": note})

    def keep_best(self, module: nn.Module) -> None:
        """Replace the weights."""
        self._weights("model.safetensors", module.state_dict(), {"compgcn": __version__})

    def restore(self, module: nn.Module) -> None:
        """Load the weights into a module of the same shape."""
        path = self.path / "model.safetensors"
        try:
            module.load_state_dict(load_file(path))
        except FileNotFoundError:
            raise InputError(f"the run folder {self.path} has no weights yet; train it first") from None
        except (safetensors.SafetensorError, OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"the weights {path} are damaged or of another model ({reason}); train again") from None

    # What is found out

    def finish(self, metrics: dict[str, Any]) -> None:
        """Write the metrics, which ends the run, and drop what only resuming needs."""
        self._text("metrics.json", json.dumps(metrics, indent=2) + "\n")
        with contextlib.suppress(FileNotFoundError):
            (self.path / "checkpoint" / "state.safetensors").unlink()

    def metrics(self) -> dict[str, Any]:
        """What the run reached; nothing while it is unfinished."""
        try:
            metrics: dict[str, Any] = json.loads((self.path / "metrics.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise InputError(f"the run folder {self.path} is damaged: metrics.json: {error}") from None
        return metrics

    def append(self, event: dict[str, Any]) -> None:
        """One more line of events.jsonl."""
        path = self.path / "events.jsonl"
        with path.open("ab+") as file:
            if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                file.write(b"\n")  # a kill cut the last line short
            file.write(json.dumps(event).encode() + b"\n")

    def describe_environment(self, device: torch.device, seed: int, seconds: float) -> None:
        """Write environment.json: what the run was made with."""
        cuda = device.type == "cuda"
        memory = torch.cuda.max_memory_allocated(device) if cuda else _peak_memory()
        environment = {
            "compgcn": __version__,
            "commit": commit(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "device": torch.cuda.get_device_name(device) if cuda else f"cpu, {torch.get_num_threads()} threads",
            "machine": platform.platform(),
            "seed": seed,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "peak_memory_mib": round(memory / 2**20),
        }
        self._text("environment.json", json.dumps(environment, indent=2) + "\n")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second process from training in the same folder."""
        try:
            import fcntl
        except ImportError:  # no such lock on this system
            yield
            return
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is training in {self.path}; wait for it or choose another --run-dir"
                ) from None
            yield

    # Writing

    def _text(self, name: str, text: str) -> None:
        replace(self.path / name, lambda path: path.write_text(text, encoding="utf-8"))

    def _weights(self, name: str, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        plain = {key: value.detach().contiguous() for key, value in tensors.items()}
        replace(self.path / name, lambda path: save_file(plain, path, metadata))


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """All or nothing: under another name first, then renamed."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, pa.ArrowException, safetensors.SafetensorError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise InputError(f"could not write {path}: {error}; what was there before is untouched") from None


def write_embeddings(path: Path, kinds: list[str], ids: list[str], names: list[str], vectors: Array) -> int:
    """Vectors [n, d] with what they stand for, to a .parquet file (a list column) or a .tsv (a column per number)."""
    if path.suffix not in (".parquet", ".tsv"):
        raise InputError(f"cannot export to '{path}': the name must end in .parquet or .tsv")
    if not path.parent.is_dir():
        raise InputError(f"cannot export to '{path}': there is no folder {path.parent}")
    rows, width = vectors.shape
    columns: dict[str, Any] = {"kind": kinds, "id": ids, "name": names}
    if path.suffix == ".parquet":
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), width)
        replace(path, lambda part: pq.write_table(pa.table(columns), part))
    else:
        columns |= {str(j): vectors[:, j] for j in range(width)}
        options = csv.WriteOptions(delimiter="\t", quoting_style="none")
        replace(path, lambda part: csv.write_csv(pa.table(columns), part, options))
    return rows


def commit() -> str | None:
    """The commit of the source the package runs from, if it is known."""
    if given := os.environ.get("COMPGCN_COMMIT"):
        return given
    here = Path(__file__).parent
    try:
        for command in (["ls-files", "--error-unmatch", "folder.py"], ["rev-parse", "HEAD"]):
            answer = subprocess.run(["git", *command], cwd=here, capture_output=True, text=True, check=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024
