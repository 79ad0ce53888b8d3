"""A report states all that its ledger proves, in its first line if there is no guarantee, and no injected text."""

import html.parser
import importlib.util
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec import Key, Popularity, datasets
from fastfedrec.accounting import (
    CentralRelease,
    DiscreteGaussianRelease,
    Gaussian,
    Laplace,
    Ledger,
    LocalReports,
    PLDAccountant,
    ShuffledReports,
    Unprotected,
    ZCDPAccountant,
)
from fastfedrec.accounting.events import ZCDP
from fastfedrec.accounting.views import VIEWS, cost_of, stated_cost
from fastfedrec.core.text import format_epsilon

LOCAL = LocalReports("binary response", 0.5, 2, 50_000, separable=True)
CENTRAL = Gaussian(8.0, neighboring="zero_out", sampling="none")
EVENTS = [
    LOCAL,
    ShuffledReports("binary response", 0.5, 2, 50_000, honest_fraction=0.996, neighboring="zero_out"),
    CENTRAL,
    Gaussian(4.0, neighboring="replace", sampling="without_replacement", n_users=1000, cohort_size=10),
    Laplace(2.0, neighboring="add_remove", sampling="none", trust="entity"),
    CentralRelease("item counts", 1.0),
    ZCDP("sums", 0.01, neighboring="zero_out", sampling="none"),
    DiscreteGaussianRelease(40.0, 1, neighboring="add_remove", sampling="none"),
]


def ledger_of(*events, notes=(), simulation=False):
    ledger = Ledger()
    for event in events:
        ledger.record(event, simulation=simulation)
    for note in notes:
        ledger.note(note)
    return ledger


def pages(ledger, folder, **options):
    """Return the texts of both forms."""
    cost = []
    for name in ("report.html", "report.md"):
        ledger.report(folder / name, **options)
        cost.append((folder / name).read_text(encoding="utf-8"))
    return cost


