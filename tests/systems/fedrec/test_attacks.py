"""Attacks on FedRec find the items that they must find, and none in the negative controls."""

import math
import re

import numpy as np
import pytest
from conftest import find_data
from hypothesis import given
from hypothesis import strategies as st
from support.data import random_ratings
from support.fedrec_case import SHARINGS, small_data

from fastfedrec import FedRec, FedRecPlusPlus, Key, attacks
from fastfedrec.datasets import load_movielens
from fastfedrec.systems.fedrec.attacks import AttackResult
from fastfedrec.systems.fedrec.model import Messages, RecordedRound


@pytest.fixture(scope="module")
def data():
    return random_ratings(120, 150, 1, density=0.15)


def records(data, n_denoisers=1, sharing="additive", n_rounds=1, **options):
    model = FedRecPlusPlus(n_denoisers, sharing, 1, n_rounds=n_rounds, n_factors=3, **options)
    return model.fit(data, key=Key.from_seed(1), record_views=range(n_rounds)).records_


def plain_records(data, rounds, rho=1, **options):
    model = FedRec(rho, n_rounds=max(rounds) + 1, n_factors=5, **options)
    return model.fit(data, key=Key.from_seed(1), record_views=rounds).records_


def counts(data):
    return np.bincount(data.indices, minlength=data.n_items)


def by_experiment(model):
    """Return {attack: whether it succeeded}, from the ledger."""
    found = (re.match(r"The attack '(.*)' (exceeds|does not exceed) chance", note) for note in model.ledger_.notes)
    return {match[1]: match[2] == "exceeds" for match in found if match}


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_figures_of_a_result_by_hand():
    result = AttackResult(
        "by hand, the server",
        np.array([1, 1, -1, 0, 1], dtype=np.int8),
        np.array([True, False, False, True, True]),
        np.array([3.0, 2.0, 1.0, 2.0, 4.0]),
        np.array([0, 0, 0, 1, 2]),
    )
    assert result.base_rate == 3 / 5
    assert result.precision == 2 / 3
    assert result.recall == 2 / 3
    assert result.accuracy == 3 / 5
    # Among three rated items, the one with score 2 has one tie.
    assert result.auc == (2 + 1.5 + 2) / 6
    assert result.statement() == (
        "The attack 'by hand, the server' does not exceed chance in an experiment. Of 5 items in users' messages it "
        "claims that 3 are rated (66.7% correctly, 60.0% by chance). Its correct claims are 66.7% of all rated items. "
        "The AUC is 0.917."
    )


def test_chance_is_beaten_by_either_kind_of_claim():
    def beats(claim, n_right, n_wrong, silent=100):
        claims = np.repeat([claim, 0], [n_right + n_wrong, 2 * silent]).astype(np.int8)
        is_rated = np.repeat([claim > 0, claim < 0, True, False], [n_right, n_wrong, silent, silent])
        return AttackResult("", claims, is_rated, claims * 1.0, np.zeros(len(claims), dtype=np.int64)).beats_chance

    for claim in (1, -1):
        assert beats(claim, 100, 0)
        assert not beats(claim, 3, 0)
        assert not beats(claim, 0, 100)
        assert not beats(claim, 52, 48)


def test_gradients_by_hand():
    rng = np.random.default_rng(1)
    data = random_ratings(3, 12, 1, density=0.9)
    stars, users = data.values_or_ones(), np.repeat(np.arange(3, dtype=np.uint64), data.interactions_per_user())
    records, factors = [], []
    for number in range(2):
        x, v = rng.normal(size=(3, 2)), rng.normal(size=(12, 2))
        error = np.einsum("nf,nf->n", x[users], v[data.indices]) - stars
        steps = np.rint((error[:, None] * x[users] + 0.1 * v[data.indices]) * 2.0**32).astype(np.int64)
        values = np.column_stack([steps, np.ones(len(steps), dtype=np.int64)]).view(np.uint64)
        none = np.zeros(0, dtype=np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int32), np.zeros((0, 3), np.uint64)
        sent = Messages(users, np.zeros_like(users), data.indices, values)
        records.append(RecordedRound(number, sent, Messages(*none), v, 0.1, 2.0**32))
        factors.append(x)
    result = attacks.gradients(*records, data)
    np.testing.assert_array_equal(result.ratings, stars)
    np.testing.assert_array_equal(result.true_ratings, stars)
    np.testing.assert_allclose(result.user_factors, factors[0], rtol=1e-6)
    back = attacks.gradients(*records[::-1], data)
    np.testing.assert_array_equal(back.ratings, stars)
    np.testing.assert_allclose(back.user_factors, factors[1], rtol=1e-6)
    assert (result.rating_recall, result.commonest_rating) == (1, np.bincount(stars.astype(int)).max() / len(stars))
    assert result.beats_chance
    assert result.statement().endswith(
        "It finds the exact rating of 100.0% of all rated items; the most frequent rating is correct for "
        f"{result.commonest_rating:.1%}."
    )


