"""The command line, through `main` and once through the installed script."""

import json
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from support.cli_case import DATA, refusal, run_json

import fastfedrec
from fastfedrec import (
    FMFLDP,
    BiasedMF,
    GlobalMean,
    Interactions,
    Key,
    LaplaceRRSVD,
    Popularity,
    RatingItemKNN,
    UserMean,
    datasets,
)
from fastfedrec.cli.inputs import make_system
from fastfedrec.cli.main import build_parser, main
from fastfedrec.core import progress
from fastfedrec.evaluation import LeaveOneOut, RandomHoldout, Sampled, evaluate, evaluate_ratings

FIT = ["fit", "fmf-ldp", "--data", DATA, "--set", "n_rounds=3", "n_reports=20"]


def generated():
    return datasets.generate_implicit(400, 300, key=Key.from_seed(0))


def save_ratings(path):
    """Save random ratings of 40 users in SciPy's format and return them as interactions."""
    matrix = scipy.sparse.csr_array(np.random.default_rng(1).integers(0, 6, (40, 25)).astype(np.float32))
    scipy.sparse.save_npz(path, matrix)
    return Interactions.from_scipy(matrix)


# ---- oracle: the same as the Python interface ----------------------------------------------------------------------


def test_fit_and_recommend_equal_the_python_interface(tmp_path, capsys):
    model = FMFLDP(n_rounds=3, n_reports=20).fit(generated(), key=Key.from_seed(5))
    path = tmp_path / "model"
    document = run_json(capsys, *FIT, "--seed", 5, "--out", path)
    assert document["parameters"] == model.get_params()
    assert document["privacy"] == model.ledger_.to_dict()
    assert document["communication"] == model.communication_.to_dict()
    assert document["data"]["n_interactions"] == generated().n_interactions
    assert "no guarantee covers" in document["not_covered"]
    np.testing.assert_array_equal(fastfedrec.load(path).item_factors_, model.item_factors_)

    for options, filter_seen in (([], True), (["--include-seen"], False)):
        ids, scores = model.recommend([7, 0], n=4, filter_seen=filter_seen)
        actual = run_json(capsys, "recommend", path, "--users", 7, 0, "-n", 4, *options)["recommendations"]
        assert [entry["user"] for entry in actual] == [7, 0]
        assert [entry["items"] for entry in actual] == ids.tolist()
        assert [entry["scores"] for entry in actual] == scores.tolist()


def test_recommend_takes_candidates_and_unknown_users(tmp_path, capsys):
    model = Popularity().fit(generated(), key=Key.from_seed(5))
    path = tmp_path / "model"
    model.save(path)
    options = ["--items", 3, 4, 5, 6, "--exclude", 4, 999, "-n", 10]
    actual = run_json(capsys, "recommend", path, "--users", 7, 12345, *options, "--unknown", "popular")
    ids, scores = model.recommend([7, 12345], items=[3, 5, 6], unknown="popular")
    for row, entry in enumerate(actual["recommendations"]):
        there = np.isfinite(scores[row])
        assert entry["items"] == ids[row][there].tolist()
        assert entry["scores"] == scores[row][there].tolist()
    assert len(actual["recommendations"][1]["items"]) == 3
    actual = run_json(capsys, "recommend", path, "--users", 12345, 7, "--unknown", "skip")
    assert [len(entry["items"]) for entry in actual["recommendations"]] == [0, 10]
    text = refusal(capsys, "recommend", path, "--users", 12345)
    assert "user id 12345 is unknown" in text
    assert "pass --unknown popular, or the items of this user as --items-of" in text
    assert "item id 999 is unknown" in refusal(capsys, "recommend", path, "--users", 7, "--items", 999)
    said = refusal(capsys, "recommend", path, "--users", 7, "--exclude", "tea")
    assert "--exclude must be numbers like the model's ids (int64), got ['tea']" in said


