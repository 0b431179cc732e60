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
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from compgcn import __version__
from compgcn.config import Config, read_config, read_settings, to_toml
from compgcn.data import GraphCollection, KnowledgeGraph, Labels, Vocabulary
from compgcn.data.columns import counted
from compgcn.errors import InputError
from compgcn.train.storage import Array, load_tensors, reason, replace, save_tensors, settled

_SPLITS = ("train", "valid", "test")
_SPLIT = pa.dictionary(pa.int8(), pa.string())

# Every file there may be, and its columns. A graph has the first two; labels are of entities, or, where there are nodes
# with a graph each, of graphs.
SCHEMAS: dict[str, pa.Schema] = {
    "vocabulary.parquet": pa.schema({"kind": _SPLIT, "id": pa.string(), "name": pa.string()}),
    "triples.parquet": pa.schema({"split": _SPLIT, "s": pa.int32(), "r": pa.int32(), "o": pa.int32()}),
    "labels.parquet": pa.schema({"split": _SPLIT, "item": pa.int32(), "class": pa.int32()}),
    "nodes.parquet": pa.schema({"graph": pa.int32(), "label": pa.int32()}),  # -1: no label
}

Numbers = NDArray[np.int64]


def tables(data: KnowledgeGraph | GraphCollection) -> dict[str, pa.Table]:
    """The files of a run's data, by name."""
    made = _of_collection(data) if isinstance(data, GraphCollection) else _of_graph(data)
    return {name: pa.table(columns, schema=SCHEMAS[name]) for name, columns in made.items()}


def _of_graph(graph: KnowledgeGraph) -> dict[str, list[object]]:
    texts = {"entity": (graph.entities.ids, graph.entities.names), "relation": _texts(graph.relations)}
    found = {"triples.parquet": _split_rows(graph.splits)}
    if graph.labels is not None:
        texts["class"] = (graph.labels.classes, graph.labels.classes)
        found["labels.parquet"] = _split_rows(graph.labels.splits)
    return {"vocabulary.parquet": _vocabulary(texts)} | found


def _of_collection(graphs: GraphCollection) -> dict[str, list[object]]:
    texts = {"relation": _texts(graphs.relations)}
    texts |= {"class": (graphs.classes,) * 2, "graph": (graphs.graph_ids,) * 2, "label": (graphs.node_classes,) * 2}
    labels = np.full(graphs.num_nodes, -1) if graphs.node_labels is None else graphs.node_labels
    targets = np.column_stack([np.arange(len(graphs)), graphs.targets])
    return {
        "vocabulary.parquet": _vocabulary(texts),
        "triples.parquet": _split_rows({"train": graphs.triples}),
        "labels.parquet": _split_rows({"train": targets}),
        "nodes.parquet": [graphs.graph_of.astype(np.int32), labels.astype(np.int32)],
    }


def _texts(vocabulary: Vocabulary) -> tuple[Sequence[str], Sequence[str]]:
    return vocabulary.ids, vocabulary.names