def test_no_claim_has_no_precision():
    nothing = np.zeros(2)
    result = AttackResult("", nothing.astype(np.int8), nothing.astype(bool), nothing, nothing.astype(np.int64))
    assert math.isnan(result.precision)
    assert math.isnan(result.recall)
    assert math.isnan(result.auc)
    assert result.accuracy == 0
    assert not result.beats_chance


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1, 3])
def test_colluding_parties_find_every_rated_item_by_value(data, rho):
    for sharing in ("published", "additive"):
        (record,) = records(data, sharing=sharing, rho=rho)
        result = attacks.value_matching(record, data)
        assert (result.precision, result.recall, result.accuracy, result.auc) == (1, 1, 1, 1)


def test_value_matching_without_collusion_finds_no_items_in_sums_over_users(data):
    for sharing in ("published", "additive"):
        (record,) = records(data, sharing=sharing)
        speakers = np.bincount(record.denoisers.items, minlength=data.n_items)
        assert speakers.min() > 1
        result = attacks.value_matching(record, data, colluding=False)
        assert (result.claims == 1).all()
        assert result.precision == result.base_rate
        assert result.auc == 0.5


def test_single_client_groups_are_revealed_without_collusion(data):
    half = data.n_users // 2
    (published,) = records(data, half, "published")
    result = attacks.value_matching(published, data, colluding=False)
    # The sum for an item that the denoiser rated too is another vector; all other virtual items are found.
    assert result.recall == 1
    assert 0.8 < result.precision < 1
    (shared,) = records(data, data.n_users)
    result = attacks.group_sums(shared, data)
    assert (result.precision, result.recall, result.accuracy) == (1, 1, 1)


def test_group_sums_reveal_less_in_larger_groups_and_are_never_wrong(data):
    recalls = []
    for n_denoisers in (120, 40, 12, 1):
        (record,) = records(data, n_denoisers)
        result = attacks.group_sums(record, data)
        claimed = result.claims != 0
        assert ((result.claims[claimed] > 0) == result.is_rated[claimed]).all()
        recalls.append(result.recall)
    assert recalls[0] == 1
    assert recalls == sorted(recalls, reverse=True)
    assert recalls[-1] < 0.01
    (published,) = records(data, 40, "published")
    result = attacks.group_sums(published, data)
    claimed = result.claims != 0
    assert claimed.any()
    assert ((result.claims[claimed] > 0) == result.is_rated[claimed]).all()


def test_intersection_finds_rated_items_only_if_virtual_ones_are_redrawn(data):
    anew = records(data, sharing="published", n_rounds=6)
    figures = [attacks.intersection(anew[:n], data) for n in (1, 2, 3, 6)]
    assert [f.recall for f in figures] == [1] * 4
    precision = [f.precision for f in figures]
    assert precision[0] == figures[0].base_rate
    assert precision == sorted(precision)
    assert precision[-1] > 0.99
    six_rounds = records(data, n_rounds=6)
    result = attacks.intersection(six_rounds, data)
    assert result.precision == result.base_rate
    assert result.auc == 0.5


def test_intersection_counts_only_rounds_in_which_a_user_took_part(data):
    model = FedRec(rho=1, n_rounds=8, n_factors=2, client_share=0.5)
    result = attacks.intersection(model.fit(data, key=Key.from_seed(1), record_views=range(8)).records_, data)
    assert result.recall == 1
    assert result.precision > 0.85


def test_popularity_finds_no_items_if_items_are_equally_popular(data):
    (record,) = records(data)
    assert 0.4 < attacks.popularity(record, data, np.sin(np.arange(data.n_items))).auc < 0.6


