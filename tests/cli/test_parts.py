"""--train, --test and --given: parts in files, of other users and items, as `evaluate` and `sweep` take them."""

import json

import numpy as np
import pytest
from support.interaction_case import table_of

from fastfedrec import EASE, DPGram, Interactions, Key, Popularity
from fastfedrec.cli.main import build_parser, main
from fastfedrec.cli.parts import load_parts
from fastfedrec.evaluation import Split, evaluate

TRAIN = "user,item\n" + "".join(f"{u},{i}\n" for u in range(40) for i in range(9) if (u * 7 + i * i) % 4 != 0)
TEST = "user,item\n" + "".join(f"{u},{(u * 5) % 9}\n{u},{77 if u % 2 else 3}\n" for u in range(35, 45))
GIVEN = "user,item\n" + "".join(f"{u},{(u + 1) % 9}\n" for u in range(40, 45))


@pytest.fixture
def files(tmp_path):
    for name, text in (("train", TRAIN), ("test", TEST), ("given", GIVEN)):
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def options(folder, *names):
    return [word for name in names for word in (f"--{name}", str(folder / f"{name}.csv"))]


def parts_of(*words):
    arguments = build_parser().parse_args(["evaluate", "popularity", *map(str, words)])
    return load_parts(arguments, [])


def from_text(text):
    rows = [tuple(map(int, line.split(","))) for line in text.splitlines()[1:]]
    return Interactions.from_arrays(*map(np.array, zip(*rows, strict=True)))


# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("train", "test"), ("train", "test", "given")])
def test_evaluate_of_files_is_evaluate_of_their_parts(names, files, capsys):
    argv = ["evaluate", "ease", *options(files, *names), "--metrics", "recall@3,ndcg@3", "--seeds", "1", "--json"]
    assert main(argv) == 0
    document = json.loads(capsys.readouterr().out)
    train, test = from_text(TRAIN), from_text(TEST)
    given = from_text(GIVEN) if "given" in names else None
    for name, model in (("EASE", EASE()), ("Popularity", Popularity())):
        model.fit(train, key=Key.from_seed(0))
        expected = evaluate(model, train, test, given=given, metrics=["recall@3", "ndcg@3"])
        actual = document["results"][name]
        assert {metric: actual[metric]["values"] for metric in actual} == {m: [v] for m, v in expected.items()}
        assert document["dropped"][name] == expected.dropped
    assert document["data"]["source"] == {name: str(files / f"{name}.csv") for name in names}


def test_sweep_of_files_is_evaluate_of_their_parts(files, tmp_path, capsys):
    # Cells take the seeds 0 and 1, which are the keys of the fits below.
    argv = ["sweep", *options(files, "train", "test", "given"), "--system", "dp-gram", "--set", "epsilon=2,8"]
    argv += ["--no-baselines", "--seeds", "2", "--metrics", "recall@3", "--out", str(tmp_path / "out"), "--json"]
    assert main(argv) == 0
    document = json.loads(capsys.readouterr().out)
    assert str(files / "test.csv") in document["source"]
    train, test, given = map(from_text, (TRAIN, TEST, GIVEN))
    for cell in document["cells"]:
        for seed, actual in enumerate(cell["metrics"]["recall@3"]):
            model = DPGram(**cell["parameters"]).fit(train, key=Key.from_seed(seed))
            assert actual == evaluate(model, train, test, given=given, metrics=["recall@3"])["recall@3"]


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_evaluate_takes_the_files_of_split(tmp_path, capsys):
    out = tmp_path / "parts"
    assert main(["split", "--data", "generated:300x40", "--by", "users", "--out", str(out)]) == 0
    words = ["evaluate", "item-knn", *options(out, "train", "test", "given"), "--metrics", "ndcg@10", "--seeds", "1"]
    capsys.readouterr()
    assert main(words) == 0
    assert "test.csv" in capsys.readouterr().out


def test_ids_are_text_in_all_parts_if_they_are_text_in_one(files):
    (files / "test.csv").write_text("user,item\n36,3\nnew,4\n")
    (files / "given.csv").write_text("user,item\nnew,item x\n")
    split = parts_of(*options(files, "train", "test", "given"))
    assert table_of(split.test) == {"36": {"3": 1}, "new": {"4": 1}}
    assert table_of(split.given) == {"new": {"item x": 1}}
    assert split.train.user_ids.tolist() == [str(u) for u in range(40)]  # in the order that they had
    assert split.train.item_ids.tolist() == [str(i) for i in range(9)]


def test_filters_apply_to_train_and_the_catalogue_to_all_parts(files):
    (files / "items.txt").write_text("\n".join(map(str, [8, *range(8), 77])))
    split = parts_of(*options(files, "train", "test"), "--catalogue", files / "items.txt")
    assert split.train.item_ids.tolist() == split.test.item_ids.tolist() == [8, *range(8), 77]
    assert split.train.catalogue == "public"
    split = parts_of(*options(files, "train", "test"), "--top-items", "4", "--min-interactions", "2")
    assert split.train.n_items == 4
    assert table_of(split.test) == table_of(from_text(TEST))


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "generated:50x40", "--test", "x.csv"], "--test needs --train"),
        (["--data", "generated:50x40", "--given", "x.csv"], "--given needs --train"),
        (["--train", "x.csv"], "--train needs --test"),
        (["--train", "x.csv", "--data", "y.csv"], "argument --data: not allowed with argument --train"),
        (["--test", "x.csv"], "one of the arguments --data --train is required"),
        (["--train", "generated:50x", "--test", "x.csv"], "--train must be like generated:50000x1000"),
    ],
)
@pytest.mark.parametrize("command", [["evaluate", "popularity"], ["sweep", "--system", "popularity"]])
def test_options_that_do_not_go_together_are_named(command, words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*command, *words]) == 2
    error = capsys.readouterr().err
    assert message in error or "one of the arguments --data --train --users --advice --choices is required" in error


def test_a_file_that_cannot_be_read_is_named(files, capsys):
    (files / "test.csv").write_text("user,item\n1,\n")
    assert main(["evaluate", "popularity", *options(files, "train", "test")]) == 2
    assert "test.csv" in capsys.readouterr().err
    np.savez(files / "rows.npz", np.arange(3))
    assert main(["evaluate", "popularity", "--train", str(files / "train.csv"), "--test", str(files / "rows.npz")]) == 2
    assert f"--test {files / 'rows.npz'} must be a SciPy sparse matrix" in capsys.readouterr().err


def test_a_split_is_data_for_a_sweep():
    from fastfedrec import sweep

    with pytest.raises(TypeError, match=r"data must be Interactions, a SciPy .* got list"):
        sweep.sweep(sweep.grid("popularity"), [1])
    split = Split(from_text(TRAIN), from_text(TEST), from_text(GIVEN))
    actual = sweep.sweep(sweep.grid("popularity"), split, seeds=2, with_baselines=False, n_tested=3)
    assert len(actual.cells) == 1