def test_evaluate_equals_the_python_interface(capsys):
    argv = ["evaluate", "FMFLDP", "--data", DATA, "--set", "n_rounds=2", "--metrics", "hr@5,mrr", "--negatives", "50"]
    document = run_json(capsys, *argv, "--seeds", 2)
    assert list(document["results"]) == ["FMFLDP", "Random", "Popularity"]
    for name, model in (("FMFLDP", FMFLDP(n_rounds=2)), ("Popularity", Popularity())):
        for seed in range(2):
            key = Key.from_seed(seed)
            train, test = next(LeaveOneOut().split(generated(), key=key))
            model.fit(train, key=key)
            expected = evaluate(model, train, test, metrics=["hr@5", "mrr"], candidates=Sampled(50), key=key)
            for metric, value in expected.items():
                assert document["results"][name][metric]["values"][seed] == value
    values = document["results"]["FMFLDP"]["mrr"]["values"]
    assert document["results"]["FMFLDP"]["mrr"]["mean"] == pytest.approx(np.mean(values), rel=1e-14)
    assert document["results"]["FMFLDP"]["mrr"]["std"] == pytest.approx(np.std(values, ddof=1), rel=1e-9)
    assert document["epsilon"]["FMFLDP"]["server"] == FMFLDP(n_rounds=2).fit(generated()).ledger_.epsilon("server")


def test_ratings_are_evaluated_by_their_errors(tmp_path, capsys):
    data = save_ratings(tmp_path / "ratings.npz")
    argv = ["evaluate", "laplace-rr-svd", "--data", tmp_path / "ratings.npz", "--set", "epsilon_1=2.0"]
    document = run_json(capsys, *argv, "--metrics", "rmse,mae", "--seeds", 2)
    assert list(document["results"]) == ["LaplaceRRSVD", "GlobalMean", "ItemMean"]
    assert document["protocol"] == "predicted ratings"
    for seed in range(2):
        key = Key.from_seed(seed)
        train, test = next(RandomHoldout(share=0.2).split(data, key=key))
        expected = evaluate_ratings(LaplaceRRSVD(epsilon_1=2.0).fit(train, key=key), test)
        assert {m: document["results"]["LaplaceRRSVD"][m]["values"][seed] for m in ("rmse", "mae")} == expected
    assert main([*map(str, argv), "--metrics", "rmse", "--seeds", "1"]) == 0
    assert "a fifth of each user's ratings held out" in capsys.readouterr().out
    document = run_json(capsys, "fit", *argv[1:], "--out", tmp_path / "model")
    assert document["privacy"]["events"][0]["fields"]["epsilon"] == pytest.approx(3.0, rel=1e-6)
    actual = run_json(capsys, "recommend", tmp_path / "model", "--users", 3, "-n", 2)["recommendations"]
    assert len(actual[0]["items"]) == 2


def test_rating_baselines_are_systems_with_parameters(tmp_path, capsys):
    key = Key.from_seed(0)
    train, test = next(RandomHoldout(share=0.2).split(save_ratings(tmp_path / "ratings.npz"), key=key))
    for name, model in (
        ("global-mean", GlobalMean(epsilon=0.5)),  # the private mean, not the baseline that accompanies other models
        ("user-mean", UserMean(epsilon=0.5)),
        ("biased-mf", BiasedMF()),
        ("rating-item-knn", RatingItemKNN(n_neighbors=3)),
    ):
        values = {k: v for k, v in model.get_params().items() if v != type(model)().get_params()[k]}
        options = ["--set", *(f"{k}={v}" for k, v in values.items())] if values else []
        argv = [name, "--data", tmp_path / "ratings.npz", *options]
        document = run_json(capsys, "evaluate", *argv, "--metrics", "rmse", "--seeds", 1)
        assert set(document["results"]) == {type(model).__name__, "GlobalMean", "ItemMean"}
        expected = evaluate_ratings(model.fit(train, key=key), test, metrics=["rmse"])["rmse"]
        assert document["results"][type(model).__name__]["rmse"]["values"] == [expected]
        fitted = run_json(capsys, "fit", *argv, "--out", tmp_path / "model")
        assert fitted["parameters"] == json.loads(json.dumps(model.get_params()))
        actual = run_json(capsys, "recommend", tmp_path / "model", "--users", 3, "-n", 2)["recommendations"]
        assert len(actual[0]["items"]) == 2
    assert expected != evaluate_ratings(GlobalMean().fit(train, key=key), test, metrics=["rmse"])["rmse"]
    halves = tmp_path / "halves.csv"  # the means beside a model take its scale: on their own they would warn
    halves.write_text("user,item,rating\n" + "".join(f"{k % 9},{k % 7},{k % 6 / 2}\n" for k in range(63)))
    argv = ["user-mean", "--data", halves, "--set", "grid=[0,.5,1,1.5,2,2.5]", "--metrics", "rmse", "--seeds", 1]
    assert set(run_json(capsys, "evaluate", *argv)["results"]) == {"UserMean", "GlobalMean", "ItemMean"}


