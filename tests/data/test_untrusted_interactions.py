"""Tests of all entry points of data: untrusted rows are checked before a kernel or SciPy uses them."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from naive.data import interactions as naive
from support.interaction_case import assert_same, assert_well_formed, interactions
from support.untrusted_case import KINDS, sound, spoiled

from fastfedrec import Interactions
from fastfedrec._kernels.data import interactions as _kernel
from fastfedrec.core.threads import default_threads
from fastfedrec.data.csr import check_csr, check_integers
from fastfedrec.data.log import InteractionLog


@st.composite
def stated(draw):
    """Draw untrusted rows: most are valid, many have one fault, and some have several."""
    n_items = draw(st.integers(1, 6))
    rows = draw(st.lists(st.sets(st.integers(0, n_items - 1)).map(sorted), max_size=6))
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    indices = np.array([item for row in rows for item in row], dtype=np.int32)
    values = np.array(draw(st.lists(st.integers(0, 3), min_size=len(indices), max_size=len(indices))), dtype=float)
    # Half of the arrays stay valid; others get one or two wrong entries.
    for array, wrong in ((indptr, st.integers(-3, 9)), (indices, st.integers(-3, 9)), (values, st.floats(width=32))):
        for _ in range(draw(st.sampled_from([0, 0, 1, 2])) if len(array) else 0):
            array[draw(st.integers(0, len(array) - 1))] = draw(wrong)
    # A quarter of the cases lack the last entry.
    if draw(st.booleans()) and draw(st.booleans()):
        indices, values = indices[:-1], values[:-1]
    return indptr, indices, draw(st.sampled_from([None, values, values.astype(np.float32)])), n_items


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(stated(), st.booleans(), st.integers(1, 4))
def test_the_first_fault_is_found_on_any_number_of_threads(rows, rising, n_threads):
    indptr, indices, values, n_items = rows
    expected, position = naive.find_fault(indptr.tolist(), indices.tolist(), values, n_items, rising)
    flat = np.empty(0, dtype=np.float32) if values is None else values
    assert _kernel.find_fault(indptr, indices, flat, n_items, rising, n_threads) == (KINDS[expected], position)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("at", [0, 1, 4095, 4096, 4097, 8191, 8192, 9_999])
@pytest.mark.parametrize("row_length", [1, 7, 5_000])
def test_one_wrong_entry_is_seen_wherever_it_is(at, n_threads, row_length):
    indices = (np.arange(10_000) % row_length).astype(np.int32)
    indptr = np.append(np.arange(0, 10_000, row_length), 10_000)
    values, sparse = np.ones(10_000), np.empty(0, dtype=np.float32)
    assert _kernel.find_fault(indptr, indices, values, row_length, True, n_threads) == (KINDS["no_fault"], 0)
    for wrong in (row_length, -1, 2**31 - 1, -(2**31)):
        spoiled = indices.copy()
        spoiled[at] = wrong
        assert _kernel.find_fault(indptr, spoiled, sparse, row_length, True, n_threads) == (KINDS["column"], at)
    if at % row_length:
        spoiled = indices.copy()
        spoiled[at] = spoiled[at - 1]
        assert _kernel.find_fault(indptr, spoiled, values, row_length, True, n_threads) == (KINDS["order"], at)
        assert _kernel.find_fault(indptr, spoiled, values, row_length, False, n_threads) == (KINDS["no_fault"], 0)
    for wrong in (np.nan, np.inf, -np.inf):
        values[at] = wrong
        assert _kernel.find_fault(indptr, indices, values, row_length, True, n_threads) == (KINDS["value"], at)
    for fine in (-0.0, -1.0, -np.finfo(float).max, np.finfo(float).max, 5e-324):
        values[at] = fine
        assert _kernel.find_fault(indptr, indices, values, row_length, True, n_threads) == (KINDS["no_fault"], 0)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(interactions())
def test_the_constructor_takes_its_fields(data):
    rebuilt = Interactions(**data._fields())
    assert_same(rebuilt, data)
    assert_well_formed(rebuilt)


@given(stated())
def test_accepted_interactions_are_well_formed(rows):
    indptr, indices, values, n_items = rows
    fields = sound(
        indptr=indptr, indices=indices, values=values, timestamps=None, user_ids=None, item_ids=np.arange(n_items),
        global_user_ids=np.arange(len(indptr) - 1), user_features=None, item_features=None,
    )  # fmt: skip
    fields["user_ids"] = np.arange(len(indptr) - 1)
    if naive.find_fault(indptr.tolist(), indices.tolist(), values, n_items)[0] == "no_fault":
        assert_well_formed(Interactions(**fields))
    else:
        with pytest.raises(ValueError, match=r"must (start|not decrease|end|be in|increase|be finite)"):
            Interactions(**fields)


@given(stated(), st.sampled_from(["csr", "csc", "coo"]))
def test_scipy_gets_no_indices_outside_a_matrix(rows, kind):
    indptr, indices, values, n_items = rows
    values = np.ones(len(indices)) if values is None else values
    fault = naive.find_fault(indptr.tolist(), indices.tolist(), None, n_items, rising=False)[0]
    shape = (len(indptr) - 1, n_items) if kind == "csr" else (n_items, len(indptr) - 1)
    if kind == "coo":
        matrix = scipy.sparse.coo_matrix((9, n_items))
        matrix.row, matrix.col, matrix.data = np.arange(len(indices)) % 9, indices, values
        fault = "no_fault" if ((indices >= 0) & (indices < n_items)).all() else "column"
    else:
        matrix = {"csr": scipy.sparse.csr_matrix, "csc": scipy.sparse.csc_matrix}[kind](shape)
        matrix.indptr, matrix.indices, matrix.data = indptr, indices, values
        if fault == "end" and 0 <= indptr[-1] < len(indices):
            return  # room behind the last row, which SciPy allows
    if fault == "no_fault" and (np.isfinite(values) & (values >= 0)).all():
        assert_well_formed(Interactions.from_scipy(matrix))
    elif fault != "no_fault":
        with pytest.raises(ValueError, match=r"matrix\.(indptr|indices|row|col) must"):
            Interactions.from_scipy(matrix)


@given(interactions(), st.integers(1, 3))
def test_checked_rows_are_not_checked_again(data, n_shards):
    def refuse(*_, **__):
        raise AssertionError("checked again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastfedrec.data.csr.check_csr", refuse)
        for part in data.shard(n_shards):
            part.top_items(2).positive().binarize().with_features(user_features={}).select_items([0])
        data.select_users(np.arange(data.n_users)[::-1])
        with pytest.raises(AssertionError, match="checked again"):
            pickle.loads(pickle.dumps(data))
        with pytest.raises(AssertionError, match="checked again"):
            copy.deepcopy(data)


@given(interactions(), st.integers(1, 6))
def test_the_source_of_items_is_preserved(data, n):
    chosen = data.top_items(n)
    counts = "counts" if n < data.n_items else "public"
    assert (data.catalogue, chosen.catalogue) == ("public", counts)
    selections = [
        *chosen.shard(2), chosen.binarize(), chosen.positive(), chosen.select_users([]), chosen.select_items([0]),
        chosen.keep_interactions(np.zeros(chosen.n_interactions, dtype=bool)), pickle.loads(pickle.dumps(chosen)),
        chosen.with_features(item_features={}), copy.deepcopy(chosen),
    ]  # fmt: skip
    assert {selection.catalogue for selection in selections} == {counts}
    assert data.filter_core(min_interactions_per_user=2, min_interactions_per_item=0).catalogue == "public"
    assert data.filter_core(min_interactions_per_user=0, min_interactions_per_item=1).catalogue == "counts"


def test_the_source_of_items():
    data = Interactions.from_arrays([1, 2], [1, 2])
    assert data.catalogue == "data"
    assert data.top_items(5).catalogue == "data"
    assert data.top_items(1).top_items(1).catalogue == "counts"
    assert InteractionLog.from_arrays([1, 2], [1, 2]).select_users([0]).interactions.catalogue == "data"
    assert Interactions(**sound()).catalogue == "public"
    assert Interactions(**sound(catalogue="data")).catalogue == "data"
    with pytest.raises(AttributeError):
        data.catalogue = "public"
    with pytest.raises(ValueError, match="catalogue must be one of 'public', 'data', 'counts', 'chosen', got 'mine'"):
        Interactions(**sound(catalogue="mine"))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


HIDDEN = np.ma.array([1.0, 2.0, 999.0, 4.0, 5.0], mask=[0, 0, 1, 0, 0])


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("indptr", [0, 2, 2], ValueError, r"indptr must end at the number of entries, 5, got 2"),
        ("indptr", [1, 2, 2, 5], ValueError, "indptr must start at 0, got 1"),
        ("indptr", [0, 3, 2, 5], ValueError, "indptr must not decrease, got 3 and then 2 at row 1"),
        ("indptr", [0, -1, 2, 5], ValueError, "indptr must not decrease, got 0 and then -1 at row 0"),
        ("indptr", [0, 2, 2, 500], ValueError, "indptr must end at the number of entries, 5, got 500"),
        ("indptr", [0, 2, 2, 2**62], ValueError, "number of entries, 5, got 4611686018427387904"),
        ("indptr", [0.0, 2.5, 2, 5], TypeError, "indptr must hold integers, got dtype float64"),
        ("indptr", [], ValueError, "indptr must have one entry more than there are rows, got no entry"),
        ("indptr", [[0, 2, 2, 5]], ValueError, r"indptr must have 1 dimension, got shape \(1, 4\)"),
        ("indptr", [0, 2, 2, 3, 5], ValueError, "global_user_ids must have 4 entries, one for each row of"),
        ("indices", [0, 4, 0, 1, 2], ValueError, r"indices must be in \[0, 4\), got 4 in row 0; drop it"),
        ("indices", [1, 4, 1, 2, 3], ValueError, r"got 4 in row 0; numbers count from 0: subtract 1 from indices"),
        ("indices", [0, -3, 0, 1, 2], ValueError, r"indices must be in \[0, 4\), got -3 in row 0"),
        ("indices", [0, 3 + 2**32, 0, 1, 2], ValueError, r"indices must be in .*, got 4294967299 at position 1"),
        ("indices", [0, 3, 0, 1, 2**32 + 3], ValueError, r"indices must be in .*, got 4294967299 at position 4"),
        ("indices", np.array([0, 3, 0, 1, 2**64 - 1], dtype="u8"), ValueError, "got 18446744073709551615 at"),
        ("indices", [0, 3.7, 0, 1, 2], TypeError, "indices must hold integers, got dtype float64"),
        ("indices", [0, 3, 0, 0, 2], ValueError, "indices must increase within a row, got 0 and then 0 in row 2"),
        ("indices", [3, 0, 0, 1, 2], ValueError, "indices must increase within a row, got 3 and then 0 in row 0"),
        ("values", [1, 2, 3, 4], ValueError, r"values must have shape \(5,\), got \(4,\)"),
        ("values", [1, 2, np.inf, 4, 5], ValueError, "values must be finite, got inf in row 2, column 0"),
        ("values", [1, 2, np.nan, 4, 5], ValueError, "values must be finite, got nan in row 2, column 0"),
        ("values", [1, 2, 3, 4, np.inf], ValueError, "values must be finite, got inf in row 2, column 2"),
        ("values", list("abcde"), TypeError, "values must be an array of float32 or float64"),
        ("values", HIDDEN, ValueError, r"values\[2\] is missing \(masked or null\)"),
        ("timestamps", [1, 2, 3], ValueError, "timestamps must have 5 entries, one for each interaction, got 3"),
        ("timestamps", [1, 2, 3, 4, 5.5], TypeError, "timestamps must hold integers, got dtype float64"),
        ("timestamps", np.zeros(5, dtype="M8[ns]"), TypeError, "must hold integers, got dtype datetime64"),
        ("timestamps", np.ma.array([1, 2, 3, 4, 5], mask=[1, 0, 0, 0, 0]), ValueError, r"timestamps\[0\] is missing"),
        ("user_ids", ["ann", "bob"], ValueError, "user_ids must have 3 entries, one for each row or column, got 2"),
        ("user_ids", ["ann", "bob", "ann"], ValueError, "user_ids must be distinct, .* positions 0 and 2 hold"),
        ("user_ids", ["ann", None, "cem"], ValueError, r"user_ids\[1\] is missing"),
        ("user_ids", "ann", TypeError, "user_ids must be a sequence of ids, got str"),
        ("item_ids", [10, 20, 20, 40], ValueError, "item_ids must be distinct, .* positions 1 and 2 hold the same"),
        ("item_ids", [10, 20, 30], ValueError, r"indices must be in \[0, 3\), got 3 in row 0"),
        ("item_ids", None, TypeError, "item_ids must be a sequence of ids, got NoneType"),
        ("global_user_ids", [0, 0, 0], ValueError, "global_user_ids must be distinct, got 0 in rows 0 and 1"),
        ("global_user_ids", [9, 8, 9], ValueError, "global_user_ids must be distinct, got 9 in rows 0 and 2"),
        ("global_user_ids", [0, -1, 2], ValueError, r"global_user_ids must be in \[0, .*, got -1 at position 1"),
        ("global_user_ids", [0, 1.5, 2], TypeError, "global_user_ids must hold integers, got dtype float64"),
        ("global_user_ids", [0, 1], ValueError, "global_user_ids must have 3 entries, one for each row"),
        ("user_features", {"age": [1, 2]}, ValueError, r"user_features\['age'\] must have 3 entries, got 2"),
        ("item_features", {"a": [1]}, ValueError, r"item_features\['a'\] must have 4 entries, got 1"),
    ],
)  # fmt: skip
def test_the_constructor_refuses(field, value, error, message):
    with pytest.raises(error, match=message):
        Interactions(**sound(**{field: value}))


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint32, np.uint64, ">i4", ">i8", "<i8"])
def test_whole_numbers_of_any_width_and_order_are_taken(kind):
    expected = Interactions(**sound())
    fields = {name: np.array(sound()[name]).astype(kind) for name in ("indptr", "indices", "global_user_ids")}
    assert_same(Interactions(**sound(**fields, timestamps=np.array([5, 4, 3, 2, 1]).astype(kind))), expected)


def from_one(shape=(300, 200)):
    """Return a matrix with item numbers from 1, which SciPy does not detect."""
    matrix = scipy.sparse.random(*shape, 0.05, format="csr", random_state=0)
    return scipy.sparse.csr_matrix((matrix.data, matrix.indices + 1, matrix.indptr), shape=matrix.shape)


@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        (from_one(), ValueError, r"matrix.indices must be in \[0, 200\), got 200 in row \d+; numbers count from 0"),
        (spoiled(indices=[0, 1, -1]), ValueError, r"matrix.indices must be in \[0, 3\), got -1 in row 1"),
        (spoiled(indices=[0, 1, 10**8]), ValueError, r"matrix.indices must be in \[0, 3\), got 100000000 in row 1"),
        (spoiled(indices=[0, 1, 2 + 2**32]), ValueError, "matrix.indices must be in .*, got 4294967298 at position 2"),
        (spoiled(indices=[0.0, 1.0, 2.5]), TypeError, "matrix.indices must hold integers, got dtype float64"),
        (spoiled(indptr=[0, 2, 300]), ValueError, "matrix.indptr must end at the number of entries, 3, got 300"),
        (spoiled(indptr=[0, 4, 3]), ValueError, "matrix.indptr must not decrease, got 4 and then 3 at row 1"),
        (spoiled(indptr=[1, 2, 3]), ValueError, "matrix.indptr must start at 0, got 1"),
        (spoiled(indptr=[0, 3]), ValueError, r"matrix.indptr must have 3 entries for matrix of shape \(2, 3\), got 2"),
        (spoiled(data=[1.0, 2.0]), ValueError, "matrix.indices and matrix.data must have equal lengths, got 3 and 2"),
    ],
)
def test_a_matrix_with_wrong_flags_is_refused(matrix, error, message):
    with pytest.raises(error, match=message):
        Interactions.from_scipy(matrix)


def test_other_formats_that_lie_are_refused():
    coo = scipy.sparse.coo_matrix(np.eye(3))
    coo.col = coo.col + 1
    with pytest.raises(ValueError, match=r"matrix.col must be in \[0, 3\), got 3 in row 0; numbers count from 0: sub"):
        Interactions.from_scipy(coo)
    coo.col, coo.row = coo.col - 1, coo.row - 1
    with pytest.raises(ValueError, match=r"matrix.row must be in \[0, 3\), got -1"):
        Interactions.from_scipy(coo)
    coo.row = coo.row[:2]
    with pytest.raises(
        ValueError, match=r"matrix.row, matrix.col and matrix.data must have equal lengths, got \[2, 3, 3\]"
    ):
        Interactions.from_scipy(coo)
    bsr = scipy.sparse.bsr_matrix(np.eye(4), blocksize=(2, 2))
    bsr.indices = bsr.indices + 1
    with pytest.raises(ValueError, match=r"matrix.indices must be in \[0, 2\), got 2 in row 1"):
        Interactions.from_scipy(bsr)
    csc = scipy.sparse.csc_matrix(np.eye(3))
    csc.indices = csc.indices + 5
    with pytest.raises(ValueError, match=r"matrix.indices must be in \[0, 3\), got 5"):
        Interactions.from_scipy(csc)


def lists(**changes):
    matrix = scipy.sparse.lil_matrix(np.eye(3))
    for name, (row, entries) in changes.items():
        getattr(matrix, name)[row] = entries
    return matrix


def keys(*pairs):
    matrix = scipy.sparse.dok_matrix(np.eye(3))
    matrix._dict.update(dict.fromkeys(pairs, 1.0))
    return matrix


def changed(kind, **parts):
    matrix = kind(np.eye(4))
    for name, part in parts.items():
        setattr(matrix, name, part)
    return matrix


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (lists(rows=(1, [7])), r"matrix.indices must be in \[0, 3\), got 7 in row 1"),
        (lists(rows=(1, [-5])), r"matrix.indices must be in \[0, 3\), got -5 in row 1"),
        (
            lists(rows=(1, [0, 1, 2])),
            "matrix.rows and matrix.data must have lists of equal lengths, got 3 and 1 in row 1",
        ),
        (
            lists(data=(2, [1.0] * 500)),
            "matrix.rows and matrix.data must have lists of equal .* got 1 and 500 in row 2",
        ),
        (lists(rows=(1, ["a"])), r"matrix must be a valid lil matrix"),
        (keys((9, 9)), r"matrix must be a valid dok matrix \(axis 0 index 9 exceeds"),
        (keys((-1, 2)), r"matrix must be a valid dok matrix \(negative axis 0 index"),
        (
            changed(scipy.sparse.dia_matrix, offsets=np.arange(9, dtype=np.int32)),
            r"matrix.data must have a row for each",
        ),
        (changed(scipy.sparse.dia_matrix, data=np.ones(4)), r"matrix.data must have a row for each of matrix.offsets"),
        (changed(scipy.sparse.csr_matrix, data=np.float64(1)), r"matrix.data must be an array, got np.float64\(1.0\)"),
        (changed(scipy.sparse.csr_matrix, indices=np.arange(4)[:, None]), "matrix.indices must have 1 dimension"),
        (changed(scipy.sparse.csr_matrix, data=np.ones((4, 2))), r"matrix must be a valid csr matrix"),
        (changed(scipy.sparse.csc_matrix, indptr=np.array([0, 1, 2, 3, 99])), "matrix.indptr must end at the number"),
        (changed(scipy.sparse.coo_matrix, data=np.ones((4, 2))), r"matrix must be a valid coo matrix"),
    ],
)
def test_no_format_leads_scipy_out_of_its_arrays(matrix, message):
    with pytest.raises(ValueError, match=message):
        Interactions.from_scipy(matrix)


def test_short_lists_are_refused():
    matrix = lists()
    matrix.rows = matrix.rows[:2]
    with pytest.raises(ValueError, match=r"matrix.rows and matrix.data must have 3 lists, got 2 and 3"):
        Interactions.from_scipy(matrix)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
@pytest.mark.parametrize("make", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_a_sound_matrix_of_any_format_is_taken(kind, dtype, make):
    dense = np.array([[1, 2, 0, 0], [0, 0, 3, 0], [0, 0, 0, 0], [4, 0, 0, 5]], dtype=dtype)
    data = Interactions.from_scipy(make(dense).asformat(kind), item_ids=list("abcd"))
    np.testing.assert_array_equal(data.to_scipy().toarray(), dense)
    assert_well_formed(data)
    assert data.interactions_per_user().tolist() == [2, 1, 0, 2]
    assert data.interactions_per_item().tolist() == [2, 1, 1, 1]
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == ([0, 1, 2, 3], list("abcd"))
    assert data.catalogue == "public"


def test_room_behind_the_last_row_is_allowed_as_scipy_allows_it():
    matrix = spoiled(indices=[0, 1, 2, 99], data=[1.0, 2.0, 3.0, np.nan])
    assert Interactions.from_scipy(matrix).to_scipy().toarray().tolist() == [[1, 2, 0], [0, 0, 3]]


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_threads", [1, 4])
def test_the_check_has_one_answer_on_any_number_of_threads(monkeypatch, n_threads):
    monkeypatch.setattr("fastfedrec.data.csr._MIN_ENTRIES", 1)
    indptr, indices = np.arange(0, 100_001, 10), (np.arange(100_000) % 10).astype(np.int32)
    with default_threads(n_threads):
        check_csr(indptr, indices, None, 10)
        indices[[50_000, 70_000, 90_000]] = 10
        with pytest.raises(ValueError, match=r"got 10 in row 5000"):
            check_csr(indptr, indices, None, 10)


@pytest.mark.parametrize("dtype", [complex, "U3", "M8[s]", object, float])
def test_none_of_any_type_are_no_integers_without_a_warning(dtype):
    checked = check_integers("numbers", np.zeros(0, dtype=dtype), np.uint64)
    assert checked.dtype == np.uint64
    assert checked.shape == (0,)
