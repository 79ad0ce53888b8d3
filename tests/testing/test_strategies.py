"""Tests of the random data for other projects' suites: bounds, cases that matter, and exact distances of neighbours."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from fastfedrec import Interactions
from fastfedrec.testing import interactions, mechanism_inputs, neighbours, shards

RELATIONS = ("replace", "add_remove", "zero_out")


def exact_norm_power(vector, norm):
    """Return the L1 norm, or the square of the L2 norm, in rational arithmetic."""
    return sum(abs(Fraction(float(v))) ** (1 if norm == "l1" else 2) for v in vector)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(interactions(max_users=5, max_items=4, min_items=3, with_values=True))
def test_interactions_stay_within_the_requested_bounds(data):
    assert isinstance(data, Interactions)
    assert 1 <= data.n_users <= 5
    assert 3 <= data.n_items <= 4
    assert data.n_interactions >= 1
    assert set(data.values_or_ones().tolist()) <= {1.0, 2.0, 3.0, 4.0, 5.0}


@given(shards(max_shards=3, max_users=6))
def test_shards_are_parts_of_one_data_set(parts):
    assert 1 <= len(parts) <= 3
    assert len({part.n_items for part in parts}) == 1
    users = np.concatenate([part.global_user_ids for part in parts])
    assert users.tolist() == list(range(len(users)))


@given(mechanism_inputs(low=-2.0, high=0.5, max_size=9))
def test_mechanism_inputs_stay_in_range(values):
    assert values.size <= 9
    assert values.dtype == np.float64
    assert ((values >= -2.0) & (values <= 0.5)).all()


@pytest.mark.parametrize(
    ("strategy", "is_case"),
    [
        (interactions(), lambda data: (data.interactions_per_user() == 0).any()),
        (interactions(), lambda data: (data.interactions_per_item() == 0).any()),
        (shards(), lambda parts: len(parts) > 1),
        (mechanism_inputs(), lambda values: values.size == 0),
        (mechanism_inputs(), lambda values: values.ndim == 2),
        (mechanism_inputs(), lambda values: not values.flags.writeable),
        (mechanism_inputs(), lambda values: values.size > 1 and not values.flags.c_contiguous),
        (mechanism_inputs(), lambda values: 1.0 in values),
        (mechanism_inputs(with_non_finite=True), lambda values: np.isnan(values).any()),
        (mechanism_inputs(with_non_finite=True), lambda values: (np.abs(values) > 1).any()),
    ],
)
def test_strategies_reach_the_cases_that_matter(strategy, is_case):
    assert find(strategy, is_case, settings=settings(max_examples=2000, database=None, derandomize=True)) is not None


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("is_integer", [True, False])
@given(data=st.data())
def test_rows_differ_in_one_person(relation, is_integer, data):
    ends = (-2, 3) if is_integer else (-2.0, 3.0)
    strategy = neighbours("rows", relation, max_size=4, n_columns=2, low=ends[0], high=ends[1])
    x0, x1 = data.draw(strategy)
    assert x0.dtype == x1.dtype == (np.int64 if is_integer else np.float64)
    assert x0.shape[1:] == x1.shape[1:] == (2,)
    assert max(len(x0), len(x1)) <= 4
    inside = [((x >= -2) & (x <= 3)).all() for x in (x0, x1)]
    assert all(inside)
    if relation == "add_remove":
        short, long = sorted((x0, x1), key=len)
        removals = [np.delete(long, i, axis=0).tolist() for i in range(len(long))]
        assert short.tolist() in removals
        return
    assert len(x0) == len(x1)
    changed = np.flatnonzero((x0 != x1).any(axis=1))
    assert len(changed) <= 1
    if relation == "zero_out" and len(changed):
        assert not x0[changed].any() or not x1[changed].any()


@pytest.mark.parametrize("relation", RELATIONS)
@given(data=st.data())
def test_counts_and_histograms_differ_by_one_person(relation, data):
    a, b = data.draw(neighbours("counts", relation, max_count=5))
    assert abs(a - b) == 1
    assert 0 <= min(a, b) <= max(a, b) <= 5
    x0, x1 = data.draw(neighbours("histograms", relation, n_columns=4, max_count=5))
    assert x0.dtype == x1.dtype == np.int64
    assert 0 <= min(x0.min(), x1.min()) <= max(x0.max(), x1.max()) <= 5
    moved = sorted((x1 - x0).tolist())
    assert moved in ([[-1, 0, 0, 1]] if relation == "replace" else [[0, 0, 0, 1], [-1, 0, 0, 0]])


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("relation", RELATIONS)
@given(data=st.data(), clip_norm=st.sampled_from([1.0, 0.3, 1e-5, 12345.678]))
def test_vectors_differ_by_at_most_the_clip_norm(relation, norm, data, clip_norm):
    x0, x1 = data.draw(neighbours("vectors", relation, n_columns=3, clip_norm=clip_norm, norm=norm))
    power = 1 if norm == "l1" else 2
    bound = Fraction(clip_norm) * (2 if relation == "replace" else 1)
    difference = [Fraction(float(b)) - Fraction(float(a)) for a, b in zip(x0, x1, strict=True)]
    assert sum(abs(d) ** power for d in difference) <= bound**power


@pytest.mark.parametrize(
    ("strategy", "is_case"),
    [
        (neighbours("rows", "add_remove"), lambda pair: min(map(len, pair)) == 0),
        (neighbours("rows", "replace"), lambda pair: sorted([pair[0].sum(), pair[1].sum()]) == [0.0, 1.0]),
        (neighbours("rows", "replace", with_non_finite=True), lambda pair: np.isnan(pair[0]).any()),
        (neighbours("rows", "replace", with_non_finite=True), lambda pair: (pair[1] > 1).any()),
        # As floats these ends would be 2^53 and 2^53 + 2.
        (
            neighbours("rows", "replace", n_columns=1, low=2**53 + 1, high=2**53 + 1),
            lambda pair: (pair[0] == 2**53 + 1).all(),
        ),
        (neighbours("counts"), lambda pair: pair == (1, 0)),
        (neighbours("counts"), lambda pair: pair == (19, 20)),
        (neighbours("vectors", "replace", n_columns=3), lambda pair: np.abs(pair[0] - pair[1]).max() == 2.0),
        (neighbours("vectors", "replace", n_columns=3), lambda pair: np.abs(pair[0] - pair[1]).min() > 1.1),
        (
            neighbours("vectors", "add_remove", n_columns=3, norm="l1"),
            lambda pair: exact_norm_power(pair[0] - pair[1], "l1") == 1,
        ),
    ],
)
def test_neighbours_reach_the_pairs_that_matter(strategy, is_case):
    assert find(strategy, is_case, settings=settings(max_examples=4000, database=None, derandomize=True)) is not None


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: interactions(max_users=0), "max_users must be at least 1"),
        (lambda: interactions(max_items=2, min_items=3), "max_items must be at least 3"),
        (lambda: shards(max_shards=0), "max_shards must be at least 1"),
        (lambda: mechanism_inputs(low=1.0, high=0.0), r"high must be at least 1\.0"),
        (lambda: neighbours("sets"), "kind must be one of 'rows', 'histograms', 'counts', 'vectors'"),
        (lambda: neighbours("rows", "swap"), "relation must be one of 'replace', 'add_remove', 'zero_out'"),
        (lambda: neighbours(max_size=0), "max_size must be at least 1"),
        (lambda: neighbours(low=2.0, high=1.0), r"high must be at least 2\.0"),
        (lambda: neighbours(low=2, high=1), "high must be at least 2"),
        (lambda: neighbours(low=0, high=2**63), f"high must be at most {2**63 - 1}, got {2**63}"),
        (lambda: neighbours(low=-(2**63) - 1, high=0), f"low must be at least -{2**63}"),
        (lambda: neighbours("histograms", "replace"), "n_columns must be at least 2 for histograms"),
        (lambda: neighbours("vectors", clip_norm=0.0), "clip_norm must be at least"),
        (lambda: neighbours("vectors", norm="l3"), "norm must be one of 'l1', 'l2'"),
        (lambda: neighbours(low=0, high=1, with_non_finite=True), "with_non_finite must be False for rows of integers"),
    ],
)
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()
