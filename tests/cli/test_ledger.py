"""The command that shows a saved model's ledger, and writes its page."""

import json

import pytest

from fastfedrec import FMFLDP, DPGram, Key, datasets
from fastfedrec.cli.main import main


@pytest.fixture
def model():
    return FMFLDP(n_rounds=2).fit(datasets.generate_implicit(60, 40, key=Key.from_seed(1)))


# ---- oracle: the same as the Python interface ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.npz", "ledger.json"])
def test_a_model_and_a_ledger(model, name, tmp_path, capsys):
    path = tmp_path / name
    if path.suffix == ".json":
        path.write_text(model.ledger_.to_json())
    else:
        model.save(path, include_users=False)
    html, markdown = tmp_path / "page.html", tmp_path / "page.md"
    assert main(["ledger", str(path), "--html", str(html), "--markdown", str(markdown), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["privacy"] == model.ledger_.to_dict()
    assert document["digest"] == model.ledger_.digest()
    assert document["pages"] == [str(html), str(markdown)]
    for page in (html, markdown):
        assert model.ledger_.digest() in page.read_text(encoding="utf-8")
    assert main(["ledger", str(path)]) == 0
    out = capsys.readouterr().out
    assert model.ledger_.summary().rstrip() in out
    assert f"Digest: {model.ledger_.digest()}" in out
    assert (repr(model) if name == "model.npz" else name) in out


def test_the_page_names_the_model(tmp_path, capsys):
    model = DPGram(epsilon=2.0).fit(datasets.generate_implicit(60, 40, key=Key.from_seed(1)))
    model.save(tmp_path / "model")
    assert main(["ledger", str(tmp_path / "model"), "--markdown", str(tmp_path / "page.md")]) == 0
    assert "DPGram(epsilon=2.0, delta=1e-06" in (tmp_path / "page.md").read_text().replace("\\", "")


def test_the_card_states_the_purpose(model, tmp_path, capsys):
    model.save(tmp_path / "model", include_users=False)
    card = tmp_path / "card.md"
    words = ["ledger", str(tmp_path / "model"), "--card", str(card)]
    assert main(words) == 0
    assert "The author states no purpose." in card.read_text()
    assert main([*words, "--purpose", "Recommend films to members."]) == 0
    assert "Recommend films to members." in card.read_text()


# ---- bad inputs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("ledger absent", "absent"),
        ("ledger absent.json", "absent.json"),
        ("ledger broken.json", "broken.json"),
        ("ledger broken", "is not a model saved by fastfedrec"),
        ("ledger model --html page.txt", "--html page.txt must end in .html"),
        ("ledger model --html absent/page.html", "must be a file in an existing folder"),
        ("ledger model --markdown page.html", "must end in .md"),
        ("ledger model --purpose films", "--purpose is a part of the model's card; pass --card FILE, or leave it out"),
        ("ledger model --htlm page.html", "did you mean '--html'?"),
    ],
)
def test_it_refuses(model, argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model.save("model")
    for name in ("broken", "broken.json"):
        (tmp_path / name).write_bytes(b"\xff{")
    before = set(tmp_path.iterdir())
    assert main(argv.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert set(tmp_path.iterdir()) == before
