"""When two sets of interactions are the same to the last array."""

import numpy as np

FIELDS = ("indptr", "indices", "values", "timestamps", "user_ids", "item_ids", "global_user_ids")


def assert_same(got, wanted):
    for name in FIELDS:
        ours, theirs = getattr(got, name), getattr(wanted, name)
        assert (ours is None) == (theirs is None), name
        if theirs is not None:
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype, name
    assert got.catalogue == wanted.catalogue
    for axis in ("user_features", "item_features"):
        ours, theirs = getattr(got, axis), getattr(wanted, axis)
        assert list(ours) == list(theirs)
        for name in theirs:
            assert ours[name].tolist() == theirs[name].tolist()
