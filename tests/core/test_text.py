"""Text for a terminal: its width, escaped control characters, and suggestions for misspelt names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec.core.text import did_you_mean, fold, format_table, printable, tables_within

WORDS = st.text(st.characters(whitelist_categories=["Ll", "Nd"], max_codepoint=0x24F), min_size=1, max_size=9)
CELLS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)
TABLES = st.integers(1, 4).flatmap(
    lambda n: st.tuples(
        st.lists(CELLS, min_size=n, max_size=n), st.lists(st.lists(CELLS, min_size=n, max_size=n), max_size=4)
    )
)


# ---- oracle --------------------------------------------------------------------------------------------------------


def test_a_table_as_it_wants_and_as_the_terminal_has_room():
    table = ("protected from", "epsilon"), [("the server, behind a shuffler", "2.5"), ("the public", "10")]
    assert format_table(*table) == (
        "protected from                 epsilon\n-----------------------------  -------\n"
        "the server, behind a shuffler      2.5\nthe public                          10"
    )
    with tables_within(25):
        assert format_table(*table) == (
            "protected from    epsilon\n----------------  -------\nthe server,           2.5\nbehind a\nshuffler\n"
            "the public             10"
        )
    with tables_within(12):
        assert format_table(*table) == (
            "protected\nfrom: the\nserver,\nbehind a\nshuffler\nepsilon: 2.5\n\n"
            "protected\nfrom: the\npublic\nepsilon: 10"
        )
    assert format_table(*table).count("\n") == 3  # the limit ends with the block


def test_letters_that_take_two_columns_and_none():
    lines = format_table(("name", "n"), [("日本語", 1), ("e\u0301", 2), ("plain", 3)]).splitlines()
    assert lines[2:] == ["日本語  1", "e\u0301       2", "plain   3"]


@pytest.mark.parametrize(
    ("given_name", "known", "meant"),
    [
        ("epsilom", ["epsilon", "delta"], "epsilon"),
        ("DP-Grm", ["dp-gram", "fmf-ldp"], "dp-gram"),
        ("n-factor", ["n_factors", "n_rounds"], "n_factors"),
        ("svd", ["fmf-ldp", "ease"], None),
        ("e" * 10**6, ["e" * 10**6 + "f"], None),  # a long name from a file takes no time
    ],
)
def test_what_was_meant(given_name, known, meant):
    assert did_you_mean(given_name, known) == (f" (did you mean {meant!r}?)" if meant else "")


def test_a_part_of_few_names_means_each_of_them():
    known = ["fmf-ldp", "dp-fmf", "dplcf", *(f"item-{i}" for i in range(4))]
    assert did_you_mean("fmf", known) == " (did you mean 'fmf-ldp' or 'dp-fmf'?)"
    # More names than three are no help, and the nearest one is.
    assert did_you_mean("item", known).count("item-") == 1


# ---- invariants ----------------------------------------------------------------------------------------------------


@given(TABLES, st.integers(10, 60))
def test_no_table_is_wider_than_the_terminal_and_no_word_is_lost(table, columns):
    with tables_within(columns):
        text = format_table(*table)
    longest = max(len(word) for word in re.split(r"\s+", text) if not set(word) <= {"-"})
    assert max(map(len, text.split("\n"))) <= max(columns, longest + 1)  # a heading's last word has a colon in lists
    shown = sorted(re.split(r"[\s:]+", text))
    for word in {word for cells in [*table[1], table[0]] for cell in cells for word in cell.split()}:
        assert word in shown or f"{word}," in shown


@given(st.lists(CELLS, max_size=5), st.integers(12, 60))
def test_folded_lines_fit_and_say_the_same(lines, columns):
    text = "\n".join(f"  {line}" for line in lines)
    folded = fold(text, columns)
    assert folded.split() == text.split()
    assert all(len(line) <= columns for line in folded.split("\n"))
    assert fold(text, None) == text


@given(st.text(), st.text())
def test_nothing_printable_acts_on_a_terminal(one, two):
    for text in (printable(one), format_table((one, "b"), [(two, 1)])):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert format_table((one, "b"), [(two, 1)]).count("\n") == 2


@given(st.text(st.characters(whitelist_categories=["L", "N", "P", "S"])))
def test_what_a_terminal_shows_stays_as_it_is(text):
    assert printable(text) == text


# ---- bad inputs ----------------------------------------------------------------------------------------------------


def test_names_that_clear_a_screen_or_turn_letters_about_are_shown():
    assert printable("a\x1b[2Jb") == r"a\x1b[2Jb"
    assert printable("epsilon \u202e01") == r"epsilon \u202e01"
    assert printable("half a letter \ud800") == r"half a letter \ud800"
    assert printable("two\nlines\r") == "two\nlines\\r"
    assert format_table(("a",), [("two\nlines",)]).splitlines()[2:] == [r"two\nlines"]
