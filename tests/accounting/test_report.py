"""A report states all that its ledger proves, in its first line if there is no guarantee, and no injected text."""

import html.parser
import importlib.util
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec import Key, Popularity, datasets
from fastfedrec.accounting import (
    CentralRelease,
    DiscreteGaussianRelease,
    Gaussian,
    GaussianShares,
    Laplace,
    Ledger,
    LocalReports,
    PLDAccountant,
    ShuffledCounts,
    ShuffledReports,
    Unprotected,
    ZCDPAccountant,
)
from fastfedrec.accounting.events import ZCDP
from fastfedrec.accounting.notes import NOTE_KINDS
from fastfedrec.accounting.views import OBSERVERS, VIEWS, cost_of, stated_cost
from fastfedrec.core.text import format_epsilon

NODES = GaussianShares(9.0, neighboring="replace", sampling="none", n_nodes=1000, n_answers=900, honest_fraction=0.7)
LOCAL = LocalReports("binary response", 0.5, 2, 50_000, separable=True)
CENTRAL = Gaussian(8.0, neighboring="zero_out", sampling="none")
COUNTS = ShuffledCounts("counts of messages", 0.5, 45, 5_000, neighboring="zero_out")
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
        ledger.note(*note)
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


@pytest.mark.parametrize("events", [[event] for event in [*EVENTS, NODES]] + [[LOCAL, CENTRAL]], ids=str)
def test_every_figure_is_the_ledgers(events, tmp_path):
    ledger = ledger_of(*events)
    page, markdown = pages(ledger, tmp_path)
    text = Seen(page).text
    for view in OBSERVERS:
        name = VIEWS[view]
        cost = stated_cost(ledger.events, view, ledger.delta)
        assert cost.epsilon == ledger.epsilon(view)
        if view == "shuffled_server" and cost == stated_cost(ledger.events, "server", ledger.delta):
            assert name[0].upper() + name[1:] not in text  # a shuffler would change nothing
            continue
        shown = "no guarantee" if math.isinf(cost.epsilon) else f"{format_epsilon(cost.epsilon)} delta {cost.delta:g}"
        start = text.index(name[0].upper() + name[1:], text.index("Figures for each observer"))
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
        (ledger_of(Unprotected("exact item counts")), "No guarantee holds: the recorded events"),
        (ledger_of(LOCAL, Unprotected("exact item counts")), "No guarantee holds: the recorded events"),
        (ledger_of(LocalReports("response", 2.5, 100, 50)), "No useful guarantee holds"),
        (ledger_of(CENTRAL), "A guarantee holds against the public, which sees releases (epsilon "),
        (
            ledger_of(LOCAL),
            "A guarantee holds against the server, which sees each sender (epsilon 1.0000 at delta 0).",
        ),
        (ledger_of(CENTRAL, simulation=True), "This simulation has no guarantee"),
        (ledger_of(LOCAL, simulation=True), "This simulation has no guarantee"),
    ],
)
def test_the_first_line_states_the_guarantee_and_no_larger_one(ledger, first, tmp_path):
    page, markdown = pages(ledger, tmp_path)
    assert first_line(markdown).startswith(first)
    label, verdict, *_ = Seen(page).texts
    assert verdict.startswith(first)
    assert (label == "No guarantee") == first.startswith(("No guarantee", "This simulation"))


def test_whoever_is_not_protected_is_named(tmp_path):
    for ledger, unprotected in (
        (ledger_of(CENTRAL), ["server", "key_holder"]),
        (ledger_of(LOCAL), ["key_holder"]),
    ):
        page, _ = pages(ledger, tmp_path)
        lines = [text for text in Seen(page).texts if text.startswith("No guarantee holds against")]
        assert [[view for view in VIEWS if VIEWS[view] in line] for line in lines] == [unprotected]


def sections_of(markdown):
    """Return the text below each heading."""
    return {heading: text for heading, _, text in (part.partition("\n") for part in markdown.split("\n## ")[1:])}


