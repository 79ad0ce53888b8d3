"""Attacks by FedGNN's server on a user's items among pseudo items."""

from dataclasses import replace

import numpy as np
import pytest
from support.data import random_ratings

from fastfedrec import FedGNN, Interactions, Key, attacks
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.systems.fedgnn._views import Messages

KEY = Key.from_seed(3)
OPTIONS = {"n_rounds": 6, "cohort_size": 20, "n_factors": 8, "n_pseudo_items": 60, "n_neighbors": 3}


def recorded(data, rounds, **options):
    model = FedGNN("published", **{**OPTIONS, **options}).fit(data, key=KEY, record_views=rounds)
    return model.records_


@pytest.fixture(scope="module")
def data():
    return random_ratings(25, 400, 7, density=0.08)


@pytest.fixture(scope="module")
def sent(data):
    """Return the messages without noise and with the noise of the paper."""
    return [recorded(data, range(6), noise_scale=scale, expansion_round=2) for scale in (0.0, 0.2)]


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_the_users_rows_are_identified_by_hand():
    """Check six rows along two lines, and others in their plane, all moved by the part that W' a explains."""
    d, rng = 6, np.random.default_rng(1)
    attention, (g, h) = rng.normal(size=(2, d)), rng.normal(size=(2, d))
    lines = [g, -2 * g, 0.5 * g, h, 3 * h, -h]
    plane = [np.cos(t) * g + np.sin(t) * h for t in np.linspace(0.2, 1.4, 5)]
    rows = np.array(lines + plane) + rng.normal(size=(11, 2)) @ attention
    record = Messages(
        0, np.array([0], np.uint64), np.array([0, 11]), np.arange(11), np.round(1e9 * rows).astype(np.int64),
        np.zeros((1, d * d + 2 * d), np.int64), np.eye(d), attention,
    )  # fmt: skip
    truth = Interactions.from_arrays(np.zeros(6, int), np.arange(6), np.ones(6), item_ids=np.arange(11))
    result = attacks.pseudo_item_values(record, truth)
    assert result.claims.tolist() == [1] * 6 + [-1] * 5
    assert (result.precision, result.recall, result.auc) == (1, 1, 1)
    layer = np.linalg.qr(rng.normal(size=(d, d)))[0]
    turned = replace(record, rows=np.round(record.rows @ layer).astype(np.int64), weights=layer)
    assert attacks.pseudo_item_values(turned, truth).claims.tolist() == result.claims.tolist()
    # The attack has no claim about a layer other than the server's.
    other = replace(turned, weights=np.eye(d))
    assert (attacks.pseudo_item_values(other, truth).claims < 0).all()


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_values_identify_the_users_rows_without_noise(data, sent):
    # Neighbours do not change the attack's claims.
    for record in (sent[0][0], sent[0][5]):
        result = attacks.pseudo_item_values(record, data)
        assert result.recall > 0.9
        assert result.precision > 0.95 > 0.4 > result.base_rate
        assert result.auc > 0.95
        assert result.statement().startswith("The attack 'row values of one round, the server' exceeds chance")


def test_values_identify_no_rows_under_the_printed_noise(data, sent):
    """Check the negative control of the attack: its claims are right as often as chance."""
    result = attacks.pseudo_item_values(sent[1][0], data)
    assert abs(result.auc - 0.5) < 0.05
    assert not result.beats_chance


def test_items_sent_in_every_round_are_the_users_with_any_noise(data, sent):
    for records in sent:
        result = attacks.pseudo_item_intersection(records, data)
        assert result.recall == 1
        assert result.precision > 0.8 > 0.3 > result.base_rate
        assert result.beats_chance


def test_intersection_reveals_no_items_of_other_users_or_of_one_round(data, sent):
    """Check the negative controls."""
    rows = np.roll(np.arange(data.n_users), 1)
    other_data = data._take_users(rows)._replace(global_user_ids=data.global_user_ids)
    result = attacks.pseudo_item_intersection(sent[0], other_data)
    assert abs(result.auc - 0.5) < 0.05
    assert not result.beats_chance
    # No user was sampled twice.
    assert len(attacks.pseudo_item_intersection(sent[0][:1], data).claims) == 0


def test_records_are_those_of_the_requested_rounds_on_any_engine(data):
    whole, shards = (
        FedGNN("published", **OPTIONS).fit(data, key=KEY, record_views=[1, 4], engine=engine).records_
        for engine in (None, LocalEngine(3))
    )
    assert [record.round for record in whole] == [1, 4]
    for one, other in zip(whole, shards, strict=True):
        assert set(one.users) == set(other.users)
        order = np.argsort(one.users), np.argsort(other.users)
        for name in ("shared", "users"):
            np.testing.assert_array_equal(getattr(one, name)[order[0]], getattr(other, name)[order[1]])
        assert one.rows.sum() == other.rows.sum()


def test_results_of_attacks_are_in_the_ledger(data):
    fitted = [
        FedGNN("published", **OPTIONS, noise_scale=0.0).fit(data, key=KEY, record_views=rounds).ledger_.summary()
        for rounds in ((), (0, 1))
    ]
    assert "fit(record_views=...)" in fitted[0]
    assert "row values" not in fitted[0]
    assert "The attack 'row values of one round, the server' exceeds chance" in fitted[1]
    assert "The attack 'intersection of 2 rounds, the server' exceeds chance" in fitted[1]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_inputs(data, sent):
    record = sent[0][0]
    with pytest.raises(TypeError, match="record must be Messages"):
        attacks.pseudo_item_values(sent[0], data)
    with pytest.raises(ValueError, match="records must hold at least one round"):
        attacks.pseudo_item_intersection([], data)
    for attack, argument in ((attacks.pseudo_item_values, record), (attacks.pseudo_item_intersection, [record])):
        with pytest.raises(ValueError, match="truth must be the data that the model was fitted on"):
            attack(argument, data.select_users(data.user_ids[:5]))
    with pytest.raises(ValueError, match="record_views must be empty if variant is 'guaranteed'"):
        FedGNN().fit(data, key=KEY, record_views=[0])
    with pytest.raises(ValueError, match="record_views must be at least 0"):
        FedGNN("published").fit(data, key=KEY, record_views=[-1])
    narrow = recorded(data, [0], n_factors=4, noise_scale=0.0)[0]
    # There is no plane to find.
    assert (attacks.pseudo_item_values(narrow, data).claims < 0).all()
