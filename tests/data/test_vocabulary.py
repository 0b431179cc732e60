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
    for text in ("d3", ""):
        with pytest.raises(InputError, match="unknown entity"):
            vocabulary.index(text)


def test_an_id_wins_over_a_name() -> None:
    assert Vocabulary("entity", ["a", "b"], ["b", "c"]).index("b") == 1


def test_case_is_forgiven_where_only_one_row_can_be_meant() -> None:
    vocabulary = Vocabulary("entity", ["Q1", "Q2", "Q3"], ["Paris", "Rome", "rome"])
    assert vocabulary.index("PARIS") == vocabulary.index("q1") == 0
    with pytest.raises(InputError, match="'Q2', 'Q3'"):
        vocabulary.index("ROME")


def test_accents_may_be_left_out_where_only_one_row_can_be_meant() -> None:
    vocabulary = Vocabulary("entity", ["Q1", "Q2", "Q3", "Q4"], ["José Ferrer", "Łódź Café", "René", "Rene"])
    assert vocabulary.index("jose ferrer") == vocabulary.index("JOSE\u0301 FERRER") == 0
    assert vocabulary.index("łodz cafe") == 1
    assert vocabulary.index("rené") == 2, "what is written so comes first"
    assert vocabulary.index("rene") == 3
    with pytest.raises(InputError, match="'Q3', 'Q4'"):
        vocabulary.index("renè")


def test_spaces_around_a_name_may_be_left_out_where_only_one_row_can_be_meant() -> None:
    vocabulary = Vocabulary("relation", [" Werkstoff ", "Größe", "a", " a", "  "])
    assert vocabulary.index("Werkstoff") == vocabulary.index("werkstoff ") == 0
    assert vocabulary.index(" grosse") == 1
    assert (vocabulary.index("a"), vocabulary.index(" a")) == (2, 3), "what is written so comes first"
    with pytest.raises(InputError, match="'a', ' a'"):
        vocabulary.index("a ")
    with pytest.raises(InputError, match="unknown relation"):
        vocabulary.index("")


def test_a_shared_name_is_answered_with_the_first_ten_ids_that_bear_it() -> None:
    listed = ", ".join(f"'Q{i}'" for i in range(10))
    with pytest.raises(InputError, match=f"'x' is shared by 30 ids: {listed} and 20 more; give the id"):
        Vocabulary("entity", [f"Q{i}" for i in range(30)], ["x"] * 30).index("x")


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="unknown entity 'Frence'; did you mean 'France'"):
        Vocabulary("entity", ["Q1", "Q2"], ["France", "Spain"]).index("Frence")


def test_a_repeated_id_is_refused() -> None:
    with pytest.raises(InputError, match="relation id 'b' occurs more than once"):
        Vocabulary("relation", ["a", "b", "b"])
