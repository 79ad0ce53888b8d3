"""Errors of the command line that a new user meets first: each names the remedy."""

import json

import pytest

from fastfedrec import Key, Popularity, datasets
from fastfedrec.cli.main import main

DATA = "generated:300x40"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ratings.csv"
    rows = [f"{user},{(user * 7 + k * k) % 30},{1 + k % 5},{100 * user + k}" for user in range(60) for k in range(8)]
    path.write_text("\n".join(["user,item,rating,timestamp", *rows]) + "\n")
    return path


def error_of(capsys, *argv):
    assert main([str(word) for word in argv]) == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("argv", "remedy"),
    [
        (["compare", "--data", DATA, "--system", "dp-gram,ease"], "each after its own --system"),
        (["compare", "--data", DATA, "--system", "ease", "--system", "dp-gram", "--set", "epsilon=1,2"],
         "--set epsilon must be one value, got '1,2'; repeat --system dp-gram for each value, or use fastfedrec sweep"),
        (["fit", "dp-gram", "--data", DATA, "--set", "epsilon=1,2"], "--set epsilon must be one value, got '1,2'"),
        (["compare", "--data", DATA, "--metrics", "hr@10", "ndcg@10"], "separate metrics by commas"),
        (["evaluate", "ease", "dp-gram", "--data", DATA], "fastfedrec compare takes several systems"),
        (["evaluate", "ease", "--data", DATA, "--metrics", "ndgc@10"], "did you mean 'ndcg@10'?"),
        (["evaluate", "ease", "--data", DATA, "--out", "x.tex"], "fastfedrec compare writes tables and plots"),
        (["sweep", "--system", "ease", "--data", DATA, "--by", "temporal"], "fastfedrec split --by"),
        (["fit", "dp-gram", "--data", DATA, "--set", "epsilon=0"], "pass for example 1.0"),
        (["fit", "ease", "--data", "https://example.org/ratings.csv"], "is an address; download it"),
    ],
)  # fmt: skip
def test_remedies(capsys, argv, remedy):
    assert remedy in error_of(capsys, *argv)


def test_no_suggestion_of_an_option_without_resemblance(capsys):
    assert "did you mean" not in error_of(capsys, "evaluate", "ease", "--data", DATA, "--colour", "x")
    # The negative control: a misspelt option still has one.
    assert "did you mean '--user-groups'?" in error_of(capsys, "evaluate", "ease", "--data", DATA, "--by-group", "x")
    assert "(did you mean '--metrics'?)" in error_of(capsys, "evaluate", "ease", "--data", DATA, "--metric", "hr@10")


def test_a_tuple_is_a_value_where_a_parameter_takes_one(capsys):
    error = error_of(capsys, "fit", "laplace-rr-svd", "--data", DATA, "--set", "grid=(5,1)")
    assert "must be one value" not in error


def test_names_of_files_and_columns(capsys, file):
    assert f"does not exist (did you mean '{file.name}'?)" in error_of(
        capsys, "fit", "ease", "--data", file.with_name("rating.csv")
    )
    assert "(did you mean 'rating'?)" in error_of(capsys, "fit", "biased-mf", "--data", file, "--value", "Rating")


def test_a_file_without_names_of_columns_keeps_ratings_and_times(capsys, file):
    rows = file.read_text().splitlines(keepends=True)[1:]
    file.write_text("".join(rows))
    remedy = "--no-header --user 0 --item 1 --value 2 --timestamp 3"
    assert remedy in error_of(capsys, "fit", "ease", "--data", file)
    parts = file.parent / "parts"
    assert main(["split", "--data", str(file), *remedy.split(), "--by", "temporal", "--out", str(parts)]) == 0
    capsys.readouterr()
    assert "pass --train and --test" in error_of(capsys, "compare", "--data", parts)


@pytest.mark.filterwarnings("default")  # warnings would be errors here
@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_systems_before_one_set_do_not_share_it(capsys, file, tmp_path, command):
    options = ["--seeds", "1", *(["--out", str(tmp_path / "out"), "--no-baselines"] if command == "sweep" else [])]
    systems = ["--system", "dp-popularity", "--system", "dp-gram", "--set", "epsilon=3"]
    assert main([command, "--data", str(file), "--binarize", "2", *systems, *options]) == 0
    assert "warning: --system dp-popularity has its default epsilon" in capsys.readouterr().err


def test_systems_with_other_parameters_cause_no_warning(capsys, file):
    argv = ["compare", "--data", str(file), "--binarize", "2", "--system", "popularity"]
    assert main([*argv, "--system", "dp-popularity", "--set", "epsilon=3"]) == 0
    assert "belongs" not in capsys.readouterr().err


