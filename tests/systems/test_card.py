"""Model cards of every system: public sizes only, the ledger's statements, and no injected text."""

import html.parser
import math
import re

import numpy as np
import pytest
from support.data import rated
from support.models import MODELS, new
from support.plain_text import faults_of

from fastfedrec import EASE, DPGram, DPPopularity, Interactions, Key, Popularity, load
from fastfedrec.accounting.views import OBSERVERS
from fastfedrec.cli.main import main
from fastfedrec.evaluation import LeaveOneOut, evaluate
from fastfedrec.mechanisms.item_choice import choose_items

pytestmark = pytest.mark.ignores_values

KEY = Key.from_seed(2)


def sections_of(model, folder, **options):
    """Return the first line of a card in Markdown, and its text below each heading."""
    model.card(folder / "card.md", **options)
    text = (folder / "card.md").read_text(encoding="utf-8").replace("\\", "")
    first, *parts = text.split("\n## ")
    return first, dict(part.split("\n", 1) for part in parts)


def clicks(n_users=300, item_ids=range(40)):
    users, items = np.nonzero(np.random.default_rng(1).random((n_users, 40)) < 0.2)
    return Interactions.from_arrays(users, items, user_ids=range(n_users), item_ids=item_ids)


# ---- oracle --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_card(name, tmp_path):
    model = new(MODELS[name]).fit(rated(80, 50, 1), key=KEY)
    first, sections = sections_of(model, tmp_path)
    model.card(tmp_path / "card.html")
    page = (tmp_path / "card.html").read_text(encoding="utf-8")
    assert f"# Model card: {type(model).__name__}" in first
    has_figure = any(math.isfinite(model.ledger_.epsilon(view)) for view in OBSERVERS) and model.ledger_.events
    assert ("no guarantee" in first.lower()) == (not has_figure or model.ledger_.is_simulation)
    for parameter, value in model.get_params().items():
        assert f"| {parameter} |" in sections["Parameters"]
        assert repr(value)[:1] in sections["Parameters"]
    for note in model.ledger_.notes:
        assert note in " ".join(sections[heading] for heading in sections)
    assert model.ledger_.digest() in page
    assert "Checklist" not in sections
    for heading in ("Purpose", "Data", "Evaluation", "Assumptions", "Not covered"):
        lines = [line.removeprefix("- ") for line in sections[heading].splitlines() if line and line[0] != "|"]
        # The second line of the purpose is the summary of the class's documentation.
        lines = lines[:1] if heading == "Purpose" else lines
        assert [fault for line in lines for fault in faults_of(line)] == []


def test_an_evaluation_and_a_purpose_are_shown(tmp_path):
    train, test = next(LeaveOneOut().split(clicks(), key=KEY))
    model = EASE().fit(train)
    result = evaluate(model, train, test, metrics=["hr@10", "ndcg@10"])
    _, sections = sections_of(model, tmp_path, evaluation=result, purpose="It ranks films.")
    assert sections["Purpose"].strip().startswith("It ranks films.")
    for metric in result:
        assert f"| {metric} | {result[metric]:.4f} |" in sections["Evaluation"]
    assert "no epsilon covers their publication" in sections["Evaluation"]
    assert f"The protocol was: {result.protocol}." in sections["Evaluation"]
    _, sections = sections_of(model, tmp_path, evaluation={"recall@5": 0.25})
    assert "| recall@5 | 0.2500 |" in sections["Evaluation"]


# ---- invariants ----------------------------------------------------------------------------------------------------


def numbers_of(text):
    return set(re.findall(r"\d[\d,.]*", text))


def test_sizes_are_public_ones_alone(tmp_path):
    public = clicks(300)
    _, sections = sections_of(DPPopularity().fit(public, key=KEY), tmp_path)
    assert "| items | 40 | public catalogue |" in sections["Data"]
    assert numbers_of(sections["Data"]) == {"40"}
    from_data = clicks(300, item_ids=None)
    _, sections = sections_of(DPPopularity().fit(from_data, key=KEY), tmp_path)
    assert numbers_of(sections["Data"]) == set()
    chosen = choose_items(public, 7, 50.0, key=KEY)
    _, sections = sections_of(DPPopularity().fit(chosen, key=KEY), tmp_path)
    assert "| items | 7 | list that was chosen privately |" in sections["Data"]
    _, sections = sections_of(DPGram(n_users=500).fit(public, key=KEY), tmp_path)
    assert "| users | 500 | public parameter n_users |" in sections["Data"]


def test_one_user_more_does_not_change_the_card_of_a_model_with_a_public_number(tmp_path):
    texts = []
    for n_users in (300, 299):
        model = DPGram(n_users=400).fit(clicks(300).select_users(range(n_users)), key=KEY)
        texts.append(sections_of(model, tmp_path)[1])
    choices = [text.pop("Choices of the run") for text in texts]
    assert all(choices)
    assert texts[0].keys() == texts[1].keys()
    for heading in ("Purpose", "Data", "Parameters", "Evaluation", "Guarantees", "Not covered", "Recorded events"):
        assert texts[0][heading] == texts[1][heading]


class Tags(html.parser.HTMLParser):
    """The tags of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)


def test_no_text_becomes_a_tag(tmp_path):
    model, pages = Popularity().fit(clicks()), []
    for text in ("plain", "<script>alert(1)</script>"):
        model.card(tmp_path / "card.html", purpose=text, evaluation={text: 1.0})
        pages.append((tmp_path / "card.html").read_text(encoding="utf-8"))
    assert Tags(pages[0]).tags == Tags(pages[1]).tags
    assert "script" not in Tags(pages[1]).tags


def test_the_command_writes_the_card_of_a_file(tmp_path):
    model = DPPopularity().fit(clicks(), key=KEY)
    model.save(tmp_path / "model.npz", include_users=False)
    model.card(tmp_path / "expected.md")
    assert main(["ledger", str(tmp_path / "model.npz"), "--card", str(tmp_path / "card.md")]) == 0
    assert (tmp_path / "card.md").read_text() == (tmp_path / "expected.md").read_text()
    assert load(tmp_path / "model.npz").ledger_.digest() in (tmp_path / "card.md").read_text()


# ---- bad inputs ----------------------------------------------------------------------------------------------------


def test_bad_arguments_are_refused(tmp_path, capsys):
    with pytest.raises(RuntimeError, match="not fitted"):
        Popularity().card(tmp_path / "card.md")
    model = Popularity().fit(clicks())
    with pytest.raises(ValueError, match=r"path must end in .html or .md"):
        model.card(tmp_path / "card.pdf")
    with pytest.raises(TypeError, match="purpose must be str, got int; pass sentences"):
        model.card(tmp_path / "card.md", purpose=3)
    with pytest.raises(TypeError, match="evaluation must be Mapping, got list; pass the result of evaluate"):
        model.card(tmp_path / "card.md", evaluation=[0.5])
    with pytest.raises(ValueError, match=r"evaluation\['hr@10'\] must be finite, got nan"):
        model.card(tmp_path / "card.md", evaluation={"hr@10": math.nan})
    train, test = next(LeaveOneOut().split(clicks(), key=KEY))
    with pytest.raises(ValueError, match="evaluation must be of this Popularity, got one of EASE"):
        model.card(tmp_path / "card.md", evaluation=evaluate(EASE().fit(train), train, test))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "ledger.json").write_text(model.ledger_.to_json())
    assert main(["ledger", str(tmp_path / "ledger.json"), "--card", str(tmp_path / "card.md")]) == 2
    assert "--card needs a model's file" in capsys.readouterr().err
