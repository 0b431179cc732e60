"""Knowledge graphs: the class, its assembly from sources of triples, and what literals and types say about nodes."""

from __future__ import annotations

import hashlib
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from compgcn.data.columns import (
    SPLITS,
    Facts,
    Features,
    Numbers,
    Source,
    checked_features,
    checked_rows,
    counted,
    joined,
    keys,
    naming,
    numbered,
    pa,
    pc,
)
from compgcn.data.labels import Labels
from compgcn.data.split import Triples, first, split
from compgcn.data.tables import Parquet, Text
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError, must_be_known

TYPE_RELATIONS = ("http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "rdf:type")

_SHORT = 0.75  # of the wanted valid and test triples; below it a note says why
_LEAST = 10  # facts of a relation before a note suggests to exclude it
_SHARE = 0.9  # of its objects that must be numbers or dates then
_VALUE = re.compile(
    r"[+-]?(\d+|\d{1,3}(,\d{3})+)?([.,]\d+)?(?<=\d)([eE][+-]?\d+)?"  # a number
    r"|-?\d{4}-\d{1,2}(-\d{1,2})?([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"  # a date, and perhaps time
    r"|\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{4}[./]\d{1,2}[./]\d{1,2}",
    re.ASCII,
)
_WORDS = 64  # columns for the hashed words of all text literals
_TYPES = 256  # sets of types with a column each, the most frequent


class Literals(NamedTuple):
    """Literals beside a graph: entity `entities[i]` has the value `values[i]` by the relation `relations[i]`."""

    entities: Numbers  # [n]
    relations: tuple[str, ...]
    values: tuple[str, ...]


class Division(TypedDict, total=False):
    """How to split triples into train, valid and test, see `compgcn.read`."""

    split_seed: int
    valid_fraction: float
    test_fraction: float


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Entities, relations, and the facts (s, r, o) between them, in three splits.

    Args:
        name: the name in reports.
        entities, relations: N ids and R ids.
        train, valid, test: int64 [n, 3], rows (s, r, o).
        notes: remarks of the reader, a sentence each.
        node_features: float32 [N, f], or None.
        relation_features: float32 [R, f] or, inverses after originals, [2R, f], or None.
        labels: classes of some entities; all triples are in train then. None: the task is link prediction.
        literals: literal values of entities, where the reader kept them.
        origin: settings of a config's [data] that read this graph again; empty if only its name is known.
    """

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: Triples
    valid: Triples
    test: Triples
    notes: tuple[str, ...] = ()
    node_features: Features | None = None
    relation_features: Features | None = None
    labels: Labels | None = None
    literals: Literals | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        N, R = len(self.entities), len(self.relations)
        for part in SPLITS:
            object.__setattr__(self, part, checked_rows(f"{part} triples", getattr(self, part), N, R, N))
        for part, rows in self.labels.splits.items() if self.labels is not None else ():
            if (rows[:, 0] >= N).any():
                raise InputError(f"the {part} labels refer to rows beyond the {N} entities")

    def __repr__(self) -> str:
        n = self.statistics()
        sizes = f"{n['entities']:,} entities, {n['relations']:,} relations, {n['triples']:,} triples"
        return f"KnowledgeGraph('{self.name}': {sizes})"

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @property
    def splits(self) -> dict[str, Triples]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def statistics(self) -> dict[str, int]:
        """Return the sizes that a paper's table of data sets gives."""
        counts = {part: len(triples) for part, triples in self.splits.items()}
        sizes = {"entities": self.num_entities, "relations": self.num_relations, "triples": sum(counts.values())}
        if self.labels is None:
            return sizes | counts
        labelled = {f"{part}_labels": len(rows) for part, rows in self.labels.splits.items()}
        return sizes | counts | {"classes": len(self.labels.classes)} | labelled

    def fingerprint(self) -> str:
        """Return a sha256 over ids, triples, features and labels: equal data gives equal fingerprints."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update(f"{vocabulary.kind} {len(vocabulary)}\n".encode() + joined(vocabulary.ids))
        for part, triples in self.splits.items():
            digest.update(f"\n{part} {len(triples)}\n".encode() + triples.astype("<i8").tobytes())
        for kind, features in (("node", self.node_features), ("relation", self.relation_features)):
            if features is not None:
                digest.update(f"\n{kind} features {features.shape}\n".encode() + features.astype("<f4").tobytes())
        if self.labels is not None:
            digest.update(self.labels.content())
        return digest.hexdigest()

    @classmethod
    def from_triples(
        cls,
        triples: Any,
        columns: Sequence[str | int] | None = None,
        *,
        name: str = "graph",
        **split: Unpack[Division],
    ) -> KnowledgeGraph:
        """Read rows (subject, relation, object), an array or a data frame of them, as `compgcn.read` does."""
        from compgcn.data.files import read

        return read(triples, columns=columns, name=name, **split)

    @classmethod
    def from_networkx(
        cls, graph: Any, relation: str = "relation", *, name: str = "graph", **split: Unpack[Division]
    ) -> KnowledgeGraph:
        """Convert a directed NetworkX graph, see `compgcn.data.memory.from_networkx`."""
        from compgcn.data.memory import from_networkx

        return from_networkx(graph, relation, name).divided(**split)

    @classmethod
    def from_pyg(cls, data: Any, *, name: str = "graph", **split: Unpack[Division]) -> KnowledgeGraph:
        """Convert a PyG `Data` or `HeteroData`, see `compgcn.data.memory.graph_from_pyg`."""
        from compgcn.data.memory import graph_from_pyg

        graph = graph_from_pyg(data, name)
        return graph if graph.labels is not None else graph.divided(**split)

    def with_features(self, nodes: Any = None, relations: Any = None) -> KnowledgeGraph:
        """Return the same graph with feature vectors; a kind that is not given stays as it is.

        Args:
            nodes: [N, f], anything numpy can read as numbers.
            relations: [R, f], or [2R, f] with the inverses after the originals.
        """
        graph, N, R = self, self.num_entities, self.num_relations
        if nodes is not None:
            graph = replace(graph, node_features=checked_features("node", nodes, N))
        if relations is not None:
            graph = replace(graph, relation_features=checked_features("relation", relations, R, 2 * R))
        return graph

    def divided(self, split_seed: int = 0, valid_fraction: float = 0.1, test_fraction: float = 0.1) -> KnowledgeGraph:
        """Return the graph with its training triples split in three, see `compgcn.data.split`."""
        if not valid_fraction and not test_fraction:
            return self
        fractions = {"valid_fraction": valid_fraction, "test_fraction": test_fraction}
        train, valid, test = split(self.train, self.num_entities, self.num_relations, seed=split_seed, **fractions)
        counts = f"{len(train):,} / {len(valid):,} / {len(test):,} (train / valid / test)"
        note = f"split into {counts} with seed {split_seed}, facts between the same two entities together"
        if len(valid) + len(test) < _SHORT * (valid_fraction + test_fraction) * len(self.train):
            wanted = f"{100 * valid_fraction:g} % and {100 * test_fraction:g} % for valid and test"
            note += f"; less than {wanted}, since every entity and every relation must keep a triple in train"
        return replace(self, train=train, valid=valid, test=test, notes=(*self.notes, note))

    def named(self, entities: Mapping[str, str], relations: Mapping[str, str]) -> KnowledgeGraph:
        """Return the graph with readable names, id -> name; other ids are their own names."""
        if not entities and not relations:
            return self
        some, others = (
            Vocabulary(one.kind, one.ids, [names.get(text) or text for text in one.ids] if names else None)
            for one, names in ((self.entities, entities), (self.relations, relations))
        )
        return replace(self, entities=some, relations=others)


def assemble(name: str, sources: Mapping[str, Source], exclude: Sequence[str] = ()) -> KnowledgeGraph:
    """Read the sources of train, valid and test (or one source, all of it train) over one vocabulary.

    The vocabulary is the union of the splits, in order of first appearance. Only repeated triples and excluded
    relations are left out.
    """
    own = None if exclude else _parts(list(sources.values()))
    facts = own or [source.facts() for source in sources.values()]
    notes = [note for one in facts for note in one.notes]
    columns = [one.columns for one in facts]
    if exclude:
        columns = _without(columns, exclude, notes)
    triples, entity_ids, relation_ids = _encode(columns)
    if own is not None:
        triples, entity_ids, relation_ids = _joined(triples, entity_ids, relation_ids)
    for source, one, rows in zip(sources.values(), facts, triples, strict=True):
        if one.guessed and not exclude and _stands_alone(rows, len(entity_ids), len(relation_ids)):
            s, r, o = entity_ids[rows[0, 0]], relation_ids[rows[0, 1]], entity_ids[rows[0, 2]]
            notes.append(
                f"the first line of '{source.label}' looks like a header ('{s}', '{r}' and '{o}' occur nowhere else) "
                f"but was read as a triple; to have it skipped: {naming([s, r, o])}"
            )
    names = _given_names(facts, entity_ids, relation_ids, notes)
    literals = _literals([one.literals for one in facts if one.literals is not None], entity_ids, notes)
    graph = tidied(name, entity_ids, relation_ids, dict(zip(sources, triples, strict=True)), notes)
    return replace(graph, literals=literals).named(names, names)


def tidied(
    name: str,
    entity_ids: Sequence[str],
    relation_ids: Sequence[str],
    triples: Mapping[str, Triples],
    notes: Sequence[str] = (),
) -> KnowledgeGraph:
    """Return a graph without repeated triples, with notes for the user; `triples` is one entry, or three splits."""
    noted = list(notes)
    parts = []
    for part, rows in triples.items():
        _, kept = np.unique(keys(rows, len(entity_ids), len(relation_ids)), return_index=True)
        if len(kept) < len(rows):
            dropped = counted(len(rows) - len(kept), "repeated triple")
            noted.append(f"{dropped} dropped{f' from {part}' if part else ''}")
        parts.append(rows[np.sort(kept)])
    none = np.empty((0, 3), dtype=np.int64)
    train, valid, test = parts if len(parts) == 3 else (parts[0], none, none)
    vocabularies = Vocabulary("entity", entity_ids), Vocabulary("relation", relation_ids)
    graph = KnowledgeGraph(name, *vocabularies, train, valid, test)
    return replace(graph, notes=(*noted, *_observations(graph)))


def read_names(text: Text, *, width: int = 2) -> dict[str, str]:
    """Return id -> name from the first two columns of a table; ids that the graph lacks do no harm."""
    ids, names = (column.to_pylist() for column in text.read(width, (0, 1), allow_empty=True))
    found: dict[str, str] = {}
    for key, name in zip(ids, names, strict=True):
        before = found.setdefault(key, name)
        if before != name:
            raise InputError(f"'{text.label}' calls '{key}' both '{before}' and '{name}'; keep one of them")
    return found


def _without(columns: Sequence[Sequence[Any]], exclude: Sequence[str], notes: list[str]) -> list[list[Any]]:
    """Return the columns without the rows of some relations."""
    known = set().union(*(relation.cast(pa.string()).unique().to_pylist() for _, relation, _ in columns))
    for relation in exclude:
        must_be_known("relation to exclude", relation, known)
    kept = []
    for one in columns:
        keep = pc.invert(pc.is_in(one[1].cast(pa.string()), pa.array(exclude, pa.string())))
        kept.append([column.filter(keep) for column in one])
    before, after = (sum(len(one[0]) for one in tables) for tables in (columns, kept))
    if not all(len(one[0]) for one in kept):
        raise InputError(f"without {' and '.join(exclude)} no triple is left")
    notes.append(f"{counted(before - after, 'triple')} of {counted(len(exclude), 'excluded relation')} left out")
    return kept


def _encode(tables: Sequence[Sequence[Any]]) -> tuple[list[Triples], list[str], list[str]]:
    """Number columns of strings; return the triples and the ids, in order of first appearance."""
    lengths = [len(columns[0]) for columns in tables]
    subjects, relations, objects = ([columns[i] for columns in tables] for i in range(3))
    (s, o), entity_ids = _codes([*subjects, *objects], parts=2)
    (r,), relation_ids = _codes(relations, parts=1)
    triples = np.column_stack([s, r, o])  # [n, 3]
    return np.split(triples, np.cumsum(lengths)[:-1]), entity_ids, relation_ids


def _codes(columns: Sequence[Any], *, parts: int) -> tuple[list[Triples], list[str]]:
    """Number the strings of columns that make up `parts` of equal length, read row by row across the parts."""
    if len({str(column.type) for column in columns}) > 1:  # files of several formats
        columns = [column.cast(pa.string()) for column in columns]
    chunks = pa.chunked_array([chunk for column in columns for chunk in column.chunks])
    chunks = chunks.unify_dictionaries() if pa.types.is_dictionary(chunks.type) else chunks.dictionary_encode()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks.chunks]).reshape(parts, -1)  # [parts, n]
    strings = chunks.chunk(0).dictionary
    places = [first(part, len(strings)) * parts + place for place, part in enumerate(codes)]
    seen = np.min(places, axis=0)
    order = np.argsort(seen)
    order = order[: int((seen < codes.size).sum())]  # a skipped header leaves strings that no row uses
    number = np.empty(len(strings), dtype=np.int64)
    number[order] = np.arange(len(order))
    return [number[part] for part in codes], strings.take(pa.array(order)).to_pylist()


def _parts(sources: Sequence[Source]) -> list[Facts] | None:
    """Read this process's part of every source; None if there is one process, or a source has to be read whole."""
    if "compgcn.processes" not in sys.modules:  # it loads torch, which no reader needs
        return None
    from compgcn import processes

    if processes.size() == 1:
        return None
    tables = [source for source in sources if isinstance(source, (Text, Parquet))]
    try:
        found = [facts for one in tables if (facts := one.part(processes.rank(), processes.size())) is not None]
    except InputError:
        found = []  # reading the whole names the line
    return None if processes.anyone(len(found) < len(sources)) else found


def _joined(
    triples: Sequence[Triples], entity_ids: Sequence[str], relation_ids: Sequence[str]
) -> tuple[list[Triples], list[str], list[str]]:
    """Return the triples and the ids of all processes, numbered as one process does, from those of the parts of each.

    No part of the triples is kept as text by more than one process, and every id travels once.
    """
    from compgcn import processes

    entity, entities = _merged(entity_ids, [rows[:, [0, 2]] for rows in triples])
    relation, relations = _merged(relation_ids, [rows[:, 1] for rows in triples])
    found = []
    for s, r, o in (rows.T for rows in triples):
        own = np.column_stack([entity[s], relation[r], entity[o]])
        found.append(np.concatenate([processes.told(own, process) for process in range(processes.size())]))
    return found, entities, relations


def _merged(ids: Sequence[str], codes: Sequence[Triples]) -> tuple[Triples, list[str]]:
    """Return the number of each id of a process among those of all, and all ids, in order of first appearance.

    The codes of each source, which are places in `ids`, rise in order of first appearance too.
    """
    from compgcn import processes

    number, every, seen = np.empty(len(ids), dtype=np.int64), list[str](), 0
    left = numbered(ids)  # ids that have no number yet, in their order
    for source in codes:
        seen = max(seen, int(source.max(initial=-1)) + 1)
        for process in range(processes.size()):
            here = process == processes.rank()
            own = [text for text, place in left.items() if place < seen] if here else []
            for text in processes.told(own, process):
                if text in left:
                    number[left.pop(text)] = len(every)
                every.append(text)
    return number, every


def _stands_alone(triples: Triples, num_entities: int, num_relations: int) -> bool:
    """Return whether the first row is the only one whose entities and relation occur in no other."""
    if len(triples) < 3:
        return False
    ends = np.bincount(triples[:, [0, 2]].ravel(), minlength=num_entities)
    relations = np.bincount(triples[:, 1], minlength=num_relations)
    alone = (relations[triples[:, 1]] == 1) & (ends[triples[:, [0, 2]]] == 1).all(axis=1)
    return bool(alone[0] and alone.sum() == 1)


def _given_names(
    facts: Sequence[Facts], entities: Sequence[str], relations: Sequence[str], notes: list[str]
) -> dict[str, str]:
    """Return id -> name from the sources; the first source wins."""
    names = {text: name for one in reversed(facts) for text, name in one.names.items()}
    of_entities, of_relations = (sum(text in names for text in ids) for ids in (entities, relations))
    if of_entities or of_relations:
        others = f" and {counted(of_relations, 'relation')}" if of_relations else ""
        notes.append(f"names of {counted(of_entities, 'entity')}{others} taken from rdfs:label; --names gives others")
    return names


def _literals(given: Sequence[Sequence[tuple[str, str, str]]], ids: Sequence[str], notes: list[str]) -> Literals | None:
    """Return the literals of the entities; leave out those of nodes that no triple mentions."""
    if not given:
        return None
    rows = [row for one in given for row in one]
    row_of = numbered(ids)
    kept = [(row_of[node], relation, value) for node, relation, value in rows if node in row_of]
    if len(kept) < len(rows):
        notes.append(f"{counted(len(rows) - len(kept), 'literal')} of nodes without any other triple left out")
    entities, relations, values = zip(*kept, strict=True) if kept else ((), (), ())
    return Literals(np.array(entities, dtype=np.int64), relations, values)


def _observations(graph: KnowledgeGraph) -> list[str]:
    """Return notes for someone who trains on the graph; they change nothing."""
    N, R = graph.num_entities, graph.num_relations
    number = {part: keys(triples, N, R) for part, triples in graph.splits.items()}
    notes = []
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        shared = len(np.intersect1d(number[one], number[other], assume_unique=True)) if len(number[other]) else 0
        if shared:
            notes.append(f"leakage: {counted(shared, 'triple')} of {other} also in {one}")
    loops = sum(int((triples[:, 0] == triples[:, 2]).sum()) for triples in graph.splits.values())
    found = [(loops, "self-loop", "(subject and object are the same entity) kept")]
    for kind, size, places in (("entity", N, [0, 2]), ("relation", R, [1])):
        seen = {part: np.bincount(rows[:, places].ravel(), minlength=size) > 0 for part, rows in graph.splits.items()}
        held_out = seen["valid"] | seen["test"]
        later, never = (~seen["train"] & held_out).sum(), (~seen["train"] & ~held_out).sum()
        found.append((int(later), kind, "only in valid or test, never in train; kept"))
        found.append((int(never), kind, "without any triple; kept"))
    vocabulary = (*graph.entities.ids, *graph.relations.ids)
    spaced = sum(text != text.strip() for text in vocabulary)
    broken = sum("\n" in text or "\r" in text for text in vocabulary)
    found.append((spaced, "id", "with a space at the start or the end, kept as written"))
    found.append((broken, "id", "over several lines, kept as written; is a quote not closed?"))
    return notes + [f"{counted(count, noun)} {what}" for count, noun, what in found if count]


def value_notes(graph: KnowledgeGraph) -> list[str]:
    """Return a note on relations whose objects are mostly numbers or dates, with the option that excludes them.

    Subjects that are numbers are most likely ids, so their relations get no note.
    """
    triples = np.concatenate(list(graph.splits.values()))
    values = np.array([is_value(text) for text in graph.entities.ids], dtype=bool)  # [N]
    s, r, o = triples.T
    facts, of_things, to_values = (
        np.bincount(r[rows], minlength=graph.num_relations) for rows in (slice(None), ~values[s], values[o])
    )
    chosen = (facts >= _LEAST) & (of_things == facts) & (to_values >= _SHARE * facts)
    if not chosen.any():
        return []
    size = len(np.unique(o[chosen[r] & values[o]]))
    relations = [graph.relations.ids[row] for row in np.flatnonzero(chosen)]
    which = " and ".join(f"'{relation}'" for relation in relations)
    what = f"the objects of {which} are numbers or dates, and became {counted(size, 'entity')}"
    return [f"{what}; to leave the facts out: {naming(relations, 'exclude')}"]


def is_value(text: str) -> bool:
    """Return whether a text is a number or a date."""
    text = text.strip()
    return text[:1] in "+-.0123456789" and bool(text) and _VALUE.fullmatch(text) is not None


def restricted(graph: KnowledgeGraph, keep: dict[str, NDArray[np.bool_]]) -> KnowledgeGraph:
    """Return the triples flagged in `keep`, [n] per split, with the entities and relations that occur in them."""
    if graph.labels is not None or graph.node_features is not None or graph.relation_features is not None:
        raise InputError(f"'{graph.name}' has labels or features; only a graph of plain triples can be cut down")
    rows = np.concatenate([triples[keep[part]] for part, triples in graph.splits.items()])
    entities, ends = np.unique(rows[:, [0, 2]], return_inverse=True)
    relations, rel = np.unique(rows[:, 1], return_inverse=True)
    ends = ends.reshape(-1, 2)
    sizes = [int(keep[part].sum()) for part in SPLITS]
    train, valid, test = np.split(np.column_stack([ends[:, 0], rel, ends[:, 1]]), np.cumsum(sizes)[:-1])
    some, others = (
        Vocabulary(one.kind, [one.ids[row] for row in kept], [one.names[row] for row in kept])
        for one, kept in ((graph.entities, entities), (graph.relations, relations))
    )
    return replace(graph, entities=some, relations=others, train=train, valid=valid, test=test, literals=None)


def top_relations(graph: KnowledgeGraph, number: int) -> KnowledgeGraph:
    """Keep the triples of the most frequent relations of train, in all splits; of equals the first."""
    if number > graph.num_relations:
        raise InputError(f"'{graph.name}' has {graph.num_relations} relations; data.top_relations = {number} is more")
    counts = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    kept = np.argsort(-counts, kind="stable")[:number]
    found = restricted(graph, {part: np.isin(triples[:, 1], kept) for part, triples in graph.splits.items()})
    origin = {**(graph.origin or {"source": graph.name}), "top_relations": number}
    note = f"only the {number} most frequent relations of train, and the entities that occur with them"
    return replace(found, notes=(*found.notes, note), origin=origin)


def typed(graph: KnowledgeGraph) -> bool:
    """Return whether the graph states types of nodes."""
    return any(name in graph.relations.ids for name in TYPE_RELATIONS)


def rows_by_type(graph: KnowledgeGraph) -> Numbers:
    """Return the row of each entity in a table of vectors [N], numbered from 0 without gaps.

    Entities with the same set of types share a row; an entity without a type has its own.
    """
    relation = [row for row, name in enumerate(graph.relations.ids) if name in TYPE_RELATIONS]
    if not relation:
        raise InputError(
            f"the graph '{graph.name}' has no relation {' or '.join(TYPE_RELATIONS)}, so its nodes have no types "
            "to share vectors by; use encoder.input='learned'"
        )
    pairs = np.unique(graph.train[np.isin(graph.train[:, 1], relation)][:, [0, 2]], axis=0)  # sorted by entity
    entities, starts = np.unique(pairs[:, 0], return_index=True)
    sets = [types.tobytes() for types in np.split(pairs[:, 1], starts[1:])]
    number: dict[bytes, int] = {}
    rows = np.full(graph.num_entities, -1, dtype=np.int64)
    rows[entities] = [number.setdefault(types, len(number)) for types in sets]
    alone = np.flatnonzero(rows < 0)
    rows[alone] = len(number) + np.arange(len(alone))
    return rows


def literal_features(graph: KnowledgeGraph) -> Features:
    """Return a row of numbers for each entity, [N, f], made of the literals beside a graph and of its types.

    Each relation to literals has a column that tells whether the entity has one, and, if all its values are numbers,
    one with their mean, standardised over the entities that have it. Other values are hashed word by word, with their
    relation, to 64 columns. Each frequent set of types has a column too.
    """
    kept = graph.literals
    if kept is None or not len(kept.entities):
        what = f"no literals were kept of the graph '{graph.name}'"
        raise InputError(f"{what}; read it with literals='keep' for encoder.input='literals'")
    relation_of = numbered(kept.relations)
    relation = np.array([relation_of[name] for name in kept.relations])
    columns = []
    if typed(graph):
        rows = rows_by_type(graph)
        counts = np.bincount(rows)
        common = np.argsort(-counts, kind="stable")[:_TYPES]
        columns.append((rows[:, None] == common[counts[common] > 1]).astype(np.float64))  # [N, t]
    words = np.zeros((graph.num_entities, _WORDS))
    for name, number in relation_of.items():
        places = np.flatnonzero(relation == number)
        entities, values = kept.entities[places], [kept.values[place] for place in places]
        present = np.bincount(entities, minlength=graph.num_entities)
        columns.append((present > 0).astype(np.float64)[:, None])
        try:
            numbers = np.array([float(value) for value in values])
        except ValueError:
            numbers = np.array([np.nan])
        if not np.isfinite(numbers).all():
            for entity, value in zip(entities, values, strict=True):
                for word in value.casefold().split():
                    words[entity, zlib.crc32(f"{name} {word}".encode("utf-8", "surrogatepass")) % _WORDS] += 1
        else:
            mean = np.bincount(entities, numbers, graph.num_entities) / np.maximum(present, 1)
            having = mean[present > 0]
            scaled = (mean - having.mean()) / (having.std() or 1.0)
            columns.append(np.where(present > 0, scaled, 0.0)[:, None])
    return np.hstack([*columns, np.log1p(words)]).astype(np.float32)
