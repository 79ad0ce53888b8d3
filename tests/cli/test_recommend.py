"""The command `recommend`: models without users, users of a file, new users, and files of recommendations."""

import csv
import json

import numpy as np
import polars as pl
import pytest
import scipy.sparse
from support.cli_case import refusal, run_json

import fastfedrec.cli.recommend
from fastfedrec import EASE, Interactions, Key, LaplaceRRSVD, load
from fastfedrec.cli.main import main

N_USERS, N_ITEMS = 60, 30


@pytest.fixture(scope="module")
def data():
    matrix = scipy.sparse.random_array((N_USERS, N_ITEMS), density=0.3, format="csr", rng=np.random.default_rng(3))
    assert np.diff(matrix.indptr).all(), "a table has only users with items"
    return Interactions.from_scipy(
        matrix.sign(), user_ids=[f"user {u}" for u in range(N_USERS)], item_ids=[f"i,{i}" for i in range(N_ITEMS)]
    )


@pytest.fixture(scope="module", params=[True, False], ids=["with users", "without users"])
def path(request, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.npz"
    EASE(10.0).fit(data).save(path, include_users=request.param)
    return path


@pytest.fixture(scope="module")
def rows(data, tmp_path_factory):
    """A table of the users in another order, with an item that the model does not know."""
    path = tmp_path_factory.mktemp("tables") / "rows.csv"
    frame = data.to_frame()[::-1]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("customer_id", "sku"), *frame.itertuples(index=False), ("user 3", "new")])
    return path


def expected_lists(data, n, users=None):
    ids, scores = EASE(10.0).fit(data).recommend(users, n)
    names = data.user_ids if users is None else users
    return {
        user: dict(zip(i[np.isfinite(s)].tolist(), s[np.isfinite(s)].tolist(), strict=True))
        for user, i, s in zip(names, ids, scores, strict=True)
    }


def read(path):
    """Return the lists of a file by user, and check the ranks."""
    if path.suffix == ".json":
        return {
            entry["user"]: dict(zip(entry["items"], entry["scores"], strict=True))
            for entry in json.loads(path.read_text())["recommendations"]
        }
    frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)
    assert frame.columns == ["user", "item", "score", "rank"]
    lists = {}
    for user, item, score, rank in frame.rows():
        lists.setdefault(user, {})[item] = score
        assert rank == len(lists[user])
    return lists


def assert_same_lists(actual, expected):
    assert list(actual) == list(expected)
    for user, items in expected.items():
        assert list(actual[user]) == list(items)
        np.testing.assert_allclose(list(actual[user].values()), list(items.values()), rtol=1e-9)


# ---- oracle: the same as the Python interface -----------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "json", "parquet", "CSV"])
@pytest.mark.parametrize("block", [7, 4096])
def test_users_of_a_file_are_served_in_blocks(path, rows, data, ending, block, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fastfedrec.cli.recommend, "_BLOCK_USERS", block)
    out = tmp_path / f"recommendations.{ending}"
    assert main(["recommend", str(path), "--data", str(rows), "--users", "all", "--out", str(out), "-n", "4"]) == 0
    captured = capsys.readouterr()
    assert f"240 recommendations for {N_USERS} users, written to {out}" in captured.out
    assert "1 items of" in captured.err
    assert out.stat().st_mode & 0o077 == 0, "only the owner may read the lists of users"
    expected = expected_lists(data, 4)
    renamed = out.rename(out.with_suffix(out.suffix.lower()))
    assert_same_lists(read(renamed), {user: expected[user] for user in sorted(expected)})


def test_all_users_are_the_default_of_a_file_and_some_may_be_chosen(path, rows, data, capsys, tmp_path):
    document = run_json(capsys, "recommend", path, "--data", rows, "-n", 2)
    assert [entry["user"] for entry in document["recommendations"]] == sorted(data.user_ids)
    users = ["user 9", "user 2", "user 9"]
    actual = run_json(capsys, "recommend", path, "--data", rows, "--users", *users, "-n", 2)["recommendations"]
    expected = expected_lists(data, 2)
    assert [(entry["user"], entry["items"]) for entry in actual] == [(user, list(expected[user])) for user in users]
    listed = tmp_path / "users.txt"
    listed.write_text("user 5\nuser 1\n")
    actual = run_json(capsys, "recommend", path, "--data", rows, "--users-file", listed)["recommendations"]
    assert [entry["user"] for entry in actual] == ["user 5", "user 1"]