class Seen(html.parser.HTMLParser):
    """The content of a page for a browser: its tags with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.is_style = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, tuple(attributes)))
        self.is_style = tag in ("style", "title")

    def handle_endtag(self, tag):
        self.is_style = False

    def handle_data(self, data):
        if not self.is_style and data.strip():
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def first_line(page):
    """Return the verdict of a page of Markdown."""
    return page.split("\n", 1)[0].strip("*")


# ---- oracle --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [[event] for event in EVENTS] + [[LOCAL, CENTRAL]], ids=str)
def test_every_figure_is_the_ledgers(events, tmp_path):
    ledger = ledger_of(*events)
    page, markdown = pages(ledger, tmp_path)
    text = Seen(page).text
    for view, name in VIEWS.items():
        cost = stated_cost(ledger.events, view, ledger.delta)
        assert cost.epsilon == ledger.epsilon(view)
        shown = "no guarantee" if math.isinf(cost.epsilon) else f"{format_epsilon(cost.epsilon)} delta {cost.delta:g}"
        start = text.index(name[0].upper() + name[1:])
        assert shown in text[start : start + 400]
    for event in events:
        assert event.mechanism in text
        assert event.mechanism in markdown


def test_a_cost_holds_at_its_delta_and_names_who_found_it():
    assert cost_of({LOCAL: 3}, "server", 0) == (3 * 2 * 0.5, 0.0, "sum")
    assert cost_of({LOCAL: 3}, "server", 1e-60) == (
        3 * 2 * 0.5,
        0.0,
        "sum",
    )  # a delta this small does not lower the figure
    run_cost = cost_of({LOCAL: 300}, "server", 1e-6)
    assert run_cost == (PLDAccountant().compose(LOCAL, 300).get_epsilon(1e-6), 1e-6, "PLDAccountant")
    assert stated_cost({LOCAL: 300}, "server", 1e-6) == run_cost
    round_cost = cost_of({LOCAL: 1}, "server", 1e-6)
    assert 0.9999 < round_cost.epsilon < 1.0
    assert stated_cost({LOCAL: 1}, "server", 1e-6) == (
        1.0,
        0.0,
        "sum",
    )  # the guarantee without a delta is stronger
    assert cost_of({CENTRAL: 1}, "server", 1e-6) == (math.inf, 1e-6, "none")
    cost = cost_of({EVENTS[-2]: 1}, "public", 1e-6)
    assert cost.delta == 1e-6
    assert cost.epsilon <= ZCDPAccountant().compose(replace(EVENTS[-2], neighboring="replace", rho=0.04)).get_epsilon(
        1e-6
    )


# ---- invariants ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ledger", "first"),
    [
        (ledger_of(), "No guarantee is stated: the ledger is empty."),
        (ledger_of(Unprotected("exact item counts")), "No guarantee: nothing here protects"),
        (ledger_of(LOCAL, Unprotected("exact item counts")), "No guarantee: nothing here protects"),
        (ledger_of(LocalReports("response", 2.5, 100, 50)), "No useful guarantee"),
        (ledger_of(CENTRAL), "Guaranteed against the public, seeing what is released (epsilon "),
        (
            ledger_of(LOCAL),
            "Guaranteed against the server, seeing who sent what (epsilon 1.0000 at delta 0); ",
        ),
        (ledger_of(CENTRAL, simulation=True), "Simulation, no guarantee"),
        (ledger_of(LOCAL, simulation=True), "Simulation, no guarantee"),
    ],
)
def test_the_first_line_says_what_there_is_and_never_more(ledger, first, tmp_path):
    page, markdown = pages(ledger, tmp_path)
    assert first_line(markdown).startswith(first)
    label, said, *_ = Seen(page).texts
    assert said.startswith(first)
    assert (label == "No guarantee") == first.startswith(("No guarantee", "Simulation"))


def test_whoever_is_not_protected_is_named(tmp_path):
    for ledger, unprotected in (
        (ledger_of(CENTRAL), ["server", "shuffled_server", "key_holder"]),
        (ledger_of(LOCAL), ["key_holder"]),
    ):
        page, _ = pages(ledger, tmp_path)
        lines = [text for text in Seen(page).texts if text.startswith("No guarantee against")]
        assert [[view for view in VIEWS if VIEWS[view] in line] for line in lines] == [unprotected]


def test_every_remark_is_there_and_what_it_says_is_not_covered_stands_there(tmp_path):
    data = datasets.generate_implicit(200, 50, key=Key.from_seed(1))
    ledger = Popularity().fit(data).ledger_
    ledger.note("the list of items was taken from the data: not covered")
    ledger.note("only half of them were heard")
    _, markdown = pages(ledger, tmp_path, about="Popularity()")
    covered, after_limits = markdown.split("## What is not covered")[1].split("## What was done")
    assert "The list of items was taken from the data: not covered." in covered
    assert "Without any protection: exact item counts." in covered
    for always in ("chosen by looking at them", "Exact counts that are printed", "catalogue", "takes part"):
        assert always in covered
    assert "Only half of them were heard." in after_limits
    assert "Popularity()" in markdown
    assert ledger.digest() in markdown


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title><b>",
    "&lt;b&gt;",
    "a | b\n\n# heading\n- item\n1. one\n> quote\n```\ncode",
    "[click](http://evil.example) ![x](y) <http://evil.example> www.evil.example",
    "\u202egnp.exe \ud800 \x1b[2J\x00",
    "# heading",
    "- item",
    "12. item",
    "=== ",
    "{body} {0} %s $x^2$ `code` *bold* __bold__ ~~gone~~",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_a_tag_a_heading_or_a_link(text, tmp_path):
    """Texts are the name of a mechanism, a remark, and the title."""

    def parts(inserted):
        return pages(
            ledger_of(Unprotected(inserted), replace(LOCAL, mechanism=inserted), notes=[inserted]),
            tmp_path,
            about=inserted,
        )

    (page, markdown), (plain_page, plain_markdown) = parts(text), parts("plain")
    assert [tag for tag, _ in Seen(page).tags] == [tag for tag, _ in Seen(plain_page).tags]
    assert Seen(page).tags == Seen(plain_page).tags
    assert "script" not in {tag for tag, _ in Seen(page).tags}
    for line, plain in zip(markdown.splitlines(), plain_markdown.splitlines(), strict=True):
        assert line[:2].replace("\\", "") == plain[:2] or not plain[:1].isascii() or line[:1] not in "#->|=`"
        assert line.count("|") - line.count("\\|") == plain.count("|")
    assert "http://evil" not in markdown
    if importlib.util.find_spec("markdown_it"):
        from markdown_it import MarkdownIt

        render = MarkdownIt("commonmark").enable("table").render
        assert Seen(render(markdown)).tags == Seen(render(plain_markdown)).tags


@settings(max_examples=20)
@given(st.text(st.characters(), max_size=40))
def test_any_text_is_shown_and_nothing_else_changes(text):
    from fastfedrec.accounting._report import make_report
    from fastfedrec.accounting._report_pages import to_html, to_markdown

    ledger, plain = (ledger_of(Unprotected("counts"), notes=[f"remark {inserted}."]) for inserted in (text, "x"))
    seen = Seen(to_html(make_report(ledger, None)))
    assert seen.tags == Seen(to_html(make_report(plain, None))).tags
    assert to_markdown(make_report(ledger, None)).count("\n") == to_markdown(make_report(plain, None)).count("\n")


def test_a_page_needs_and_runs_nothing(tmp_path):
    page, _ = pages(ledger_of(*EVENTS[:3]), tmp_path)
    for tag, attributes in Seen(page).tags:
        assert tag not in {"script", "link", "img", "iframe", "a", "object", "form"}
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attributes)
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_the_digest_is_of_the_content(tmp_path):
    ledger = ledger_of(LOCAL, CENTRAL, notes=["one"])
    same = Ledger.from_json(ledger.to_json())
    assert same.digest() == ledger.digest()
    other_ledgers = [
        ledger_of(LOCAL, CENTRAL),
        ledger_of(CENTRAL, LOCAL, notes=["one"]),
        ledger_of(LOCAL, CENTRAL, CENTRAL),
    ]
    other_ledgers += [
        ledger_of(LOCAL, CENTRAL, notes=["one"], simulation=True),
        ledger_of(replace(LOCAL, epsilon=0.6), CENTRAL),
    ]
    other = Ledger.from_json(ledger.to_json())
    other.delta = 1e-7
    assert len({ledger.digest(), *(changed.digest() for changed in [*other_ledgers, other])}) == len(other_ledgers) + 2


def test_a_delta_that_promises_nothing_is_said(tmp_path):
    for delta, is_said in ((1e-3, True), (1e-4, False)):
        # The event has 1,000 users.
        ledger = ledger_of(EVENTS[3])
        ledger.delta = delta
        _, markdown = pages(ledger, tmp_path)
        assert ("is not below one over the number of people" in markdown) == is_said


# ---- bad inputs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["report.pdf", "report", "html"])
def test_other_endings_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"path must end in .html or .md"):
        Ledger().report(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_ordinary_file_is_not_replaced(tmp_path):
    (tmp_path / "link.html").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="link"):
        Ledger().report(tmp_path / "link.html")
