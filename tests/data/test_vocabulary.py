"""A vocabulary answers with the row that was meant, or says why it cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compgcn.data import Vocabulary
from compgcn.data.vocabulary import folded
from compgcn.errors import InputError

texts = st.text(max_size=8)


@given(st.lists(texts, unique=True))
def test_every_id_is_found_at_its_own_row(ids: list[str]) -> None:
    vocabulary = Vocabulary("entity", ids)
    assert [vocabulary.index(text) for text in ids] == list(range(len(ids)))
    assert vocabulary.names == vocabulary.ids == tuple(ids)
    assert len(vocabulary) == len(ids)


@given(st.lists(st.tuples(texts, texts), unique_by=lambda pair: pair[0], min_size=1), texts)
def test_any_text_gives_a_row_that_bears_it_or_an_input_error(pairs: list[tuple[str, str]], text: str) -> None:
    vocabulary = Vocabulary("entity", [a for a, _ in pairs], [b for _, b in pairs])
    try:
        row = vocabulary.index(text)
    except InputError:
        assert text not in vocabulary.ids
        assert vocabulary.names.count(text) != 1
    else:
        labels = {vocabulary.ids[row], vocabulary.names[row]}
        alike = {form for label in labels for form in (folded(label), label.casefold())}
        trimmed = {folded(form.strip()).strip() for form in alike}
        assert folded(text) in alike or folded(text.strip()).strip() in trimmed or "://" in vocabulary.ids[row]


def test_the_end_of_an_iri_is_enough_where_only_one_ends_so() -> None:
    ids = ["http://a.org/x#d1", "http://a.org/d2", "http://b.org/d2", "folder/d3", "http://a.org/"]
    vocabulary = Vocabulary("entity", ids)
    assert vocabulary.index("d1") == 0
    assert Vocabulary("entity", [*ids, "D1"]).index("d1") == len(ids), "an id in another case comes first"
    with pytest.raises(InputError, match="is shared by 2 ids"):
        vocabulary.index("d2")
    iris = [f"http://ex.org/v#{end}" for end in ("worksOn", "Größe", "costs", "Costs")]
    some = Vocabulary("relation", iris)
    assert [some.index(text) for text in ("workson", " GROSSE", "costs", "Costs")] == [0, 1, 2, 3]
    with pytest.raises(InputError, match="'COSTS' is shared by 2 ids"):
        some.index("COSTS")
    with pytest.raises(InputError, match="unknown relation 'wrksOn'; did you mean 'worksOn'"):
        some.index("wrksOn")
    with pytest.raises(InputError, match=r"known: (http\S+, ){3}http\S+$"):
        Vocabulary("relation", iris).index("zzzzzz")
    with pytest.raises(InputError, match="'ea' is shared by 2 ids"):
        Vocabulary("entity", ["http://e/ea", "http://e/b"], ["Éa", "éa"]).index("ea")
    for text in ("d3", "", "\u0301"):
        with pytest.raises(InputError, match="unknown entity"):
            vocabulary.index(text)


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (["Paris", "Rome", "rome"], {"PARIS": 0, "q0": 0, "ROME": None}),
        (
            ["José Ferrer", "René", "Rene"],
            {"jose ferrer": 0, "JOSE\u0301 FERRER": 0, "rené": 1, "rene": 2, "renè": None},
        ),
        ([" Werkstoff ", "Größe", "a", " a"], {"werkstoff ": 0, " grosse": 1, "a": 2, " a": 3, "a ": None}),
        (["Q1", "b"], {"Q1": 1}),
        (["x"] * 30, {"x": None}),
    ],
    ids=["case", "accents", "spaces", "an id first", "shared"],
)
def test_a_text_may_differ_where_only_one_row_can_be_meant(names: list[str], rows: dict[str, int | None]) -> None:
    vocabulary = Vocabulary("entity", [f"Q{row}" for row in range(len(names))], names)
    for text, row in rows.items():
        if row is None:
            with pytest.raises(InputError, match=r"is shared by \d+ ids: 'Q.*; give the id"):
                vocabulary.index(text)
        else:
            assert vocabulary.index(text) == row
