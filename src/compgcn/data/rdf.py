"""RDF graphs: N-Triples, Turtle and RDF/XML, through pyoxigraph.

The id of an IRI is the IRI, that of a blank node `_:label`, that of a literal its form in N-Triples, quotes and
datatype included; so the three never meet. The label of a blank node means nothing outside of its document: where
several make up one graph, the id is `_:part.label`.
"""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, cast

from compgcn.data.columns import Attributes, Facts, endings, existing, unpacked
from compgcn.data.delimited import BROKEN
from compgcn.errors import InputError, unknown

FORMATS = {".nt": "N_TRIPLES", ".ttl": "TURTLE", ".rdf": "RDF_XML", ".owl": "RDF_XML", ".xml": "RDF_XML"}
_NAMES = {"N_TRIPLES": "N-Triples", "TURTLE": "Turtle", "RDF_XML": "RDF/XML"}
LITERALS = ("drop", "keep", "nodes")

_LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"
_BOM = b"\xef\xbb\xbf"
_ENTITY = re.compile(rb"<!ENTITY[^\"'>]*(?:\"([^\"]*)\"|'([^']*)')")
_NESTED = re.compile(rb"&(?!#|amp;|lt;|gt;|quot;|apos;)")
_LONGEST_ENTITY = 1000  # bytes; a longer one, used often, could fill the memory


@dataclass(frozen=True)
class Document:
    """An RDF document.

    Args:
        label: what to call it in an error.
        open: opens it, as bytes.
        format: one of pyoxigraph's, by name.
        literals: "drop" leaves triples with a literal as their object out, "keep" keeps them beside the graph as
            attributes of their subject, "nodes" makes a node of each distinct literal.
        part: what sets its blank nodes apart from those of the other documents of the graph, if there are others.
        named: whether names are taken from rdfs:label; not where literals are nodes, and labels thus facts.
    """

    label: str
    open: Callable[[], Any]
    format: str
    literals: str = "drop"
    part: str = ""
    named: bool = False

    def facts(self) -> Facts:
        """The triples; what is done with the literals among them is counted."""
        import pyarrow as pa

        nodes: dict[str, int] = {}
        relations: dict[str, int] = {}
        subjects, predicates, objects = array("i"), array("i"), array("i")
        aside = Attributes([], [], [])
        labels: dict[str, tuple[int, str]] = {}  # term -> how far from what is wanted its language is, and its label
        literals = 0
        for triple in _triples(self):
            s, p, o = str(triple).split(" ", 2)
            if o[0] == '"':
                literals += 1
                if p == _LABEL and self.named:
                    found = _foreign(triple.object.language), triple.object.value
                    labels[s] = min(labels.get(s, found), found, key=itemgetter(0))
                if self.literals == "keep":
                    for values, value in zip(aside, (s, _id(p), triple.object.value), strict=True):
                        values.append(value)
                if self.literals != "nodes":
                    continue
            subjects.append(nodes.setdefault(s, len(nodes)))
            predicates.append(relations.setdefault(p, len(relations)))
            objects.append(nodes.setdefault(o, len(nodes)))
        if not subjects:
            what = (
                f"its {literals:,} triples all have literals; read them with literals='nodes'"
                if literals
                else "no triple"
            )
            raise InputError(f"'{self.label}' is empty: {what}")
        if any(text[:2] == "<<" for text in nodes):
            line = _line_of(self, b"<<")
            raise InputError(f"'{self.label}', line {line}: triples about triples cannot be nodes of the graph")
        named = self._ids(nodes, aside.nodes, labels)
        ids = pa.array([named[text] for text in nodes]), pa.array([_id(text) for text in relations])
        columns = [
            pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(codes), ids[kind])])
            for codes, kind in ((subjects, 0), (predicates, 1), (objects, 0))
        ]
        aside = aside._replace(nodes=[named[text] for text in aside.nodes])
        notes = (*self._notes(literals, bool(labels)), *self._apart(sum(text[0] == "_" for text in nodes)))
        names = {named[text]: name for text, (_, name) in labels.items() if name.strip()}
        return Facts(columns, notes, aside if self.literals == "keep" else None, names=names)

    def _ids(self, *terms: Iterable[str]) -> dict[str, str]:
        """Term as the parser writes it -> id."""
        ids: dict[str, str] = {}
        before = f"_:{self.part}." if self.part else "_:"
        blanks = 0
        for text in chain(*terms):
            if text in ids:
                continue
            if text[0] != "_":
                ids[text] = _id(text)
            elif self.format == "N_TRIPLES":
                ids[text] = before + text[2:]
            else:  # without a label it gets a random one from the parser; numbers in order are the same every time
                ids[text] = f"{before}b{blanks}"
                blanks += 1
        return ids

    def _apart(self, blanks: int) -> tuple[str, ...]:
        if not self.part or not blanks:
            return ()
        count = f"{blanks:,} blank node{'s' if blanks > 1 else ''}"
        return (f"{count} of '{self.label}' kept apart from those of the other files, as _:{self.part}.label",)

    def _notes(self, literals: int, labels: bool) -> tuple[str, ...]:
        if not literals:
            return ()
        what = {"drop": "dropped", "keep": "kept aside as attributes", "nodes": "kept, each distinct literal a node"}
        note = f"{literals:,} triple{'s' if literals > 1 else ''} with a literal {what[self.literals]}"
        if self.literals == "drop":
            note += "; to keep them: --set literals=keep, or literals=nodes to make nodes of them"
            note += "; --names gives readable names" if self.named and not labels else ""
        return (note,)


