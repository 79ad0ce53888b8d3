"""Tests of --features: each command gives the model of item_features= in Python, and refuses invalid tables."""

import numpy as np
import pytest
from support.cli_case import DATA, refusal, run_json
from support.movielens_folder import write_folder

from fastfedrec import DPGram, Key, datasets, load
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.datasets import load_item_features, load_movielens_items
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate

FIT = ["fit", "dp-gram", "--data", DATA, "--set", "epsilon=9", "--seed", 3]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "items.csv"
    rows = [f"{item},{'abc'[item % 3]},{1900 + item % 70}" for item in range(310)]
    path.write_text("\n".join(["movieId,kind,year", *rows]) + "\n")
    return path


# ---- oracle --------------------------------------------------------------------------------------------------------


def test_fit_equals_the_python_interface(table, tmp_path, capsys):
    document = run_json(capsys, *FIT, "--features", table, "--out", tmp_path / "model")
    features = ItemFeatures.of("item_features", load_item_features(table))
    data = datasets.generate_implicit(400, 300, key=Key.from_seed(0))
    expected = DPGram(9, item_features=features).fit(data, key=Key.from_seed(3))
    model = load(tmp_path / "model")
    np.testing.assert_array_equal(model.item_factors_, expected.item_factors_)
    assert model.item_features.digest == features.digest
    assert document["parameters"]["item_features"] == repr(features)
    assert "They are kind, year of 300 of 300 items" in " ".join(model.ledger_.notes)
    assert "10 of their ids are not in the list of items" in " ".join(model.ledger_.notes)


def test_evaluate_compare_and_sweep_take_them_too(table, tmp_path, capsys):
    metrics = ["--metrics", "hr@10", "--negatives", 50, "--features", table]
    key = Key.from_seed(0)
    train, test = next(LeaveOneOut().split(datasets.generate_implicit(400, 300, key=key), key=key))
    model = DPGram(9, item_features=load_item_features(table)).fit(train, key=key)
    # The command uses the key of seed 0 for the data, the split, the fit and the candidates.
    expected = evaluate(model, train, test, metrics=["hr@10"], candidates=Sampled(50), key=key)["hr@10"]
    document = run_json(capsys, "evaluate", *FIT[1:6], *metrics, "--seeds", 1)
    assert document["results"]["DPGram"]["hr@10"]["values"] == [expected]
    systems = ["--system", "popularity", "--system", "dp-gram", "--set", "epsilon=9"]
    document = run_json(capsys, "compare", *FIT[2:4], *systems, *metrics)
    popular, ours = document["systems"]
    assert ours["metrics"]["hr@10"]["value"] == expected
    assert ours["parameters"]["item_features"] == repr(model.item_features)
    assert "item_features" not in popular["parameters"]
    run_options = ["--seeds", 1, "--no-baselines", "--out", tmp_path]
    document = run_json(capsys, "sweep", *FIT[2:4], *systems, *metrics, *run_options)
    assert str(table) in document["source"]
    popular, ours = document["cells"]
    assert ours["metrics"]["hr@10"] == [expected]
    assert ours["parameters"]["item_features"] == repr(model.item_features)
    assert popular["parameters"] == {}


@pytest.mark.ignores_values
def test_movies_of_the_data_or_of_another_folder(tmp_path, capsys):
    folder = write_folder(tmp_path / "movies")
    films = [f"{i}|Film|01-Jan-{1990 + i}|||{'|'.join('01'[i == j] for j in range(19))}\n" for i in range(1, 5)]
    (folder / "u.item").write_text("".join(films))
    digest = ItemFeatures.of("item_features", load_movielens_items(folder)).digest
    options = ["fit", "dp-gram", "--seed", 1, "--data", folder, "--catalogue", "published", "--features"]
    for source in ("movielens", folder):
        assert digest[:16] in run_json(capsys, *options, source)["parameters"]["item_features"]