def test_a_matrix_that_unpacks_to_more_than_its_file_may_is_not_read(tmp_path, capsys):
    sound = {"format": b"csr", "shape": (2, 9), "indptr": np.zeros(3, dtype=np.int32)}
    np.savez_compressed(tmp_path / "bomb.npz", data=np.zeros(2**24), indices=np.zeros(2**24, dtype=np.int32), **sound)
    assert "it would unpack to 201327" in refusal(capsys, "fit", "popularity", "--data", tmp_path / "bomb.npz")


@pytest.mark.ignores_values
@pytest.mark.parametrize(
    ("format", "name"), [("csr", "indices"), ("csr", "indptr"), ("csc", "indices"), ("coo", "col")]
)
def test_a_matrix_with_indices_that_would_be_rounded_is_not_read(tmp_path, capsys, format, name):
    sound = scipy.sparse.random_array((30, 12), density=0.3, random_state=np.random.default_rng(1), format=format)
    scipy.sparse.save_npz(tmp_path / "sound.npz", sound)
    assert main(["fit", "popularity", "--data", str(tmp_path / "sound.npz")]) == 0
    members = dict(np.load(tmp_path / "sound.npz"))
    assert name in members, members.keys()
    np.savez(tmp_path / "wrong.npz", **members | {name: members[name] + 0.4})
    said = refusal(capsys, "fit", "popularity", "--data", tmp_path / "wrong.npz")
    assert f"{name} must hold integers, got dtype float64" in said