def test_gradients_reveal_ratings_factors_and_virtual_items(data):
    for rho, rounds in ((0, (6, 7)), (1, (4, 8)), (3, (8, 9))):
        result = attacks.gradients(*plain_records(data, rounds, rho), data)
        assert result.rating_recall == 1
        assert result.recall == 1
        # A virtual item is mistaken for a rated one only if the user's mean rating is on the grid.
        is_whole = np.array([row.mean() % 1 == 0 for row in np.split(data.values_or_ones(), data.indptr[1:-1])])
        assert result.accuracy == 1 - ((result.claims > 0) & ~result.is_rated & is_whole[result.rows]).mean()
        before = FedRec(rho, n_rounds=rounds[0], n_factors=5).fit(data, key=Key.from_seed(1))
        np.testing.assert_allclose(result.user_factors, before.user_factors_, rtol=1e-3, atol=1e-6)


def test_gradients_reveal_most_ratings_if_virtual_ones_are_predicted(data):
    result = attacks.gradients(*plain_records(data, (4, 5), t_predict=0), data)
    assert result.rating_recall > 0.8
    assert result.precision > 0.95


@pytest.mark.parametrize("rho", [0, 1, 3])
def test_gradients_reveal_no_ratings_from_shares(data, rho):
    published, additive = (
        attacks.gradients(*records(data, sharing=sharing, rho=rho, n_rounds=9)[6:8], data)
        for sharing in ("published", "additive")
    )
    assert published.rating_recall == 1
    assert additive.rating_recall < 0.01 < additive.commonest_rating
    assert not additive.beats_chance
    assert rho == 0 or 0.45 < additive.auc < 0.55


def test_gradients_make_no_claim_about_users_in_a_single_round(data):
    model = FedRec(rho=1, n_rounds=9, n_factors=5, client_share=0.5)
    first, second = model.fit(data, key=Key.from_seed(1), record_views=[4, 8]).records_
    result = attacks.gradients(first, second, data)
    both = np.intersect1d(first.server.senders, second.server.senders).astype(np.int64)
    assert 10 < len(both) < 50
    np.testing.assert_array_equal(np.unique(result.rows[result.claims != 0]), both)
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(result.user_factors).any(axis=1)), both)
    of_both = np.isin(result.rows[result.is_rated], both).mean()
    assert 0.9 * of_both < result.rating_recall <= of_both


