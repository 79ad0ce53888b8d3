"""Tests of the default comparison, its splits, seeds and plots."""

import numpy as np
import pytest
from support.comparison_files import data_of, lists, options, refusal, run, user_rows, visits

from fastfedrec import Interactions, ItemKNN, Key
from fastfedrec.cli.compare import _default_systems
from fastfedrec.cli.main import main
from fastfedrec.evaluation import LeaveOneOut, evaluate
from fastfedrec.systems.baselines.popularity import Random

METRICS = ["recall@20", "ndcg@20"]
TWO = ["--system", "popularity", "--system", "item-knn"]


@pytest.fixture
def files(tmp_path):
    train, test = user_rows()
    (tmp_path / "train.txt").write_text(lists(train))
    (tmp_path / "test.txt").write_text(lists(test))
    return tmp_path


@pytest.mark.parametrize("n_items", [10, 1_001, 40_000])
def test_the_default_comparison_chooses_no_items(n_items):
    assert [system.choice for system in _default_systems(n_items)] == [None] * 5


def test_the_private_row_is_no_worse_than_popularity_at_its_epsilon(tmp_path, capsys):
    """A row of DPGram on items that are chosen from the data, the earlier default, is the control."""
    users, items = visits(1_500, 1_200, n_regions=12)
    is_test = np.random.default_rng(3).random(len(users)) < 0.1
    for name, part in (("train", ~is_test), ("test", is_test)):
        np.savetxt(
            tmp_path / f"{name}.csv", np.column_stack([users, items])[part], "%d", ",", header="user,item", comments=""
        )
    words = options(tmp_path, "train.csv", "test.csv")
    chosen = ["--system", "dp-gram", "--set", "epsilon=2", "--choose", "1000", "1"]
    systems = ["--system", "popularity", "--system", "private-recommender", "--set", "epsilon=2", *chosen]
    popularity, private, control = run(capsys, *systems, *words)["systems"]
    assert private["metrics"]["recall@20"]["value"] >= popularity["metrics"]["recall@20"]["low"]
    assert control["metrics"]["recall@20"]["value"] < popularity["metrics"]["recall@20"]["low"]
    assert private["epsilon"]["public"] <= 2.0 < control["epsilon"]["public"]
    assert main(["compare", *systems, *words, "--details"]) == 0
    assert "only items with many users can be chosen privately; pass one with --catalogue" in capsys.readouterr().out


def timed_table(path):
    rng = np.random.default_rng(5)
    pairs = np.unique(rng.integers(0, [60, 25], (600, 2)), axis=0)
    data = Interactions.from_arrays(*pairs.T, timestamps=rng.permutation(len(pairs)))
    rows = zip(*pairs.T, data.timestamps.tolist(), strict=True)
    path.write_text("user,item,timestamp\n" + "".join(f"{user},{item},{time}\n" for user, item, time in rows))
    return data


def test_the_latest_interactions_are_held_out(tmp_path, capsys):
    data = timed_table(tmp_path / "x.csv")
    words = [*TWO, "--data", tmp_path / "x.csv", "--quiet", "--metrics", "recall@5"]
    document = run(capsys, *words, "--by", "time")
    assert document["split"] == repr(LeaveOneOut(latest=True))
    key = Key.from_seed(0)
    [split] = LeaveOneOut(latest=True).split(data, key=key)
    expected = evaluate(ItemKNN().fit(split.train), split.train, split.test, metrics=["recall@5"])
    assert document["systems"][1]["metrics"]["recall@5"]["value"] == expected["recall@5"]
    assert run(capsys, *words)["split"] == repr(LeaveOneOut())
    untimed = [*TWO, "--data", "generated:200x40", "--by", "time"]
    assert "--by time needs timestamps, and generated:200x40 has none; name their column" in refusal(capsys, *untimed)


def test_several_seeds_have_the_mean_of_fits_on_one_split(files, capsys):
    words = ["--system", "popularity", "--system", "random", *options(files), "--seed", "3", "--seeds", "2"]
    document = run(capsys, *words)
    assert (document["seed"], document["seeds"]) == (3, 2)
    train, test = map(data_of, user_rows())
    values = [
        evaluate(Random().fit(train, key=Key.from_seed(seed)), train, test, metrics=METRICS)["ndcg@20"]
        for seed in (3, 4)
    ]
    assert values[0] != values[1]
    found = document["systems"][1]["metrics"]["ndcg@20"]
    assert found["value"] == pytest.approx(np.mean(values), abs=1e-12)
    assert found["low"] < found["value"] < found["high"]
    assert main(["compare", *words]) == 0
    text = capsys.readouterr().out
    assert "means of fits with seeds 3 to 4 (simulations), epsilon of one fit" in text
    assert "tests cover the choice of users and the noise of 2 fits of each model." in text


def test_a_plot_has_a_panel_for_each_metric(files, capsys):
    pytest.importorskip("matplotlib")
    plots = [files / "plot.svg", files / "plot.png"]
    assert main(["compare", *TWO, *options(files), "--out", str(plots[0]), "--out", str(plots[1])]) == 0
    capsys.readouterr()
    assert plots[1].read_bytes().startswith(b"\x89PNG")
    drawing = plots[0].read_text()
    for text in ("recall@20, 95% intervals", "ndcg@20, 95% intervals", "ItemKNN", "no guarantee"):
        assert f"<!-- {text} -->" in drawing
