"""Figure 4 of the FMF-LDP paper, on small data; its claims on data of the paper's shape are slow."""

import importlib.util
import math

import numpy as np
import pytest
from support.reproduce_case import check_result, written

from fastfedrec import FMFLDP, Interactions, Key, Popularity, datasets
from fastfedrec.cli.main import main
from fastfedrec.core import progress
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.studies.reproduce.minto2021 import figure_4 as minto2021
from fastfedrec.studies.reproduce.minto2021.figure_4 import (
    AS_PUBLISHED,
    NOT_PRIVATE,
    OURS,
    POPULARITY,
    PUBLISHED,
    figure_4,
)

PAPERS = Sampled(99, per="interaction")

SMALL = {(100, 120): 0.11, (300, 120): 0.22, (300, 245): 0.33, (9_000, 120): 0.44}


@pytest.fixture
def small(monkeypatch):
    """A grid for data of a few hundred users."""
    monkeypatch.setattr(minto2021, "PUBLISHED", SMALL)
    monkeypatch.setattr(minto2021, "MIN_INTERACTIONS", 10)
    monkeypatch.setattr(minto2021, "N_USERS", 400)
    monkeypatch.setattr(minto2021, "N_ITEMS", 300)


def small_data():
    return datasets.generate_implicit(400, 300, key=Key.from_seed(3))


def hit_ratios(figure):
    return [cell.hit_ratios for cell in figure.cells]


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_a_cell_by_hand(small):
    figure = figure_4(small_data(), n_seeds=2)
    data = small_data().filter_core(min_interactions_per_user=10, min_interactions_per_item=10)
    assert [(cell.n_users, cell.n_items, cell.published) for cell in figure.cells] == [
        (100, 120, 0.11), (300, 120, 0.22), (300, data.n_items, 0.33)
    ]  # fmt: skip
    assert 0.95 * 245 <= data.n_items < 245  # a few items fewer than the paper's: all there are
    key = Key.from_seed(1)
    users = key.permutation("reproduce.minto2021.users", size=data.n_users)[:300]
    items = key.permutation("reproduce.minto2021.items", size=data.n_items)[:120]
    dense = data.to_scipy()[np.sort(users)][:, np.sort(items)]
    subset = Interactions.from_scipy(dense)._replace(global_user_ids=data.global_user_ids[np.sort(users)])
    train, test = next(LeaveOneOut().split(subset, key=key))
    for name, model in (
        (OURS, FMFLDP()),
        (AS_PUBLISHED, FMFLDP(variant="published")),
        (NOT_PRIVATE, FMFLDP(epsilon=None)),
        (POPULARITY, Popularity()),
    ):
        model.fit(train, key=key)
        with pytest.warns(UserWarning, match="unseen items"):
            expected = evaluate(
                model, train, test, metrics=["hr@10"], candidates=Sampled(99, per="interaction"), key=key
            )["hr@10"]
        assert figure.cells[1].hit_ratios[name][1] == expected
        if name == OURS:
            assert figure.cells[1].epsilon == model.ledger_.to_dict()["epsilon"]
            assert model.ledger_.epsilon("server", 0) == 5_000


def test_the_grid_is_the_papers():
    assert len(PUBLISHED) == 9
    assert PUBLISHED[50_000, 1_000] == 0.6972
    assert {size[1] for size in PUBLISHED} == {1_000, 5_000, 9_781}


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_values_are_binarised_and_the_filter_is_the_papers(small):
    data = small_data()
    weak = data._replace(values=np.full(data.n_interactions, 0.5, dtype=np.float32))
    assert hit_ratios(figure_4(weak, n_seeds=1)) == hit_ratios(figure_4(data, n_seeds=1))


