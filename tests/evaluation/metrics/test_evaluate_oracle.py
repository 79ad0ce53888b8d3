"""Oracle of `evaluate`: any train, test and given interactions over different catalogues, against the naive twin."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.evaluation.metrics import evaluate as naive
from support.evaluation_case import ALL, ByScore, level_of

from fastfedrec import Interactions
from fastfedrec.evaluation import evaluate


def interactions_of(rows, items, order):
    """Return interactions of {user: items}, with `items` as the catalogue in its order and users in `order`."""
    users = [u for u in order if u in rows]
    pairs = [(u, i) for u in users for i in sorted(rows[u])]
    ids = [u for u, _ in pairs], [i for _, i in pairs]
    return Interactions.from_arrays(*ids, user_ids=users, item_ids=list(items))


@st.composite
def worlds(draw):
    """{user: items} of train, test and given, over catalogues that differ; users of any of them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    items, unseen_items = [f"i{n}" for n in range(draw(st.integers(2, 6)))], ["x1", "x2"]

    def rows(users, catalogue, chance):
        return {u: {i for i in catalogue if rng.random() < chance} for u in users}

    train = rows(["a", "b", "c", "d"], items, 0.4)
    test = rows(["c", "b", "e", "f"], items + unseen_items, 0.5)
    given = rows(["e", "c"], [*items, "y"], 0.3) if draw(st.booleans()) else {}
    orders = [list(rng.permutation([*"abcdef"])) for _ in range(3)]
    catalogues = [list(rng.permutation(names)) for names in (items, items + unseen_items, [*items, "y"])]
    return train, test, given, orders, catalogues


# ---- oracle ------------------------------------------------------------------------------------------------------


@given(worlds(), st.sampled_from([1, 7, 2**20]))
@settings(deadline=None, max_examples=40)
def test_any_train_and_test_equal_naive(world, batch_size):
    train, test, given_rows, orders, catalogues = world
    data = [
        interactions_of(rows, items, order)
        for rows, items, order in zip((train, test, given_rows), catalogues, orders, strict=True)
    ]
    given_data = data[2] if given_rows else None
    expected = {}
    for name in ALL:
        kind, _, cutoff = name.partition("@")
        kind = "hit" if kind == "hr" else kind
        of = naive.evaluate(level_of, train, test, given_rows, catalogues[0], kind, int(cutoff) if cutoff else None)
        expected[name], dropped = of
    if expected["recall@2"] is None:
        with pytest.raises(ValueError, match=re.escape(f"dropped interactions: {dropped}")):
            evaluate(ByScore(), data[0], data[1], given=given_data, metrics=ALL)
        return
    actual = evaluate(ByScore(), data[0], data[1], given=given_data, metrics=ALL, batch_size=batch_size, per_user=True)
    assert list(actual) == ALL
    assert actual.dropped == dropped
    for name, value in expected.items():
        if value is None:
            assert np.isnan(actual[name])
        else:
            assert actual[name] == pytest.approx(value, rel=1e-12, abs=1e-12), name
    assert actual.n_users == len(actual.per_user["user"])
    assert set(actual.per_user["user"].tolist()) <= {"b", "c", "e", "f"}
