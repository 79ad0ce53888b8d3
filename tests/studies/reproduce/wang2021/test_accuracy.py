"""Tables of the PrivRec paper: the accounting to the printed digit, accuracy on small data."""

import numpy as np
import pytest
from support.reproduce_case import check_result, written
from support.wang2021_case import apps, movies, small_networks

from fastfedrec import Key, Popularity
from fastfedrec.evaluation.new_users import METRICS, evaluate_personalized, personalization_split
from fastfedrec.studies.reproduce.wang2021 import accuracy as wang2021
from fastfedrec.studies.reproduce.wang2021.accuracy import PUBLISHED, accuracy_table, epsilon_table

# The finite cells as printed, by cohort; columns delta 1e-8, 1e-6, 1e-4.
PRINTED = {
    "4": [
        (1.7439, 1.3602, 0.9764), (3.2117, 2.7511, 2.2535), (5.9705, 5.2030, 4.3074), (9.4736, 8.3223, 6.9235),
        (13.7047, 12.1696, 10.2052), (18.9107, 16.6081, 14.3056),
    ],
    "5": [
        (2.2994, 1.8388, 1.3783), (7.4618, 6.5408, 5.3932), (16.2853, 14.3169, 12.0143), (23.7651, 21.4626, 18.6182),
        (34.5025, 30.0690, 25.4638), (50.1537, 45.5485, 40.9433),
    ],
}  # fmt: skip
# Upper bound and Renyi bound at delta 1e-6, as in docs/explanation/accounting/sampling-without-replacement.md.
PROVEN = {"4": {5: (0.2268, 0.879), 20: (0.9925, 1.425)}, "5": {2: (0.6099, 1.163), 15: (5.2350, 5.681)}}


@pytest.fixture
def tiny(monkeypatch):
    """Set networks that train within seconds."""
    fewer = {"n_rounds": 2, "local_epochs": 1, "learning_rate": 0.05}
    monkeypatch.setattr(wang2021, "_paper_models", small_networks(wang2021._paper_models, **fewer))


# ---- oracle: what is printed, and by hand ----------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["4", "5"])
def test_every_printed_epsilon_comes_out(table):
    result = epsilon_table(table)
    assert len(result.cells) == 18
    for cell, printed in zip(result.cells, np.ravel(PRINTED[table]), strict=True):
        assert printed - 1e-9 <= cell["published"] < printed + 1.1e-4  # the paper truncates the remaining digits
        assert cell["upper_bound"] < cell["rdp"] < cell["published"]
    for cell in result.cells:
        if cell["delta"] == 1e-6 and cell["cohort_size"] in PROVEN[table]:
            upper, renyi = PROVEN[table][cell["cohort_size"]]
            assert (cell["upper_bound"], cell["rdp"]) == pytest.approx((upper, renyi), abs=6e-4)


def test_a_row_by_hand(tiny):
    data, key = movies(), Key.from_seed(4)
    result = accuracy_table(data, "2", seed=4)
    split = personalization_split(data, threshold=3, key=key)
    popularity = Popularity().fit(split.known_positives, key=key)
    assert result.rows["popularity"]["ours"] == evaluate_personalized(popularity, split)["all"]
    model = wang2021._paper_models(data)["PrivRec"].fit(split.train, key=key)
    devices = model.personalize(split.personal, key=key)
    assert result.rows["PrivRec"]["ours"] == evaluate_personalized(devices, split)["all"]
    assert result.rows["PrivRec"]["published"]["hr@10"] == 0.168


def test_the_tables_are_the_papers():
    assert PUBLISHED["2"]["PrivRec-CEN"][:4] == (0.136, 0.187, 0.235, 0.287)
    assert PUBLISHED["3"]["FCF"][1] == 0.506  # as printed, below its neighbours
    assert all(len(row) == len(METRICS) for table in PUBLISHED.values() for row in table.values())


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_what_is_shown(tiny, tmp_path):
    for data, table in ((movies(), "2"), (apps(), "3")):
        result = accuracy_table(data, table, quick=True)
        text, _ = check_result(result, tmp_path)
        assert text.startswith("The data given: <Interactions: ")
        assert result.rows["NN-SELF"]["ours"] is not None
        assert "meta='maml'" in result.settings["models"]["NN-SELF"]
        assert result.rows["FedGNN"]["ours"] is not None
        assert result.rows["EASE"]["published"] is None
        gain = result.rows["PrivRec"]["ours"]["hr@10"] - result.rows["popularity"]["ours"]["hr@10"]
        assert f"PrivRec: HR@10 {gain:+.3f} compared with popularity" in text
        assert ("ours, new" in text.split("HR and nDCG")[0]) == (table == "3")
    text, _ = check_result(epsilon_table("5"), tmp_path)
    assert "times the upper bound; at delta 0 none is finite" in text


def test_finished_models_are_kept_and_read_again(tiny, tmp_path, monkeypatch):
    first = accuracy_table(movies(), "2", folder=tmp_path)
    monkeypatch.setattr(wang2021, "_run", lambda *_: pytest.fail("a finished model was trained again"))
    assert accuracy_table(movies(), "2", folder=tmp_path) == first
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        accuracy_table(movies(), "2", folder=tmp_path, seed=1)


def test_rows_are_chosen(tiny, tmp_path):
    only = ["popularity", "NCF"]
    result = accuracy_table(movies(), "2", quick=True, only=only, folder=tmp_path)
    assert {name for name, row in result.rows.items() if row["ours"] is not None} == set(only)
    assert result.rows["PrivRec"] == {"published": result.rows["PrivRec"]["published"], "ours": None, "new": None}
    assert result.verdict() == ""  # no PrivRec model was computed
    whole = accuracy_table(movies(), "2", quick=True, folder=tmp_path)
    assert all(result.rows[name] == whole.rows[name] for name in only)


def test_the_command(tmp_path, capsys):
    assert len(written("privrec --table 4", tmp_path, "table-4", capsys)["cells"]) == 18


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"table": "4"}, ValueError, "table must be one of '2', '3'"),
        ({"table": "3"}, TypeError, "data of table 3 must be InteractionLog, got Interactions"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"only": ["nobody"]}, ValueError, "only must be one of 'PrivRec', .*, got 'nobody'"),
    ],
)
def test_bad_inputs(arguments, error, message):
    with pytest.raises(error, match=message):
        accuracy_table(**({"data": movies(), "table": "2"} | arguments))
    with pytest.raises(ValueError, match="table must be one of '4', '5'"):
        epsilon_table("2")


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_threads_change_no_figure(tiny):
    assert accuracy_table(movies(), "2", n_threads=1).rows == accuracy_table(movies(), "2", n_threads=4).rows
