"""Reading the ledger of a file without its rows."""

import json

import numpy as np
import pytest

from fastfedrec import DPLCF, FMFLDP, Interactions, Key, datasets, load
from fastfedrec.core.npz import Archive
from fastfedrec.systems.saved_ledger import read_ledger


@pytest.fixture
def path(tmp_path):
    data = datasets.generate_implicit(60, 40, key=Key.from_seed(1))
    FMFLDP(n_rounds=2).fit(data).save(tmp_path / "model")
    return tmp_path / "model"


def change_header(path, change):
    members = dict(np.load(path))
    document = json.loads(members["json"].tobytes())
    change(document["header"])
    members["json"] = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
    with open(path, "wb") as file:
        np.savez(file, **members)


# ---- oracle --------------------------------------------------------------------------------------------------------


def test_it_equals_the_ledger_of_load(path):
    model = load(path)
    ledger = read_ledger(path)
    assert ledger.ledger.to_dict() == model.ledger_.to_dict()
    assert ledger.about == repr(model)


# ---- invariants ----------------------------------------------------------------------------------------------------


def test_no_array_is_read(path, monkeypatch):
    read, names = Archive.read, []
    monkeypatch.setattr(Archive, "read", lambda self, name: names.append(name) or read(self, name))
    read_ledger(path)
    assert names == ["json"]


def test_damaged_arrays_do_not_matter(path):
    members = dict(np.load(path))
    with open(path, "wb") as file:
        np.savez(file, **members | {"data.indices": np.full_like(members["data.indices"], 10**6)})
    with pytest.raises(ValueError, match="indices"):
        load(path)
    assert read_ledger(path).ledger.events


# ---- bad inputs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header.pop("ledger"), "ledger: it is missing"),
        (lambda header: header.pop("class"), "class: it is missing"),
        (lambda header: header.update({"class": 3}), "must be a string and a mapping"),
        (lambda header: header.update(parameters=[]), "must be a string and a mapping"),
        (lambda header: header["ledger"].update(delta=2), "ledger: .*delta"),
        (lambda header: header.update(ledger=None), "ledger: "),
    ],
)
def test_other_headers_are_refused(path, change, message):
    change_header(path, change)
    with pytest.raises(ValueError, match=f"is not a model saved by fastfedrec .*{message}"):
        read_ledger(path)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text").write_text("no model")
    with pytest.raises(ValueError, match="is not a model saved by fastfedrec"):
        read_ledger(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        read_ledger(tmp_path / "absent")


def test_figures_of_a_file_are_computed_anew(tmp_path):
    DPLCF(epsilon=2.5).fit(Interactions.from_arrays([1, 2], [1, 2])).save(tmp_path / "model")
    change_header(tmp_path / "model", lambda header: header["ledger"]["epsilon"].update(server=0.0))
    assert read_ledger(tmp_path / "model").ledger.epsilon(delta=0) == 5.0
