"""A knowledge graph as three arrays of triples over two vocabularies, and how one is put together from sources."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from compgcn.data import delimited
from compgcn.data.arrays import Features, checked_features, counted, keys
from compgcn.data.facts import Attributes, Facts, Source, naming
from compgcn.data.labels import Labels
from compgcn.data.split import Triples, first
from compgcn.data.vocabulary import Vocabulary
from compgcn.errors import InputError, unknown


class Literals(NamedTuple):
    """Literal values kept beside a graph: row i says that entity `entities[i]` has `values[i]` by `relations[i]`."""

    entities: Triples  # [n]
    relations: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Entities, relations, and the facts (s, r, o) that hold between them, in three splits.

    Args:
        name: what to call it in reports.
        entities, relations: N ids and R ids.
        train, valid, test: int64 [n, 3], rows (s, r, o).
        notes: what was noticed on the way in, a sentence each.
        node_features: float32 [N, f], or None.
        relation_features: float32 [R, f] or, inverses after originals, [2R, f], or None.
        labels: the classes of some of the entities; all triples are in train then. None: the task is link prediction.
        literals: literal values of entities, where they were kept aside.
        origin: the settings of a config's [data] that read this graph again; its name alone if nothing is known.
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
        sizes = np.array([len(self.entities), len(self.relations), len(self.entities)])
        for part in ("train", "valid", "test"):
            given = np.asarray(getattr(self, part))
            if given.ndim != 2 or given.shape[1] != 3 or given.dtype.kind not in "iu":
                what = f"{given.dtype} of shape {given.shape}"
                raise InputError(f"the {part} triples must be whole numbers of shape [n, 3], not {what}")
            triples = np.ascontiguousarray(given, dtype=np.int64)
            if ((triples < 0) | (triples >= sizes)).any():
                what = f"{sizes[0]} entities and {sizes[1]} relations"
                raise InputError(f"the {part} triples refer to rows beyond the {what} of the vocabulary")
            object.__setattr__(self, part, triples)
        for part, rows in self.labels.splits.items() if self.labels is not None else ():
            if (rows[:, 0] >= len(self.entities)).any():
                raise InputError(f"the {part} labels refer to rows beyond the {len(self.entities)} entities")

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
        """The sizes a paper's table of data sets gives."""
        counts = {part: len(triples) for part, triples in self.splits.items()}
        sizes = {"entities": self.num_entities, "relations": self.num_relations, "triples": sum(counts.values())}
        if self.labels is None:
            return sizes | counts
        labelled = {f"{part}_labels": len(rows) for part, rows in self.labels.splits.items()}
        return sizes | counts | {"classes": len(self.labels.classes)} | labelled

    def fingerprint(self) -> str:
        """sha256 over ids, triples, features and labels: equal data gives equal fingerprints, whatever its file."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update(f"{vocabulary.kind} {len(vocabulary)}\n".encode())
            digest.update("".join(f"{len(text)}:{text}" for text in vocabulary.ids).encode("utf-8", "surrogatepass"))
        for part, triples in self.splits.items():
            digest.update(f"\n{part} {len(triples)}\n".encode())
            digest.update(triples.astype("<i8").tobytes())
        for kind, features in (("node", self.node_features), ("relation", self.relation_features)):
            if features is not None:
                digest.update(f"\n{kind} features {features.shape}\n".encode())
                digest.update(features.astype("<f4").tobytes())
        if self.labels is not None:
            digest.update(f"\nclasses {len(self.labels.classes)}\n".encode())
            digest.update(
                "".join(f"{len(text)}:{text}" for text in self.labels.classes).encode("utf-8", "surrogatepass")
            )
            for part, rows in self.labels.splits.items():
                digest.update(f"\n{part} labels {len(rows)}\n".encode())
                digest.update(rows.astype("<i8").tobytes())
        return digest.hexdigest()

    @classmethod
    def from_triples(
        cls,
        triples: Any,
        columns: Sequence[str | int] | None = None,
        *,
        name: str = "graph",
        split_seed: int = 0,
        valid_fraction: float = 0.1,
        test_fraction: float = 0.1,
    ) -> KnowledgeGraph:
        """Rows (subject, relation, object), an array or a data frame of them: `compgcn.read`, which takes more."""
        from compgcn.data.files import read

        return read(
            triples,
            columns=columns,
            name=name,
            split_seed=split_seed,
            valid_fraction=valid_fraction,
            test_fraction=test_fraction,
        )

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        relation: str = "relation",
        *,
        name: str = "graph",
        split_seed: int = 0,
        valid_fraction: float = 0.1,
        test_fraction: float = 0.1,
    ) -> KnowledgeGraph:
        """A directed NetworkX graph, see `compgcn.data.interchange.from_networkx`."""
        from compgcn.data.interchange import from_networkx

        return from_networkx(graph, relation, name, split_seed, valid_fraction, test_fraction)

    @classmethod
    def from_pyg(
        cls,
        data: Any,
        *,
        name: str = "graph",
        split_seed: int = 0,
        valid_fraction: float = 0.1,
        test_fraction: float = 0.1,
    ) -> KnowledgeGraph:
        """A PyG `Data` or `HeteroData`, see `compgcn.data.interchange.from_pyg`."""
        from compgcn.data.interchange import from_pyg

        return from_pyg(data, name, split_seed, valid_fraction, test_fraction)

    def with_features(self, nodes: Any = None, relations: Any = None) -> KnowledgeGraph:
        """The same graph with feature vectors; what is not given stays as it is.

        Args:
            nodes: [N, f], anything numpy can read as numbers.
            relations: [R, f], or [2R, f] with the inverses after the originals.
        """
        N, R = self.num_entities, self.num_relations
        graph = self
        if nodes is not None:
            graph = replace(graph, node_features=checked_features("node", nodes, {N: "N"}))
        if relations is not None:
            graph = replace(graph, relation_features=checked_features("relation", relations, {R: "R", 2 * R: "2R"}))
        return graph


def assemble(
    name: str,
    sources: Mapping[str, Source],
    entity_names: Mapping[str, str] | None = None,
    relation_names: Mapping[str, str] | None = None,
    *,
    exclude: Sequence[str] = (),
) -> KnowledgeGraph:
    """Read the sources of train, valid and test (or one source, all of it train) over one vocabulary.

    The vocabulary is the union of the splits, in order of first appearance; nothing but repetitions, and the relations
    that are to be excluded, is left out.

    Args:
        sources: one entry, or the three splits in order.
        entity_names, relation_names: id -> readable name; the latter defaults to the former, and that to what the
            sources say.
        exclude: ids of relations to leave out.
    """
    facts = [source.facts() for source in sources.values()]
    notes = [note for one in facts for note in one.notes]
    columns = [one.columns for one in facts]
    if exclude:
        columns = _without(columns, exclude, notes)
    triples, entity_ids, relation_ids = _encode(columns)
    for source, one, rows in zip(sources.values(), facts, triples, strict=True):
        if one.guessed and not exclude and _stands_alone(rows, len(entity_ids), len(relation_ids)):
            s, r, o = (column[0].as_py() for column in one.columns)
            notes.append(
                f"the first line of '{source.label}' looks like a header ('{s}', '{r}' and '{o}' occur nowhere else) "
                f"but was read as a triple; to have it skipped: {naming([s, r, o])}"
            )
    if entity_names is None:
        entity_names = _given_names(facts, entity_ids, relation_ids, notes)
    literals = _literals([one.attributes for one in facts], entity_ids, notes)
    graph = tidied(name, entity_ids, relation_ids, dict(zip(sources, triples, strict=True)), notes)
    graph = replace(graph, literals=literals)
    return with_names(graph, entity_names or {}, relation_names if relation_names is not None else entity_names or {})


def _given_names(
    facts: Sequence[Facts], entities: Sequence[str], relations: Sequence[str], notes: list[str]
) -> dict[str, str]:
    """Id -> name, as the sources say it, of several the first; of how many is noted."""
    names = {text: name for one in reversed(facts) for text, name in one.names.items()}
    of_entities, of_relations = (sum(text in names for text in ids) for ids in (entities, relations))
    if of_entities or of_relations:
        others = f" and {counted(of_relations, 'relation')}" if of_relations else ""
        notes.append(f"names of {counted(of_entities, 'entity')}{others} taken from rdfs:label; --names gives others")
    return names


def tidied(
    name: str,
    entity_ids: Sequence[str],
    relation_ids: Sequence[str],
    triples: Mapping[str, Triples],
    notes: Sequence[str] = (),
) -> KnowledgeGraph:
    """A graph without repeated triples, with notes on what is noticed; `triples` is one entry, or the three splits."""
    noted = list(notes)
    parts = [_distinct(part, rows, len(entity_ids), len(relation_ids), noted) for part, rows in triples.items()]
    none = np.empty((0, 3), dtype=np.int64)
    graph = KnowledgeGraph(
        name,
        Vocabulary("entity", entity_ids),
        Vocabulary("relation", relation_ids),
        *(parts if len(parts) == 3 else (parts[0], none, none)),
    )
    return replace(graph, notes=(*noted, *_observations(graph)))


def _without(columns: Sequence[Sequence[Any]], exclude: Sequence[str], notes: list[str]) -> list[list[Any]]:
    """The columns without the rows of some relations; how many those were is noted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = set().union(*(relation.cast(pa.string()).unique().to_pylist() for _, relation, _ in columns))
    for relation in exclude:
        if relation not in known:
            raise unknown("relation to exclude", relation, known)
    kept = []
    for one in columns:
        keep = pc.invert(pc.is_in(one[1].cast(pa.string()), pa.array(exclude, pa.string())))
        kept.append([column.filter(keep) for column in one])
    before, after = (sum(len(one[0]) for one in tables) for tables in (columns, kept))
    if not all(len(one[0]) for one in kept):
        raise InputError(f"without {' and '.join(exclude)} no triple is left")
    notes.append(f"{counted(before - after, 'triple')} of {counted(len(exclude), 'excluded relation')} left out")
    return kept


