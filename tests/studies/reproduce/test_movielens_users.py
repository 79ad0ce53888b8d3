"""Protocols that make train and tested users from the original users of MovieLens."""

import numpy as np
import pytest

from fastfedrec import Interactions, Key, datasets
from fastfedrec.studies.reproduce import movielens_users as module
from fastfedrec.studies.reproduce.movielens_users import (
    HALF,
    HELD_OUT_FIRST,
    OTHER_PEOPLE,
    PROTOCOLS,
    RESAMPLED_FIRST,
    THEMSELVES,
    resampled,
    users_of_the_thousand,
)

KEY = Key.from_seed(3)


@pytest.fixture(scope="module")
def people():
    """Sixty users with 40 of 200 items each, so that a drawn row is a subset of one original row only."""
    rng = np.random.default_rng(1)
    items = np.concatenate([rng.choice(200, 40, replace=False) for _ in range(60)])
    return Interactions.from_arrays(np.repeat(np.arange(60), 40), items)


def origins(rows, people):
    """Return for each drawn row the original user with all of its items."""
    whole, drawn = (part.to_scipy().astype(np.int64) for part in (people, rows))
    within = (drawn @ whole.T).toarray() == rows.interactions_per_user()[:, None]
    assert (within.sum(axis=1) == 1).all()
    return within.argmax(axis=1)


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_drawn_users_have_seven_tenths_of_an_original_row(people):
    drawn, second_draw = resampled(people, people, n_users=2_000, key=KEY)
    who = origins(drawn, people)
    np.testing.assert_array_equal(who, origins(second_draw, people))
    assert (second_draw.interactions_per_user() == people.interactions_per_user()[who]).all()
    assert drawn.n_interactions / second_draw.n_interactions == pytest.approx(0.7, abs=0.02)
    counts = np.bincount(who, minlength=60)
    assert counts.min() > 10  # rows have 33 items on average
    assert len(set(drawn.global_user_ids.tolist())) == 2_000
    (other,) = resampled(people, n_users=2_000, key=KEY, draw=1)
    assert (origins(other, people) != who).mean() > 0.9


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_items_that_each_protocol_excludes_from_training(people, protocol):
    train, served, test = PROTOCOLS[protocol](people, 300, KEY)
    assert served.n_users == test.n_users
    assert test.interactions_per_user().max() == 1
    assert not served.to_scipy().multiply(test.to_scipy()).nnz  # no test item is in the user's own row
    assert (train is served) == (protocol != OTHER_PEOPLE)
    assert train.n_users == (60 if protocol == THEMSELVES else 300)
    if protocol == THEMSELVES:
        return
    trained_on = origins(train, people)
    tested = served.to_scipy() + test.to_scipy()
    owners = origins(Interactions.from_scipy(tested), people)
    if protocol == OTHER_PEOPLE:
        assert not set(trained_on.tolist()) & set(owners.tolist())
        return
    item = test.to_scipy().indices  # one item per user, since rows of 28 items have one to hold out
    known = train.to_scipy()
    clones = [known[np.flatnonzero(trained_on == who)][:, j].sum() for who, j in zip(owners, item, strict=True)]
    assert (max(clones) == 0) == (protocol == HELD_OUT_FIRST)
    assert protocol in (HALF, HELD_OUT_FIRST, RESAMPLED_FIRST)
    assert len(set(trained_on.tolist())) == (30 if protocol == HALF else 60)


def test_only_the_thousand_items_and_users_with_twenty_of_them(monkeypatch):
    monkeypatch.setattr(module, "N_ITEMS", 50)
    data = datasets.generate_implicit(300, 200, key=KEY, ratings=True, mean_interactions=30.0)
    rows = users_of_the_thousand(data)
    assert rows.n_items == 50
    assert rows.values is None
    assert rows.interactions_per_user().min() == 20
    top = np.sort(data.interactions_per_item())[-50:]
    assert set(top.tolist()) == set(data.binarize().top_items(50).interactions_per_item().tolist())


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_bad_inputs(people):
    with pytest.raises(ValueError, match="n_users must be at least 1"):
        resampled(people, n_users=0, key=KEY)
    with pytest.raises(TypeError, match=r"data must be .*load_movielens"):
        users_of_the_thousand(people.to_scipy())
