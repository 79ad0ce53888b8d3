"""ShuffledSketchGram's decision by its reports, and the total cost of its rounds."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.sparse
from naive.systems.gram import shuffled_sketch as naive
from support.decision_case import prefer
from support.feature_case import grouped

from fastfedrec import Interactions, Key, ShuffledSketchGram, datasets
from fastfedrec.accounting import PLDAccountant
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.rounds.fit import Fit
from fastfedrec.systems._linear_scores import popularity_shares
from fastfedrec.systems._pair_matrix import Candidate, Decision
from fastfedrec.systems.gram import shuffled_fit, shuffled_sketch
from fastfedrec.systems.gram.shuffled_sketch import N_CANDIDATES, mean_largest
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchRound
from fastfedrec.systems.measurement import NoisyMean

KEY = Key.from_seed(3)
LONG = datasets.generate_implicit(4_000, 60, key=Key.from_seed(1))


def generated(n_users=4000, n_items=60, seed=1):
    return datasets.generate_implicit(n_users, n_items, key=Key.from_seed(seed))


def fitted(epsilon, data, **arguments):
    return ShuffledSketchGram(epsilon, **arguments).fit(data, key=KEY)


def mean_of_rows(data):
    """Return the exact mean of users' normalised rows."""
    rows = data.to_scipy().toarray()
    return (rows / np.sqrt(np.maximum(rows.sum(axis=1, keepdims=True), 1))).mean(axis=0)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def evaluated(monkeypatch):
    """Record the matrix on which each fit's candidates are evaluated."""
    matrices, choose = [], shuffled_fit.choose_candidate

    def record(pairs, *arguments):
        matrices.append(dataclasses.replace(pairs, values=pairs.values.copy()))
        return choose(pairs, *arguments)

    monkeypatch.setattr(shuffled_fit, "choose_candidate", record)
    return matrices


def test_the_noise_of_an_entry_is_as_stated(evaluated):
    empty_rows = Interactions.from_scipy(scipy.sparse.csr_array((2_000, 32), dtype=np.float32))
    for seed in range(10):
        ShuffledSketchGram(2.0, ridge=1.0).fit(empty_rows, key=Key.from_seed(seed))
    upper = np.triu_indices(32, 1)
    ratio = np.mean([np.square(pairs.values[upper] / pairs.noise).mean() for pairs in evaluated])
    error = math.sqrt(2 / (10 * len(upper[0])))
    assert abs(ratio - 1) < 5 * error
    assert abs(ratio / 0.9**2 - 1) > 5 * error  # the control: noise stated too small by a tenth
    assert abs(ratio / 1.1**2 - 1) > 5 * error


def test_the_matrix_is_that_of_users_normalised_rows(evaluated):
    """Pairs estimate the sum over users of z z', and the diagonal is computed from the reports about items."""
    model = fitted(20.0, LONG, ridge=1.0)
    _, pairs = evaluated  # from half of the reports about pairs, then from all
    rows = LONG.to_scipy().toarray()
    rows /= np.sqrt(np.maximum(rows.sum(axis=1, keepdims=True), 1))
    upper = np.triu_indices(60, 1)
    expected, estimated = (rows.T @ rows)[upper], pairs.values[upper].astype(float)
    error = pairs.noise / np.linalg.norm(expected)
    assert estimated @ expected / (expected @ expected) == pytest.approx(1.0, abs=float(6 * error + 0.1))
    assert pairs.popularity is None
    assert pairs.item_squares.sum() == pytest.approx(LONG.n_users)
    assert np.corrcoef(pairs.item_squares, popularity_shares(mean_of_rows(LONG)))[0, 1] > 0.9
    assert model.decision_.is_personal


@pytest.mark.parametrize("is_last_about_items", [True, False])
def test_popularity_is_the_mean_of_all_reports_about_items(is_last_about_items, monkeypatch):
    rounds, run = [], Fit.rounds

    def recorded(self, system, *arguments):
        state = run(self, system, *arguments)
        rounds.append((state.decoded, state.n_answers, system.has_pairs))
        return state

    monkeypatch.setattr(Fit, "rounds", recorded)
    prefer(monkeypatch, personal=False)
    monkeypatch.setattr(shuffled_fit, "_pairs_may_win", lambda decision, mean: not is_last_about_items)
    means = fitted(8.0, LONG).item_means_
    assert [has_pairs for *_, has_pairs in rounds] == [False, True, not is_last_about_items]
    scale = LargestResponse(2.5).decoder, mean_largest(N_CANDIDATES, has_pairs=False)
    expected = np.array(naive.item_means(rounds, *scale))
    np.testing.assert_allclose(means, expected, rtol=1e-12)
    # The controls: without the last round about items, and popularity from the reports about pairs.
    first_alone = np.array(naive.item_means(rounds[:1], *scale))
    assert np.allclose(means, first_alone, rtol=1e-3) is not is_last_about_items
    of_pairs = rounds[1][0].sum(axis=0) / rounds[1][0].sum()
    assert np.abs(means / means.sum() - of_pairs).max() > 1e-3


