"""Tests of the gallery: every program runs as in the build of pages, and its text agrees with its figure."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from fastfedrec.accounting import Ledger, SkellamRelease, shuffled_epsilon

GALLERY = Path(__file__).parents[1] / "examples" / "gallery"


@pytest.fixture
def run(monkeypatch):
    """A function that runs one program; its names, after a check that it drew one figure with labelled axes."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")

    def run(name):
        windows = []
        monkeypatch.setattr(pyplot, "show", lambda: windows.extend(pyplot.get_fignums()))
        names = runpy.run_path(str(GALLERY / f"{name}.py"))
        (number,) = pyplot.get_fignums()
        assert windows == [number]  # a program in a shell opens its figure
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
    assert len(programs) >= 15
    assert {name.removeprefix("test_") for name in globals()} >= programs


def test_accountants(run):
    epsilons = run("plot_accountants")["epsilons"]
    every, rdp, pld, paper = (np.array(values) for values in epsilons.values())
    for values in (every, rdp, pld, paper):
        assert is_rising(values)
    assert (pld < rdp).all()
    assert (rdp < paper).all()
    assert (paper < every).all()


def test_dp_gram_decision(run):
    names = run("plot_dp_gram_decision")
    models, gains = names["models"], names["gains"]
    assert is_rising([model.signal_ for model in models])
    assert len(names["decided"]) < len(models)
    for model, gain, error in zip(names["decided"], names["measured"], names["errors"], strict=True):
        assert gain > 0 if model.is_personal_ else gain <= error
    assert {model.is_personal_ for model in models} == {False, True}
    assert min(gain for gain, model in zip(gains, models, strict=True) if model.is_personal_) > 0
    # A hit ratio among 6,000 users has a standard error of at most .0065.
    assert gains[-1] > 0.05
    assert min(names["errors"]) > 0


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
    assert model.ledger_.epsilon("server", 0) == pytest.approx(model.n_rounds * model.n_reports * model.epsilon)
    np.testing.assert_allclose(spent["server"], rounds * model.n_reports * model.epsilon, rtol=0.1)
    assert is_rising(spent["server"])
    np.testing.assert_allclose(spent["server"][0], names["published"], rtol=1e-3)
    assert is_rising(spent["shuffled_server"])
    whole_run = shuffled_epsilon(
        model.epsilon, model.n_reports, n_users=names["data"].n_users, n_rounds=model.n_rounds, delta=1e-6
    )
    assert spent["shuffled_server"][-1] == pytest.approx(whole_run, rel=1e-6)
    assert spent["shuffled_server"][-1] < spent["server"][-1] / 100


def test_membership_roc(run):
    names = run("plot_membership_roc")
    exact, private = names["results"].values()
    (false_rates, true_rates), (private_false_rates, private_true_rates) = names["curves"].values()
    for result, (x, y) in zip((exact, private), names["curves"].values(), strict=True):
        area = np.diff(x) @ (y[1:] + y[:-1]) / 2  # of the curve that is drawn, which is the figure in its legend
        assert area == pytest.approx(result.auc.value, abs=0.01)
    bound = names["max_true_rates"](private.guarantee, np.array([0.0, 0.5, 1.0]))
    assert is_rising(bound)
    assert bound[-1] == 1
    error = 5 / np.sqrt(4 * private.n_members)  # five standard errors of a share: the bound is one of expectations
    assert (private_true_rates <= names["max_true_rates"](private.guarantee, private_false_rates) + error).all()
    # The same check rejects the exact model.
    assert (true_rates > names["max_true_rates"](private.guarantee, false_rates) + error).any()
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


def test_compare_systems(run):
    names = run("plot_compare_systems")
    reached = {name: result["recall@20"] for name, result in names["results"].items()}
    assert reached["popularity"] < reached["DPGram"] < reached["EASE, no privacy"]
    spent = [names["fitted"][name].ledger_.epsilon("public") for name in ("DPGram", "DPPopularity")]
    np.testing.assert_allclose(spent, 2.0, rtol=2e-3)
    (low, high) = names["comparison"].intervals["DPGram"]["recall@20"]
    assert names["comparison"].intervals["popularity"]["recall@20"][1] < low < reached["DPGram"] < high


def test_own_model(run):
    names = run("plot_own_model")
    results, train = names["results"], names["train"]
    cosines = names["models"]["item cosines"].cosines
    assert (cosines == cosines.T).all()
    np.testing.assert_allclose(np.diag(cosines), train.interactions_per_item() > 0, rtol=1e-6)
    # The model of the program beats popularity, and EASE beats both.
    assert results["popularity"]["ndcg@10"] < results["item cosines"]["ndcg@10"] < results["EASE"]["ndcg@10"]
    outside = {name: result["share_outside_top_20"] for name, result in results.items()}
    assert outside["popularity"] < outside["item cosines"] < outside["EASE"]
    assert {test.metric for test in names["compared"].tests} == {"ndcg@10", "novelty@10", "share_outside_top_20"}
    # The latest interaction of each user is tested.
    for u in range(0, train.n_users, 100):
        of_user = train.timestamps[train.indptr[u] : train.indptr[u + 1]]
        latest = names["test"].timestamps[names["test"].indptr[u] : names["test"].indptr[u + 1]]
        assert latest.max(initial=of_user.max()) == max(of_user.max(), *latest)
        assert (latest >= of_user.max()).all()


def test_own_csv(run):
    names = run("plot_own_csv")
    assert (names["data"].n_users, names["data"].n_interactions) == (8000, names["generated"].n_interactions)
    assert names["model"].ledger_.epsilon("public") <= 2
    assert names["model"].chosen_.startswith(("DPGram", "DPSubspace"))
    for shares, of in ((names["shares"], 10), (names["bought"], names["data"].n_interactions / 8000)):
        assert shares.sum() == pytest.approx(of)
    assert (names["shares"] > 0).sum() > 20  # far more products than the ten of one list for all users


