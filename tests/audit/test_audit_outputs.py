"""Dicts, dataclasses, frames, series and tensors are read as columns, with the same numbers as one by one."""

import re
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.significance import ALPHA

from fastfedrec.audit import _outputs as module
from fastfedrec.audit import audit
from fastfedrec.audit._records import read_table

N = 1000


@dataclass
class Release:
    """A release with a number, a row and a constant."""

    total: float
    counts: np.ndarray
    unit: str = "users"


Pair = namedtuple("Pair", "mean n")


def noise(rng, n):
    return np.round(rng.laplace(size=n) * 64) / 64


def frame_of(library, rng, x):
    module = pytest.importorskip(library)
    return module.DataFrame({"total": noise(rng, 2), "users": [3, 4 + 9 * x]})


def with_mean(library, rng, x, n):
    module = pytest.importorskip(library)
    return module.DataFrame({"total": noise(rng, n), "users": rng.integers(0, 3, n) + 9 * x})


def labelled(numbers, labels):
    return pytest.importorskip("pandas").DataFrame({"n": numbers}, index=labels)


def tensor(values):
    return pytest.importorskip("torch").tensor(values)


# For each kind: a function of a generator, a number of draws and the input 0 or 1, and the words of the event.
RECORDS = {
    "dicts": (
        lambda rng, n, x: [{"sum": float(v), "n": 3 + 9 * x, "ok": True} for v in noise(rng, n)], "output['n'] "
    ),
    "dicts in a dict": (lambda rng, n, x: [{"a": {"b": (float(v), 9 * x)}} for v in noise(rng, n)], "['a']['b'][1] "),
    "dataclasses": (lambda rng, n, x: [Release(float(v), np.array([1, 9 * x])) for v in noise(rng, n)], ".counts[1] "),
    "named tuples": (lambda rng, n, x: [Pair(float(v), 9 * x) for v in noise(rng, n)], "output.n "),
    "a dict of columns": (
        lambda rng, n, x: {"sum": noise(rng, n), "n": rng.integers(0, 3, n) + 9 * x}, "output['n'] "
    ),
    "a dict of rows": (
        lambda rng, n, x: {"sum": noise(rng, n), "rows": rng.random((n, 3)).round(3) + np.array([0, 0, 9 * x])},
        "output['rows'][2] ",
    ),
    "a pandas frame": (lambda rng, n, x: with_mean("pandas", rng, x, n), "output['users'] "),
    "a polars frame": (lambda rng, n, x: with_mean("polars", rng, x, n), "output['users'] "),
    "pandas frames": (lambda rng, n, x: [frame_of("pandas", rng, x) for _ in range(n)], "output['users'][1] "),
    "polars frames": (lambda rng, n, x: [frame_of("polars", rng, x) for _ in range(n)], "output['users'][1] "),
    "pandas series": (
        lambda rng, n, x: [pytest.importorskip("pandas").Series([1, 9 * x], index=["a", "b"]) for _ in range(n)],
        "output['b'] ",
    ),
    "torch tensors": (lambda rng, n, x: [tensor([float(v), 9.0 * x]) for v in noise(rng, n)], "output[1] "),
    "a torch tensor": (lambda rng, n, x: tensor(np.stack([noise(rng, n), noise(rng, n) + 99 * x], 1)), "output[1] "),
}  # fmt: skip
# Outputs of several forms are read one by one.
ONE_BY_ONE = {
    "another index of a frame": (lambda rng, n, x: [labelled(noise(rng, 1), ["ab"[x]]) for _ in range(n)], "output"),
    "another date of a frame": (
        lambda rng, n, x: [labelled([1.0], np.array([9 * x], "M8[D]").astype("M8[s]"))] * n, "output"
    ),
    "another interval of a frame": (
        lambda rng, n, x: [labelled([1.0], pytest.importorskip("pandas").interval_range(9 * x, periods=1))] * n,
        "output",
    ),
    "row labels of a frame of outputs": (
        lambda rng, n, x: labelled(noise(rng, n), rng.integers(0, 3, n) + 9 * x), r"^output\['row label'\] "
    ),
    "row labels of a frame of outputs with text": (
        lambda rng, n, x: labelled(noise(rng, n), ["ab"[x]] * n), r"output\['row label'\]"
    ),
    "row labels of a series of outputs": (
        lambda rng, n, x: labelled(noise(rng, n), rng.integers(0, 3, n) + 9 * x)["n"], r"^output\['row label'\] "
    ),
    "other columns of a frame of outputs": (
        lambda rng, n, x: pytest.importorskip("pandas").DataFrame({"ab"[x]: noise(rng, n)}), "key 0 of output"
    ),
    "other keys of a dict of columns": (lambda rng, n, x: {"ab"[x]: noise(rng, n)}, "key 0 of output"),
    "another type in a dict of columns": (
        lambda rng, n, x: {"n": np.ones(n, "f4" if x else "f8")}, "output is dict of 1 .*float"
    ),
    "other columns": (
        lambda rng, n, x: [pytest.importorskip("pandas").DataFrame({"ab"[x]: [1]})] * n, "output is DataFrame with"
    ),
    "another index": (
        lambda rng, n, x: [pytest.importorskip("pandas").Series([1], index=["ab"[x]])] * n, "output"
    ),
    "another constant": (lambda rng, n, x: [Release(1.0, np.ones(2), "ab"[x])] * n, "output"),
    "another type": (lambda rng, n, x: [{"n": 1.0 if x else 1}] * n, "output is dict of 1 .*"),
    "another dataclass": (lambda rng, n, x: [Release(1.0, 2) if x else Pair(1.0, 2)] * n, "output is (Release|Pair)"),
    "some dicts with a key more": (
        lambda rng, n, x: [{"a": 1, "b": 2} if v else {"a": 1} for v in rng.random(n) < 0.1 + 0.8 * x], "dict of|length"
    ),
}  # fmt: skip


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dicts", "dicts in a dict", "dataclasses", "named tuples"])
def test_columns_equal_those_that_are_read_one_by_one(kind, monkeypatch):
    outputs = [RECORDS[kind][0](np.random.default_rng(1), 50, x) for x in (0, 1)]
    fast = module.read_outputs(outputs, 50)
    assert fast[0].labels is None
    monkeypatch.setattr(module, "read_table", lambda raw, n: None)
    slow = module.read_outputs(outputs, 50)
    for one, other in zip(fast, slow, strict=True):
        by_one = {tuple(part[:, j]) for part in one.parts for j in range(part.shape[1])}
        by_other = {tuple(part[:, j]) for part in other.parts for j in range(part.shape[1])}
        # Constant keys and texts are no columns of a form.
        assert {column for column in by_other if len(set(column)) > 1} <= by_one