def test_popularity_of_the_open_model_is_about_the_share_of_users():
    data = generated(5000)
    model = fitted(8.0, data)
    shares = data.interactions_per_item() / data.n_users
    assert np.corrcoef(model.item_means_, shares)[0, 1] > 0.97


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_either_choice_costs_the_same(monkeypatch):
    models = []
    for personal in (True, False):
        with monkeypatch.context() as patch:
            prefer(patch, personal=personal)
            models.append(fitted(2.0, LONG))
    mine, popular = models
    assert (mine.is_personal_, popular.is_personal_) == (True, False)

    def costs(model):
        return [dataclasses.replace(event, mechanism="") for event in model.ledger_.events.elements()]

    assert costs(mine) == costs(popular)
    kinds = [
        [event.mechanism.rpartition(" sketched ")[2] for event in model.ledger_.events.elements()] for model in models
    ]
    assert kinds == [["items", "pairs of items", "pairs of items"], ["items", "pairs of items", "items"]]
    assert sum(event.n_reports for event in costs(mine)) == mine.n_reports_
    for view in ("server", "shuffled_server", "public"):
        assert mine.ledger_.epsilon(view) == popular.ledger_.epsilon(view)
    for model, outcome in ((mine, "a personal model"), (popular, "popularity")):
        assert f"ShuffledSketchGram chose {outcome}." in model.ledger_.summary().replace("\n", " ")
    ids, _ = popular.recommend(LONG.user_ids[:20], n=60, filter_seen=False)
    assert (ids == ids[0]).all()


def test_the_last_reports_are_about_items_if_popularity_is_noisy_or_pairs_are_clearly_worse():
    precise, noisy = (NoisyMean(np.full(100, 0.1), noise, 1.0) for noise in (0.01, 0.09))
    for gain, mean, expected in (
        (0.1, precise, True),
        (-0.09, precise, True),
        (-0.11, precise, False),
        (0.9, noisy, False),
    ):
        decision = Decision(Candidate(0.0, 1.0), {}, gain, 0.1)
        assert shuffled_fit._pairs_may_win(decision, mean) is expected


def test_the_noise_of_popularity_is_as_stated(monkeypatch):
    """Rows are short, since rows of most items depend on the rotation, which each key draws."""
    means, short = [], datasets.generate_implicit(4_000, 300, key=KEY, preset="purchases")
    monkeypatch.setattr(shuffled_fit, "_pairs_may_win", lambda decision, mean: means.append(mean))
    for seed in range(10):
        ShuffledSketchGram(1.0).fit(short, key=Key.from_seed(seed))
    ratio = np.var([mean.values for mean in means], axis=0, ddof=1).mean() / means[0].noise ** 2
    error = math.sqrt(2 / (9 * 300))
    assert abs(ratio - 1) < 5 * error
    assert abs(ratio / 1.5**2 - 1) > 5 * error  # the control: noise stated too large by half


def test_no_two_rounds_draw_the_same_words(monkeypatch):
    purposes, randomize = [], SketchRound._randomize

    def watched(self, *given, **options):
        with monkeypatch.context() as patch:
            subkey = Key.subkey
            patch.setattr(Key, "subkey", lambda key, purpose: purposes.append(purpose) or subkey(key, purpose))
            return randomize(self, *given, **options)

    monkeypatch.setattr(SketchRound, "_randomize", watched)
    for personal in (True, False):
        purposes.clear()
        prefer(monkeypatch, personal=personal)
        fitted(2.0, LONG)
        assert len(purposes) == len(set(purposes)) == 3


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_all_rounds_cost_no_more_than_the_budget(factor, monkeypatch):
    """The total cost is checked, even if the number of reports for one round is too large."""
    calibrate = shuffled_sketch.calibrate_n_reports
    monkeypatch.setattr(
        shuffled_sketch,
        "calibrate_n_reports",
        lambda event, *, epsilon, delta: int(factor * calibrate(event, epsilon=epsilon, delta=delta)),
    )
    model = fitted(2.0, LONG)
    account = PLDAccountant()
    for event in model.ledger_.events.elements():
        account.compose(event)
    assert 1.98 < account.get_epsilon(1e-6) <= 2.0


