"""The option --preset of commands that generate data."""

import csv
import json

import numpy as np
import pytest

from fastfedrec import Key
from fastfedrec.cli.main import main
from fastfedrec.datasets import generate_implicit


def test_the_preset_names_the_data(tmp_path):
    argv = ["split", "--data", "generated:90x60", "--by", "random", "--preset", "check-ins", "--out", str(tmp_path)]
    assert main(argv) == 0
    rows = []
    for name in ("train.csv", "test.csv"):
        with (tmp_path / name).open() as file:
            rows += [(int(row["user"]), int(row["item"])) for row in csv.DictReader(file)]
    expected = generate_implicit(90, 60, key=Key.from_seed(0), preset="check-ins")
    users = np.repeat(np.arange(90), expected.interactions_per_user())
    assert sorted(rows) == list(zip(users.tolist(), expected.indices.tolist(), strict=True))


def test_without_a_size_the_preset_states_it(capsys):
    argv = ["evaluate", "popularity", "--data", "generated:", "--preset", "check-ins", "--seeds", "1", "--json"]
    assert main(argv) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["n_users"], data["n_items"]) == (14_066, 1_000)


def test_a_sweep_generates_the_preset(tmp_path, capsys):
    argv = ["sweep", "--system", "popularity", "--users", "300", "--items", "60", "--preset", "purchases"]
    assert main([*argv, "--seeds", "1", "--no-baselines", "--out", str(tmp_path)]) == 0
    assert "GENERATED DATA (purchases preset): 300 users x 60 items" in capsys.readouterr().out


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("evaluate popularity --data generated:9x60 --preset checkins", "invalid choice: 'checkins'"),
        ("evaluate popularity --data x.csv --preset check-ins", "--preset is for --data generated:..., got 'x.csv'"),
        ("fit popularity --data m.npz --preset purchases", "--preset is for --data generated:..., got 'm.npz'"),
        ("evaluate popularity --data generated:9x --preset purchases", "--data must be like generated:50000x1000"),
        ("sweep --choices --preset purchases", "--preset is for --users or --data generated:..."),
        ("sweep --system popularity --data x.csv --preset purchases", "--preset is for --data generated:..."),
    ],
)
def test_a_preset_of_other_data_is_refused(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err
