"""Tests of labels from centres in 8 bits, which equal those of all sums to the bit."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from support.data import of_dense
from support.strategies import seeds

from fastfedrec import Interactions, Key, clustering, hardware
from fastfedrec.compute.clustering import kmeans


def rows(n, m, seed=0, dtype=np.float64):
    """Small whole numbers, many of them 0: distances are exact in float32 too."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 6, (n, m)) * (rng.random((n, m)) < 0.4)).astype(dtype)


# ---- centres in 8 bits ----------------------------------------------------------------------------------------------


VECTORS = [entry for entry in hardware.instruction_sets() if entry != "plain"]


def multiples(n, m, unit, seed):
    """Sparse rows of multiples of `unit` below 32 of them, with empty rows, and zeros among the entries."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 32, (n, m)) * unit * (rng.random((n, m)) < 0.4)
    dense[n // 2] = 0
    csr = scipy.sparse.csr_array(dense.astype(np.float32))
    csr.data[rng.random(csr.nnz) < 0.1] = 0
    return clustering._Rows.of(Interactions.from_scipy(csr))


def rounded_of(data, n_clusters):
    """Round rows to bytes for any number of clusters, whether or not it saves time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clustering, "_MIN_ROUNDED_CLUSTERS", 1)
        return clustering._Rounded.of(data, n_clusters)


def columns_of(data, centers):
    return clustering._Columns.of(data, np.ascontiguousarray(centers, dtype=np.float64))


def both_labels(data, centers, n_threads=1, **change):
    """Return labels from all centres at full precision, and from centres of 8 bits."""
    columns, rounded = columns_of(data, centers), rounded_of(data, len(centers))
    labels = clustering._assign(data, columns, n_threads)
    rounded = dataclasses.replace(rounded, **change)
    return labels, rounded.assign(data, columns, n_threads), rounded