@pytest.mark.parametrize("with_features", [False, True])
def test_decision_and_scores_follow_from_the_reports_and_not_from_the_data(with_features, monkeypatch):
    """With the reports of other users, the model equals a fit on their data."""
    (mine, _, groups), (other_data, *_) = grouped(3_000, 40, 1), grouped(3_000, 40, 2)
    features = {"item_features": {"group": groups}} if with_features else {}
    answer = SketchRound.local_round
    before, expected = fitted(8.0, mine, **features), fitted(8.0, other_data, **features)
    assert before.decision_.scores != expected.decision_.scores

    def misled(self, state, shard, *arguments, **options):
        return answer(self, state, other_data, *arguments, **options)

    monkeypatch.setattr(SketchRound, "local_round", misled)
    refitted = fitted(8.0, mine, **features)
    assert refitted.decision_ == expected.decision_
    for name in refitted._saved:
        np.testing.assert_array_equal(getattr(refitted, name), getattr(expected, name))
    assert refitted.ledger_.notes == expected.ledger_.notes


def test_reports_about_items_alone_estimate_popularity(monkeypatch):
    """Each user may send one report only, so no report is about pairs."""
    monkeypatch.setattr(shuffled_sketch, "calibrate_n_reports", lambda *given, **budget: 1)
    data = generated(20_000)
    model = fitted(4.0, data)
    assert model.item_factors_.shape == (60, 0)
    assert model.decision_ is None
    ids, _ = model.recommend(data.user_ids[:9], n=60, filter_seen=False)
    assert (ids == ids[0]).all()
    shares = data.to_scipy() / np.sqrt(data.interactions_per_user())[:, None]
    # Rows are weighted by the largest entries for their lengths, over the largest entries of long rows.
    lengths = data.interactions_per_user()
    weigh = {n: naive.mean_largest(n, N_CANDIDATES, 1) / math.sqrt(n) for n in set(lengths.tolist())}
    weights = np.array([weigh[n] for n in lengths.tolist()]) / mean_largest(N_CANDIDATES, has_pairs=False)
    noise = LargestResponse(2.5).decoder / mean_largest(N_CANDIDATES, False) / math.sqrt(20_000)
    assert np.abs(model.item_means_ - (shares.T @ weights) / 20_000).max() < 6 * noise
    assert 0.8 < weights.mean() < 1


def test_the_sketchs_signal_depends_on_public_numbers_only():
    empty_rows = Interactions.from_scipy(scipy.sparse.csr_array((500, 60), dtype=np.float32))
    signals = {fitted(1.0, data).signal_ for data in (generated(500), generated(500, seed=2), empty_rows)}
    n_reports = fitted(1.0, generated(500)).n_reports_
    assert len(signals) == 1
    weight = mean_largest(N_CANDIDATES, has_pairs=True) / LargestResponse(2.5).decoder
    assert signals.pop() == pytest.approx(weight * math.sqrt(500 * n_reports / 60))


@pytest.mark.parametrize("mean_share", [1e-9, 0.3, 1 - 1e-9])
@pytest.mark.parametrize("n_reports", [2, 40])
def test_each_round_has_a_report(mean_share, n_reports, monkeypatch):
    monkeypatch.setattr(shuffled_sketch, "calibrate_n_reports", lambda *given, **budget: n_reports)
    first, *later = (event.n_reports for event in fitted(2.0, LONG, mean_share=mean_share).ledger_.events.elements())
    assert first + sum(later) == n_reports
    assert len(later) == min(2, n_reports - first)  # a single report about pairs is one round
    assert 0 <= later[0] - later[-1] <= 1
    assert first == min(max(1, round(mean_share * n_reports)), n_reports - 1)


def test_pairs_take_two_reports_of_every_user(monkeypatch):
    monkeypatch.setattr(shuffled_sketch, "calibrate_n_reports", lambda *given, **budget: 1)
    model = fitted(2.0, LONG)
    assert model.item_factors_.shape == (60, 0)
    assert (
        "spent all of epsilon on popularity, because these numbers of users and items leave no messages about pairs."
        in model.ledger_.summary()
    )
    assert [event.n_reports for event in model.ledger_.events] == [1]
