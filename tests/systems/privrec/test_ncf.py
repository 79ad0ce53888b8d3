"""NCF against the network's twin, its negatives, and beside popularity."""

import numpy as np
import pytest
from naive.compute.networks import two_tower as naive

from fastfedrec import DivergenceError, Interactions, Key, Popularity, datasets
from fastfedrec.accounting import Unprotected
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.systems.privrec.ncf import NCF

KEY = Key.from_seed(5)
SMALL = {"n_epochs": 2, "n_factors": 16, "hidden": (16,), "learning_rate": 0.2, "batch_size": 8}


def rated(n_users=9, n_items=31):
    matrix = datasets.generate_implicit(n_users, n_items, key=KEY).to_scipy()
    matrix.data[:] = 1 + np.arange(matrix.nnz) % 5
    return Interactions.from_scipy(matrix)


def all_scores(model):
    data = model.interactions_
    return np.array([model.score(np.repeat(user, data.n_items), data.item_ids) for user in data.user_ids])


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_training_equals_the_twin():
    data = rated()
    model = NCF(threshold=3.0, negatives=2, **SMALL).fit(data, key=KEY)
    start = model._network.initial_parameters(KEY, purpose="ncf.start")
    layers, embeddings = naive.unpack(start, 1, 1, 16, (16,))
    positives = Events.from_interactions(data.binarize(3.0))
    for epoch in range(2):
        drawn = draw_examples(data, positives, np.arange(9), 2, key=KEY, purpose="ncf.negatives", round=epoch)
        users = np.repeat(np.arange(9), np.diff(drawn.indptr))
        naive.train_client(
            layers, embeddings, [[[u]] for u in users], [[[9 + i]] for i in drawn.items], drawn.labels,
            KEY.words("ncf.order", round=epoch, user=0, size=len(users)),
            learning_rate=0.2, n_epochs=1, batch_size=8,
        )  # fmt: skip
    expected = [naive.scores(layers, embeddings, [[u]], [[[9 + i]] for i in range(31)]) for u in range(9)]
    np.testing.assert_allclose(all_scores(model), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.user_embeddings_, embeddings[:9], atol=1e-5)
    assert np.abs(np.array(expected) - np.mean(expected)).max() > 0.01


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_what_is_rated_low_is_neither_positive_nor_negative():
    data = rated()
    other = data._replace(values=np.where(data.values_or_ones() <= 3, 1, data.values_or_ones()).astype(np.float32))
    models = [NCF(threshold=3.0, **SMALL).fit(d, key=KEY) for d in (data, other)]
    np.testing.assert_array_equal(models[0].item_embeddings_, models[1].item_embeddings_)
    # An item that everybody has seen, and nobody likes, is in no example: its embedding stays where it began.
    users, items = np.indices((9, 31)).reshape(2, -1)
    everything = Interactions.from_arrays(users, items, np.where(items % 4 == 0, 2, 5))
    model = NCF(threshold=3.0, **SMALL).fit(everything, key=KEY)
    start = model._network.initial_parameters(KEY, purpose="ncf.start")[model._network.n_dense :].reshape(-1, 16)[9:]
    np.testing.assert_array_equal((model.item_embeddings_ == start).all(axis=1), model.interactions_.item_ids % 4 == 0)


@pytest.mark.ignores_values
def test_the_ledger_promises_nothing():
    model = NCF(**SMALL).fit(rated(), key=KEY)
    assert {type(event) for event in model.ledger_.events} == {Unprotected}
    assert model.ledger_.epsilon("public") == np.inf


def test_it_finds_groups_of_users_that_popularity_cannot_see():
    own_group = np.arange(300)[:, None] % 4 == np.arange(80) % 4
    has = KEY.uniform("test", size=300 * 80).reshape(300, 80) < np.where(own_group, 0.5, 0.03)
    train, test = next(LeaveOneOut().split(Interactions.from_arrays(*np.nonzero(has)), key=KEY))
    ours, popularity = (
        evaluate(model.fit(train, key=KEY), train, test, metrics=["hr@10"], candidates=Sampled(40), key=KEY)["hr@10"]
        for model in (NCF(n_factors=16, hidden=(16,)), Popularity())
    )
    assert popularity < 0.4  # ten of 41
    assert ours > popularity + 0.4


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_epochs": 0}, "n_epochs must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be greater than 0"),
        ({"negatives": -1}, "negatives must be at least 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"threshold": -1.0}, "threshold must be at least 0"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        NCF(**arguments)


@pytest.mark.ignores_values
def test_bad_widths_and_divergence():
    with pytest.raises(ValueError, match="n_factors"):
        NCF(n_factors=10).fit(rated(), key=KEY)
    with pytest.raises(DivergenceError, match=r"diverged in epoch 0: lower learning_rate \(1e\+30\)"):
        NCF(**(SMALL | {"learning_rate": 1e30})).fit(rated(), key=KEY)
