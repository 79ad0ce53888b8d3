"""Figures 2, 3 and 5 of the FMF-LDP paper, on small data."""

import numpy as np
import pytest
from support.reproduce_case import check_result, written

from fastfedrec import DPLCF, FMFLDP, Key, Popularity, datasets
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.studies.report import Record, Report
from fastfedrec.studies.reproduce.minto2021 import figure_4 as minto2021
from fastfedrec.studies.reproduce.minto2021 import hit_ratios as minto2021_figures
from fastfedrec.studies.reproduce.minto2021.figure_4 import AS_PUBLISHED, NOT_PRIVATE, OURS, POPULARITY, _subset_of
from fastfedrec.studies.reproduce.minto2021.hit_ratios import DPLCF_, RANDOM, STUDY, hit_ratio_figure

PAPERS = Sampled(99, per="interaction")


@pytest.fixture
def small(monkeypatch):
    """Sizes, epsilons and rounds for data of a few hundred users."""
    monkeypatch.setattr(minto2021, "MIN_INTERACTIONS", 10)
    monkeypatch.setattr(minto2021, "N_USERS", 400)
    monkeypatch.setattr(minto2021, "N_ITEMS", 300)
    sizes = ((100, 120), (300, 120))
    monkeypatch.setattr(minto2021_figures, "SIZES", {"2": sizes, "3": sizes[1:]})
    monkeypatch.setattr(minto2021_figures, "EPSILONS", (0.5, 2.0))
    monkeypatch.setattr(minto2021_figures, "N_REPORTS", {"2": (1, 20), "3": (10, 20), "5": (10, 20)})
    monkeypatch.setattr(minto2021_figures, "ROUNDS", (1, 3, 4))
    monkeypatch.setattr(minto2021_figures, "_QUICK_SIZE", (100, 120))


def small_data(timestamps=True):
    return datasets.generate_implicit(400, 300, key=Key.from_seed(3), timestamps=timestamps)


def filtered():
    return small_data().filter_core(min_interactions_per_user=10, min_interactions_per_item=10)


def hit_ratio(model, train, test, key, metric="hr@10"):
    model.fit(train, key=key)
    with pytest.warns(UserWarning, match="unseen items"):
        return evaluate(model, train, test, metrics=[metric], candidates=PAPERS, key=key)[metric]


def line_of(figure, panel, model):
    (line,) = (line for line in figure.lines if (line.panel, line.model) == (panel, model))
    return line


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_figure_2_by_hand(small):
    figure = hit_ratio_figure("2", small_data(), n_seeds=2)
    key = Key.from_seed(1)
    train, test = next(LeaveOneOut().split(_subset_of(filtered(), (300, 120), key), key=key))
    for variant, name in (("guaranteed", OURS), ("published", AS_PUBLISHED)):
        model = FMFLDP(5, 2.0, n_reports=20, n_rounds=20, variant=variant)
        expected = hit_ratio(model, train, test, key)
        line = line_of(figure, "300 users", f"{name}, k = 20")
        assert line.x == (0.5, 2.0)
        assert line.hit_ratios[1][1] == expected
        assert line.epsilon[1] == model.ledger_.to_dict()["epsilon"]
        assert model.ledger_.epsilon("server", 0) == 20 * 20 * 2.0
    popularity = line_of(figure, "300 users", POPULARITY)
    assert [values[1] for values in popularity.hit_ratios] == [hit_ratio(Popularity(), train, test, key)] * 2
    assert {line.panel for line in figure.lines} == {"100 users", "300 users"}
    assert len(figure.lines) == 2 * (2 * 2 + 3)


def test_a_learning_curve_is_that_of_shorter_runs(small):
    figure = hit_ratio_figure("3", small_data())
    key = Key.from_seed(0)
    train, test = next(LeaveOneOut().split(_subset_of(filtered(), (300, 120), key), key=key))
    line = line_of(figure, "300 users", f"{OURS}, k = 10")
    for n_rounds, ratios, cost in zip((1, 3, 4), line.hit_ratios, line.epsilon, strict=True):
        model = FMFLDP(5, 2.5, n_reports=10, n_rounds=n_rounds)
        assert ratios == [hit_ratio(model, train, test, key)]
        assert (
            cost["server"]
            == model.ledger_.epsilon("server")
            <= n_rounds * 10 * 2.5
            == model.ledger_.epsilon("server", 0)
        )


