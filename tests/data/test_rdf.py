"""RDF graphs: one graph in three syntaxes, literals treated as asked, and a bad line named."""

from __future__ import annotations

import contextlib
import gzip
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compgcn.config import Data
from compgcn.data import KnowledgeGraph, find, read
from compgcn.errors import InputError

pytest.importorskip("pyoxigraph", reason="pyoxigraph is not installed: RDF cannot be read")

Write = Callable[[str, str | bytes], Path]

NT = """# a comment
<http://x/a> <http://x/knows> <http://x/b> .
<http://x/b> <http://x/knows> _:someone .

<http://x/a> <http://x/age> "7"^^<http://www.w3.org/2001/XMLSchema#integer> .
<http://x/b> <http://x/age> "7"^^<http://www.w3.org/2001/XMLSchema#integer> .
<http://x/b> <http://x/name> "B\\u00e9 \\"x\\" y"@EN .
"""
TTL = """@prefix : <http://x/> .
:a :knows :b ; :age 7 .
:b :knows [] ; :age 7 ; :name "Bé \\"x\\" y"@en .
"""
XML = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE rdf:RDF [ <!ENTITY x "http://x/"> ]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://x/">
<rdf:Description rdf:about="&x;a">
<knows rdf:resource="&x;b"/>
<age rdf:datatype="http://www.w3.org/2001/XMLSchema#integer">7</age>
</rdf:Description>
<rdf:Description rdf:about="&x;b"><knows><rdf:Description/></knows>
<age rdf:datatype="http://www.w3.org/2001/XMLSchema#integer">7</age>
<name xml:lang="en">Bé "x" y</name>
</rdf:Description></rdf:RDF>
"""
SYNTAXES = {"g.nt": NT, "g.ttl": TTL, "g.rdf": XML, "g.owl": XML, "g.xml": XML}


def facts(graph: KnowledgeGraph) -> set[tuple[str, str, str]]:
    """All triples, blank nodes alike."""
    e, r = ["_:" if text.startswith("_:") else text for text in graph.entities.ids], graph.relations.ids
    return {(e[s], r[p], e[o]) for triples in graph.splits.values() for s, p, o in triples.tolist()}


LINKS = {("http://x/a", "http://x/knows", "http://x/b"), ("http://x/b", "http://x/knows", "_:")}
SEVEN = '"7"^^<http://www.w3.org/2001/XMLSchema#integer>'
VALUES = {
    ("http://x/a", "http://x/age", SEVEN),
    ("http://x/b", "http://x/age", SEVEN),
    ("http://x/b", "http://x/name", '"Bé \\"x\\" y"@en'),
}


@pytest.mark.parametrize("name", SYNTAXES)
@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_every_syntax_packed_or_not_gives_the_same_graph(write: Write, name: str, packing: str) -> None:
    content = b"\xef\xbb\xbf" + SYNTAXES[name].replace("\n", "\r\n").encode()
    packed = {"": content, ".gz": gzip.compress(content), ".zst": pa.compress(content, "zstd", asbytes=True)}
    path = write(name + packing, packed[packing])
    dropped = read(path)
    assert facts(dropped) == LINKS
    assert any(note.startswith("3 triples with a literal dropped") for note in dropped.notes)
    assert facts(read(path, literals="nodes")) == LINKS | VALUES


def test_literals_are_nodes_where_nodes_have_labels_unless_the_caller_says_otherwise(write: Write) -> None:
    path, labels = write("g.nt", NT), write("l.tsv", "node\tlabel\tsplit\nhttp://x/a\tx\ttrain\nhttp://x/b\ty\ttest\n")
    graph = read(path, labels=labels)
    assert facts(graph) == LINKS | VALUES
    assert "3 triples with a literal kept, each distinct literal a node" in graph.notes
    assert facts(read(path, labels=labels, literals="drop")) == LINKS
    found = [find(Data(source=str(path), labels=str(labels), **more)) for more in ({}, {"literals": "drop"})]
    assert [facts(one) for one in found] == [LINKS | VALUES, LINKS]


def test_kept_literals_are_attributes_and_no_part_of_the_graph(write: Write) -> None:
    only = '<http://x/z> <http://x/age> "9" .\n'
    graph = read(write("g.nt", NT + only), literals="keep")
    assert facts(graph) == LINKS
    ids, values = [graph.entities.ids[row] for row in graph.literals.entities], ("7", "7", 'Bé "x" y')
    assert (ids, graph.literals.values) == (["http://x/a", "http://x/b", "http://x/b"], values)
    assert graph.literals.relations == ("http://x/age", "http://x/age", "http://x/name")
    assert "1 literal of nodes without any other triple left out" in graph.notes


def test_literals_of_blank_nodes_are_kept_with_the_right_node(write: Write) -> None:
    lost = "_:b0 :age 9 .\n"  # of a node in no other triple, called as the first one is once it has a number
    graph = read(write("g.ttl", "@prefix : <http://x/> .\n" + lost + ":a :knows [ :age 8 ] ."), literals="keep")
    assert [graph.entities.ids[row] for row in graph.literals.entities] == ["_:b0"]
    assert graph.literals.values == ("8",)


BLANK = {
    "nt": "_:x <http://x/{0}> <http://x/{0}> .\n",
    "ttl": "[] <http://x/{0}> <http://x/{0}> .\n",
    "rdf": XML.replace("knows", "knows{0}"),
}


@pytest.mark.parametrize("ending", BLANK)
def test_blank_nodes_of_different_files_are_different_nodes(write: Write, ending: str) -> None:
    splits = {part: write(f"{part}.{ending}", BLANK[ending].format(part)) for part in ("train", "valid", "test")}
    graph = read(**splits)  # type: ignore[arg-type]
    label = "x" if ending == "nt" else "b0"
    blank = [text for text in graph.entities.ids if text[0] == "_"]
    assert blank == [f"_:{part}.{label}" for part in splits]
    kept = "kept apart from those of the other files, as _:test.label"
    assert f"1 blank node of '{splits['test']}' {kept}" in graph.notes
    alone = read(splits["train"], valid_fraction=0, test_fraction=0)
    assert f"_:{label}" in alone.entities.ids
    assert not any("kept apart" in note for note in alone.notes)


BAD = {
    "no object": ("x.nt", NT.replace("knows> _:someone .", "knows> ."), 3),
    "bad UTF-8": ("x.nt", NT.encode() + b"<http://x/a> <http://x/p> <http://x/\xff> .\n", 8),
    "a literal as relation": ("x.nt", NT + '<http://x/a> "p" <http://x/b> .\n', 8),
    "an unknown prefix": ("x.ttl", TTL + ":a no:p :a .\n", 4),
    "no XML": ("x.owl", "\n\nnothing <", None),
    "a relative IRI": ("x.ttl", TTL + "<c> :p :a .\n", 4),
    "a tag that is not closed": ("x.rdf", XML.replace("</rdf:Description></rdf:RDF>", "</rdf:RDF>"), None),
    "a triple about a triple": ("x.nt", NT + "<x:a> <x:p> <<( <x:a> <x:p> _:b )>> .\n", None),
}


@pytest.mark.parametrize("case", BAD)
def test_the_first_bad_line_is_named(write: Write, case: str) -> None:
    name, content, line = BAD[case]
    with pytest.raises(InputError, match=rf"{name}', line {line}: " if line else rf"{name}'(:| cannot be read)"):
        read(write(name, content), literals="nodes")


def test_entities_that_grow_without_bound_are_refused(write: Write) -> None:
    letters = "abcdefghij"
    nested = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">\n' for a, b in pairwise(letters))
    bomb = XML.replace('<!ENTITY x "http://x/">', f'<!ENTITY x "http://x/"> <!ENTITY a "aaaaaaaaaa">\n{nested}')
    with pytest.raises(InputError, match="has an entity made of other entities"):
        read(write("x.rdf", bomb.replace('Bé "x" y', "&j;")))


@pytest.mark.parametrize("name", ["x.nt", "x.ttl"])
def test_a_file_without_triples_is_said_to_be_empty(write: Write, name: str) -> None:
    with pytest.raises(InputError, match="is empty: no triple"):
        read(write(name, b"# nothing\n"))


def test_without_pyoxigraph_a_sentence_says_what_to_install(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(InputError, match=r"pip install 'compgcn\[rdf\]'"):
        read(write("g.nt", NT))


def broken(name: str) -> st.SearchStrategy[tuple[str, bytes]]:
    """The content of a file with a piece replaced by other bytes."""
    whole = SYNTAXES[name].encode()
    place = st.integers(0, len(whole))
    return st.tuples(place, place, st.binary(max_size=8)).map(
        lambda cut: (name, whole[: min(cut[:2])] + cut[2] + whole[max(cut[:2]) :])
    )


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(list(SYNTAXES)).flatmap(broken))
@example(("g.xml", b"<"))
def test_any_bytes_give_a_graph_or_one_input_error(case: tuple[str, bytes]) -> None:
    name, content = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        with contextlib.suppress(InputError):
            assert read(path, literals="nodes").statistics()["triples"] > 0


LABELLED = """@prefix : <http://x/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:a :knows :b ; rdfs:label "Anne"@fr, "Ann"@en, "Ann O."@en-GB .
:b :knows [ rdfs:label "someone" ] ; rdfs:label "Bo"@en, "Pérson 5" ; :age 7 .
:c :knows :a ; rdfs:label " " .
:knows rdfs:label "kennt"@de, "knows"@EN-us .
:nobody rdfs:label "Nemo" .
"""


@pytest.mark.parametrize("literals", ["drop", "keep"])
def test_labels_are_names_those_without_a_language_or_in_english_first(write: Write, literals: str) -> None:
    graph = read(write("g.ttl", LABELLED), literals=literals)
    names = dict(zip(graph.entities.ids, graph.entities.names, strict=True))
    assert names == {"http://x/a": "Ann", "http://x/b": "Pérson 5", "http://x/c": "http://x/c", "_:b0": "someone"}
    assert graph.relations.names == ("knows",)
    assert "names of 3 entities and 1 relation taken from rdfs:label; --names gives others" in graph.notes
    assert not any("--names gives readable" in note for note in graph.notes)
    own = read(write("g.ttl", LABELLED), literals=literals, names=write("n.tsv", "http://x/a\tA\n"))
    assert dict(zip(own.entities.ids, own.entities.names, strict=True))["http://x/b"] == "http://x/b"
    assert own.fingerprint() == graph.fingerprint()
    assert not any("rdfs:label" in note for note in own.notes)
    assert read(write("g.ttl", LABELLED), literals="nodes").entities.names[0] == "Ann"
