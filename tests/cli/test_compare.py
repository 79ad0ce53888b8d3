"""Tests of compare: the table that it makes of two files, and its errors for files that do not fit."""

import csv
import gzip
import json
import subprocess
import sys
import time

import numpy as np
import pytest
from support.comparison_files import data_of, lists, options, refusal, run, table, user_rows, visits
from support.interaction_case import table_of

from fastfedrec import (
    EASE,
    DPGram,
    ImplicitALS,
    Interactions,
    ItemKNN,
    Key,
    Popularity,
    PrivateRecommender,
    choose_items,
)
from fastfedrec.accounting import Ledger
from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.cli.main import build_parser, main
from fastfedrec.cli.parts import load_parts
from fastfedrec.core import memory
from fastfedrec.evaluation import LeaveOneOut, RandomHoldout, Sampled, TemporalSplit, compare, evaluate

METRICS = ["recall@20", "ndcg@20"]
TWO = ["--system", "popularity", "--system", "item-knn"]


@pytest.fixture
def files(tmp_path):
    train, test = user_rows()
    (tmp_path / "train.txt").write_text(lists(train))
    (tmp_path / "test.txt").write_text(lists(test))
    return tmp_path


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_the_table_is_that_of_the_python_interface(files, capsys):
    document = run(capsys, *options(files))
    train, test = map(data_of, user_rows())
    key = Key.from_seed(0)
    models = [Popularity(), ItemKNN(), EASE(), ImplicitALS(), PrivateRecommender(epsilon=2.0)]
    results = {
        system["name"]: evaluate(model.fit(train, key=key), train, test, metrics=METRICS)
        for system, model in zip(document["systems"], models, strict=True)
    }
    expected = json.loads(compare(results, key=key).to_json())
    for system, model in zip(document["systems"], models, strict=True):
        assert system["metrics"] == expected["results"][system["name"]]["metrics"]
        assert (system["system"], system["parameters"]) == (type(model).__name__, model.get_params())
        assert system["epsilon"]["public"] == (
            "infinite" if system["system"] != "PrivateRecommender" else model.ledger_.epsilon("public")
        )
    assert document["tests"] == expected["tests"]
    assert document["dropped"]["EASE"] == results["EASE"].dropped
    assert results["EASE"].dropped["unknown_items"] == 170
    assert results["EASE"].dropped["unknown_users"] > 0


def test_every_form_of_the_files_gives_one_table(files, capsys):
    train, test = user_rows()
    (files / "train.csv").write_text(table(train))
    (files / "test.tsv").write_text(table(test, "\t"))
    (files / "train.txt.gz").write_bytes(gzip.compress(lists(train).encode()))
    found = [
        run(capsys, *TWO, *options(files, *names))["systems"]
        for names in (("train.txt", "test.txt"), ("train.csv", "test.tsv"), ("train.txt.gz", "test.tsv"))
    ]
    for systems in found[1:]:
        assert [s["metrics"] for s in systems] == [s["metrics"] for s in found[0]]


def test_a_private_choice_is_charged_and_items_outside_it_rank_last(files, capsys):
    (files / "items.txt").write_text("".join(f"{item}\n" for item in [*range(60), 900]))
    words = [*TWO, "--system", "dp-gram", "--set", "epsilon=8", "--choose", "20", "0.5"]
    document = run(capsys, *words, *options(files), "--catalogue", files / "items.txt")
    train, test = (Interactions.from_arrays(*pairs, item_ids=[*range(60), 900]) for pairs in map(pairs_of, user_rows()))
    key, ledger = Key.from_seed(0), Ledger()
    chosen = choose_items(train, 20, 0.5, key=key, ledger=ledger)
    model = DPGram(epsilon=8.0).fit(chosen, key=key, ledger=ledger)
    found = document["systems"][-1]
    assert (found["name"], found["n_items"]) == ("DPGram(epsilon=8.0) on 20 chosen items", 20)
    assert {m: found["metrics"][m]["value"] for m in METRICS} == dict(evaluate(model, train, test, metrics=METRICS))
    assert found["epsilon"]["public"] == ledger.epsilon("public")
    assert found["epsilon_by_trust"] == dict.fromkeys(TRUST_VIEWS, "infinite") | {"central": ledger.epsilon("public")}
    assert ledger.epsilon("public") > DPGram(epsilon=8.0).fit(train, key=key).ledger_.epsilon("public") + 0.1
    assert not any("list of items" in note for note in found["notes"])