def _stands_alone(triples: Triples, num_entities: int, num_relations: int) -> bool:
    """Whether the first row is the only one whose entities and relation occur in no other."""
    if len(triples) < 3:
        return False
    ends = np.bincount(triples[:, [0, 2]].ravel(), minlength=num_entities)
    relations = np.bincount(triples[:, 1], minlength=num_relations)
    alone = np.flatnonzero(relations[triples[:, 1]] == 1)
    alone = alone[(ends[triples[alone][:, [0, 2]]] == 1).all(axis=1)]
    return len(alone) == 1 and int(alone[0]) == 0


def _literals(given: Sequence[Attributes | None], ids: Sequence[str], notes: list[str]) -> Literals | None:
    """The literal values of the entities; those of nodes that no triple mentions are counted and left out."""
    sets = [one for one in given if one is not None]
    if not sets:
        return None
    row_of = {text: row for row, text in enumerate(ids)}
    rows = [
        (row_of[node], relation, value)
        for one in sets
        for node, relation, value in zip(*one, strict=True)
        if node in row_of
    ]
    lost = sum(len(one.nodes) for one in sets) - len(rows)
    if lost:
        notes.append(f"{counted(lost, 'literal')} of nodes without any other triple left out")
    entities, relations, values = zip(*rows, strict=True) if rows else ((), (), ())
    return Literals(np.array(entities, dtype=np.int64), relations, values)