def test_users_outside_of_the_file(path, rows, data, capsys):
    argv = ["recommend", path, "--data", rows, "--users", "nobody", "user 2", "-n", 3]
    assert "user id 'nobody' is unknown" in refusal(capsys, *argv)
    popular, known = run_json(capsys, *argv, "--unknown", "popular")["recommendations"]
    assert popular["items"] == load(path).recommend_for([], n=3)[0][0].tolist()
    assert known["items"] == list(expected_lists(data, 3)["user 2"])
    skipped, known = run_json(capsys, *argv, "--unknown", "skip")["recommendations"]
    assert skipped["items"] == []
    assert len(known["items"]) == 3


@pytest.mark.parametrize("text", [["i,3", "i,17"], ["i,3"]])
def test_a_new_user_is_given_by_items(path, text, capsys):
    (entry,) = run_json(capsys, "recommend", path, "--items-of", *text, "-n", 5)["recommendations"]
    ids, scores = load(path).recommend_for(text, n=5)
    assert entry == {"user": 0, "items": ids[0].tolist(), "scores": scores[0].tolist()}


def test_items_of_numbers_and_of_ratings_are_separated_by_commas(tmp_path, capsys):
    matrix = scipy.sparse.csr_array(np.random.default_rng(1).integers(0, 6, (60, 25)).astype(np.float32))
    data = Interactions.from_scipy(matrix)
    EASE(10.0).fit(data.binarize()).save(tmp_path / "ease.npz", include_users=False)
    (entry,) = run_json(capsys, "recommend", tmp_path / "ease.npz", "--items-of", "3,17", "4")["recommendations"]
    assert entry["items"] == load(tmp_path / "ease.npz").recommend_for([3, 17, 4])[0][0].tolist()
    LaplaceRRSVD(n_factors=2, n_epochs=2).fit(data, key=Key.from_seed(1)).save(
        tmp_path / "svd.npz", include_users=False
    )
    (entry,) = run_json(capsys, "recommend", tmp_path / "svd.npz", "--items-of", "3=4.5,17=2")["recommendations"]
    assert entry["scores"] == load(tmp_path / "svd.npz").recommend_for({3: 4.5, 17: 2.0})[1][0].tolist()
    assert "must have a rating for each item of this model, as 3=4.5, got '17'" in refusal(
        capsys, "recommend", tmp_path / "svd.npz", "--items-of", "3=4,17"
    )


def test_all_users_of_a_model(data, tmp_path, capsys):
    EASE(10.0).fit(data).save(tmp_path / "model.npz")
    out = tmp_path / "lists.csv"
    document = run_json(capsys, "recommend", tmp_path / "model.npz", "--users", "all", "--out", out, "-n", 3)
    assert document["users"] == N_USERS
    assert document["recommendations"] == 3 * N_USERS
    assert_same_lists(read(out), expected_lists(data, 3))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_refused_commands(data, rows, tmp_path, capsys):
    path, alone = tmp_path / "model.npz", tmp_path / "alone.npz"
    EASE(10.0).fit(data).save(path)
    EASE(10.0).fit(data).save(alone, include_users=False)
    for argv, message in (
        ([alone, "--users", "user 1"], "was saved without users; pass --data FILE with the items of its users, or"),
        ([path], "recommend needs --users or --users-file, --data FILE, or --items-of ID"),
        ([path, "--items-of", "i,3", "--users", "user 1"], "--items-of is for one new user; leave --users"),
        ([path, "--items-of", "i,3", "--data", rows], "not allowed with argument"),
        ([path, "--items-of", "i,999"], "--items-of"),
        ([path, "--users", "all", "--out", tmp_path / "a.txt"], "--out must end with .csv or .json or .parquet"),
        ([path, "--users", "all", "--out", tmp_path], "--out must end with"),
        ([path, "--users", "all", "--out", "/proc/none/a.csv"], "/proc"),
        ([path, "--data", tmp_path / "absent.csv"], "absent.csv' does not exist"),
    ):
        error = refusal(capsys, "recommend", *argv)
        if argv[1:] != ["--items-of", "i,999"]:
            assert message in error
    named = Interactions.from_arrays(["all", "x"], [1, 2])
    EASE(10.0).fit(named).save(tmp_path / "all.npz")
    assert "--users all is ambiguous" in refusal(capsys, "recommend", tmp_path / "all.npz", "--users", "all")


def test_ids_that_parquet_does_not_hold(tmp_path, capsys):
    data = Interactions.from_arrays([1, 2, 1], [(1, "film"), (1, "film"), (2, "film")])
    EASE(10.0).fit(data).save(tmp_path / "model.npz")
    argv = ["recommend", tmp_path / "model.npz", "--users", "all", "--include-seen", "--out"]
    said = refusal(capsys, *argv, tmp_path / "lists.parquet")
    assert "must hold ids of one type, numbers or text" in said
    assert not (tmp_path / "lists.parquet").exists()
    assert main([*map(str, argv), str(tmp_path / "lists.csv")]) == 0