def test_files_of_a_comparison_name_delta_and_relation(capsys, file, tmp_path):
    argv = ["compare", "--data", str(file), "--binarize", "2", "--system", "popularity", "--system", "dp-popularity"]
    outputs = [tmp_path / "t.tex", tmp_path / "t.md"]
    assert main([*argv, "--out", *map(str, outputs)]) == 0
    capsys.readouterr()
    for output in outputs:
        assert "for replacing all of the user's data" in output.read_text()
    head, _, table = outputs[0].read_text().partition("\\begin{tabular}")
    assert all(line.startswith("% ") for line in head.splitlines())
    assert "%" not in table


def test_validation_of_a_split_by_time_is_by_time(capsys, file, tmp_path):
    parts = tmp_path / "parts"
    assert main(["split", "--data", str(file), "--by", "time", "--out", str(parts)]) == 0
    argv = ["sweep", "--train", str(parts / "train.csv"), "--test", str(parts / "test.csv"), "--binarize", "2"]
    argv += ["--system", "popularity", "--no-baselines", "--seeds", "1", "--validate", "--out", str(tmp_path / "out")]
    assert main([*argv, "--json"]) == 0
    text = capsys.readouterr().out
    document = json.loads(text[text.index("{") :])
    assert document["settings"]["validation"] == "LeaveOneOut(latest=True)"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("evaluate popularity --data generated:90x40 --user-groups none.csv", "--user-groups none.csv: No such file"),
        ("recommend {model} --users 1 --items-file none.txt", "--items-file none.txt: No such file"),
        ("ledger none.json", "file none.json: No such file"),
        ("advise --users 90 --items 9 --epsilon 1 --trust central --measured {model}", "--measured must be a file of"),
        ("recommend {model} --users 9999", "such as 0; pass --unknown popular, or the items of this user as"),
        ("recommend {model} --items-of 9999", "--items-of must be items that the model knows, got 9999"),
    ],
)
def test_errors_of_files_and_ids_name_the_option(words, error, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Popularity().fit(datasets.generate_implicit(90, 40, key=Key.from_seed(1))).save("model.npz")
    assert main(words.format(model="model.npz").split()) == 2
    assert error in capsys.readouterr().err


def write_csv(path, rows, header="user,item"):
    path.write_text("\n".join([header, *rows, ""]))
    return str(path)


@pytest.mark.parametrize("command", ["compare", "evaluate ease"])
def test_data_without_a_test_are_named_once_and_before_a_fit(command, tmp_path, capsys):
    single = write_csv(tmp_path / "single.csv", [f"{user},{user % 3}" for user in range(5)])
    assert main([*command.split(), "--data", single]) == 2
    assert capsys.readouterr().err == (
        f"fastfedrec: error: --data {single} leaves no test: no user has enough items to hold one out\n"
    )
    rated = write_csv(
        tmp_path / "rated.csv",
        [f"{user},{item},{1 + item}" for user in range(9) for item in range(5)],
        "user,item,rating",
    )
    assert main([*command.split(), "--data", rated, "--threshold", "99"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "--threshold 99 leaves no test item; the largest value of the test is " in errors[-1]
    assert not any("failed" in line for line in errors)


@pytest.mark.filterwarnings("default")
def test_unknown_items_and_other_types_of_ids_in_recommend(tmp_path, capsys):
    numbers = write_csv(tmp_path / "numbers.csv", [f"{user},{item}" for user in range(9) for item in range(5)])
    model = str(tmp_path / "model.npz")
    assert main(["fit", "popularity", "--data", numbers, "--out", model, "--no-users"]) == 0
    capsys.readouterr()
    others = write_csv(tmp_path / "others.csv", ["1,77", "2,78"])
    assert main(["recommend", model, "--data", others, "--quiet"]) == 0
    assert f"warning: 2 of 2 items of {others} are unknown to the model, and skipped" in capsys.readouterr().err
    some = write_csv(tmp_path / "some.csv", ["1,77", "2,3"])
    assert main(["recommend", model, "--data", some]) == 0
    assert f"1 of 2 items of {some} are unknown to the model, and skipped" in capsys.readouterr().err
    text = write_csv(tmp_path / "text.csv", ["1,4", "2,x5"])
    assert main(["recommend", model, "--data", text]) == 2
    assert f"--data {text} must have numbers as items, as the model has, got 'x5'" in capsys.readouterr().err


@pytest.mark.parametrize("rating", ["nan", "inf"])
def test_ratings_of_items_must_be_finite(rating, tmp_path, capsys):
    rated = write_csv(tmp_path / "rated.csv", ["1,2,3", "1,3,4", "2,2,5", "2,3,1"], "user,item,rating")
    model = str(tmp_path / "model.npz")
    assert main(["fit", "rating-item-knn", "--data", rated, "--out", model]) == 0
    assert main(["recommend", model, "--items-of", f"2={rating}"]) == 2
    assert f"--items-of must have finite numbers as ratings, as 3=4.5, got 2={rating}" in capsys.readouterr().err
