"""Literals as features: numbers by their value, text by its words."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compgcn.data import delimited
from compgcn.data.columns import Attributes, Facts, Features, Source, checked_features, counted, keys, naming
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


TYPE_RELATIONS = ("http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "rdf:type")

Rows = NDArray[np.int64]


def typed(graph: KnowledgeGraph) -> bool:
    """Whether the graph says of what type nodes are."""
    return any(name in graph.relations.ids for name in TYPE_RELATIONS)


def rows_by_type(graph: KnowledgeGraph) -> Rows:
    """The row of each entity in a table of vectors [N], numbered from 0 without gaps.

    Entities with the same set of types share a row; one without a type has a row of its own.
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


_LEAST = 10  # facts of a relation below which nothing is said of it
_SHARE = 0.9  # of its objects that are values; a few may be "unknown"
_STARTS = frozenset("+-.0123456789")
_VALUE = re.compile(
    r"[+-]?(\d+|\d{1,3}(,\d{3})+)?([.,]\d+)?(?<=\d)([eE][+-]?\d+)?"  # a number
    r"|-?\d{4}-\d{1,2}(-\d{1,2})?([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"  # a date, and perhaps time
    r"|\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{4}[./]\d{1,2}[./]\d{1,2}",
    re.ASCII,
)


def is_value(text: str) -> bool:
    """Whether a text is a number or a date."""
    text = text.strip()
    return text[:1] in _STARTS and _VALUE.fullmatch(text) is not None


def value_notes(graph: KnowledgeGraph) -> list[str]:
    """What to say of relations whose objects are mostly numbers or dates, and how to leave them out.

    Where subjects are numbers too, these are most likely the ids of things, and nothing is said.
    """
    triples = np.concatenate(list(graph.splits.values()))
    values = np.array([is_value(text) for text in graph.entities.ids], dtype=bool)  # [N]
    if not values.any():
        return []
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
    setting = json.dumps(relations, ensure_ascii=False, separators=(",", ":"))
    what = f"the objects of {which} are numbers or dates, and {counted(size, 'entity')} came of them"
    return [f"{what}; to leave the facts out: --set 'exclude={setting}'"]


def restricted(graph: KnowledgeGraph, keep: dict[str, NDArray[np.bool_]]) -> KnowledgeGraph:
    """Some triples of each split, and the entities and relations that occur in them, in the order they had.

    Args:
        graph: without labels and features, which belong to entities that may go.
        keep: for each split which of its triples stay, [n].
    """
    if graph.labels is not None or graph.node_features is not None or graph.relation_features is not None:
        raise InputError(f"'{graph.name}' has labels or features; only a graph of plain triples is cut down")
    splits = {part: triples[keep[part]] for part, triples in graph.splits.items()}
    rows = np.concatenate(list(splits.values()))
    entities, relations = np.unique(rows[:, [0, 2]]), np.unique(rows[:, 1])
    number = {"e": np.zeros(graph.num_entities, dtype=np.int64), "r": np.zeros(graph.num_relations, dtype=np.int64)}
    number["e"][entities], number["r"][relations] = np.arange(len(entities)), np.arange(len(relations))
    changed: dict[str, Any] = {
        part: np.column_stack([number["e"][t[:, 0]], number["r"][t[:, 1]], number["e"][t[:, 2]]])
        for part, t in splits.items()
    }
    return replace(
        graph,
        entities=_some(graph.entities, entities),
        relations=_some(graph.relations, relations),
        literals=None,
        **changed,
    )


def top_relations(graph: KnowledgeGraph, number: int) -> KnowledgeGraph:
    """The triples of the relations that train has most of, in all splits; of equals those that stand first."""
    if number > graph.num_relations:
        raise InputError(f"'{graph.name}' has {graph.num_relations} relations; data.top_relations = {number} is more")
    counts = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    kept = np.argsort(-counts, kind="stable")[:number]
    found = restricted(graph, {part: np.isin(triples[:, 1], kept) for part, triples in graph.splits.items()})
    origin = {**(graph.origin or {"source": graph.name}), "top_relations": number}
    note = f"only the {number} relations train has most of, and what occurs with them"
    return replace(found, notes=(*found.notes, note), origin=origin)


def _some(vocabulary: Vocabulary, rows: NDArray[np.int64]) -> Vocabulary:
    ids, names = ([texts[row] for row in rows] for texts in (vocabulary.ids, vocabulary.names))
    return Vocabulary(vocabulary.kind, ids, names)


_WORDS = 64  # columns the words of all text literals are hashed to
_TYPES = 256  # sets of types with a column each, the most frequent


def literal_features(graph: KnowledgeGraph) -> Features:
    """A row of numbers for each entity, [N, f], out of the literals kept beside a graph and its types.

    For each relation to literals: whether the entity has one, and, where all of them are numbers, its mean,
    standardised over those that have one. The words of the others are hashed, with their relation, to 64
    columns. A column for each set of types, where there are any, tells the others apart.
    """
    kept = graph.literals
    if kept is None or not len(kept.entities):
        raise InputError(
            f"no literals were kept of the graph '{graph.name}'; read it with "
            "literals='keep' for encoder.input='literals'"
        )
    relation_of = {name: i for i, name in enumerate(dict.fromkeys(kept.relations))}
    relation = np.array([relation_of[name] for name in kept.relations])
    columns = [_types(graph)] if typed(graph) else []
    words = np.zeros((graph.num_entities, _WORDS))
    for name, number in relation_of.items():
        places = np.flatnonzero(relation == number)
        entities, values = kept.entities[places], [kept.values[place] for place in places]
        present = np.bincount(entities, minlength=graph.num_entities)
        columns.append((present > 0).astype(np.float64)[:, None])
        numbers = _numbers(values)
        if numbers is None:
            _hash_words(words, entities, values, name)
        else:
            mean = np.bincount(entities, numbers, graph.num_entities) / np.maximum(present, 1)
            having = mean[present > 0]
            scaled = (mean - having.mean()) / (having.std() or 1.0)
            columns.append(np.where(present > 0, scaled, 0.0)[:, None])
    return np.hstack([*columns, np.log1p(words)]).astype(np.float32)


def _numbers(values: Sequence[str]) -> NDArray[np.float64] | None:
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _hash_words(words: NDArray[np.float64], entities: NDArray[np.int64], values: Sequence[str], relation: str) -> None:
    for entity, value in zip(entities, values, strict=True):
        for word in value.casefold().split():
            words[entity, zlib.crc32(f"{relation} {word}".encode("utf-8", "surrogatepass")) % _WORDS] += 1


def _types(graph: KnowledgeGraph) -> NDArray[np.float64]:
    """Which of the most frequent sets of types an entity has, [N, t]."""
    rows = rows_by_type(graph)
    counts = np.bincount(rows)
    common = np.argsort(-counts, kind="stable")[:_TYPES]
    common = common[counts[common] > 1]
    found: NDArray[np.float64] = (rows[:, None] == common[None, :]).astype(np.float64)
    return found