@given(st.lists(st.tuples(st.floats(), st.integers(-(2**70), 2**70), st.booleans()), min_size=2, max_size=20))
def test_no_number_is_lost(rows):
    table = read_table([{"a": a, "b": [b, c]} for a, b, c in rows], len(rows))
    fits = [-(2**63) <= b < 2**63 for _, b, _ in rows]
    if not all(fits[: len(rows) // 2]):
        assert table is None
        return
    a, b, c = (column.numbers[fits] for column in table.columns)
    assert [column.name for column in table.columns] == ["output['a']", "output['b'][0]", "output['b'][1]"]
    fitting = [row for row, is_fit in zip(rows, fits, strict=True) if is_fit]
    assert a.tobytes() == np.array([row[0] for row in fitting]).tobytes()
    assert list(zip(b.tolist(), c.tolist(), strict=True)) == [row[1:] for row in fitting]
    # Larger integers need Python's, so they have another form.
    assert all(np.isnan(table.columns[0].numbers[~np.array(fits)]))


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDS | ONE_BY_ONE)
def test_objects_are_read_by_the_names_of_their_parts(name):
    make, words = (RECORDS | ONE_BY_ONE)[name]
    rng = np.random.default_rng(1)
    result = audit(lambda x, n: make(rng, n, x), 0, 1, 1.0, N, ALPHA)
    assert result.verdict == "violated"
    assert words in result.event if name in RECORDS else re.search(words, result.event), result.event
    # Negative control: outputs that do not depend on the input.
    for x in (0, 1):
        twin = audit(lambda _, n, x=x: make(rng, n, x), 0, 1, 0.0, N, ALPHA, check_repeats=False)
        assert twin.verdict == "consistent", twin


def test_whole_outputs_of_two_types_are_compared():
    rng = np.random.default_rng(2)

    # Each number alone has the same distribution on both inputs.
    def mechanism(x, n):
        bits = rng.integers(0, 2, n)
        return [{"a": float(a), "b": int(a) ^ x} for a in bits]

    result = audit(mechanism, 0, 1, 1.0, N, ALPHA)
    assert result.verdict == "violated"
    assert "output == \"{'a': " in result.event


@pytest.mark.parametrize("odd", [{"n": 1}, {"sum": 1.0, "n": "a"}, None, {"sum": 1.0, "n": 2**70}, "text"])
def test_outputs_that_bound_the_event_decide_no_columns(odd):
    rng = np.random.default_rng(3)
    outputs = [[{"sum": float(v), "n": int(v)} for v in rng.integers(0, 9, 40)] for _ in range(2)]
    before = module.read_outputs(outputs, 40)
    outputs[0][25] = outputs[1][39] = odd
    after = module.read_outputs(outputs, 40)
    for one, other, row in zip(before, after, (25, 39), strict=True):
        assert one.layout == other.layout
        assert other.labels is None
        for part, changed in zip(one.parts, other.parts, strict=True):
            np.testing.assert_array_equal(np.delete(part, row, axis=0), np.delete(changed, row, axis=0))
    # Negative control: an odd output among those that choose the event.
    outputs[0][3] = odd
    assert module.read_outputs(outputs, 40)[0].labels is not None


@pytest.mark.parametrize("rows", [slice(None), slice(None, None, -1)])
def test_labels_that_number_the_rows_are_no_outputs(rows):
    frame = labelled(noise(np.random.default_rng(4), 40), None)
    names = [table.names for table in module.read_outputs([frame[rows]] * 2, 40)]
    expected = ("output['n']",) if rows == slice(None) else ("output['n']", "output['row label']")
    assert {name for parts in names for part in parts for name in part} == set(expected)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_columns_of_another_length_are_refused():
    with pytest.raises(
        ValueError, match=r"mechanism must return 100 outputs, one a row, got column 'b' of shape \(7,\)"
    ):
        audit(lambda x, n: {"a": np.zeros(n), "b": np.zeros(7)}, 0, 1, 1.0, 100)
