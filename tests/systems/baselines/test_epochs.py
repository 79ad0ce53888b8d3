"""Tests that baselines trained in epochs share."""

import numpy as np
import pytest

from fastfedrec import NCF, ImplicitALS, Interactions, Key
from fastfedrec.systems.baselines.epochs import EpochBaseline, places_before

DATA = Interactions.from_arrays(["a", "a", "b", "c"], [10, 30, 10, 20])
KEY = Key.from_seed(1)


def small(kind):
    return kind(n_factors=2, n_epochs=2)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_users_and_items_are_matched_by_id():
    data = Interactions.from_arrays(["new", "c", "a"], [30, 40, 10])
    users, items = places_before(DATA, data)
    for ids, old, factors in ((data.user_ids, DATA.user_ids, users), (data.item_ids, DATA.item_ids, items)):
        assert factors.tolist() == [list(old).index(one) if one in old else -1 for one in ids]


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ImplicitALS, NCF])
def test_the_loss_of_each_epoch_is_stored_on_request(kind):
    assert issubclass(kind, EpochBaseline)
    model = small(kind).fit(DATA, key=KEY, track_loss=True)
    assert model.loss_.shape == (2,)
    repeated = small(kind).fit(DATA, key=KEY)
    assert not hasattr(repeated, "loss_")
    np.testing.assert_array_equal(repeated.score_items(["a", "b"]), model.score_items(["a", "b"]))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ImplicitALS, NCF])
def test_bad_fits(kind):
    with pytest.raises(TypeError, match=f"warm_start must be a fitted {kind.__name__}"):
        small(kind).fit(DATA, warm_start="before")
    with pytest.raises((TypeError, ValueError), match="track_loss must be"):
        small(kind).fit(DATA, track_loss="yes")