def test_finished_cells_are_kept_and_read_again(small, tmp_path, monkeypatch):
    first = figure_4(small_data(), n_seeds=2, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 6
    monkeypatch.setattr(minto2021, "_run", lambda *_: pytest.fail("a finished cell was computed again"))
    second = figure_4(small_data(), n_seeds=2, folder=tmp_path)
    assert second == first
    assert (
        figure_4(small_data(), n_seeds=1, folder=tmp_path).cells[0].hit_ratios[OURS]
        == (first.cells[0].hit_ratios[OURS][:1])
    )


@pytest.mark.parametrize("change", ["data", "models", "version", "threads"])
def test_cells_made_otherwise_are_made_again(small, tmp_path, monkeypatch, change):
    figure_4(small_data(), n_seeds=1, folder=tmp_path, n_threads=1)
    made = []
    run = minto2021._run
    monkeypatch.setattr(minto2021, "_run", lambda *arguments: made.append(arguments) or run(*arguments))
    data, n_threads = small_data(), 1
    if change == "data":  # one pair fewer, of the same sizes
        data = data.keep_interactions(np.arange(data.n_interactions) != np.argmax(data.interactions_per_user() > 30))
    elif change == "models":
        models = minto2021._models()
        monkeypatch.setattr(minto2021, "_models", lambda: models | {OURS: FMFLDP(n_rounds=2)})
    elif change == "version":
        monkeypatch.setattr(minto2021, "__version__", "another")
    else:
        n_threads = 2
    figure_4(data, n_seeds=1, folder=tmp_path, n_threads=n_threads)
    assert len(made) == 3


def test_quick_leaves_out_many_users(small, monkeypatch):
    monkeypatch.setattr(minto2021, "QUICK_USERS", 100)
    assert [cell.n_users for cell in figure_4(small_data(), n_seeds=1, quick=True).cells] == [100]


def test_what_is_shown(small, tmp_path):
    figure = figure_4(small_data(), n_seeds=2)
    text, page = check_result(figure, tmp_path)
    mean = np.mean(figure.cells[1].hit_ratios[OURS])
    row = next(line for line in text.splitlines() if line.startswith("300 x 120"))
    assert f"{mean:.3f} ± " in row
    assert " 4505 " in row
    assert "0.2200" in row
    assert text.startswith("The data given, users and items with at least 10 interactions: ")
    assert "9,000 x 120: left out, the data have" in text
    assert "| 300 x 120 | 0.2200 |" in page
    won = sum(np.mean(cell.hit_ratios[OURS]) > np.mean(cell.hit_ratios[POPULARITY]) for cell in figure.cells)
    assert f"FMF-LDP: above popularity in {won} of 3 cells." in text


def test_the_command(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "is_watched", lambda: True)
    words, out = "fmf-ldp --figure 4 --quick", tmp_path / "new" / "out"
    assert main(["reproduce", *words.split(), "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("GENERATED DATA of the paper's shape")
    assert "not MovieLens" in captured.out.splitlines()[0]
    assert "3/3" in captured.err
    document = written(words, out, "figure-4", capsys)
    assert len(document["cells"][0]["hit_ratios"][OURS]) == 1
    assert document["cells"][0]["published"] == 0.11


def test_the_command_on_a_users_own_copy(small, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "ml"
    folder.mkdir()
    data = small_data()
    users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    lines = [f"{user + 1}::{item + 1}::4::978300760\n" for user, item in zip(users, data.indices, strict=True)]
    (folder / "ratings.dat").write_text("".join(lines))
    (folder / "users.dat").write_text("".join(f"{user + 1}::F::1::10::48067\n" for user in range(400)))
    (folder / "movies.dat").write_text("".join(f"{item + 1}::A (1990)::Drama\n" for item in range(300)))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a))
    argv = ["reproduce", "fmf-ldp", "--figure", "4", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert main([*argv, "--data", str(folder)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("The data given, users and items with at least 10 interactions: 400 users x ")
    assert "no plot: matplotlib is not installed" in captured.err
    assert not (tmp_path / "out/figure-4.png").exists()


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data": 3}, TypeError, "data must be"),
        ({"n_seeds": 0}, ValueError, "n_seeds must be at least 1, got 0"),
        ({"data": Interactions.from_arrays([0], [0])}, ValueError, "data must have at least 1,000 users"),
    ],
)
def test_bad_inputs(arguments, error, message):
    data = {"data": small_data()}
    with pytest.raises(error, match=message):
        figure_4(**(data | arguments))


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_threads_change_no_hit_ratio(small):
    one, four = (figure_4(small_data(), n_seeds=1, n_threads=n) for n in (1, 4))
    assert hit_ratios(one) == hit_ratios(four)


# ---- statistics: the claims of docs/reproductions/fmf-ldp.md ---------------------------------------------------------


@pytest.mark.nightly
def test_the_figure_on_generated_data():
    figure = figure_4(n_seeds=1, quick=True)
    results = {(cell.n_users, cell.n_items): {n: v[0] for n, v in cell.hit_ratios.items()} for cell in figure.cells}
    assert 0.58 < results[10_000, 1_000][OURS] < 0.70
    assert results[1_000, 9_781][OURS] < 0.15  # at chance, as in the paper
    for (n_users, _), cell in results.items():
        # Four times twice the standard error of a share near chance, and of the difference from popularity.
        assert cell[AS_PUBLISHED] < 0.1 + 0.1 + 4 * math.sqrt(0.09 / n_users)
        assert cell[OURS] < cell[POPULARITY] < cell[NOT_PRIVATE]