@pytest.mark.ignores_values
def test_every_kind_of_data(tmp_path, capsys):
    matrix = scipy.sparse.random_array((30, 12), density=0.3, random_state=np.random.default_rng(1), format="csr")
    scipy.sparse.save_npz(tmp_path / "matrix.npz", matrix)
    npz = run_json(capsys, "fit", "popularity", "--data", tmp_path / "matrix.npz")["data"]
    assert (npz["n_users"], npz["n_items"], npz["n_interactions"]) == (30, 12, matrix.nnz)

    (tmp_path / "ml").mkdir()
    (tmp_path / "ml" / "ratings.dat").write_text("1::10::5::978300760\n1::20::3::978300761\n2::10::4::978300762\n")
    (tmp_path / "ml" / "users.dat").write_text("1::F::1::10::48067\n2::M::56::16::70072\n")
    (tmp_path / "ml" / "movies.dat").write_text("10::A (1990)::Drama\n20::B (1991)::Comedy\n")
    out = tmp_path / "model"
    folder = run_json(capsys, "fit", "popularity", "--data", tmp_path / "ml", "--out", out)["data"]
    assert (folder["n_users"], folder["n_items"], folder["n_interactions"]) == (2, 2, 3)
    entry = run_json(capsys, "recommend", out, "--users", 2, "-n", 2)["recommendations"][0]
    assert entry["items"] == [20]  # the only unseen one: no seen item fills the list

    (tmp_path / "table.csv").write_text("item,when,user,value\n7,1,ann,2\n8,1,ann,3\n7,1,bob,1\n")
    (tmp_path / "table.tsv").write_text("user\titem\n1\t7\n1\t8\n2\t7\n")
    (tmp_path / "training_set").mkdir()
    (tmp_path / "training_set" / "mv_0000001.txt").write_text("1:\n5,3,2005-09-06\n6,4,2005-09-07\n")
    (tmp_path / "training_set" / "mv_0000002.txt").write_text("2:\n6,5,2005-09-07\n")
    (tmp_path / "movie_titles.txt").write_text("1,2003,Dinosaur Planet\n2,NULL,Eros\n")
    for name in ("table.csv", "table.tsv", "training_set", "."):
        table = run_json(capsys, "fit", "popularity", "--data", f"{tmp_path}/{name}")["data"]
        assert (table["n_users"], table["n_items"], table["n_interactions"]) == (2, 2, 3)

    cut = run_json(capsys, "fit", "popularity", "--data", DATA, "--top-items", 50, "--min-interactions", 25)["data"]
    data = generated().top_items(50).filter_core(min_interactions_per_user=25, min_interactions_per_item=1)
    assert (cut["n_users"], cut["n_items"], cut["n_interactions"]) == (*data.shape, data.n_interactions)


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        (["ann", "bob"], ["bob", "ann"]),
        ([1.5, 2.0], ["2", "1.5"]),
        ([("a", 1), ("b", 2)], ["('b', 2)", "('a', 1)"]),
    ],
)
def test_users_are_named_in_the_type_of_the_model(tmp_path, capsys, ids, texts):
    data = Interactions.from_arrays([ids[0], ids[0], ids[1]], [10, 20, 10])
    Popularity().fit(data).save(tmp_path / "model")
    actual = run_json(capsys, "recommend", tmp_path / "model", "--users", *texts, "-n", 1, "--include-seen")
    assert [entry["items"] for entry in actual["recommendations"]] == [[10], [10]]
    assert len(actual["recommendations"]) == 2


# ---- invariants ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fmf-ldp", "FMFLDP", "Fmf-Ldp", "fmfldp"])
def test_systems_by_any_spelling(name):
    assert type(make_system(name, [])) is FMFLDP


@given(st.one_of(st.none(), st.floats(0.01, 30)), st.integers(1, 10**6), st.sampled_from(["guaranteed"]))
def test_set_reads_python_values(epsilon, n_reports, variant):
    model = make_system("fmf-ldp", [f"epsilon={epsilon}", f"n_reports={n_reports}", f"variant={variant}"])
    assert (model.epsilon, model.n_reports, model.variant) == (epsilon, n_reports, variant)


def test_set_may_be_repeated():
    arguments = build_parser().parse_args(["fit", "x", "--data", "y", "--set", "a=1", "b=2", "--set", "c=3"])
    assert arguments.set == ["a=1", "b=2", "c=3"]


def test_a_fit_without_a_seed_is_no_simulation(capsys):
    first, second = (run_json(capsys, *FIT)["privacy"] for _ in range(2))
    assert first == second
    assert not first["is_simulation"]
    assert first["epsilon"]["server"] == 3 * 20 * 2.5


def test_text_of_fit(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "is_watched", lambda: True)
    assert main([*FIT, "--seed", "1"]) == 0
    captured = capsys.readouterr()
    for part in ("150.0", "this run is a simulation without protection", "Communication ledger", "was not saved"):
        assert part in captured.out
    assert "round" in captured.err  # the progress bar