def _vocabulary(texts: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> list[object]:
    kinds = np.repeat(np.arange(len(texts), dtype=np.int8), [len(ids) for ids, _ in texts.values()])
    ids, names = ([text for pair in texts.values() for text in pair[place]] for place in (0, 1))
    return [pa.DictionaryArray.from_arrays(kinds, list(texts)), ids, names]


def _split_rows(splits: Mapping[str, Numbers]) -> list[object]:
    rows = np.concatenate(list(splits.values())).astype(np.int32)  # [n, columns]
    of = np.repeat(np.arange(len(splits), dtype=np.int8), [len(part) for part in splits.values()])
    return [pa.DictionaryArray.from_arrays(of, list(splits)), *rows.T]


def restored(name: str, found: Mapping[str, pa.Table]) -> KnowledgeGraph | GraphCollection:
    """The data that such tables hold, without features: those are among the weights."""
    rows = found["vocabulary.parquet"].to_pydict()
    texts: dict[str, tuple[list[str], list[str]]] = {}
    for kind, text, shown in zip(rows["kind"], rows["id"], rows["name"], strict=True):
        ids, names = texts.setdefault(kind, ([], []))
        ids.append(text)
        names.append(shown)
    triples = _by_split(found["triples.parquet"])
    labels = _by_split(found["labels.parquet"]) if "labels.parquet" in found else {}
    relations = Vocabulary("relation", *texts.get("relation", ([], [])))
    classes = tuple(texts.get("class", ([], []))[0])
    if "nodes.parquet" not in found:
        entities = Vocabulary("entity", *texts.get("entity", ([], [])))
        train, valid, test = triples.values()
        kept = Labels(classes, **labels) if labels else None
        return KnowledgeGraph(name, entities, relations, train, valid, test, labels=kept)
    graph_of, node_labels = (found["nodes.parquet"][key].to_numpy().astype(np.int64) for key in ("graph", "label"))
    node_classes, graph_ids = (tuple(texts.get(kind, ([], []))[0]) for kind in ("label", "graph"))
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
    return {split: rows[codes == names.index(split)] if split in names else rows[:0] for split in _SPLITS}


MODEL = "model.safetensors"
_SPLITS = ("train", "valid", "test")
_UNCALIBRATED = "checkpoint/uncalibrated"  # there from the end of training to that of calibration
_LAST = "training.device"  # of the settings in a config
_ALWAYS = ("vocabulary.parquet", "triples.parquet")  # what the data of every run have
_FIRST = (*SCHEMAS, "checkpoint")  # what is there before the config makes it a run
_OWN = (*_FIRST, "model*.safetensors*", "config.toml", "*.json", "events.jsonl", ".lock")  # all, as patterns
_MADE = (  # what a run writes, the lock and the checkpoint apart; its config, which makes it a run, is the last to go
    *SCHEMAS,
    MODEL,
    "model-[01]-*.safetensors",
    f"{MODEL}.index.json",
    "metrics.json",
    "calibration.json",
    "environment.json",
    "events.jsonl",
    "config.toml",
)


class Folder:
    """The files of one run, by name."""

    def __init__(self, path: Path | str, max_shard_mib: float | None = None) -> None:
        self.path = Path(path)
        self.max_shard_mib = max_shard_mib  # of the weights; None keeps them in one file

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def is_run(self) -> bool:
        """A folder is a run once its config is there, which is written last of the files that never change."""
        return (self.path / "config.toml").is_file()

    @property
    def is_finished(self) -> bool:
        return (self.path / "metrics.json").is_file()

    @property
    def is_calibrated(self) -> bool:
        """Whether a finished run has nothing left to do: its probabilities are fitted, as far as they can be."""
        return self.is_finished and not (self.path / _UNCALIBRATED).is_file()

    # What never changes

    def create(self, config: Config, data: KnowledgeGraph | GraphCollection) -> None:
        """Begin a run; if that fails, nothing is left behind."""
        try:
            (self.path / "checkpoint").mkdir(parents=True, exist_ok=True)
            for name, table in tables(data).items():
                self._write_table(name, table)
            self._text("config.toml", to_toml(config))
        except Exception:
            for name in (*SCHEMAS, ".lock"):
                (self.path / name).unlink(missing_ok=True)
            for path in (self.path / "checkpoint", self.path):
                with contextlib.suppress(OSError):  # it is not empty: someone else's
                    path.rmdir()
            raise

    def clear(self) -> None:
        """Remove the run, and nothing else that lies in its folder; to be called under the lock.

        A kill on the way leaves a run, damaged, which can be cleared again.
        """
        try:
            for path in (self.path / "checkpoint").glob("*"):
                path.unlink()
            for pattern in _MADE:
                for path in (*self.path.glob(pattern), *self.path.glob(f".{pattern}.part")):
                    path.unlink()
        except OSError as error:
            raise InputError(f"could not remove the run in {self.path}: {reason(error)}") from None

    def config(self) -> Config:
        """The settings, fully expanded."""
        if not self.path.is_dir():
            raise InputError(f"there is no run folder {self.path}")
        if not self.is_run:
            raise InputError(f"{self.path} is not a run folder: it has no config.toml")
        path = self.path / "config.toml"
        if _LAST not in read_settings(path):
            raise self._damage("config.toml", f"it has no {_LAST}, with which the file of a run ends")
        return read_config(path)

    def data(self, name: str) -> KnowledgeGraph | GraphCollection:
        """What the run was made from, without its features: those are among the weights."""
        wanted = [file for file in SCHEMAS if file in _ALWAYS or (self.path / file).is_file()]
        return restored(name, {file: self._read_table(file, SCHEMAS[file]) for file in wanted})

    # The store of the training loop

    def load(self) -> tuple[dict[str, Tensor], str] | None:
        """The last checkpoint."""
        path = self.path / "checkpoint" / "state.safetensors"
        if not path.is_file():
            return None
        try:
            with safetensors.safe_open(path, "pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()["progress"]  # noqa: SIM118
        except (safetensors.SafetensorError, OSError, KeyError, TypeError) as error:
            raise self.damaged(error) from None

    def damaged(self, error: Exception) -> InputError:
        """What to say of a checkpoint that cannot be used."""
        path = self.path / "checkpoint" / "state.safetensors"
        return InputError(f"the checkpoint {path} is damaged ({reason(error)}); delete it to train from the start")

    def save(self, tensors: dict[str, Tensor], note: str) -> None:
        """Replace the checkpoint."""
        save_tensors(self.path / "checkpoint" / "state.safetensors", tensors, {"progress": note})

    def keep_best(self, module: nn.Module) -> None:
        """Replace the weights."""
        save_tensors(self.path / MODEL, module.state_dict(), {"compgcn": __version__}, self.max_shard_mib)

    def features(self) -> tuple[Array | None, Array | None]:
        """The features of nodes and of relations that were given to the run; they are among the weights."""
        names = ("encoder.node_features", "encoder.relations.features")
        try:
            found = load_tensors(self.path / MODEL, names)
        except (safetensors.SafetensorError, OSError, ValueError):
            return None, None  # `restore` says what is wrong
        nodes, relations = (found[name].numpy() if name in found else None for name in names)
        return nodes, relations

    def restore(self, module: nn.Module) -> None:
        """Load the weights into a module of the same shape."""
        path = self.path / MODEL
        try:
            module.load_state_dict(load_tensors(path))
        except FileNotFoundError:
            if self.is_finished:
                raise self._damage(MODEL, "it is missing; remove the folder and train again") from None
            raise InputError(
                f"the run folder {self.path} has no {MODEL} yet; give the same train command again"
            ) from None
        except (safetensors.SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise InputError(
                f"the weights {path} are damaged or of another model ({reason(error)}); remove the folder, train again"
            ) from None

    # What is found out

    def finish(self, metrics: dict[str, Any]) -> None:
        """Write the metrics, which ends training, and drop what only resuming it needs; see `end_calibration`."""
        self._text(_UNCALIBRATED, "")
        self._text("metrics.json", json.dumps(metrics, indent=2) + "\n")
        for path in (self.path / "checkpoint").glob("*"):  # a kill may have left a half-written one besides
            if path != self.path / _UNCALIBRATED:
                path.unlink(missing_ok=True)

    def end_calibration(self) -> None:
        """Say that what could be calibrated is; a run that was stopped before goes on with this."""
        for path in (self.path / "checkpoint").glob("*"):
            path.unlink(missing_ok=True)

    def metrics(self) -> dict[str, Any]:
        """What the run reached; nothing while it is unfinished."""
        try:
            metrics: dict[str, Any] = json.loads((self.path / "metrics.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise self._damage("metrics.json", reason(error)) from None
        if not isinstance(metrics, dict) or not all(isinstance(metrics.get(split), dict) for split in _SPLITS[1:]):
            raise self._damage("metrics.json", "there are no metrics of valid and test in it")
        return metrics

    def keep_calibration(self, content: dict[str, Any]) -> None:
        """Write what the probabilities are calibrated with."""
        self._text("calibration.json", json.dumps(content, indent=2) + "\n")

    def calibration(self) -> dict[str, Any]:
        """What was kept of it; nothing in a run that has none."""
        try:
            content = json.loads((self.path / "calibration.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise self._damage("calibration.json", reason(error)) from None
        if not isinstance(content, dict):
            raise self._damage("calibration.json", "it is no object")
        return content

    def append(self, event: dict[str, Any]) -> None:
        """One more line of events.jsonl."""
        path = self.path / "events.jsonl"
        try:
            with path.open("ab+") as file:
                if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                    file.write(b"\n")  # a kill cut the last line short
                file.write(json.dumps(event).encode() + b"\n")
        except OSError as error:
            raise InputError(f"could not write {path}: {reason(error)}; the same command goes on from here") from None

    def describe_environment(self, device: torch.device, seed: int, seconds: float) -> None:
        """Write environment.json: what the run was made with."""
        cuda = device.type == "cuda"
        memory = torch.cuda.max_memory_allocated(device) if cuda else _peak_memory()
        threads = counted(torch.get_num_threads(), "thread")
        environment = {
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
        }
        self._text("environment.json", json.dumps(environment, indent=2) + "\n")

    def seconds(self) -> float:
        """How long training took, by environment.json."""
        try:
            return float(json.loads((self.path / "environment.json").read_text(encoding="utf-8"))["seconds"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise self._damage("environment.json", reason(error)) from None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder if it is not there, and keep a second process from training in it."""
        if self.path.exists() and not self.is_run and not self._is_free():
            raise InputError(f"{self.path} exists and is not a run folder; choose another --run-dir")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("w")
        except OSError as error:
            raise InputError(f"could not make the run folder {self.path}: {reason(error)}") from None
        with file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # no such lock on this system
                pass
            except BlockingIOError:
                raise InputError(
                    f"another process is training in {self.path}; wait for it or choose another --run-dir"
                ) from None
            yield

    def _is_free(self) -> bool:
        """Whether a run can begin here: a folder that is empty, or that a run was killed in while it was created."""
        return self.path.is_dir() and all(p.name in _FIRST or p.name[0] == "." for p in self.path.iterdir())

    # Reading and writing

    def _damage(self, name: str, reason: str) -> InputError:
        if self.path.is_file():
            return InputError(f"{self.path} is a file, and no run folder; train on it first: compgcn train {self.path}")
        return InputError(f"the run folder {self.path} is damaged: {name}: {reason}")

    def _read_table(self, name: str, schema: pa.Schema) -> pa.Table:
        try:
            table = pq.read_table(self.path / name)
        except FileNotFoundError:
            raise self._damage(name, "the file is missing") from None
        except (OSError, pa.ArrowException) as error:
            raise self._damage(name, reason(error)) from None
        if not table.schema.equals(schema) or any(column.null_count for column in table.columns):
            raise self._damage(name, f"it must have the columns {', '.join(schema.names)} of a run and no gaps")
        return table

    def _write_table(self, name: str, table: pa.Table) -> None:
        replace(self.path / name, lambda path: pq.write_table(table, path, compression="zstd"))

    def _text(self, name: str, text: str) -> None:
        replace(self.path / name, lambda path: path.write_text(text, encoding="utf-8"))


def spared(path: str | Path) -> Path:
    """A path to write to, refused where it is, or leads to, a file of a run, whichever run that is, or no file."""
    path = Path(path)
    target = settled(path)
    for place in (path, target) if path.is_symlink() else (path,):
        home = place.absolute().parent
        inside = home.name == "checkpoint" and Folder(home.parent).is_run
        if inside or (Folder(home).is_run and any(fnmatchcase(place.name.casefold(), pattern) for pattern in _OWN)):
            run = place.parent.parent if inside else place.parent
            raise InputError(f"'{path}' is a file of the run {run}, which needs it; choose another name")
    return path


def commit() -> str | None:
    """The commit of the source the package runs from, if it is known; with `-dirty` where that was changed since."""
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


def default_folder(config: Config, model: str | None = None) -> Path:
    """runs/<data>-<encoder>-<decoder>-<seed>; in a classification the protocol stands for the decoder.

    A baseline stands in its encoder's place, and a whole system by its name in that of both.
    """
    source = Path(config.data.source).name.split(".")[0] or "graph"
    if model is not None:
        return Path("runs") / f"{source}-{model}-{config.training.seed}"
    how = config.classifier.protocol or config.decoder.name
    what = config.classifier.baseline or config.encoder.name
    return Path("runs") / f"{source}-{what}-{how}-{config.training.seed}"