def test_figure_5_holds_out_the_last_of_all_data(small):
    figure = hit_ratio_figure("5", small_data())
    key, data = Key.from_seed(0), filtered()
    train, test = next(LeaveOneOut(latest=True).split(_subset_of(data, (data.n_users, data.n_items), key), key=key))
    other, _ = next(LeaveOneOut().split(data, key=key))
    assert not np.array_equal(train.indices, other.indices)
    line = line_of(figure, f"{data.n_users:,} users", DPLCF_)
    assert line.x == (2, 5, 10)
    assert line.published == (0.4203, 0.5969, 0.7000)
    for x, ratios in zip(line.x, line.hit_ratios, strict=True):
        assert ratios == [hit_ratio(DPLCF(2.5), train, test, key, f"hr@{x}")]
    assert line_of(figure, line.panel, f"{AS_PUBLISHED}, k = 20").published is None  # not a k of the paper


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_what_is_printed_is_the_papers():
    assert minto2021_figures.PUBLISHED[f"{AS_PUBLISHED}, k = 250"] == (0.2315, 0.3980, 0.5384)
    assert set(minto2021_figures.PUBLISHED) == {
        NOT_PRIVATE, DPLCF_, RANDOM, f"{AS_PUBLISHED}, k = 100", f"{AS_PUBLISHED}, k = 250"
    }  # fmt: skip
    assert minto2021_figures.N_REPORTS["5"] == (100, 250)


def test_threads_change_no_hit_ratio(small):
    one, four = (hit_ratio_figure("3", small_data(), n_threads=n) for n in (1, 4))
    assert one.lines == four.lines


def test_the_verdict_follows_the_lines():
    def figure(number, values):
        def line(model, hit_ratios):
            return Record(panel="9 users", model=model, x=(1.0, 2.0), hit_ratios=tuple([x] for x in hit_ratios))

        lines = [line(f"{variant}, k = {k}", values[k]) for variant in (OURS, AS_PUBLISHED) for k in values]
        lines.append(line(POPULARITY, (0.4, 0.4)))
        return Report(STUDY, "data", {"n_reports": list(values)}, figure=number, lines=tuple(lines))

    values = {1: (0.1, 0.2), 50: (0.3, 0.6)}
    assert figure("2", values).verdict().splitlines()[0] == (
        "9 users, FMF-LDP: at most 0.600 (k = 50, epsilon 2), 0.200 with k = 1; above popularity at 1 of 4 points."
    )
    assert "k = 1 never above .5, 0.200 at the end; k = 50 above .5 after 2 rounds" in figure("3", values).verdict()
    assert "k = 50 0.600 at K = 2; popularity 0.400" in figure("5", values).verdict()


@pytest.mark.parametrize("number", ["2", "3", "5"])
def test_what_is_shown(small, tmp_path, number):
    figure = hit_ratio_figure(number, small_data(), n_seeds=2)
    text, _ = check_result(figure, tmp_path)
    line = line_of(figure, figure.lines[-1].panel, f"{OURS}, k = 20")
    assert f"{np.mean(line.hit_ratios[-1]):.3f} ± " in text
    assert text.startswith("The data given, users and items with at least 10 interactions: ")
    assert minto2021_figures.PAPER_CLAIMS[number] in text


@pytest.mark.parametrize("number", ["2", "5"])
def test_the_command(small, tmp_path, capsys, number):
    document = written(f"fmf-ldp --figure {number} --quick", tmp_path, f"figure-{number}", capsys)
    assert document["source"].startswith("GENERATED DATA of the paper's shape")
    assert document["figure"] == number
    assert {line["panel"] for line in document["lines"]} == {"100 users"}


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"figure": "4"}, ValueError, "figure must be"),
        ({"data": 3}, TypeError, "data must be"),
        ({"n_seeds": 0}, ValueError, "n_seeds must be at least 1, got 0"),
    ],
)
def test_bad_inputs(small, arguments, error, message):
    with pytest.raises(error, match=message):
        hit_ratio_figure(**({"figure": "2", "data": small_data()} | arguments))


def test_figure_5_needs_timestamps(small):
    with pytest.raises(ValueError, match="timestamp"):
        hit_ratio_figure("5", small_data(timestamps=False))