def file(path: str | Path, *, literals: str = "drop", part: str = "", named: bool = False) -> Document:
    """A file on disk, its format told by its ending, possibly followed by .gz or .zst; see `Document`."""
    path = existing(path)
    if literals not in LITERALS:
        raise unknown("way to treat literals", str(literals), LITERALS)
    named = named and literals != "nodes"
    return Document(str(path), partial(unpacked, path), FORMATS[endings(path)[0]], literals, part, named)


def _foreign(language: str | None) -> int:
    """How far a label's language is from what is wanted: none, English, English of a country, another."""
    if language is None or language.casefold() == "en":
        return 0 if language is None else 1
    return 2 if language.casefold().startswith("en-") else 3


def _id(text: str) -> str:
    return text[1:-1] if text[0] == "<" else text


def _triples(document: Document) -> Iterator[Any]:
    """The parser's triples; whatever it stumbles over is one InputError."""
    try:
        import pyoxigraph
    except ImportError:
        raise InputError(
            f"'{document.label}' is RDF, which needs pyoxigraph: install it with pip install 'compgcn[rdf]'"
        ) from None
    kind = getattr(pyoxigraph.RdfFormat, document.format)
    try:
        with document.open() as stream:
            yield from pyoxigraph.parse(_prepared(document, stream), kind)
    except SyntaxError as error:
        line = error.lineno or _line_of_error(document, kind)
        reason = re.sub(r"^Parser error at line \d+[^:]*: | \(line \d+\)$", "", str(error))
        raise InputError(f"'{document.label}', line {line}: not {_NAMES[document.format]}: {reason}") from None
    except MemoryError:
        line = _line_of_error(document, kind)
        raise InputError(f"'{document.label}', line {line}: a term is longer than 16 MB") from None
    except BROKEN as error:
        raise InputError(f"'{document.label}' cannot be read: {error}") from None


def _prepared(document: Document, stream: Any) -> Any:
    """The stream without a byte order mark; RDF/XML is read whole, to be searched for what could fill the memory."""
    if document.format != "RDF_XML":
        return _WithoutMark(stream)
    content = stream.read().removeprefix(_BOM)
    for match in _ENTITY.finditer(content):
        value = match[1] if match[1] is not None else match[2]
        if len(value) > _LONGEST_ENTITY or _NESTED.search(value):
            line = content.count(b"\n", 0, match.start()) + 1
            what = f"an entity longer than {_LONGEST_ENTITY} bytes or made of other entities is refused"
            raise InputError(f"'{document.label}', line {line}: {what}; write it out where it is used")
    return io.BytesIO(content)


class _WithoutMark:
    """A stream of bytes, the byte order mark at its start left out."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._started = stream, False

    def read(self, size: int = -1) -> bytes:
        block: bytes = self._stream.read(size)
        if not self._started:
            self._started = True
            return block.removeprefix(_BOM) or self._stream.read(size)
        return block


class _Lines:
    """A stream that hands out no more than a line at a time, and counts them."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.number = stream, 0
        self._ends = True

    def read(self, size: int = -1) -> bytes:
        line: bytes = self._stream.readline(size)
        self.number += bool(line) and self._ends
        self._ends = line.endswith(b"\n")
        return line


def _line_of_error(document: Document, kind: Any) -> int:
    """Where a parser that does not say so stopped: the last line it had asked for."""
    import pyoxigraph

    with document.open() as stream:
        lines = _Lines(stream)
        try:
            for _ in pyoxigraph.parse(cast(IO[bytes], lines), kind):
                pass
        except (SyntaxError, MemoryError):
            pass
        return max(1, lines.number)


def _line_of(document: Document, piece: bytes) -> int:
    """The first line that has the piece."""
    with document.open() as stream:
        return next((number for number, line in enumerate(stream, start=1) if piece in line), 1)