def with_names(graph: KnowledgeGraph, entities: Mapping[str, str], relations: Mapping[str, str]) -> KnowledgeGraph:
    """The graph with readable names, id -> name; ids that are not mentioned are their own names."""
    if not entities and not relations:
        return graph
    return replace(
        graph,
        entities=_vocabulary("entity", graph.entities.ids, entities),
        relations=_vocabulary("relation", graph.relations.ids, relations),
    )


def _vocabulary(kind: str, ids: Sequence[str], names: Mapping[str, str]) -> Vocabulary:
    return Vocabulary(kind, ids, [names.get(text) or text for text in ids] if names else None)


def read_names(text: delimited.Text, *, width: int = 2) -> dict[str, str]:
    """Id -> name from the first two columns of a table; it may mention ids the graph does not have."""
    ids, names = (column.to_pylist() for column in delimited.columns(text, width, allow_empty=True)[:2])
    found = dict(zip(ids, names, strict=True))
    if len(found) < len(ids):
        _check_one_name_each(text, width)
    return found


def _check_one_name_each(text: delimited.Text, width: int) -> None:
    seen: dict[str, tuple[int, str]] = {}
    for number, (key, name) in delimited.scan(text, width, take=(0, 1), allow_empty=True):
        line, before = seen.setdefault(key, (number, name))
        if before != name:
            what = f"'{key}' is called '{name}' here, and '{before}' in line {line}; keep one of them"
            raise InputError(f"'{text.label}', line {number}: {what}")


