"""HTML in notebooks: no text adds a tag, and a parser reads back every cell."""

from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec import FMFLDP, Interactions, Key, Popularity, PrivRec
from fastfedrec.accounting import Ledger
from fastfedrec.core.html import html_card, html_page, html_table

HOSTILE = [
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    "\" onmouseover='alert(1)'",
    "&lt;b&gt; &#60;i&#62; &amp",
    "<!-- ",
    "]]><svg/onload=alert(1)>",
]


class Reader(HTMLParser):
    """Tags with attributes, and the text of each cell."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.opened, self.attributes, self.cells, self.others, self.inside = [], [], [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.opened.append(tag)
        self.attributes += attrs
        if tag in ("td", "th", "strong"):
            self.inside = ""

    def handle_endtag(self, tag):
        if tag in ("td", "th", "strong"):
            self.cells.append(self.inside)
            self.inside = None

    def handle_data(self, data):
        if self.inside is None:
            self.others.append(data)
        else:
            self.inside += data

    def handle_comment(self, data):
        self.others.append(data)

    handle_decl = unknown_decl = handle_pi = handle_comment


def read(text):
    result = Reader(text)
    assert result.attributes == []
    assert "".join(result.others).strip() == ""
    return result


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_a_card_by_hand():
    text = html_card("Model", {"n": 3}, html_table(["a", "b"], [(1, 2)]))
    assert text == (
        "<div><strong>Model</strong><table><tbody><tr><td>n</td><td>3</td></tr></tbody></table>"
        "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table></div>"
    )
    assert html_card("Model", {}) == "<div><strong>Model</strong></div>"


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_shown_as_they_are(text):
    result = read(html_card(text, {text: text}, html_table([text], [(text,)])))
    assert set(result.opened) == {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert result.cells == [text] * 5


def test_the_reader_sees_a_text_that_was_not_escaped():
    with pytest.raises(AssertionError):
        read(f"<table><tr><td>{HOSTILE[1]}</td></tr></table>")


def shown(value):
    """The facts of a card: cells, in pairs."""
    title, *cells = read(value._repr_html_()).cells
    return title, dict(zip(cells[::2], cells[1::2], strict=True))


@pytest.mark.parametrize("text", HOSTILE)
def test_whoever_names_a_column_an_id_or_a_mechanism_adds_no_tag(text):
    data = Interactions.from_arrays([text, "ann"], [text, 1], [2.0, 1.0]).with_features(user_features={text: [0, 1]})
    assert shown(data)[1]["user features"] == text
    title, facts = shown(PrivRec(features={"user": [text]}))
    assert title == "PrivRec"
    assert facts["features"] == repr({"user": [text]})
    ledger = Ledger()
    ledger.note(text)
    assert text in read(ledger._repr_html_()).cells


def test_what_is_shown_are_sizes_parameters_and_figures():
    data = Interactions.from_arrays(["ann", "bob", "ann"], [10, 10, 30])
    assert shown(data) == ("Interactions", {
        "users": "2", "items": "2 (catalogue: data)", "interactions": "3, 75.00% of all",
        "values": "none: each counts 1", "timestamps": "none", "user features": "none", "item features": "none",
    })  # fmt: skip
    timed = Interactions.from_arrays([1], [2], [3.5], timestamps=[4])
    assert shown(timed)[1]["values"] == "float32"
    assert shown(timed)[1]["timestamps"] == "with each interaction"
    no_users = data.select_users(np.zeros(0, dtype=np.int64))
    assert shown(no_users)[1]["interactions"] == "0, 0.00% of all"
    assert shown(Popularity()) == ("Popularity", {"data": "not fitted"})
    model = FMFLDP(n_rounds=2, n_reports=3).fit(data, key=Key.from_seed(1))
    cells = read(model._repr_html_()).cells
    assert "Interactions: 2 users x 2 items, 3 interactions" in cells
    assert cells[cells.index("epsilon") + 1] == "2.5"
    cells = read(model.ledger_._repr_html_()).cells
    assert cells[cells.index("the server, which sees each sender") + 1] == "15.00"
    assert cells[cells.index("times") + 2] == "2"


@given(st.lists(st.lists(st.text(max_size=200).map(lambda text: text.replace("\r", "")), min_size=2, max_size=2)))
def test_every_cell_is_read_back(rows):
    result = read(html_table(["one", "two"], rows))
    assert result.cells == ["one", "two", *(cell for row in rows for cell in row)]
    assert result.opened.count("td") == 2 * len(rows)


def test_what_is_long_is_cut():
    (cell,) = read(html_table([], [["<" * 5000]])).cells
    assert len(cell) == 200
    assert cell == "<" * 199 + "\N{HORIZONTAL ELLIPSIS}"


@pytest.mark.parametrize("text", HOSTILE)
def test_the_title_of_a_page_adds_nothing(text):
    reader, plain = Reader(html_page(text, "", "<p>body</p>")), Reader(html_page("", "", "<p>body</p>"))
    assert (reader.opened, reader.attributes) == (plain.opened, plain.attributes)
