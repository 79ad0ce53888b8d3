"""Pages of blocks: both formats have every text, in order, and no text adds structure."""

import html.parser

import pytest

from fastfedrec.core.pages import Checks, Meter, Meters, Page, Points, Table, write_page

HOSTILE = ["<b>bold</b>", "a | b", "# heading", "[link](http://evil.example)", "&amp;", "</p><script>", "- item"]


def page_of(text="text"):
    """Return a page with this text in each block."""
    meter = Meter(text, text, text, text, 0.75, text)
    blocks = (
        text,
        Points((text,)),
        Checks((text,)),
        Table((text,), ((text,),)),
        Meters(("a", "b", "c", "d", "e"), (meter,)),
    )
    return Page(text, text, "some", (text, text), ((text, blocks),), (text, text), ((text, (text,)),), text)


def written(page, folder):
    """Return the page as HTML and as Markdown."""
    texts = []
    for name in ("page.html", "page.md"):
        write_page(folder / name, page)
        texts.append((folder / name).read_text(encoding="utf-8"))
    return texts


class Elements(html.parser.HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.is_style = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, *attributes))
        self.is_style = tag in ("style", "title")

    def handle_endtag(self, tag):
        self.is_style = False

    def handle_data(self, data):
        if not self.is_style and data.strip():
            self.texts.append(data)


# ---- oracle --------------------------------------------------------------------------------------------------------


def test_markdown_by_hand(tmp_path):
    _, markdown = written(page_of("x"), tmp_path)
    assert markdown == (
        "**x**\n\nx\n\n# x\n\nx\n\n## x\n\nx\n\n- x\n\n- [ ] x\n\n| x |\n| --- |\n| x |\n\n"
        "| a | b | c | d | e |\n| --- | --- | --- | --- | --- |\n| x | x | x | x | x |\n\nx: x\n\n## x\n\nx\n\nx\n"
    )


def test_a_bar_is_half_full_between_a_coin_and_certainty(tmp_path):
    page, _ = written(page_of(), tmp_path)
    assert page.count('style="width:50.0%"') == 1


# ---- invariants ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_every_text_is_shown_and_none_is_a_tag(text, tmp_path):
    page, markdown = written(page_of(text), tmp_path)
    plain_page, plain_markdown = written(page_of(), tmp_path)
    seen, plain = Elements(page), Elements(plain_page)
    assert seen.tags == plain.tags
    assert seen.texts == [text if one == "text" else one for one in plain.texts]
    assert plain.texts.count("text") == 20
    assert markdown.count("\n") == plain_markdown.count("\n")
    assert "http://evil" not in markdown


def test_a_page_without_signature_has_none(tmp_path):
    page, markdown = written(Page("title", "", "none", ("first",), ()), tmp_path)
    assert 'class="sign"' not in page
    assert 'class="details"' not in page
    assert markdown == "**first**\n\n# title\n"


# ---- bad inputs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["page.pdf", "page", "html"])
def test_other_endings_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"path must end in .html or .md"):
        write_page(tmp_path / name, page_of())
    assert list(tmp_path.iterdir()) == []