def test_results_of_attacks_are_in_the_ledger(data):
    def ledger_of(model, rounds):
        model.n_rounds, model.n_factors = 2, 3
        return by_experiment(model.fit(data, key=Key.from_seed(1), record_views=rounds))

    names = "gradients of two rounds", "intersection of 2 rounds", "sums of single denoisers", "popularity"
    gradients, intersection, groups, popularity = (f"{name}, the server" for name in names)
    matching, shares = (f"value matching, the server with {what}" for what in ("denoisers", "each denoiser's sums"))
    assert ledger_of(FedRec(0), [0, 1]) == {gradients: True}
    findings = ledger_of(FedRec(1), [0, 1])
    # These items are equally popular, so either result may occur.
    assert findings.pop(popularity) in (True, False)
    assert findings == {gradients: True, intersection: True}
    for sharing, exposed in (("published", True), ("additive", False)):
        findings = ledger_of(FedRecPlusPlus(sharing=sharing), [0, 1])
        del findings[popularity]
        assert findings == {
            matching: True,
            shares: False,
            groups: False,
            gradients: exposed,
            intersection: exposed,
        }
        findings = ledger_of(FedRecPlusPlus(data.n_users // 2, sharing, 1), [0])
        assert findings[groups]
        assert set(findings) == {matching, shares, groups, popularity}
    model = FedRecPlusPlus(n_rounds=1).fit(data, key=Key.from_seed(1), record_views=[0])
    summary = model.ledger_.summary()
    assert "The attack 'value matching, the server with denoisers' exceeds chance in an experiment." in summary
    assert "Results of attacks are computed from the data, so no guarantee covers them." in summary


def test_without_records_the_ledger_states_how_to_attack(data):
    model = FedRec(n_rounds=2).fit(data, key=Key.from_seed(1))
    assert not by_experiment(model)
    summary = model.ledger_.summary()
    assert "are not measured; fit(record_views=...) with two rounds does so" in summary
    assert "(attacks.gradients)" in summary
    assert "experiment" not in summary
    recorded = FedRec(n_rounds=2).fit(data, key=Key.from_seed(1), record_views=[0, 1])
    assert "fit(record_views=...)" not in recorded.ledger_.summary()
    np.testing.assert_array_equal(recorded.item_factors_, model.item_factors_)


@given(data=small_data, seed=st.integers(0, 99), rho=st.integers(0, 3), sharing=st.sampled_from(["plain", *SHARINGS]))
def test_attacks_are_carried_out_on_any_data(data, seed, rho, sharing):
    model = FedRec(rho) if sharing == "plain" else FedRecPlusPlus(min(2, data.n_users), sharing, 1, rho=rho)
    model.n_rounds, model.n_factors, model.learning_rate = 3, 2, 0.3
    model.fit(data, key=Key.from_seed(seed), record_views=[0, 2])
    for result in attacks.run_attacks(model.records_, data):
        assert result.statement() in model.ledger_.notes
        assert len(result.claims) == len(result.is_rated) == len(result.rows)
        assert set(result.claims.tolist()) <= {-1, 0, 1}


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_inputs(data):
    (record,) = records(data)
    with pytest.raises(TypeError, match="record must be RecordedRound, got int; pass an entry of a model's records_"):
        attacks.value_matching(1, data)
    with pytest.raises(TypeError, match="truth must be Interactions"):
        attacks.value_matching(record, 1)
    with pytest.raises(TypeError, match="colluding must be True or False"):
        attacks.value_matching(record, data, colluding=1)
    with pytest.raises(ValueError, match="truth must be the data that the model was fitted on"):
        attacks.group_sums(record, random_ratings(5, 5, 1))
    for attack in (attacks.intersection, attacks.run_attacks):
        with pytest.raises(ValueError, match="records must hold at least one round, got none"):
            attack([], data)
    with pytest.raises(TypeError, match="record must be RecordedRound, got int"):
        attacks.gradients(record, 1, data)
    with pytest.raises(ValueError, match="grid must"):
        attacks.gradients(record, record, data, grid=[2, 1])
    with pytest.raises(ValueError, match=r"counts must have shape \(150,\), one number an item, got \(3,\)"):
        attacks.popularity(record, data, np.ones(3))


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_results(data):
    results = []
    for n_threads in (1, 4):
        model = FedRecPlusPlus(3, "published", 1, n_rounds=1, n_factors=2)
        model.fit(data, key=Key.from_seed(1), n_threads=n_threads, record_views=[0])
        results.append(attacks.value_matching(model.records_[0], data, colluding=False).claims)
    np.testing.assert_array_equal(*results)


# ---- statistics -----------------------------------------------------------------------------------------------------


def precision_by_user(result):
    """Check precision by user: short profiles have the same weight as long ones."""
    claimed = result.claims > 0
    made, right = (np.bincount(result.rows[which]) for which in (claimed, claimed & result.is_rated))
    return (right[made > 0] / made[made > 0]).mean()


@pytest.mark.nightly
def test_figures_on_movielens_1m():
    data = load_movielens(find_data("ml-1m.zip"))
    anew = records(data, sharing="published", n_rounds=3)
    by_user = [precision_by_user(attacks.intersection(anew[:n], data)) for n in (1, 2, 3)]
    np.testing.assert_allclose(by_user, [0.50, 0.956, 0.993], atol=0.003)
    (record,) = records(data)
    assert abs(attacks.popularity(record, data, counts(data)).auc - 0.85) < 0.01
    (matched,) = records(data, fill_by="popularity")
    assert abs(attacks.popularity(matched, data, counts(data)).auc - 0.616) < 0.01


@pytest.mark.nightly
def test_gradients_on_movielens_1m():
    data = load_movielens(find_data("ml-1m.zip"))
    for options, precision, rating_recall in (({}, 0.989, 0.995), ({"t_predict": 0}, 1.0, 0.947)):
        result = attacks.gradients(*plain_records(data, (2, 3), **options), data)
        assert abs(result.precision - precision) < 0.005
        assert abs(result.rating_recall - rating_recall) < 0.005
    result = attacks.gradients(*records(data, n_rounds=2), data)
    assert result.rating_recall < 1e-4
    assert not result.beats_chance