def test_choose_epsilon(run):
    names = run("plot_choose_epsilon")
    hit_ratios = names["hit_ratios"]
    for trust, view in (("central", "public"), ("shuffle", "shuffled_server"), ("local", "server")):
        assert all(model.ledger_.epsilon(view) <= model.epsilon for model in names["models"][trust])
    assert not any(model.is_personal_ for model in names["models"]["local"])
    assert names["models"]["central"][-1].is_personal_
    assert is_rising(hit_ratios["central"])
    assert hit_ratios["central"][0] > hit_ratios["local"][-1]
    assert hit_ratios["central"][-1] > hit_ratios["shuffle"][-1]


def test_read_ledger(run):
    names = run("plot_read_ledger")
    costs = names["costs"]
    assert costs["FMFLDP"]["server"] == pytest.approx(2 * 10 * 1.0)
    assert costs["FMFLDP"]["shuffled_server"] < 1
    assert costs["DPGram"]["server"] == costs["DPGram"]["shuffled_server"] == np.inf
    once, twice = costs["DPGram"]["public"], costs["DPGram, twice"]["public"]
    assert once < twice < 2 * once  # Gaussian noise adds up by squares


def test_audit_others(run):
    results = run("plot_audit_others")["results"]
    assert [result.verdict for result in results.values()] == ["consistent", "violated", "violated"]
    assert 1.8 < results["half the noise"].lower_bound < 2.0
    assert "multiple of 2^-53" in results["floating point"].event


def test_shuffled_users(run):
    names = run("plot_shuffled_users")
    for n_reports, epsilons in names["costs"].items():
        assert is_rising(-np.array(epsilons))
        assert epsilons[0] < n_reports * names["EPSILON_0"]
    assert 2.8 < names["ratio"] < 3.6  # the root of ten is 3.2


def test_no_server_history(run):
    pytest.importorskip("cryptography")
    names = run("plot_no_server_history")
    assert names["n_answers"] == 194
    assert names["total"].tolist() == (names["counts"] + names["noise"])[6:].sum(axis=0).tolist()
    # Each figure is that of a trusted party with the noise of the shares that count.
    for view, n_shares in (("server", 150), ("public", 190)):
        alone = Ledger(delta=1e-6)
        variance = n_shares * float(names["share"].variance)
        sums = {name: value for name, value in names["sums"].items() if name not in names["NODES"]}
        release = SkellamRelease(variance, n_values=40, neighboring="add_remove", sampling="none", **sums)
        alone.record(release)
        assert names["epsilons"][view] == pytest.approx(alone.epsilon("public"), rel=1e-6)


def test_large_catalogue(run):
    names = run("plot_large_catalogue")
    private, popular = names["hit_ratios"].values()
    assert is_rising(names["signals"])
    # With few users it is popularity with noise; a hit ratio among 1,000 users has an error of .016.
    assert max(private[:2]) < popular[0] + 0.05
    assert private[-1] > popular[-1] + 0.05


def test_deploy_traffic(run):
    names = run("plot_deploy_traffic")
    traffic_bytes, rounds = names["traffic_bytes"], names["rounds"]
    assert rounds["ShuffledSketchGram"] == 3
    assert rounds["FMFLDP"] == 20
    n_items = names["data"].n_items
    numbers = n_items + n_items * (n_items - 1) / 2 + 4 * 40 * n_items  # of the mean, pairs and columns
    assert traffic_bytes["DPGram"][1] == pytest.approx(8 * numbers, rel=0.01)
    reports = {name: traffic_bytes.pop(name)[1] for name in ("ShuffledSketchGram", "FMFLDP")}
    assert max(reports.values()) < min(up for _, up in traffic_bytes.values()) / 10


def test_sampled_metrics(run):
    names = run("plot_sampled_metrics")
    for values in names["hit_ratios"].values():
        assert is_rising(-np.array(values))
    ease, _, popular = (values for values in names["hit_ratios"].values())
    assert ease[0] - popular[0] < 0.05 < ease[-1] - popular[-1]


def test_explain(run):
    names = run("plot_explain")
    assert names["parts"].sum() == pytest.approx(names["scores"][0, 0], rel=1e-3)
    assert sum(names["values"]) == pytest.approx(names["scores"][0, 0], rel=1e-3)
    row = names["data"].select_users([names["user"]])
    assert set(names["reasons"]) == set(row.item_ids[row.indices])


def test_known_faults(run):
    names = run("plot_known_faults")
    for faulty, correct in names["results"].values():
        assert (faulty.verdict, correct.verdict) == ("violated", "consistent")
    assert "clamped between the inputs" in names["results"]["a quarter of the noise, 20 columns"][0].event
    assert names["worst"].verdict == "violated"
    # The data set itself and one of its neighbours that costs no more than the claim.
    x0, _ = names["neighbours"][0]
    assert names["audit"](names["median"], x0, x0, claim=1.0, n=20_000, alpha=1e-4).verdict == "consistent"


def test_retrain(run):
    names = run("plot_retrain")
    for n_fits, (hits, epsilon, fitted, total) in names["results"].items():
        assert len(fitted) == n_fits
        assert total <= 2.0
        assert epsilon < 2.0
        assert len(hits) == len(names["weeks"])
    epsilons = [epsilon for _, epsilon, *_ in names["results"].values()]
    assert is_rising(epsilons[::-1])
    # More fits are better here.
    assert is_rising([np.mean(hits) for hits, *_ in names["results"].values()])
