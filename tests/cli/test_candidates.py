"""`--negatives FILE` and `--threshold` of evaluate and compare give the figures of the Python interface."""

import json

import numpy as np
import pytest

from fastfedrec import Interactions, Key, Popularity, datasets
from fastfedrec.cli.main import main
from fastfedrec.evaluation import LeaveOneOut, evaluate, read_test_negatives


@pytest.fixture
def parts(tmp_path):
    """Return (train, test, options of the command) of ratings from 1 to 5."""
    data = datasets.generate_implicit(60, 50, key=Key.from_seed(3))
    data = data._replace(values=np.arange(data.n_interactions) % 5 + 1.0)
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(4)))
    options = []
    for name, part in (("train", train), ("test", test)):
        users = part.user_ids[np.repeat(np.arange(part.n_users), part.interactions_per_user())]
        rows = zip(users.tolist(), part.item_ids[part.indices].tolist(), part.values.tolist(), strict=True)
        (tmp_path / f"{name}.csv").write_text("user,item,rating\n" + "\n".join(f"{u},{i},{r}" for u, i, r in rows))
        options += [f"--{name}", str(tmp_path / f"{name}.csv")]
    return train, test, options


def run(capsys, *argv):
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def as_test_items(part):
    """Return the interactions as the command reads them, with the items of its rows."""
    users = part.user_ids[np.repeat(np.arange(part.n_users), part.interactions_per_user())]
    return Interactions.from_arrays(users, part.item_ids[part.indices], part.values)


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_negatives_and_a_threshold_are_those_of_evaluate(parts, tmp_path, capsys):
    train, test, options = parts
    path = tmp_path / "test.negative"
    items = np.unique(train.indices)
    negatives = {u: [i for i in items if i not in set(train.indices[train.indptr[u] : train.indptr[u + 1]])][:9]
                 for u in range(train.n_users)}  # fmt: skip
    path.write_text("".join(f"({u},0)\t" + "\t".join(map(str, row)) + "\n" for u, row in negatives.items()))
    train, test = as_test_items(train), as_test_items(test)
    model = Popularity().fit(train, key=Key.from_seed(0))
    for given, arguments in (
        (["--negatives", str(path)], {"candidates": read_test_negatives(path)}),
        (["--threshold", "3"], {"threshold": 3.0}),
        ([], {}),
    ):
        expected = evaluate(model, train, test, metrics=["hr@3"], **arguments)
        shared = [*options, "--metrics", "hr@3", *given]
        document = run(capsys, "evaluate", "popularity", "--seeds", "1", *shared)
        assert document["results"]["Popularity"]["hr@3"]["mean"] == pytest.approx(expected["hr@3"], rel=1e-12)
        assert document["protocol"] == expected.protocol
        assert document.get("threshold") == arguments.get("threshold")
        assert document["dropped"]["Popularity"] == expected.dropped
        document = run(capsys, "compare", "--system", "popularity", "--system", "random", *shared)
        assert document["systems"][0]["metrics"]["hr@3"]["value"] == pytest.approx(expected["hr@3"], rel=1e-12)
    assert main(["evaluate", "popularity", "--seeds", "1", *options, "--threshold", "3"]) == 0
    assert "values above 3 relevant" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["evaluate item-mean", "compare --system global-mean --system item-mean"])
def test_a_threshold_with_ratings_is_refused_before_the_fit(parts, capsys, command):
    assert main([*command.split(), *parts[2], "--metrics", "rmse", "--threshold", "3"]) == 2
    assert "--threshold is for rankings, got metrics of ratings; leave it out" in capsys.readouterr().err


def test_a_bad_file_of_negatives_is_named(parts, tmp_path, capsys):
    path = tmp_path / "test.negative"
    path.write_text("0,1\t2\n")
    assert main(["evaluate", "popularity", *parts[2], "--negatives", str(path)]) == 2
    assert "line 1, must be '(user,item)' and items, separated by tabs" in capsys.readouterr().err