def test_ids_are_those_of_the_data_however_they_are_written(tmp_path, capsys):
    numbers, texts = tmp_path / "numbers.csv", tmp_path / "texts.csv"
    numbers.write_text("user,item\n1,7\n1,8\n2,7\n2,9\n")
    texts.write_text("user,item\n1,7\n1,8\n2,7\n2,x9\n")
    features = tmp_path / "items.csv"
    for data, rows, known, unlisted in (
        (texts, "7,1\n8,2\n", 2, 0),
        (numbers, "7,1\nx9,2\n8,3\n", 2, 1),
        (texts, "7,1\nx9,2\n8,3\n07,4\n", 3, 1),
    ):
        features.write_text("item,size\n" + rows)
        document = run_json(capsys, "fit", "dp-gram", "--data", data, "--seed", 1, "--features", features)
        texts = " ".join(note["text"] for note in document["privacy"]["notes"])
        assert f"of {known} of 3 items" in texts
        assert (f"{unlisted} of their ids are not in the list of items" in texts) == bool(unlisted)


def test_the_column_of_ids_may_be_named(tmp_path, capsys):
    data, features = tmp_path / "data.csv", tmp_path / "items.csv"
    data.write_text("who,what\n1,7\n1,8\n2,7\n2,9\n")
    features.write_text("what\tsize\n7\t1\n8\t2\n")
    options = ["fit", "dp-gram", "--data", data, "--user", "who", "--item", "what", "--seed", 1, "--features", features]
    assert "ItemFeatures" in run_json(capsys, *options)["parameters"]["item_features"]
    features.write_text("item\tsize\n7\t1\n8\t2\n")
    assert "ItemFeatures" in run_json(capsys, *options)["parameters"]["item_features"]


# ---- bad inputs ----------------------------------------------------------------------------------------------------


def test_invalid_features_are_refused_before_any_data_are_read(table, tmp_path, capsys):
    nowhere = ["--data", tmp_path / "nowhere.csv", "--features"]
    said = refusal(capsys, "fit", "fmf-ldp", *nowhere, table)
    assert "--features needs a system with public features of items (private-recommender, dp-gram, " in said
    assert "got FMFLDP; leave it out" in said
    sweep = ["sweep", "--out", tmp_path]
    assert "got EASE; leave it out" in refusal(capsys, *sweep, "--system", "ease", *nowhere, table)
    assert "--features is for a sweep of --system on data" in refusal(capsys, *sweep, "--advice", "--features", table)
    said = refusal(capsys, "compare", "--system", "ease", "--system", "popularity", *nowhere, table)
    assert "got EASE, Popularity" in said
    said = refusal(capsys, "fit", "dp-gram", *nowhere, table, "--set", f"item_features={'f' * 64}")
    assert "--features and --set item_features=... both give DPGram features; leave one out" in said
    assert "--features: path" in refusal(capsys, "fit", "dp-gram", *nowhere, tmp_path / "nothing.csv")
    assert "needs --data with the zip or folder of a MovieLens" in refusal(capsys, *FIT, "--features", "movielens")
    (tmp_path / "bad.csv").write_text("item,kind\n1,a\n1,b\n")
    said = refusal(capsys, "fit", "dp-gram", *nowhere, tmp_path / "bad.csv")
    assert "bad.csv: item_features['item']" in said


def test_features_of_other_items_are_refused(tmp_path, capsys):
    (tmp_path / "other.csv").write_text("item,kind\n-1,a\n-2,b\n")
    said = refusal(capsys, *FIT, "--features", tmp_path / "other.csv")
    assert "item_features['item'] must contain some of the 300 items, got none: its first id is -1" in said
    sweep = ["sweep", "--system", "dp-gram", "--users", 40, "--items", 31, "--out", tmp_path]
    said = refusal(capsys, *sweep, "--features", tmp_path / "other.csv")
    assert "item_features['item'] must contain some of the 31 items, got none: its first id is -1" in said