def test_each_note_is_in_the_section_of_its_kind(tmp_path):
    data = datasets.generate_implicit(200, 50, key=Key.from_seed(1))
    ledger = Popularity().fit(data).ledger_
    headings = {
        "guarantee": "Notes on single runs and events",  # the ledger has no guarantee as a whole
        "choice": "Choices of the run",
        "assumption": "Assumptions",
        "not covered": "Not covered",
        "remark": "Remarks without a kind",
    }
    assert headings.keys() == NOTE_KINDS.keys()
    for kind in headings:
        # The words of a text have no effect on its section.
        ledger.note(f"this {kind} is not covered and not protected", kind)
    _, markdown = pages(ledger, tmp_path, about="Popularity()")
    sections = sections_of(markdown)
    for kind, heading in headings.items():
        sentence = f"This {kind} is not covered and not protected."
        assert [name for name, text in sections.items() if sentence in text] == [heading]
    assert 'The event "exact item counts" has no protection.' in sections["Not covered"]
    for always in ("settings that were chosen by them", "Exact counts in logs", "list of items", "participation"):
        assert always in sections["Not covered"]
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
            ledger_of(Unprotected(inserted), replace(LOCAL, mechanism=inserted), notes=[(inserted, "choice")]),
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
    ledger, plain = (ledger_of(Unprotected("counts"), notes=[(f"remark {inserted}.",)]) for inserted in (text, "x"))
    with tempfile.TemporaryDirectory() as folder:
        (page, markdown), (plain_page, plain_markdown) = pages(ledger, Path(folder)), pages(plain, Path(folder))
    assert Seen(page).tags == Seen(plain_page).tags
    assert markdown.count("\n") == plain_markdown.count("\n")


def test_a_page_needs_and_runs_nothing(tmp_path):
    page, _ = pages(ledger_of(*EVENTS[:3]), tmp_path)
    for tag, attributes in Seen(page).tags:
        assert tag not in {"script", "link", "img", "iframe", "a", "object", "form"}
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attributes)
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_the_digest_is_of_the_content(tmp_path):
    ledger = ledger_of(LOCAL, CENTRAL, notes=[("one", "choice")])
    same = Ledger.from_json(ledger.to_json())
    assert same.digest() == ledger.digest()
    other_ledgers = [
        ledger_of(LOCAL, CENTRAL),
        ledger_of(CENTRAL, LOCAL, notes=[("one", "choice")]),
        ledger_of(LOCAL, CENTRAL, notes=[("one", "not covered")]),
        ledger_of(LOCAL, CENTRAL, notes=[("one",)]),
        ledger_of(LOCAL, CENTRAL, CENTRAL),
    ]
    other_ledgers += [
        ledger_of(LOCAL, CENTRAL, notes=[("one", "choice")], simulation=True),
        ledger_of(replace(LOCAL, epsilon=0.6), CENTRAL, notes=[("one", "choice")]),
    ]
    other = Ledger.from_json(ledger.to_json())
    other.delta = 1e-7
    assert len({ledger.digest(), *(changed.digest() for changed in [*other_ledgers, other])}) == len(other_ledgers) + 2


def test_a_delta_without_a_meaning_is_stated(tmp_path):
    for delta, is_stated in ((1e-3, True), (1e-4, False)):
        # The event has 1,000 users.
        ledger = ledger_of(EVENTS[3])
        ledger.delta = delta
        _, markdown = pages(ledger, tmp_path)
        assert ("is not below one over the number of users" in markdown) == is_stated


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


# ---- promises to a reader without a theory of privacy --------------------------------------------------------------


def notice_of(ledger, folder):
    """Return the paragraph for a privacy notice."""
    _, markdown = pages(ledger, folder)
    return sections_of(markdown)["Paragraph for a privacy notice"].strip().split("\n\n")[0]


@pytest.mark.parametrize(
    ("event", "condition"),
    [
        (CENTRAL, "does not protect your data from our server"),
        (LOCAL, "if your device adds the noise before it sends"),
        (ShuffledReports("binary response", 2.5, 5, 50_000), "an independent party removes the senders"),
        (
            ShuffledReports("binary response", 2.5, 5, 50_000, honest_fraction=0.9),
            "This holds if at least 90% of the users follow the protocol.",
        ),
        (COUNTS, "if users' devices send fake messages, and an independent party mixes all messages"),
        (replace(COUNTS, honest_fraction=0.9), "This holds if at least 90% of the users follow the protocol."),
        (
            NODES,
            "This holds if at least 70% of the devices or organizations that add noise keep it secret.",
        ),
        (Laplace(2.0, neighboring="replace", sampling="none", trust="entity"), "the organization that collected them"),
    ],
    ids=["central", "local", "shuffle", "dishonest users", "counts", "dishonest senders", "nodes", "entity"],
)
def test_a_notice_states_the_condition_of_its_promise(event, condition, tmp_path):
    notice = notice_of(ledger_of(event), tmp_path)
    assert condition in notice
    assert "Each further model from your data adds to epsilon." in notice
    assert "Recommendations that are made for you are not covered." in notice


def test_a_notice_of_a_budget_states_its_limit(tmp_path):
    """Releases may choose later fits, and later fits cost more, so that the figure of today is no limit."""
    ledger = Ledger(budget=4.0)
    ledger.record(CENTRAL)
    notice = notice_of(ledger, tmp_path)
    assert "epsilon 4.000 at delta 1e-06. This is the limit for all our models together." in notice
    ledger = Ledger(budget=40.0)  # a limit without use, so that the figure of today is stated
    ledger.record(CENTRAL)
    assert "Each further model from your data adds to epsilon." in notice_of(ledger, tmp_path)


