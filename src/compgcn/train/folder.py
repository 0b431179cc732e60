"""A run folder on disk: config, weights, vocabulary, triples, metrics, events, checkpoint. No pickle anywhere.

Every file is written under a temporary name and renamed, so that a kill at any moment leaves a folder that opens and
resumes; only `events.jsonl` is appended to.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import safetensors
import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from compgcn import __version__, processes
from compgcn.config import Config, read_config, read_settings, to_toml
from compgcn.data import GraphCollection, KnowledgeGraph, Labels, Vocabulary
from compgcn.data.columns import SPLITS, Numbers, counted, existing_run
from compgcn.errors import InputError, out_of_memory
from compgcn.train.storage import (
    Array,
    Split,
    append,
    load_tensors,
    pieces,
    read_metadata,
    reason,
    replace,
    save_tensors,
    settled,
)

MODEL, EVENTS = "model.safetensors", "events.jsonl"
_SPLIT = pa.dictionary(pa.int8(), pa.string())

# The tables of the data. Every run has the first two; labels are of entities or, where there are nodes with a graph
# each, of graphs.
SCHEMAS: dict[str, pa.Schema] = {
    "vocabulary.parquet": pa.schema({"kind": _SPLIT, "id": pa.string(), "name": pa.string()}),
    "triples.parquet": pa.schema({"split": _SPLIT, "s": pa.int32(), "r": pa.int32(), "o": pa.int32()}),
    "labels.parquet": pa.schema({"split": _SPLIT, "item": pa.int32(), "class": pa.int32()}),
    "nodes.parquet": pa.schema({"graph": pa.int32(), "label": pa.int32()}),  # -1: no label
}
_ALWAYS = ("vocabulary.parquet", "triples.parquet")
_UNCALIBRATED = "checkpoint/uncalibrated"  # there from the end of training to that of calibration
_FIRST, _LAST = b"format = ", "training.device"  # the first and the last setting of a config that a run wrote
# The files of a run but for the lock and the checkpoint. The config, which makes a folder a run, is removed last.
_FILES = (*SCHEMAS, MODEL, "metrics.json", "calibration.json", "environment.json", EVENTS, "config.toml")


class Folder:
    """The files of one run, by name."""

    split: Split | None = None  # the weights that several processes share, where they do

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def is_run(self) -> bool:
        """Whether the folder has the config of a run, which is written last of the files that never change."""
        with contextlib.suppress(OSError), (self.path / "config.toml").open("rb") as file:
            return b"\n" + _FIRST in b"\n" + file.read(1024)
        return False

    @property
    def is_search(self) -> bool:
        """Whether a search for a model is under way, or was stopped."""
        return os.path.isdir(self.path / "search") and not self.is_run

    @property
    def is_finished(self) -> bool:
        return (self.path / "metrics.json").is_file()

    @property
    def is_calibrated(self) -> bool:
        """Whether the run is finished and its calibration, if any, has ended."""
        return self.is_finished and not (self.path / _UNCALIBRATED).is_file()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder if it is not there, and keep a second command from training in it.

        The first process of a command holds the lock for all.
        """
        if processes.rank():
            processes.wait()
            yield
            return
        if self.path.exists() and not self.is_run and not self._is_free():
            raise InputError(f"{self.path} exists and is not a run folder; choose another --run-dir")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock", timeout=0).acquire()
        except Timeout:
            raise InputError(f"another process is training in {self.path}; wait or choose another --run-dir") from None
        except OSError as error:
            raise InputError(f"could not make the run folder {self.path}: {reason(error)}") from None
        with lock:
            for left in self.path.rglob(".*.????????.part"):  # by a command that was killed
                left.unlink(missing_ok=True)
            processes.wait()
            yield

    def _is_free(self) -> bool:
        """Whether a run can begin here: in an empty folder, or in one whose search or creation was stopped."""
        first = (*SCHEMAS, "checkpoint", "search", MODEL, EVENTS)
        return self.path.is_dir() and all(p.name in first or p.name[0] == "." for p in self.path.iterdir())

    # Config and data: never changed

    def create(self, config: Config, data: KnowledgeGraph | GraphCollection) -> None:
        """Begin a run. The config, which makes the folder a run, is written last."""
        if processes.rank() == 0:
            (self.path / "checkpoint").mkdir(parents=True, exist_ok=True)
        for name, table in tables(data).items():
            write = partial(pq.write_table, table, compression="zstd", write_page_checksum=True)
            replace(self.path / name, write)
        self._text("config.toml", to_toml(config))

    def clear(self) -> None:
        """Remove the run, and no other file of its folder; call it under the lock.

        A kill on the way leaves a damaged run, which can be cleared again.
        """
        if processes.rank() == 0:
            try:
                self.end_calibration()
                shutil.rmtree(self.path / "search", ignore_errors=True)
                for old in (*pieces(self.path / MODEL), *(self.path / name for name in _FILES)):
                    old.unlink(missing_ok=True)
            except OSError as error:
                raise InputError(f"could not remove the run in {self.path}: {reason(error)}") from None
        processes.wait()

    def config(self) -> Config:
        """Read the resolved settings."""
        existing_run(self.path)
        if self.is_search:
            what = "the train command that began it resumes it, or ends it with the best model so far: --minutes 0.1"
            raise InputError(f"{self.path} holds an unfinished search; {what}")
        if not self.is_run:
            raise InputError(f"{self.path} is not a run folder: it has no config.toml of a run")
        path = self.path / "config.toml"
        if _LAST not in read_settings(path):
            raise self._damage("config.toml", f"it has no {_LAST}, with which the file of a run ends")
        return read_config(path)

    def data(self, name: str) -> KnowledgeGraph | GraphCollection:
        """Read the data, without features: those are among the weights."""
        wanted = [file for file in SCHEMAS if file in _ALWAYS or (self.path / file).is_file()]
        return restored(name, {file: self._read_table(file, SCHEMAS[file]) for file in wanted})

    # Checkpoint and weights: the store of the training loop

    @property
    def _checkpoint(self) -> Path:
        return self.path / "checkpoint" / "state.safetensors"

    def load(self) -> tuple[dict[str, Tensor], str] | None:
        if not self._checkpoint.is_file():
            return None
        try:
            note = read_metadata(self._checkpoint)["progress"]
            return load_tensors(self._checkpoint, split=self.split), note
        except (safetensors.SafetensorError, OSError, KeyError, TypeError) as error:
            raise self.bad_checkpoint(error) from None

    def bad_checkpoint(self, error: Exception, path: Path | None = None) -> InputError:
        """Return the error for a checkpoint, or another of its files, that cannot be used."""
        return InputError(
            f"the checkpoint {path or self._checkpoint} is damaged ({reason(error)}); delete it to train from the start"
        )

    def save(self, tensors: dict[str, Tensor], note: str) -> None:
        save_tensors(self._checkpoint, tensors, {"progress": note}, self.split)

    def keep_best(self, module: nn.Module) -> None:
        save_tensors(self.path / MODEL, module.state_dict(), {"compgcn": __version__}, self.split)

    def features(self) -> tuple[Array | None, Array | None]:
        """Read the given features of nodes and of relations, which are among the weights."""
        names = ("encoder.node_features", "encoder.relations.features")
        try:
            found = load_tensors(self.path / MODEL, names)
        except (safetensors.SafetensorError, OSError):
            return None, None  # `restore` reports it
        nodes, relations = (found[name].numpy() if name in found else None for name in names)
        return nodes, relations

    def restore(self, module: nn.Module) -> None:
        """Load the weights into a module of the same shape."""
        path, known = self.path / MODEL, None
        with contextlib.suppress(InputError):
            known = self.environment().get("weights") if self.is_finished else None
        try:
            if known and self.split is None and known != self._digest():
                raise safetensors.SafetensorError("they are not those that training wrote")
            module.load_state_dict(load_tensors(path, split=self.split))
        except FileNotFoundError:
            raise InputError(
                f"the run folder {self.path} has no {MODEL}; give the same train command again, with --overwrite if "
                "training had ended"
            ) from None
        except OSError as error:
            raise InputError(f"could not read the weights {path}: {reason(error)}") from None
        except (safetensors.SafetensorError, RuntimeError) as error:
            if out_of_memory(error):
                raise
            raise InputError(
                f"the weights {path} are damaged or of another model ({reason(error)}); copy the run or train it again"
            ) from None

    def _digest(self) -> str:
        """Return the sha256 of the files of the weights, one after another."""
        total = hashlib.sha256()
        for path in (self.path / MODEL, *pieces(self.path / MODEL)):
            with path.open("rb") as file:
                while part := file.read(2**20):
                    total.update(part)
        return total.hexdigest()

    # Results

    def finish(self, metrics: dict[str, Any]) -> None:
        """Write the metrics, which ends training, and remove the checkpoint."""
        self._text(_UNCALIBRATED, "")
        self._json("metrics.json", metrics)
        for path in (self.path / "checkpoint").glob("*"):  # a kill may have left a half-written one besides
            if path != self.path / _UNCALIBRATED:
                path.unlink(missing_ok=True)

    def end_calibration(self) -> None:
        """Empty the folder of the checkpoint, which marks the calibration as done."""
        for path in (self.path / "checkpoint").glob("*"):
            path.unlink(missing_ok=True)

    def metrics(self) -> dict[str, Any]:
        """Read the metrics; {} while the run is unfinished."""
        metrics = self._read_json("metrics.json")
        if self.is_finished and not all(isinstance(metrics.get(split), dict) for split in SPLITS[1:]):
            raise self._damage("metrics.json", "there are no metrics of valid and test in it")
        if not isinstance(metrics.get("settings", {}), dict):
            raise self._damage("metrics.json", "its settings are no table")
        return metrics

    def keep_calibration(self, content: dict[str, Any]) -> None:
        self._json("calibration.json", content)

    def calibration(self) -> dict[str, Any]:
        """Read the calibration; {} in a run without one."""
        return self._read_json("calibration.json")

    def recorded(self, notify: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
        """Return a function that takes events, and keeps all but those of steps and progress in events.jsonl."""

        def record(event: dict[str, Any]) -> None:
            if event["event"] not in ("step", "progress"):
                self.append(event)
            notify(event)

        return record

    def append(self, event: dict[str, Any]) -> None:
        if processes.rank() == 0:
            append(self.path / EVENTS, json.dumps(event) + "\n")

    def events(self) -> list[dict[str, Any]]:
        """Read the events of training, without damaged lines."""
        path, found = self.path / EVENTS, []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
            with contextlib.suppress(ValueError, RecursionError):
                found.append(json.loads(line))
        return [event for event in found if isinstance(event, dict) and "event" in event]

    def describe_environment(self, device: torch.device, seed: int, seconds: float) -> None:
        """Write the versions, the device and the time of training to environment.json."""
        cuda = device.type == "cuda"
        memory = torch.cuda.max_memory_allocated(device) if cuda else _peak_memory()
        threads = counted(torch.get_num_threads(), "thread")
        environment: dict[str, Any] = {
            "compgcn": __version__,
            "commit": commit(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "device": torch.cuda.get_device_name(device) if cuda else f"cpu, {threads}",
            "machine": platform.platform(),
            "seed": seed,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "peak_memory_mib": round(memory / 2**20),
            "weights": self._digest() if processes.rank() == 0 else "",
        }
        self._json("environment.json", environment)

    def environment(self) -> dict[str, Any]:
        """Read versions, device and time of training; {} while the run is unfinished."""
        return self._read_json("environment.json")

    def seconds(self) -> float:
        try:
            return float(self.environment()["seconds"])
        except (ValueError, LookupError, TypeError) as error:
            raise self._damage("environment.json", reason(error)) from None

    # Reading and writing

    def _damage(self, name: str, why: str | Exception) -> InputError:
        if self.path.is_file():
            return InputError(f"{self.path} is a file, and no run folder; train on it first: compgcn train {self.path}")
        state = "cannot be read" if getattr(why, "errno", None) else "is damaged"
        return InputError(f"the run folder {self.path} {state}: {name}: {why if isinstance(why, str) else reason(why)}")

    def _read_table(self, name: str, schema: pa.Schema) -> pa.Table:
        try:
            table = pq.read_table(self.path / name, page_checksum_verification=True)
        except FileNotFoundError:
            raise self._damage(name, "the file is missing") from None
        except MemoryError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise self._damage(name, error) from None
        if not table.schema.equals(schema) or any(column.null_count for column in table.columns):
            raise self._damage(name, f"it must have the columns {', '.join(schema.names)} of a run and no gaps")
        return table

    def _read_json(self, name: str) -> dict[str, Any]:
        """Return the object in a file; {} where there is none."""
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise self._damage(name, error) from None
        if not isinstance(content, dict):
            raise self._damage(name, "it is no object")
        return content

    def _json(self, name: str, content: dict[str, Any]) -> None:
        self._text(name, json.dumps(content, indent=2) + "\n")

    def _text(self, name: str, text: str) -> None:
        replace(self.path / name, lambda path: path.write_text(text, encoding="utf-8"))


def spared(path: str | Path) -> Path:
    """Return a path to write to; refuse one that is, or leads to, a file of any run."""
    path = Path(path)
    own = (*_FILES, "model-*.safetensors", "checkpoint", "*.json", ".lock")
    target = settled(path)
    for place in (path.absolute(), target) if path.is_symlink() else (path.absolute(),):
        inside = place.parent.name == "checkpoint"
        run = Folder(place.parents[inside])
        if run.is_run and (inside or any(fnmatchcase(place.name.casefold(), pattern) for pattern in own)):
            raise InputError(f"'{path}' is a file of the run {run.path}, which needs it; choose another name")
    return path


def default_folder(config: Config, model: str | None = None) -> Path:
    """Return runs/<data>-<model>-<seed> or runs/<data>-<encoder>-<decoder>-<seed>.

    In a classification the protocol stands for the decoder, and a baseline for the encoder.
    """
    source = Path(config.data.source).name.split(".")[0] or "graph"
    if model is not None:
        return Path("runs") / f"{source}-{model}-{config.training.seed}"
    how = config.classifier.protocol or config.decoder.name
    what = config.classifier.baseline or config.encoder.name
    return Path("runs") / f"{source}-{what}-{how}-{config.training.seed}"


# The data as tables


def tables(data: KnowledgeGraph | GraphCollection) -> dict[str, pa.Table]:
    """Return the tables of a run's data, by file name."""
    texts = {"relation": (data.relations.ids, data.relations.names)}
    if isinstance(data, GraphCollection):
        texts |= {"class": (data.classes,) * 2, "graph": (data.graph_ids,) * 2, "label": (data.node_classes,) * 2}
        triples = {"train": data.triples}
        labels = {"train": np.column_stack([np.arange(len(data)), data.targets])}
    else:
        texts = {"entity": (data.entities.ids, data.entities.names)} | texts
        triples, labels = data.splits, {}
        if data.labels is not None:
            texts["class"], labels = (data.labels.classes,) * 2, data.labels.splits
    made = {"vocabulary.parquet": _vocabulary(texts), "triples.parquet": _split_rows(triples)}
    if labels:
        made["labels.parquet"] = _split_rows(labels)
    if isinstance(data, GraphCollection):
        of_nodes = np.full(data.num_nodes, -1) if data.node_labels is None else data.node_labels
        made["nodes.parquet"] = [data.graph_of.astype(np.int32), of_nodes.astype(np.int32)]
    return {name: pa.table(columns, schema=SCHEMAS[name]) for name, columns in made.items()}


def _vocabulary(texts: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> list[object]:
    kinds = np.repeat(np.arange(len(texts), dtype=np.int8), [len(ids) for ids, _ in texts.values()])
    ids, names = ([text for pair in texts.values() for text in pair[place]] for place in (0, 1))
    return [pa.DictionaryArray.from_arrays(kinds, list(texts)), ids, names]


def _split_rows(splits: Mapping[str, Numbers]) -> list[object]:
    rows = np.concatenate(list(splits.values())).astype(np.int32)  # [n, columns]
    of = np.repeat(np.arange(len(splits), dtype=np.int8), [len(part) for part in splits.values()])
    return [pa.DictionaryArray.from_arrays(of, list(splits)), *rows.T]


def restored(name: str, found: Mapping[str, pa.Table]) -> KnowledgeGraph | GraphCollection:
    """Return the data that such tables hold, without features."""
    table = found["vocabulary.parquet"]
    kinds = table["kind"].cast(pa.string())

    def texts(kind: str) -> tuple[list[str], list[str]]:
        part = table.filter(pc.equal(kinds, kind))
        return part["id"].to_pylist(), part["name"].to_pylist()

    triples = _by_split(found["triples.parquet"])
    labels = _by_split(found["labels.parquet"]) if "labels.parquet" in found else {}
    relations = Vocabulary("relation", *texts("relation"))
    classes = tuple(texts("class")[0])
    if "nodes.parquet" not in found:
        entities = Vocabulary("entity", *texts("entity"))
        train, valid, test = triples.values()
        kept = Labels(classes, **labels) if labels else None
        return KnowledgeGraph(name, entities, relations, train, valid, test, labels=kept)
    graph_of, node_labels = (found["nodes.parquet"][key].to_numpy().astype(np.int64) for key in ("graph", "label"))
    node_classes, graph_ids = (tuple(texts(kind)[0]) for kind in ("label", "graph"))
    return GraphCollection(
        name,
        relations,
        classes,
        graph_of,
        triples["train"],
        labels["train"][:, 1],
        node_labels=node_labels if node_classes else None,
        node_classes=node_classes,
        graph_ids=graph_ids,
    )


def _by_split(table: pa.Table) -> dict[str, Numbers]:
    column, *numbers = table.columns
    coded = column.combine_chunks()
    names, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    rows = np.stack([values.to_numpy().astype(np.int64) for values in numbers], 1)  # [n, columns]
    return {split: rows[codes == names.index(split)] if split in names else rows[:0] for split in SPLITS}


# The environment


def commit() -> str | None:
    """Return the commit of the source the package runs from, if known; with `-dirty` if it was changed since."""
    if given := os.environ.get("COMPGCN_COMMIT"):
        return given
    here = Path(__file__).parent
    try:
        _git(here, "ls-files", "--error-unmatch", "folder.py")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", ".")
        return _git(here, "rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(here: Path, *words: str) -> str:
    answer = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=5)
    return answer.stdout.strip()


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # not on this system
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024