def _encode(tables: Sequence[Sequence[Any]]) -> tuple[list[Triples], list[str], list[str]]:
    """Columns of strings -> triples of numbers, and the ids the numbers stand for, in order of first appearance."""
    lengths = [len(columns[0]) for columns in tables]
    subjects, relations, objects = ([columns[i] for columns in tables] for i in range(3))
    (s, o), entity_ids = _codes([*subjects, *objects], parts=2)
    (r,), relation_ids = _codes(relations, parts=1)
    triples = np.column_stack([s, r, o])  # [n, 3]
    return np.split(triples, np.cumsum(lengths)[:-1]), entity_ids, relation_ids


def _codes(columns: Sequence[Any], *, parts: int) -> tuple[list[Triples], list[str]]:
    """One numbering over columns of strings that make up `parts` of equal length, read row by row across them."""
    import pyarrow as pa

    if len({str(column.type) for column in columns}) > 1:  # files of several formats
        columns = [column.cast(pa.string()) for column in columns]
    joined = pa.chunked_array([chunk for column in columns for chunk in column.chunks])
    joined = joined.unify_dictionaries() if pa.types.is_dictionary(joined.type) else joined.dictionary_encode()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in joined.chunks]).reshape(parts, -1)  # [parts, n]
    strings = joined.chunk(0).dictionary
    places = [first(part, len(strings)) * parts + place for place, part in enumerate(codes)]
    seen = np.min(places, axis=0)
    order = np.argsort(seen)
    order = order[: int((seen < codes.size).sum())]  # a skipped header leaves strings that no row uses
    number = np.empty(len(strings), dtype=np.int64)
    number[order] = np.arange(len(order))
    return [number[part] for part in codes], strings.take(pa.array(order)).to_pylist()


def _distinct(part: str, triples: Triples, num_entities: int, num_relations: int, notes: list[str]) -> Triples:
    """The triples without repetitions, in their order; what was dropped is noted."""
    number = keys(triples, num_entities, num_relations)
    order = np.argsort(number)
    number = number[order]
    starts = np.flatnonzero(np.concatenate([[True], number[1:] != number[:-1]]))
    kept = np.minimum.reduceat(order, starts)
    dropped = len(triples) - len(kept)
    if not dropped:
        return triples
    notes.append(f"{counted(dropped, 'repeated triple')} dropped{f' from {part}' if part else ''}")
    distinct: Triples = triples[np.sort(kept)]
    return distinct


def _observations(graph: KnowledgeGraph) -> list[str]:
    """What someone who trains on the graph should know; none of it changes the graph."""
    N, R = graph.num_entities, graph.num_relations
    number = {part: keys(triples, N, R) for part, triples in graph.splits.items()}
    notes = []
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        shared = len(np.intersect1d(number[one], number[other], assume_unique=True)) if len(number[other]) else 0
        if shared:
            notes.append(f"leakage: {counted(shared, 'triple')} of {other} also in {one}")
    loops = sum(int((triples[:, 0] == triples[:, 2]).sum()) for triples in graph.splits.values())
    if loops:
        notes.append(f"{counted(loops, 'self-loop')} (subject and object are the same entity) kept")
    for kind, size, places in (("entity", N, [0, 2]), ("relation", R, [1])):
        seen = {part: np.bincount(rows[:, places].ravel(), minlength=size) > 0 for part, rows in graph.splits.items()}
        later = int((~seen["train"] & (seen["valid"] | seen["test"])).sum())
        if later:
            notes.append(f"{counted(later, kind)} only in valid or test, never in train; kept")
        never = size - int((seen["train"] | seen["valid"] | seen["test"]).sum())
        if never:
            notes.append(f"{counted(never, kind)} without any triple; kept")
    vocabulary = (*graph.entities.ids, *graph.relations.ids)
    spaced = sum(text != text.strip() for text in vocabulary)
    if spaced:
        notes.append(f"{counted(spaced, 'id')} with a space at the start or the end, kept as written")
    broken = sum("\n" in text or "\r" in text for text in vocabulary)
    if broken:
        notes.append(f"{counted(broken, 'id')} over several lines, kept as written; is a quote not closed?")
    return notes