def test_a_page_with_a_budget_states_the_effect_of_earlier_releases(tmp_path):
    ledger = Ledger(budget=4.0)
    ledger.record(CENTRAL)
    assumed = sections_of(pages(ledger, tmp_path)[1])["Assumptions"]
    assert "is such an effect. The epsilon of the budget holds then too." in assumed
    # Gaussian noise has no figure at delta 0.
    assert "Figures at delta 0" not in assumed
    assert "Figures at delta 0 hold then too." in sections_of(pages(ledger_of(EVENTS[1]), tmp_path)[1])["Assumptions"]


@pytest.mark.parametrize(("event", "is_stated"), [(LOCAL, True), (EVENTS[1], True), (CENTRAL, False)])
def test_a_page_states_that_one_process_sees_all_data(event, is_stated, tmp_path):
    ledger = ledger_of(event)
    _, markdown = pages(ledger, tmp_path)
    text = "A process that fits all users' data sees them, and no figure holds against a party with access to it."
    assert (text in markdown) == (text in ledger.summary()) == is_stated
    assert ("no other machine read the data" in sections_of(markdown)["Checklist"]) == is_stated


def test_a_page_of_counts_states_its_shuffler_and_no_noise_of_devices(tmp_path):
    ledger = ledger_of(replace(COUNTS, honest_fraction=0.8))
    _, markdown = pages(ledger, tmp_path)
    sections = sections_of(markdown)
    for text in (
        "a shuffler that mixes all messages of a round and reveals no sender",
        "The shuffler is trusted with the data: it can read messages",
        "The honest users must send their fake messages",
    ):
        assert text in sections["Assumptions"]
        assert text in ledger.summary()
    assert "At least 80% of the users follow the protocol" in sections["Assumptions"]
    assert "The devices of users added the fake messages" in sections["Checklist"]
    for text in ("adds the noise before it sends a report", "sums of reports", "no two reports can be linked"):
        assert text not in markdown
    assert "noise was added on the devices" not in sections["Checklist"]
    assert "device adds the noise" not in sections["Paragraph for a privacy notice"]
    # With reports of noise the page states both kinds of conditions.
    both = pages(ledger_of(COUNTS, EVENTS[1]), tmp_path)[1]
    assert "adds the noise before it sends a report" in both
    assert "reveals no sender" in both


def test_counts_without_a_figure_have_no_conditions():
    text = "reveals no sender"
    assert text in ledger_of(COUNTS).summary()
    assert text not in ledger_of(COUNTS, Unprotected("exact item counts")).summary()


def test_a_page_states_the_cost_of_several_ids_and_runs(tmp_path):
    sections = sections_of(pages(ledger_of(CENTRAL, notes=[("It guarantees 1.", "guarantee")]), tmp_path)[1])
    assert "A person with several ids has a larger epsilon" in sections["Assumptions"]
    assert "Each person has one id in the data." in sections["Checklist"]
    assert "A guarantee of a system is for one run of it." in sections["Guarantees"]
    assert "nearly the same" not in sections["Protected data"]


def test_a_delta_that_allows_to_publish_a_user_is_no_useful_guarantee(tmp_path):
    for delta, is_useful in ((1e-3, False), (1e-5, True)):
        ledger = ledger_of(EVENTS[3])
        ledger.delta = delta
        _, markdown = pages(ledger, tmp_path)
        assert first_line(markdown).startswith("No useful guarantee holds: delta is too large.") != is_useful
        sections = sections_of(markdown)
        assert ("must not claim" in sections["Paragraph for a privacy notice"]) != is_useful
        assert ("Do not approve a promise of privacy" in sections["Checklist"]) != is_useful
        assert ("Delta 1e-05 needs far fewer than 100,000 users." in markdown) == is_useful


def test_a_page_without_a_guarantee_presents_no_note_as_one(tmp_path):
    note = ("The figures of the values are for the user with the most ratings.", "guarantee")
    noisy, exact = CENTRAL, Unprotected("which items each user has rated")
    page = sections_of(pages(ledger_of(noisy, exact, notes=[note]), tmp_path)[1])
    assert "Guarantees" not in page
    assert "one run or one event alone" in page["Notes on single runs and events"]
    assert "these figures are no guarantee for a user" in page["Protected data"]
    assert "figures of their own" not in sections_of(pages(ledger_of(exact), tmp_path)[1])["Protected data"]
    # With a guarantee, the note is one.
    page = sections_of(pages(ledger_of(noisy, notes=[note]), tmp_path)[1])
    assert note[0] in page["Guarantees"]
    assert "Notes on single runs and events" not in page