def near_ties(n_clusters, m, seed):
    """Pairs of centres that differ by a few last digits; of some, scores differ by less than that."""
    rng = np.random.default_rng(seed)
    centers = (rng.random((n_clusters, m)) * rng.choice([0, 1, 3], m) - rng.choice([0, 0.37])).astype(np.float32)
    copies = centers[: n_clusters // 2]
    centers[n_clusters - len(copies) :] = copies * (1 + rng.integers(-3, 4, copies.shape) * np.float32(2.0**-23))
    return centers


@pytest.mark.parametrize("instruction_set", VECTORS)
@given(
    seed=seeds(),
    n=st.integers(2, 70),
    m=st.integers(1, 40),
    n_clusters=st.integers(1, 130),
    unit=st.sampled_from([1.0, 0.5, 0.25]),
    scale=st.sampled_from([1e-20, 1.0, 1e6]),
)
def test_labels_are_those_of_all_sums_in_near_ties(instruction_set, seed, n, m, n_clusters, unit, scale):
    data, centers = multiples(n, m, unit, seed), near_ties(n_clusters, m, seed) * np.float32(scale)
    if not len(data.indices):
        return
    with hardware.use_instruction_set(instruction_set):
        expected, result, _ = both_labels(data, centers)
    assert result is None or result.tolist() == expected.tolist()


@pytest.mark.parametrize("instruction_set", VECTORS)
@pytest.mark.parametrize("n_clusters", [2, 17, 48, 50, 64, 65, 68, 100, 128, 130])
def test_near_ties_are_left_open_and_would_be_wrong_otherwise(instruction_set, n_clusters):
    data = multiples(600, 300, 1.0, n_clusters)
    rng = np.random.default_rng(n_clusters)
    centers = (rng.random((n_clusters, 300)) * 0.05 + rng.random(300)).astype(np.float32)
    with hardware.use_instruction_set(instruction_set):
        expected, result, rounded = both_labels(data, centers)
        assert result.tolist() == expected.tolist()
        assert not rounded.pays
        _, result, _ = both_labels(data, centers, totals=np.zeros_like(rounded.totals))  # no margin
        assert result.tolist() != expected.tolist()


@pytest.mark.parametrize("instruction_set", VECTORS)
@pytest.mark.parametrize("n_clusters", [2, 17, 50, 64, 66, 130])
@pytest.mark.parametrize("unit", [1.0, 0.25])
def test_clear_labels_need_nothing_but_8_bits(instruction_set, n_clusters, unit):
    rng = np.random.default_rng(n_clusters)
    groups = rng.permutation(np.arange(500) % n_clusters)
    dense = 2 * unit * (np.arange(4 * n_clusters) // 4 == groups[:, None]) * rng.integers(1, 16, (500, 4 * n_clusters))
    data = clustering._Rows.of(of_dense(dense.astype(np.float32)))
    centers = np.kron(np.eye(n_clusters), np.full(4, 30 * unit)).astype(np.float32)
    columns = columns_of(data, centers)
    without = dataclasses.replace(data, values=np.zeros_like(data.values))  # which all other sums are of
    with hardware.use_instruction_set(instruction_set):
        rounded = rounded_of(data, n_clusters)
        assert clustering._assign(data, columns, 1).tolist() == groups.tolist()
        assert rounded.assign(without, columns, 1).tolist() == groups.tolist()


@pytest.mark.parametrize("instruction_set", VECTORS)
def test_long_rows_fit_into_their_sums(instruction_set):
    m = 5_000
    data = clustering._Rows.of(of_dense(np.full((3, m), 31.0, dtype=np.float32)))
    levels = np.append(np.linspace(-33, 10, 19), 31)  # to both ends of 8 bits
    centers = (levels[:, None] * np.ones((1, m))).astype(np.float32)
    with hardware.use_instruction_set(instruction_set):
        expected, result, rounded = both_labels(data, centers)
    assert result.tolist() == expected.tolist() == [19] * 3
    assert rounded.pays


@pytest.mark.parametrize("instruction_set", VECTORS)
@pytest.mark.parametrize("n_iterations", [0, 1, 2, 3, 50])
def test_8_bits_do_not_change_a_bit_of_k_means(instruction_set, n_iterations, monkeypatch):
    data = of_dense(rows(400, 30, 5, np.float32))
    with hardware.use_instruction_set(instruction_set):
        result = [kmeans(data, 40, key=Key.from_seed(3), n_iterations=n_iterations, n_threads=n) for n in (1, 4)]
        monkeypatch.setattr(clustering._Rounded, "of", lambda *_: None)
        expected = kmeans(data, 40, key=Key.from_seed(3), n_iterations=n_iterations)
    for entry in result:
        assert entry.labels.tobytes() == expected.labels.tobytes()
        assert entry.centers.tobytes() == expected.centers.tobytes()
        assert (entry.objective, entry.n_iterations) == (expected.objective, expected.n_iterations)


def test_8_bits_are_left_where_they_do_not_pay_or_do_not_fit():
    x = rows(40, 6, 1, np.float32)
    data, of = clustering._Rows.of(of_dense(x)), clustering._Rounded.of
    fits = of(data, 32)
    assert (fits is None) == (hardware.instruction_set() == "plain")
    for other in (x * 0.3, x * 7, x / 8):
        assert of(clustering._Rows.of(of_dense(other.astype(np.float32))), 32) is None
    assert of(data, 31) is None
    assert of(clustering._Rows.of(x), 32) is None
    assert of(clustering._Rows.of(of_dense(np.full((1, 2**17 + 1), 31.0, np.float32))), 32) is None
    assert of(dataclasses.replace(data, values=data.values.astype(np.float64)), 32) is None
    with hardware.use_instruction_set("plain"):
        assert of(data, 32) is None
    for centers in (np.zeros((32, 6)), np.eye(32, 6) * 1e13, np.eye(32, 6) * 1e-30):
        assert fits is None or fits.assign(data, columns_of(data, centers), 1) is None