def pairs_of(rows):
    pairs = [(user, item) for user, items in rows.items() for item in items]
    return map(np.array, zip(*pairs, strict=True))


def test_sampled_negatives_and_the_seed_are_those_of_evaluate(files, capsys):
    document = run(capsys, *TWO, *options(files), "--negatives", "15", "--seed", "3", "--metrics", "hit@5")
    assert (document["protocol"], document["seed"]) == ("15 sampled unseen items", 3)
    train, test = map(data_of, user_rows())
    model = ItemKNN().fit(train)
    expected = evaluate(model, train, test, metrics=["hit@5"], candidates=Sampled(15), key=Key.from_seed(3))
    assert document["systems"][1]["metrics"]["hit@5"]["value"] == expected["hit@5"]


# ---- what is shown and written ---------------------------------------------------------------------------------------


def test_the_table_as_text_and_as_files(files, capsys):
    names = [files / f"table.{ending}" for ending in ("md", "csv", "json", "tex", "txt")]
    assert main(["compare", *options(files), "--out", *map(str, names)]) == 0
    text = capsys.readouterr().out
    for words in (
        "against all unseen items; seed 0 (a simulation)",
        "95% intervals and paired tests cover the choice of users, not the noise of a fit; --seeds 3 covers both.",
        " scores highest, ",
    ):
        assert words in text
    assert len(text.rpartition("\n\n")[2].splitlines()) == 3
    [private] = [line for line in text.splitlines() if line.startswith("PrivateRecommender(epsilon=2.0)  ")]
    assert private.endswith("(central)")
    assert "pass a public one with --catalogue" in text
    assert sum(line.endswith("  none") for line in text.splitlines()) == 4
    markdown, table_csv, document, latex, plain = (name.read_text() for name in names)
    assert plain.startswith(text.rpartition("\n\n")[0])
    assert main(["compare", *options(files), "--details"]) == 0
    assert plain == capsys.readouterr().out
    for remarks in (plain, markdown):
        assert "Interactions dropped from the test: 30 of unknown users, 170 of items outside train" in remarks
        # Each remark is a line with its own stop.
        assert "users have no other interaction, and are not tested.\n" in remarks
    value = json.loads(document)["systems"][1]["metrics"]["recall@20"]
    cell = f"{value['value']:.4f} ({value['low']:.4f} to {value['high']:.4f})"
    assert f"| ItemKNN | {cell} |" in markdown
    assert f"ItemKNN & {cell.replace('to', '--')} &" in latex
    rows = list(csv.DictReader(table_csv.splitlines()))
    assert [(row["model"], row["metric"]) for row in rows[2:4]] == [("ItemKNN", "recall@20"), ("ItemKNN", "ndcg@20")]
    assert [float(rows[2][name]) for name in ("value", "low", "high")] == list(value.values())


def test_the_interpretation_of_the_files_is_printed(files, capsys):
    assert main(["compare", *TWO, *options(files)[:-1]]) == 0
    printed = capsys.readouterr().err
    for name in ("train", "test"):
        assert f"{files / name}.txt: each line has a user and its items (--adjacency)" in printed


def test_a_system_that_fails_costs_no_other_its_row(files, capsys, monkeypatch):
    data = data_of(user_rows()[0])
    needed = EASE().memory_needed(*data.shape, data.n_interactions)
    monkeypatch.setattr(memory, "memory_bytes", lambda: needed - 1)
    few = ["--set", "n_neighbors=10"]
    words = [*TWO, *few, "--system", "ease", "--system", "ease", "--set", "top_items=30", *options(files)]
    document = run(capsys, *words)
    names = ["Popularity", "ItemKNN(n_neighbors=10)", "EASE(top_items=30)"]
    assert [system["name"] for system in document["systems"]] == names
    [failure] = document["failures"]
    assert failure["name"] == "EASE"
    assert "EASE of 60 items needs" in failure["error"]
    assert "top_items=5_000" in failure["error"]
    assert main(["compare", *words, "--details"]) == 0
    text, printed = capsys.readouterr()
    assert "EASE failed: interactions must have fewer items" in text
    assert "fastfedrec: EASE failed: interactions must have fewer items" in printed
    assert "EASE(top_items=30) scores 30 of 60 items. All other items rank last." in text


