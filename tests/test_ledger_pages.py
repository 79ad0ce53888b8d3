"""The page for approval of every system, read as text: each note has its section, and each sentence is plain."""

import ast
import html.parser
import math
from pathlib import Path

import pytest
from support.data import rated
from support.models import gather
from support.plain_text import faults_of

from fastfedrec import DPGram, Key, PrivateRecommender
from fastfedrec.accounting import NOTE_KINDS, Ledger, Unprotected
from fastfedrec.accounting.report import make_report
from fastfedrec.accounting.views import OBSERVERS
from fastfedrec.cli.main import main
from fastfedrec.datasets import generate_implicit

PACKAGE = Path(__file__).resolve().parents[1] / "fastfedrec"
# These copy notes with their kinds.
COPIES = {"accounting/ledger.py", "rounds/run_account.py", "systems/_transaction.py"}
HEADINGS = {
    "guarantee": "Guarantees",
    "choice": "Choices of the run",
    "assumption": "Assumptions",
    "not covered": "Not covered",
}
#: Classes that state a nominal epsilon of their own.
WITH_CLAIM = {
    "DPALS", "DPFMF", "DPGram", "DPSubspace", "PrivateRecommender", "ShuffledGram", "ShuffledSketchGram",
}  # fmt: skip


#: Every system and baseline, and further settings with a guarantee.
SETTINGS = gather("small") | {
    f"{field}: {name}": model
    for field in ("private", "private_for_users", "private_values")
    for name, model in gather(field).items()
}


class Sections(html.parser.HTMLParser):
    """The paragraphs and entries of lists below each heading of a page."""

    def __init__(self, page):
        super().__init__()
        self.texts, self.heading, self.open = {}, "Verdict", None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "h2":
            self.heading = ""
            self.open = "h2"
        # The line about the model, labels and fields to fill in are not sentences.
        elif tag in ("p", "li") and dict(attributes).get("class") not in ("about", "label"):
            self.open = tag
            self.texts.setdefault(self.heading, []).append("")

    def handle_endtag(self, tag):
        if tag == self.open:
            self.open = None

    def handle_data(self, data):
        if self.open == "h2":
            self.heading += data
        elif self.open:
            self.texts[self.heading][-1] += data


@pytest.fixture(scope="module", params=SETTINGS)
def model(request):
    return SETTINGS[request.param].fit(rated(80, 50, 1), key=Key.from_seed(2))


def page_of(model, tmp_path):
    """Return the sections of the page that the command writes for a saved model."""
    model.save(tmp_path / "model.npz", include_users=False)
    assert main(["ledger", str(tmp_path / "model.npz"), "--html", str(tmp_path / "page.html")]) == 0
    return Sections((tmp_path / "page.html").read_text(encoding="utf-8")).texts


# ---- oracle --------------------------------------------------------------------------------------------------------


def test_each_note_of_each_system_has_its_section_and_plain_sentences(model, tmp_path):
    sections = page_of(model, tmp_path)
    has_figure = any(math.isfinite(model.ledger_.epsilon(view)) for view in OBSERVERS)
    headings = HEADINGS if has_figure else HEADINGS | {"guarantee": "Notes on single runs and events"}
    for note in model.ledger_.notes:
        assert note.kind in HEADINGS, note
        assert [heading for heading, texts in sections.items() if note in texts] == [headings[note.kind]]
        assert faults_of(note) == []
        # A sentence that promises an epsilon is a guarantee, and no other note promises one.
        assert ("guarantees epsilon" not in note) or note.kind == "guarantee"
    has_claim = any("guarantees epsilon" in text for text in sections.get("Guarantees", ()))
    if type(model).__name__ in WITH_CLAIM:
        assert has_claim
    if all(math.isinf(model.ledger_.epsilon(view)) for view in OBSERVERS):
        assert not has_claim


def test_each_sentence_of_each_page_is_plain(model, tmp_path):
    sections = page_of(model, tmp_path)
    texts = [text for heading in sections for text in sections[heading]]
    assert len(texts) > 20
    assert [fault for text in texts for fault in faults_of(text)] == []


# ---- invariants ----------------------------------------------------------------------------------------------------


def notes_without_kind(path):
    """Return the lines of calls of `note` without a kind."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "note"
        and not (len(node.args) == 2 and isinstance(node.args[1], ast.Constant) and node.args[1].value in HEADINGS)
    ]


def test_every_call_in_the_package_states_its_kind():
    missing = {
        path.relative_to(PACKAGE).as_posix(): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if (lines := notes_without_kind(path))
    }
    assert missing.keys() == COPIES
    assert set(HEADINGS) | {"remark"} == set(NOTE_KINDS)


def texts_of_notes(path):
    """Yield the literal texts of notes, with a number for each inserted value."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "note" and node.args:
            (text, *_) = node.args
            if isinstance(text, ast.Constant):
                yield text.value
            elif isinstance(text, ast.JoinedStr):
                values = (part.value if isinstance(part, ast.Constant) else "7" for part in text.values)
                yield "".join(values).removesuffix(" 7")  # a whole sentence may be inserted at the end


def test_texts_of_rare_notes_are_plain():
    """Notes of deployments, failures and features, which the fits above do not make."""
    texts = [text for path in sorted(PACKAGE.rglob("*.py")) for text in texts_of_notes(path)]
    assert len(texts) > 25
    assert [fault for text in texts for fault in faults_of(text)] == []


def test_a_call_without_a_kind_is_found(tmp_path):
    file = tmp_path / "sample.py"
    file.write_text('ledger.note("text", "choice")\nledger.note("text")\nledger.note("text", "remark")\n')
    assert notes_without_kind(file) == [2, 3]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Not covered by any epsilon.", "a fragment"),
        ("Of all users the items are sent.", "a fragment"),
        ("the items are sent.", "no capital letter"),
        ("The items are sent", "no full stop"),
        ("Nothing is sent.", "nothing"),
        ("A user is heard by others.", "hear"),
        (" ".join(["The items are sent, and"] * 8) + " so on.", "too long"),
    ],
)
def test_faults_of_sentences_are_found(text, fault):
    assert [line.split(":")[0] for line in faults_of(f"The items are sent. {text}")] == [fault]


def test_a_guarantee_in_another_section_is_found():
    """A note with the wrong kind is not in the section of guarantees."""
    ledger = Ledger()
    ledger.record(Unprotected("counts"))
    ledger.note("DPGram guarantees epsilon 1.", "not covered")
    sections = dict(make_report(ledger, None).sections)
    assert "Guarantees" not in sections
    assert "DPGram guarantees epsilon 1." in sections["Not covered"][0].texts


@pytest.mark.parametrize(("delta", "has_meaning"), [(1 / 200, False), (1 / 2000, True)])
@pytest.mark.parametrize("kind", [DPGram, PrivateRecommender])
def test_no_guarantee_is_useful_with_a_delta_of_one_over_the_number_of_users(kind, delta, has_meaning, tmp_path):
    data, path = generate_implicit(200, 40, key=Key.from_seed(1)), tmp_path / "page.md"
    kind(epsilon=1.0, delta=delta).fit(data, key=Key.from_entropy()).ledger_.report(path)
    page = path.read_text()
    assert page.startswith("**No useful guarantee holds: delta is too large.**") != has_meaning
    assert ("A privacy notice must not claim differential privacy" in page) != has_meaning
    assert page.count("is not below one over the number of users (200)") == (not has_meaning)
