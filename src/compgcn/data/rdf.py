"""RDF graphs: N-Triples, Turtle and RDF/XML, through pyoxigraph.

The id of an IRI is the IRI, that of a blank node `_:label`, that of a literal its form in N-Triples, quotes and
datatype included. Labels of blank nodes are local to a document: in one of several files the id is `_:part.label`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Any

from compgcn.data.columns import Facts, File, counted, endings, pa, unpacked
from compgcn.data.tables import BROKEN
from compgcn.errors import InputError, must_be_known

FORMATS = {".nt": "N_TRIPLES", ".ttl": "TURTLE", ".rdf": "RDF_XML", ".owl": "RDF_XML", ".xml": "RDF_XML"}
_NAMES = {"N_TRIPLES": "N-Triples", "TURTLE": "Turtle", "RDF_XML": "RDF/XML"}
_NOTED = {"drop": "dropped", "keep": "kept aside as attributes", "nodes": "kept, each distinct literal a node"}

_LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"
_BOM = b"\xef\xbb\xbf"
_NESTED = re.compile(rb"<!ENTITY[^>\"']*[\"'][^\"']*&(?!#|amp;|lt;|gt;|quot;|apos;)")


class Document(File):
    """RDF document in a file."""

    def __post_init__(self) -> None:
        must_be_known("way to treat literals", self.options.literals, _NOTED)

    @property
    def format(self) -> str:
        return FORMATS[endings(self.path)[0]]

    def facts(self) -> Facts:
        """Read the triples, and count the literals among them."""
        literals, named = self.options.literals, self.options.named
        nodes: dict[str, int] = {}
        relations: dict[str, int] = {}
        subjects, predicates, objects = array("i"), array("i"), array("i")
        aside: list[tuple[str, str, str]] = []
        labels: dict[str, tuple[int, str]] = {}  # term -> rank of the label's language, and the label
        count = 0
        for triple in self._triples():
            s, p, o = str(triple).split(" ", 2)
            if o[0] == '"':
                count += 1
                if p == _LABEL and named:
                    found = _foreign(triple.object.language), triple.object.value
                    labels[s] = min(labels.get(s, found), found, key=itemgetter(0))
                if literals == "keep":
                    aside.append((s, _id(p), triple.object.value))
                if literals != "nodes":
                    continue
            subjects.append(nodes.setdefault(s, len(nodes)))
            predicates.append(relations.setdefault(p, len(relations)))
            objects.append(nodes.setdefault(o, len(nodes)))
        if not subjects:
            what = f"its {count:,} triples all have literals; read them with literals='nodes'" if count else "no triple"
            raise InputError(f"'{self.label}' is empty: {what}")
        if any(text[:2] == "<<" for text in nodes):
            raise InputError(f"'{self.label}': triples about triples cannot be nodes of the graph")
        ids = self._ids(nodes, (node for node, _, _ in aside), labels)
        texts = pa.array([ids[text] for text in nodes]), pa.array([_id(text) for text in relations])
        columns = [
            pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(codes), texts[kind])])
            for codes, kind in ((subjects, 0), (predicates, 1), (objects, 0))
        ]
        kept = [(ids[node], relation, value) for node, relation, value in aside]
        names = {ids[text]: name for text, (_, name) in labels.items() if name.strip()}
        notes = self._notes(count, sum(text[0] == "_" for text in nodes), named and not labels)
        return Facts(columns, notes, kept if literals == "keep" else None, names=names)

    def _ids(self, *terms: Iterable[str]) -> dict[str, str]:
        """Return the id of each term as the parser writes it."""
        ids: dict[str, str] = {}
        before = f"_:{self.options.part}." if self.options.part else "_:"
        blanks = 0
        for text in chain(*terms):
            if text in ids:
                continue
            if text[0] != "_":
                ids[text] = _id(text)
            elif self.format == "N_TRIPLES":
                ids[text] = before + text[2:]
            else:  # the parser gives random labels; numbers in order are the same every time
                ids[text] = f"{before}b{blanks}"
                blanks += 1
        return ids

    def _notes(self, literals: int, blanks: int, unnamed: bool) -> tuple[str, ...]:
        notes = []
        if literals:
            note = f"{counted(literals, 'triple')} with a literal {_NOTED[self.options.literals]}"
            if self.options.literals == "drop":
                note += "; to keep them: --set literals=keep, or literals=nodes to make nodes of them"
                note += "; --names gives readable names" if unnamed else ""
            notes.append(note)
        if self.options.part and blanks:
            apart = f"kept apart from those of the other files, as _:{self.options.part}.label"
            notes.append(f"{counted(blanks, 'blank node')} of '{self.label}' {apart}")
        return tuple(notes)

    def _triples(self) -> Iterator[Any]:
        try:
            import pyoxigraph
        except ImportError:
            what = "is RDF, which needs pyoxigraph: install it with pip install 'compgcn[rdf]'"
            raise InputError(f"'{self.label}' {what}") from None
        try:
            with unpacked(self.path) as stream:
                if stream.peek(3).startswith(_BOM):
                    stream.read(3)
                content = stream.read() if self.format == "RDF_XML" else stream
                if isinstance(content, bytes) and _NESTED.search(content):  # a few lines of it can fill the memory
                    what = "has an entity made of other entities; write it out where it is used"
                    raise InputError(f"'{self.label}' {what}")
                yield from pyoxigraph.parse(content, getattr(pyoxigraph.RdfFormat, self.format))
        except SyntaxError as error:
            line = f", line {error.lineno}" if error.lineno else ""
            reason = re.sub(r"^Parser error at line \d+[^:]*: | \(line \d+\)$", "", str(error))
            raise InputError(f"'{self.label}'{line}: not {_NAMES[self.format]}: {reason}") from None
        except (MemoryError, *BROKEN) as error:
            raise InputError(f"'{self.label}' cannot be read: {error or 'a term is too long'}") from None


def _foreign(language: str | None) -> int:
    """Return the rank of a label's language: none, English, English of a country, another."""
    tongue, _, country = (language or "").casefold().partition("-")
    return {"": 0, "en": 2 if country else 1}.get(tongue, 3)


def _id(text: str) -> str:
    return text[1:-1] if text[0] == "<" else text