def test_a_system_that_serves_fewer_users_is_not_compared(files, capsys):
    train, test = user_rows()
    (files / "given.txt").write_text(
        lists({user: [(items[0] + 1) % 60] for user, items in test.items() if user not in train})
    )
    words = ["--system", "user-knn", *TWO, *options(files), "--given", files / "given.txt"]
    document = run(capsys, *words)
    assert [system["name"] for system in document["systems"]] == ["Popularity", "ItemKNN"]
    assert document["n_users"] > 170
    [failure] = document["failures"]
    assert failure["name"] == "UserKNN"
    assert f" of the {document['n_users']} tested users" in failure["error"]
    assert "compare must have two systems on the same users, got fewer: UserKNN: it serves" in refusal(
        capsys, *words[:4], *options(files), "--given", files / "given.txt"
    )


def test_users_lost_by_a_split_by_time_are_counted_below_the_table(tmp_path, capsys):
    # The latest item of each even user is new; train has all other items.
    rows = [(user, item, item) for user in range(40) for item in range(user % 5, 12)]
    rows += [(user, 100 + user, 99) for user in range(0, 40, 2)]
    (tmp_path / "rows.csv").write_text("user,item,timestamp\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    lost = "Interactions dropped from the test: 20 of items outside train; 20 users have no other interaction"
    for by, is_lost in (("time", True), ("random", False)):
        out = tmp_path / by
        assert main(["split", "--data", str(tmp_path / "rows.csv"), "--by", by, "--seed", "1", "--out", str(out)]) == 0
        for command in (["compare", *TWO], ["evaluate", "item-knn", "--seeds", "1"]):
            capsys.readouterr()
            assert main([*command, *map(str, options(out, "train.csv", "test.csv"))]) == 0
            text = capsys.readouterr().out
            assert (lost in text) is is_lost
            # The split in memory tests these users, so that its figures need another name.
            assert (", without 20 items that train lacks" in " ".join(text.split())) is is_lost
            assert len(text.rpartition("\n\n")[2].splitlines()) == 3


def test_evaluate_and_compare_know_the_splits_of_split(tmp_path, capsys):
    rows = [(user, item, item) for user in range(40) for item in range(user % 5, 12)]
    (tmp_path / "rows.csv").write_text("user,item,timestamp\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    data = ["--data", str(tmp_path / "rows.csv"), "--metrics", "hr@5", "--quiet"]
    splits = {
        "leave-one-out": LeaveOneOut(),
        "time": LeaveOneOut(latest=True),
        "random": RandomHoldout(share=0.2),
        "temporal": TemporalSplit(share=0.2),
    }
    for by, splitter in splits.items():
        for command in (["compare", *TWO], ["evaluate", "item-knn", "--seeds", "1"]):
            assert main([*command, *data, "--by", by, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["split"] == repr(splitter)
    rated = "user,item,value,timestamp\n" + "".join(f"{u},{i},{1 + u * i % 5},{t}\n" for u, i, t in rows)
    (tmp_path / "rated.csv").write_text(rated)
    ratings = [
        "--system",
        "item-mean",
        "--system",
        "global-mean",
        "--data",
        tmp_path / "rated.csv",
        "--metrics",
        "rmse",
    ]
    assert run(capsys, *ratings)["split"] == repr(RandomHoldout(share=0.2))
    assert run(capsys, *ratings, "--by", "time")["split"] == repr(RandomHoldout(share=0.2, latest=True))
    assert main(["evaluate", "item-knn", "--data", "generated:200x40", "--by", "temporal"]) == 2
    assert "--by temporal needs timestamps" in capsys.readouterr().err


# ---- files of a split ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("command", [["compare", *TWO], ["evaluate", "item-knn", "--seeds", "1"]])
def test_the_split_that_made_the_files_is_stated(tmp_path, capsys, command):
    out = tmp_path / "parts"
    assert main(["split", "--data", "generated:200x40", "--by", "k-fold", "--folds", "2", "--out", str(out)]) == 0
    words = [*command, *options(out / "fold-2", "train.csv", "test.csv")]
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["split"] == "KFold(n_folds=2), seed 0, fold-2"
    assert main(words) == 0
    assert "KFold(n_folds=2), seed 0, fold-2" in capsys.readouterr().out
    # Files that changed after the split, or that come from two splits, are not attributed to a split.
    path = out / "fold-2" / "test.csv"
    path.write_text(path.read_text().rpartition("\n")[0].rpartition("\n")[0] + "\n")
    assert main([*words, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["split"] is None
    assert "not unchanged files of one run" in captured.err
    # A foreign or damaged split.json does not attribute the files to a split either.
    for strange in (b"[" * 100_000, b"\xff", b"{}", b"[]", b'{"files": [{}], "split": 1, "seed": 1}'):
        (out / "split.json").write_bytes(strange)
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["split"] is None


# ---- untrusted files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ("", "1 2 3\n", "train.txt, line 1: the file is empty"),
        ("1 2 3\n2 4\n", "", "test.txt, line 1: the file is empty"),
        ("1 2 3\n2 4\n", "7 2 3\n8 3\n", "of its 3 interactions 3 are of users outside --train"),
        ("1 2 3\n2 4\n", "1 20 30\n2 40\n", "of its 3 interactions 3 are of items outside --train"),
        ("1 2 3\n2 4\n", "1 2 3\n2 4\n", "of its 3 interactions 3 are in --train as well; is it the same file?"),
        ("1 2 3\n2 4\n", "1 2\n2 40\n7 3\n", "1 are of users outside --train, 1 are of items"),
        (
            "1 2 3\n2 4 3\n",
            "1 5 3\n2 4 5\n",
            "names no columns; pass --no-header --user 0 --item 1 --value 2 if it is a row, or --adj",
        ),
        ("1 2 3\n2 4\n", "ann,tea\nbob,tea\n", "has a usual name, got ['ann', 'tea']"),
        ("1 2 3\n2 4\n", "one two\nthree\n", "test.txt"),
        ("\x00\x01\x02\n", "1 2 3\n", "train.txt"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, capsys, train, test, message):
    (tmp_path / "train.txt").write_text(train)
    (tmp_path / "test.txt").write_text(test)
    assert message in refusal(capsys, *TWO, *options(tmp_path))


def test_a_missing_file_is_reported_with_its_option(files, capsys):
    for name in ("gone.txt", "gone.csv", "gone"):
        found = refusal(capsys, *TWO, *options(files, test=name))
        assert found.startswith("fastfedrec: error: --test: path ")
        assert str(files / name) in found


@pytest.mark.filterwarnings("default::UserWarning")
def test_swapped_files_are_suspected(files, capsys):
    assert main(["compare", *TWO, *options(files, "test.txt", "train.txt")]) == 0
    assert "warning: --test" in (printed := capsys.readouterr().err)
    assert "are the two files swapped?" in printed


def test_interactions_in_both_files_are_dropped_and_counted(files, capsys):
    train, test = user_rows()
    (files / "test.txt").write_text(lists({user: [*items, train.get(user, [0])[0]] for user, items in test.items()}))
    document = run(capsys, *TWO, *options(files))
    assert document["dropped"]["ItemKNN"]["seen_again"] == len([user for user in test if user in train])
    (files / "train.txt").write_text(lists(train) * 2)  # each line twice: repeated items count once
    repeated = run(capsys, *TWO, *options(files))
    assert [s["metrics"] for s in repeated["systems"]] == [s["metrics"] for s in document["systems"]]


def test_ids_with_leading_zeros_are_separate_ids(tmp_path, capsys):
    (tmp_path / "train.txt").write_text("007 1 2 3\n7 1 4\n8 2 3\n")
    (tmp_path / "test.txt").write_text("7 2\n8 1\n")
    words = ["compare", *TWO, *options(tmp_path)]
    split = load_parts(build_parser().parse_args(words), [])
    assert table_of(split.train)["007"] == {1: 1, 2: 1, 3: 1}
    assert set(table_of(split.test)) == {"7", "8"}
    assert run(capsys, *words[1:])["n_users"] == 2
    assert main(words[:-1]) == 0
    printed = "--train has the user id '007', which is not a plain number: user ids are read as text in all files"
    assert printed in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--system", "popularity"], "compare needs at least two systems; use evaluate for one"),
        ([*TWO, "--system", "popularity"], "--system popularity is given twice with the same parameters"),
        ([*TWO, "--system", "eas"], "unknown system 'eas' (did you mean 'ease'?)"),
        ([*TWO, "--set", "neighbors=3"], "ItemKNN has no parameter 'neighbors' (did you mean 'n_neighbors'?)"),
        (["--set", "a=1"], "--set must follow the --system that it belongs to"),
        (["--choose", "5", "1"], "--choose must follow the --system that it belongs to"),
        ([*TWO, "--choose", "5", "-1"], "--choose must be N EPSILON, such as 2000 0.5, got '5 -1'"),
        ([*TWO, "--choose", "0", "1"], "--choose must keep at least 1 item, got 0"),
        ([*TWO, "--choose", "5", "1", "--choose", "5", "1"], "--choose is given twice"),
        ([*TWO, "--metrics", "recal@20"], "unknown metric 'recal@20'"),
        ([*TWO, "--metrics", "rmse"], "Popularity predicts no ratings"),
        ([*TWO, "--by", "time"], "--by is for --data, and --test is the held-out part of --train"),
        ([*TWO, "--seeds", "0"], "--seeds: must be a whole number of at least 1"),
        ([*TWO, "--out", "table.doc"], "--out table.doc must end in one of .md"),
        ([*TWO, "--adjacency", "--user", "0"], "--user is for tables"),
    ],
)
def test_bad_options_are_named_before_any_work(files, capsys, words, message):
    assert message in refusal(capsys, *words, *options(files))


def test_an_empty_choice_names_a_remedy(files, capsys):
    words = ["--system", "dp-gram", "--choose", "5", "0.01", *TWO, *options(files)]
    [failure] = run(capsys, *words)["failures"]
    assert "--choose 5 0.01 keeps no item" in failure["error"]
    assert "pass a public list (--catalogue FILE)" in failure["error"]


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_threads_change_no_cell(files, capsys):
    one, four = (run(capsys, *options(files), "--threads", n)["systems"] for n in (1, 4))
    assert [system["metrics"] for system in one] == [system["metrics"] for system in four]


# ---- the size of Gowalla ---------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_files_of_the_size_of_gowalla(tmp_path, capsys):
    """40,981 items, 30,000 users, a million interactions, some users and items in one file alone: one process."""
    resource = pytest.importorskip("resource", reason="only Unix reports a process's memory")
    users, items = visits(30_000, 40_981)
    is_test = np.random.default_rng(2).random(len(users)) < 0.2
    for name, part, there in (("train", ~is_test, users < 29_900), ("test", is_test, users >= 100)):
        rows = Interactions.from_arrays(users[part & there], items[part & there])
        by_user = np.split(rows.item_ids[rows.indices], rows.indptr[1:-1])
        (tmp_path / f"{name}.txt").write_text(lists(dict(zip(rows.user_ids.tolist(), map(list, by_user), strict=True))))
    (tmp_path / "items.txt").write_text("".join(f"{item}\n" for item in range(40_981)))
    words = [*options(tmp_path), "--catalogue", str(tmp_path / "items.txt"), "--out", str(tmp_path / "table.json")]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fastfedrec", "compare", *words], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    with capsys.disabled():
        print(f"\n{done.stdout}\n{done.stderr}{seconds:.0f} s, {peak / 1e9:.1f} GB at most")
    assert done.returncode == 0
    document = json.loads((tmp_path / "table.json").read_text())
    assert document["failures"] == []
    found = {system["system"]: system for system in document["systems"]}
    n_items = [found[system]["n_items"] for system in ("EASE", "PrivateRecommender", "ItemKNN")]
    assert n_items == [5000, 40_981, 40_981]
    recall = {name: system["metrics"]["recall@20"] for name, system in found.items()}
    for name in ("ItemKNN", "EASE", "ImplicitALS"):
        assert recall[name]["low"] > recall["Popularity"]["high"]
    assert recall["PrivateRecommender"]["value"] >= recall["Popularity"]["low"]
    assert found["PrivateRecommender"]["epsilon"]["public"] <= 2
    assert peak < 4e9  # all pairs of items would take 20
