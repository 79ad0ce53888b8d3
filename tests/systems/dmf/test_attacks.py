"""A neighbour in DMF learns nearly all of a user's items."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import find_data

from fastfedrec import DMF, Interactions, Key, attacks, datasets
from fastfedrec.datasets import load_movielens
from fastfedrec.evaluation import RandomHoldout
from fastfedrec.systems.dmf._views import SentRound

KEY = Key.from_seed(3)


@pytest.fixture(scope="module")
def sent():
    data = datasets.generate_implicit(60, 400, key=KEY)
    return data, DMF(n_rounds=6, n_factors=4).fit(data, key=KEY, record_views=[0, 2, 5]).records_


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_gradients_are_classified_by_sign_and_length():
    """Check two users by hand: x = (1, 1), with errors -1 and -.2 for their items, .3 and -.1 for sampled items."""
    senders, items = np.repeat([0, 1], 4), np.array([0, 1, 2, 3, 3, 2, 1, 0], dtype=np.int32)
    errors = np.array([-1, -0.2, 0.3, -0.1, -1, -0.2, 0.3, -0.1], dtype=np.float32)
    record = SentRound(0, senders, items, errors[:, None] * np.ones((1, 2), dtype=np.float32), 1)
    truth = Interactions.from_arrays([0, 0, 1, 1], [0, 1, 3, 2], item_ids=np.arange(4))
    result = attacks.neighbor_gradients(record, truth)
    assert result.rows.tolist() == senders.tolist()
    np.testing.assert_allclose(result.scores, np.sqrt(2) * np.array([1, 0.2, -0.3, 0.1, 0.1, -0.3, 0.2, 1]), rtol=1e-6)
    assert result.claims.tolist() == [1, 1, -1, -1, -1, -1, 1, 1]
    assert (result.precision, result.recall, result.auc) == (1, 1, 1)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_neighbour_learns_the_items_of_a_user(sent):
    data, records = sent
    first, last = (attacks.neighbor_gradients(record, data) for record in (records[0], records[-1]))
    assert first.recall > 0.99
    assert first.precision > 0.99 > 0.5 > first.base_rate
    assert last.auc > 0.9
    assert first.statement().startswith("The attack 'a neighbour, gradients of one round' exceeds chance")


def test_items_reported_in_every_round_are_the_users(sent):
    data, records = sent
    result = attacks.neighbor_intersection(records, data)
    assert result.recall == 1
    assert result.precision > 2 * result.base_rate
    few = attacks.neighbor_intersection(records[:1], data)
    # The attack makes no claims from a single round.
    assert few.precision == few.base_rate


def test_vectors_independent_of_the_items_reveal_no_item(sent):
    """Check the negative control: one vector for each pair, independent of the users' items."""
    data, records = sent
    vectors = np.random.default_rng(1).normal(size=(60, 400, 4)).astype(np.float32)
    result = attacks.neighbor_gradients(
        replace(records[0], gradients=vectors[records[0].senders, records[0].items]), data
    )
    assert abs(result.auc - 0.5) < 0.1
    assert not result.beats_chance


def test_without_sampled_items_every_item_is_revealed():
    data = datasets.generate_implicit(20, 40, key=KEY)
    (record,) = DMF(n_rounds=1, n_negatives=0).fit(data, key=KEY, record_views=[0]).records_
    result = attacks.neighbor_gradients(record, data)
    assert (result.recall, result.base_rate) == (1, 1)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_inputs(sent):
    data, records = sent
    with pytest.raises(TypeError, match="record must be SentRound"):
        attacks.neighbor_gradients(records, data)
    with pytest.raises(ValueError, match="records must hold at least one round"):
        attacks.neighbor_intersection([], data)
    with pytest.raises(ValueError, match="truth must be the data that the model was fitted on"):
        attacks.neighbor_gradients(records[0], data.select_users(np.arange(5)))


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_on_movielens_a_neighbour_learns_the_figures_of_the_page():
    """Check the figures of docs/explanation/systems/dmf/dmf.md, "Attacks by a neighbour"."""
    data, key = load_movielens(find_data("ml-100k.zip")).binarize(), Key.from_seed(0)
    train = next(RandomHoldout(share=0.2).split(data, key=key)).train
    model = DMF().fit(train, key=key, record_views=[0, 4, 9])
    for record, recall, auc in zip(model.records_, (1, 0.996, 0.972), (1, 0.998, 0.986), strict=True):
        result = attacks.neighbor_gradients(record, train)
        assert (round(result.recall, 3), round(result.auc, 3)) == (recall, auc)
        assert round(result.base_rate, 2) == 0.28
    result = attacks.neighbor_intersection(model.records_, train)
    assert (round(result.precision, 3), result.recall, round(result.auc, 3)) == (0.822, 1, 0.982)
