"""Small interactions, and the invariants of every such object, whether built or selected."""

import numpy as np
import scipy.sparse
from hypothesis import strategies as st

from fastfedrec import Interactions

ARRAYS = ("indptr", "indices", "values", "timestamps", "user_ids", "item_ids", "global_user_ids")


@st.composite
def interactions(draw):
    """Return an object with empty users and items, explicit zeros, timestamps and features on both sides."""
    n_users, n_items = draw(st.integers(0, 6)), draw(st.integers(1, 6))
    dense = draw(st.lists(st.integers(-2, 4), min_size=n_users * n_items, max_size=n_users * n_items))
    table = np.array(dense, dtype=np.int64).reshape(n_users, n_items)
    keep = table >= 0
    matrix = scipy.sparse.csr_array((table[keep].astype(float), np.nonzero(keep)), shape=table.shape)
    data = Interactions.from_scipy(
        matrix, user_ids=[f"u{row}" for row in range(n_users)], item_ids=[(row, row) for row in range(n_items)]
    )
    data = data.with_features(
        user_features={"of": np.arange(n_users) * 10}, item_features={"of": [f"i{j}" for j in range(n_items)]}
    )
    return data._replace(timestamps=np.arange(data.n_interactions) * 7)


def rows_of(data):
    """Return one dict a user: item to value."""
    values = data.values_or_ones().tolist()
    return [
        dict(zip(data.indices[a:b].tolist(), values[a:b], strict=True))
        for a, b in zip(data.indptr[:-1].tolist(), data.indptr[1:].tolist(), strict=True)
    ]


def table_of(data):
    """Return the object as the twin's dict of dicts, with every user in it."""
    values = data.values_or_ones()
    item_ids = data.item_ids.tolist()
    return {
        user: {item_ids[data.indices[k]]: float(values[k]) for k in range(data.indptr[row], data.indptr[row + 1])}
        for row, user in enumerate(data.user_ids.tolist())
    }


def assert_well_formed(data):
    """Assert the invariants of every object."""
    assert data.indptr.dtype == np.int64
    assert data.indices.dtype == np.int32
    assert data.global_user_ids.dtype == np.uint64
    assert data.indptr[0] == 0
    assert data.indptr[-1] == data.n_interactions == len(data.indices)
    assert data.shape == (len(data.user_ids), len(data.item_ids)) == (len(data.global_user_ids), data.n_items)
    for row in range(data.n_users):
        mine = data.indices[data.indptr[row] : data.indptr[row + 1]]
        assert (np.diff(mine) > 0).all()
        assert ((mine >= 0) & (mine < data.n_items)).all()
    for name in ARRAYS:
        array = getattr(data, name)
        if array is not None:
            assert not array.flags.writeable, name
            assert array.flags.c_contiguous, name
    if data.values is not None:
        assert data.values.dtype in (np.float32, np.float64)
        assert np.isfinite(data.values).all()
        assert len(data.values) == data.n_interactions
    assert data.timestamps is None or len(data.timestamps) == data.n_interactions
    for features, length in ((data.user_features, data.n_users), (data.item_features, data.n_items)):
        assert all(len(column) == length and not column.flags.writeable for column in features.values())


def assert_same(first, right):
    """Assert that all arrays and their types are equal, with features in the same order."""
    assert first.catalogue == right.catalogue
    for name in ARRAYS:
        ours, theirs = getattr(first, name), getattr(right, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
            assert ours.dtype == theirs.dtype, name
    for features in ("user_features", "item_features"):
        ours, theirs = ([(k, v.tolist()) for k, v in getattr(data, features).items()] for data in (first, right))
        assert ours == theirs
