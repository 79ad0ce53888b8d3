"""The attacks find what they must, and nothing where there is nothing to find."""

import math

import numpy as np
import pytest
from conftest import find_data
from test_fedrec import random_ratings

from fastfedrec import FedRec, FedRecPlusPlus, Key, attacks
from fastfedrec.attacks import AttackResult
from fastfedrec.datasets import load_movielens


@pytest.fixture(scope="module")
def data():
    return random_ratings(120, 150, 1, density=0.15)


def records(data, n_denoisers=1, sharing="additive", n_rounds=1, **options):
    model = FedRecPlusPlus(n_denoisers, sharing, 1, n_rounds=n_rounds, n_factors=3, **options)
    return model.fit(data, key=Key.from_seed(1), record_views=range(n_rounds)).records_


def counts(data):
    return np.bincount(data.indices, minlength=data.n_items)


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
    assert result.precision_by_user == (1 / 2 + 1) / 2
    assert result.recall == 2 / 3
    assert result.told == 3 / 5
    assert result.auc == (2 + 1.5 + 2) / 6  # of three rated ones, the one with score 2 ties once
    assert result.statement() == (
        "not protected, by experiment: by hand, the server: of 5 items that users spoke of, 3 are claimed to be rated, "
        "66.7% of them truly (by chance 60.0%); they are 66.7% of all rated ones; AUC 0.917"
    )


def test_no_claim_has_no_precision():
    nothing = np.zeros(2)
    result = AttackResult("", nothing.astype(np.int8), nothing.astype(bool), nothing, nothing.astype(np.int64))
    assert math.isnan(result.precision)
    assert math.isnan(result.precision_by_user)
    assert math.isnan(result.recall)
    assert math.isnan(result.auc)
    assert result.told == 0


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1, 3])
def test_colluding_parties_find_every_rated_item_by_value(data, rho):
    for sharing in ("published", "additive"):
        (record,) = records(data, sharing=sharing, rho=rho)
        result = attacks.value_matching(record, data)
        assert (result.precision, result.recall, result.told, result.auc) == (1, 1, 1, 1)


def test_value_matching_without_collusion_finds_nothing_in_sums_over_many(data):
    for sharing in ("published", "additive"):
        (record,) = records(data, sharing=sharing)
        speakers = np.bincount(record.denoisers.items, minlength=data.n_items)
        assert speakers.min() > 1
        result = attacks.value_matching(record, data, colluding=False)
        assert (result.claims == 1).all()
        assert result.precision == result.base_rate
        assert result.auc == 0.5


def test_single_client_groups_are_told_without_collusion(data):
    half = data.n_users // 2
    (published,) = records(data, half, "published")
    found = attacks.value_matching(published, data, colluding=False)
    # The sum for an item that the denoiser itself rated is another vector; all other virtual items are found.
    assert found.recall == 1
    assert 0.8 < found.precision < 1
    (shared,) = records(data, data.n_users)
    alone = attacks.group_sums(shared, data)
    assert (alone.precision, alone.recall, alone.told) == (1, 1, 1)


def test_group_sums_tell_less_the_larger_the_group_and_are_never_wrong(data):
    told = []
    for n_denoisers in (120, 40, 12, 1):
        (record,) = records(data, n_denoisers)
        result = attacks.group_sums(record, data)
        claimed = result.claims != 0
        assert ((result.claims[claimed] > 0) == result.is_rated[claimed]).all()
        told.append(result.recall)
    assert told[0] == 1
    assert told == sorted(told, reverse=True)
    assert told[-1] < 0.01
    (published,) = records(data, 40, "published")
    result = attacks.group_sums(published, data)
    claimed = result.claims != 0
    assert claimed.any()
    assert ((result.claims[claimed] > 0) == result.is_rated[claimed]).all()


def test_intersection_finds_rated_items_where_virtual_ones_are_redrawn_and_nothing_where_not(data):
    anew = records(data, sharing="published", n_rounds=6)
    figures = [attacks.intersection(anew[:n], data) for n in (1, 2, 3, 6)]
    assert [f.recall for f in figures] == [1] * 4
    precision = [f.precision for f in figures]
    assert precision[0] == figures[0].base_rate
    assert precision == sorted(precision)
    assert precision[-1] > 0.99
    once = records(data, n_rounds=6)
    result = attacks.intersection(once, data)
    assert result.precision == result.base_rate
    assert result.auc == 0.5


def test_intersection_counts_only_rounds_in_which_a_user_was_heard(data):
    model = FedRec(rho=1, n_rounds=8, n_factors=2, client_share=0.5)
    result = attacks.intersection(model.fit(data, key=Key.from_seed(1), record_views=range(8)).records_, data)
    assert result.recall == 1
    assert result.precision > 0.85


def test_popularity_finds_nothing_where_items_are_equally_popular(data):
    (record,) = records(data)
    assert 0.4 < attacks.popularity(record, data, np.sin(np.arange(data.n_items))).auc < 0.6


def test_statements_go_into_the_ledger(data):
    model = FedRecPlusPlus(n_rounds=1).fit(data, key=Key.from_seed(1), record_views=[0])
    for attack in (attacks.value_matching, attacks.group_sums):
        model.ledger_.note(attack(model.records_[0], data).statement())
    told = model.ledger_.summary()
    assert "not protected, by experiment: value matching, the server with denoisers: of" in told
    assert "not protected, by experiment: sums of single denoisers, the server: of" in told


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
    with pytest.raises(ValueError, match="records must hold at least one round, got none"):
        attacks.intersection([], data)
    with pytest.raises(ValueError, match=r"counts must have shape \(150,\), one number an item, got \(3,\)"):
        attacks.popularity(record, data, np.ones(3))


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_what_is_found(data):
    found = []
    for n_threads in (1, 4):
        model = FedRecPlusPlus(3, "published", 1, n_rounds=1, n_factors=2)
        model.fit(data, key=Key.from_seed(1), n_threads=n_threads, record_views=[0])
        found.append(attacks.value_matching(model.records_[0], data, colluding=False).claims)
    np.testing.assert_array_equal(*found)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_figures_on_movielens_1m():
    data = load_movielens(find_data("ml-1m.zip"))
    anew = records(data, sharing="published", n_rounds=3)
    by_user = [attacks.intersection(anew[:n], data).precision_by_user for n in (1, 2, 3)]
    np.testing.assert_allclose(by_user, [0.50, 0.956, 0.993], atol=0.003)
    (once,) = records(data)
    assert abs(attacks.popularity(once, data, counts(data)).auc - 0.85) < 0.01
    (matched,) = records(data, fill_by="popularity")
    assert abs(attacks.popularity(matched, data, counts(data)).auc - 0.616) < 0.01
