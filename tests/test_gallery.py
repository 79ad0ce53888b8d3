"""The gallery: every program runs as the pages' build runs it, and what its text claims is true of what it draws."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from fastfedrec.accounting import shuffled_epsilon

GALLERY = Path(__file__).parents[1] / "examples" / "gallery"


@pytest.fixture
def run(monkeypatch):
    """A function that runs one program; its names, after a check that it drew one figure with labelled axes."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")

    def run(name):
        names = runpy.run_path(str(GALLERY / f"{name}.py"))
        (number,) = pyplot.get_fignums()
        for axes in pyplot.figure(number).axes:
            assert axes.get_xlabel()
            assert axes.get_ylabel()
        return names

    yield run
    pyplot.close("all")


def is_rising(values):
    return bool(np.all(np.diff(values) > 0))


def test_every_program_has_a_test():
    programs = {path.stem.removeprefix("plot_") for path in GALLERY.glob("*.py")}
    assert len(programs) >= 5
    assert {name.removeprefix("test_") for name in globals()} >= programs


def test_accountants(run):
    epsilons = run("plot_accountants")["epsilons"]
    every, rdp, pld, paper = (np.array(values) for values in epsilons.values())
    for values in (every, rdp, pld, paper):
        assert is_rising(values)
    assert (pld < rdp).all()
    assert (rdp < paper).all()
    assert (paper < every).all()


def test_dp_gram_gate(run):
    names = run("plot_dp_gram_gate")
    models, gains = names["models"], dict(zip(names["EPSILONS"], names["gains"], strict=True))
    assert is_rising([model.signal_ for model in models])
    closed = {model.epsilon for model in models if model.item_factors_.shape[1] == 0}
    assert closed == set(names["closed"])
    assert 0 < len(closed) < len(models)
    # A hit ratio among 6,000 users has a standard error of at most .0065.
    assert gains[max(gains)] > 0.05
    kept = [gains[epsilon] - lost for epsilon, lost in zip(names["closed"], names["without_gate"], strict=True)]
    assert min(kept) > 0
    assert kept[0] > 0.05
    assert is_rising(-np.array(kept))  # the nearer to 30, the less there is to lose


def test_entity_size(run):
    names = run("plot_entity_size")
    one, five, exact, constant = (np.array(values) for values in names["errors"].values())
    assert is_rising(-one)
    assert is_rising(-five)
    assert (one > five).all()
    assert (five > exact).all()
    assert (constant > one).all()
    cost = [names["fits"]["epsilon 1", size].ledger_.epsilon("server") for size in names["SIZES"]]
    np.testing.assert_allclose(cost, 2.0, rtol=1e-9)  # for replacing a user; more users buy accuracy, not privacy


def test_fmf_ldp_ledger(run):
    names = run("plot_fmf_ldp_ledger")
    model, spent = names["model"], names["spent"]
    rounds = np.arange(1, model.n_rounds + 1)
    np.testing.assert_allclose(spent["server"], rounds * model.n_reports * model.epsilon, rtol=1e-6)
    np.testing.assert_allclose(spent["server"][0], names["published"], rtol=1e-6)
    assert is_rising(spent["shuffled_server"])
    whole_run = shuffled_epsilon(
        model.epsilon, model.n_reports, n_users=names["data"].n_users, n_rounds=model.n_rounds, delta=1e-6
    )
    assert spent["shuffled_server"][-1] == pytest.approx(whole_run, rel=1e-6)
    assert spent["shuffled_server"][-1] < spent["server"][-1] / 100


def test_membership_roc(run):
    names = run("plot_membership_roc")
    exact, private = names["found"].values()
    (alarms, hits), (private_alarms, private_hits) = names["curves"].values()
    for result, (x, y) in zip((exact, private), names["curves"].values(), strict=True):
        area = np.diff(x) @ (y[1:] + y[:-1]) / 2  # of the curve that is drawn, which is the figure in its legend
        assert area == pytest.approx(result.auc.value, abs=0.01)
    bound = names["allowed"](private.guarantee, np.array([0.0, 0.5, 1.0]))
    assert is_rising(bound)
    assert bound[-1] == 1
    error = 5 / np.sqrt(4 * private.n_members)  # five standard errors of a share: the bound is one of expectations
    assert (private_hits <= names["allowed"](private.guarantee, private_alarms) + error).all()
    assert (hits > names["allowed"](private.guarantee, alarms) + error).any()  # the same check refuses the exact model
    assert exact.beats_chance
    assert exact.guarantee == () or min(epsilon for epsilon, _ in exact.guarantee) == np.inf


def test_own_als(run):
    losses = run("plot_own_als")["losses"]
    exact, one_step, three_steps = losses.values()
    for values in losses.values():
        assert is_rising(-np.array(values))
    assert exact[0] <= min(one_step[0], three_steps[0])  # the exact minimum over users for the same items
    assert three_steps[-1] < 1.01 * exact[-1] < one_step[-1]


def test_rating_channels(run):
    names = run("plot_rating_channels")
    errors, totals = names["errors"], names["TOTALS"]
    for variant, fits in names["models"].items():
        assert is_rising(-np.array(errors[variant]))
        for model, total in zip(fits, totals, strict=True):
            assert 0.98 * total < model.channel.epsilon <= total + 1e-9
            assert [model.channel.mean(x) for x in range(5)] == [1, 2, 3, 4, 5]
            assert model.ledger_.epsilon() == np.inf
    assert all(best < min(others) for best, *others in zip(*reversed(errors.values()), strict=True))