def test_recommend_states_that_all_users_get_popular_items(tmp_path, capsys):
    path = str(tmp_path / "model.npz")
    assert (
        main(["fit", "dp-gram", "--data", "generated:60x40", "--set", "epsilon=1", "--seed", "1", "--out", path]) == 0
    )
    capsys.readouterr()
    for options, noted in (
        ((), True),
        (("--json",), True),
        (("--out", str(tmp_path / "lists.csv")), True),
        (("--quiet",), False),
    ):
        assert main(["recommend", path, "--users", "0", *options]) == 0
        captured = capsys.readouterr()
        assert ("DPGram gave all users the same list" in captured.err) == noted, options
        # Programs read the standard output, so that it holds the answer alone.
        assert "same list" not in captured.out


def test_text_of_evaluate_and_recommend(tmp_path, capsys):
    assert main(["evaluate", "popularity", "--data", DATA, "--seeds", "1", "--negatives", "all"]) == 0
    out = capsys.readouterr().out
    assert "all unseen items, seed 0 (a simulation)\n" in out
    assert out.count("Popularity") == 2  # its line of the table, and the model above it
    private = ["evaluate", "dp-gram", "--data", "generated:60x40", "--set", "epsilon=1", "--seeds", "1", "--quiet"]
    assert main([*private, "--negatives", "5"]) == 0
    out = capsys.readouterr().out
    assert "DPGram gave all users the same list, by its own private measurement." in out
    assert "SIMULATION" not in out
    assert main([*private, "--negatives", "5", "--details"]) == 0
    out = capsys.readouterr().out
    assert "DPGram spent all of epsilon on popularity, because its noise would be too large with a part." in out
    assert main(["fit", "popularity", "--data", DATA, "--out", str(tmp_path / "m")]) == 0
    assert "Saved" in capsys.readouterr().out
    assert main(["recommend", str(tmp_path / "m"), "--users", "3", "-n", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_the_installed_script():
    script = Path(sysconfig.get_path("scripts"), "fastfedrec")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"fastfedrec {fastfedrec.__version__}\n"
    done = subprocess.run([script, "fit", "nothing", "--data", "x"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fastfedrec: error: unknown system 'nothing'")


# ---- bad inputs ----------------------------------------------------------------------------------------------------


def test_a_table_without_ratings_is_recognized_by_its_columns_and_not_by_its_rows(tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text("user,item\n1,2\n1,3\n2,3\n")
    for name in ("laplace-rr-svd", "fedrec"):
        assert "fits ratings, but " in (error := refusal(capsys, "fit", name, "--data", path))
        assert "is recognized as 'value', out of ['user', 'item']" in error
    for value in (1, 3):  # all ratings are 1, or one is not
        path.write_text(f"user,item,value\n1,2,1\n1,3,{value}\n2,3,1\n")
        assert main(["fit", "laplace-rr-svd", "--data", str(path)]) == 0


def test_a_model_is_saved_without_users_on_request(tmp_path, capsys):
    for options, n_users, said in (([], 400, "only its owner may read it"), (["--no-users"], 0, "without users")):
        path = tmp_path / f"model of {n_users}"
        assert main(["fit", "popularity", "--data", DATA, "--out", str(path), *options]) == 0
        assert said in capsys.readouterr().out.splitlines()[-1]
        assert fastfedrec.load(path).interactions_.n_users == n_users
        assert path.stat().st_mode & 0o077 == (0 if n_users else 0o066 & path.stat().st_mode)
    assert "was saved without users" in refusal(capsys, "recommend", path, "--users", 1)
    said = refusal(capsys, "fit", "popularity", "--data", DATA, "--no-users")
    assert "--no-users needs --out FILE" in said


def test_no_budget_is_spent_on_a_model_that_could_not_be_saved(tmp_path, capsys, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr("fastfedrec.cli.fit.load_data", lambda *_: pytest.fail("it was begun"))
    for path, message in ((tmp_path / "link", "is a link"), ("/dev/null", "is no ordinary file")):
        assert message in refusal(capsys, "fit", "popularity", "--data", DATA, "--out", path)


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, 130), (ArithmeticError, 2)])
def test_a_fit_that_does_not_finish_prints_its_spent_budget(error, status, tmp_path, capsys, monkeypatch):
    def stop(self, state, number):
        if number == 1:
            raise error("stop here")

    monkeypatch.setattr(FMFLDP, "_check_convergence", stop)
    assert main([*FIT, "--seed", "5", "--out", str(tmp_path / "model")]) == status
    said = capsys.readouterr().err
    assert "there is no model, but this privacy budget is spent" in said
    assert "2 rounds" in said
    assert list(tmp_path.iterdir()) == []


def test_errors_about_saved_models(tmp_path, capsys):
    path = tmp_path / "model"
    assert main(["fit", "popularity", "--data", DATA, "--out", str(path)]) == 0
    (tmp_path / "text.npz").write_text("no model")
    (tmp_path / "names.csv").write_text("who,what\n1,2\n")
    np.savez(tmp_path / "plain.npz", x=np.ones(3))
    for argv, message in (
        (["evaluate", path, "--data", DATA], "was trained on all of its data"),
        (["recommend", path, "--users", "ann"], "--users must be numbers"),
        (["recommend", path, "--users", "400"], "user id 400 is unknown"),
        (["recommend", tmp_path / "text.npz", "--users", "1"], "is not a model saved by fastfedrec"),
        (["fit", "random", "--data", tmp_path / "plain.npz"], "must be a SciPy sparse matrix"),
        (["fit", "random", "--data", tmp_path / "text.npz"], "must be a SciPy sparse matrix"),
        (["fit", "random", "--data", DATA, "--out", tmp_path], "--out"),
        (["fit", "random", "--data", tmp_path / "absent.csv"], "absent.csv' does not exist"),
        (["fit", "random", "--data", tmp_path / "names.csv"], "user and item must be given, because no column of"),
        (["demo", "--out", path], "must be a folder, and a file is there"),
    ):
        assert message in refusal(capsys, *argv)


def test_debug_shows_the_traceback(capsys):
    assert main(["fit", "random", "--data", "absent", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_warnings_are_one_line(capsys):
    assert main(["evaluate", "random", "--data", "generated:50x60", "--seeds", "1", "--negatives", "99"]) == 0
    assert "fastfedrec: warning: 50 of 50 tested users have fewer" in capsys.readouterr().err


# ---- threads -------------------------------------------------------------------------------------------------------


def test_threads_change_no_bit(tmp_path, capsys):
    documents = []
    for n in (1, 4):
        document = run_json(capsys, *FIT, "--seed", 9, "--threads", n, "--out", tmp_path / "model")
        del document["fit_seconds"]
        documents.append((document, fastfedrec.load(tmp_path / "model").item_factors_))
    assert documents[0][0] == documents[1][0]
    np.testing.assert_array_equal(documents[0][1], documents[1][1])


@pytest.mark.parametrize("argv", [["fit"], ["evaluate", "--seeds", "1"]])
def test_threads_reach_the_system(monkeypatch, capsys, argv):
    seen = []
    fit = Popularity.fit
    monkeypatch.setattr(
        Popularity, "fit", lambda *args, **kwargs: seen.append(kwargs["n_threads"]) or fit(*args, **kwargs)
    )
    assert main([argv[0], "popularity", "--data", DATA, "--threads", "3", *argv[1:]]) == 0
    assert seen == [3]


# ---- account --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody may write to")
@pytest.mark.parametrize(
    "arguments",
    [
        "fit popularity --data absent.csv --out /proc/model.npz",
        "compare --data absent.csv --out /proc/table.md",
        "split --data absent.csv --out /proc/new/parts",
        "sweep --system popularity --data absent.csv --out /proc/new",
        "sweep --advice --out /proc/new",
        "reproduce dp-gram --figure map --out /proc",
        "demo --out /proc/new/demo",
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_the_work(capsys, arguments):
    assert "/proc cannot be written to" in refusal(capsys, *arguments.split()).replace(" is in /proc, which", " /proc")
