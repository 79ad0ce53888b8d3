"""Streams and permutations do not depend on the number of threads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.core import randomness as naive

from fastfedrec import Key
from fastfedrec._kernels.core import randomness as kernel
from fastfedrec.core import randomness


@pytest.mark.parametrize("n_threads", [4, 0])
def test_bits_do_not_depend_on_threads(n_threads):
    key, chosen = Key.from_seed(2), np.arange(1001, dtype=np.uint64) * 2**40
    one = key.words_by_user("p", chosen, size=37, n_threads=1)
    np.testing.assert_array_equal(key.words_by_user("p", chosen, size=37, n_threads=n_threads), one)
    parts = [key.words_by_user("p", part, size=37, n_threads=2) for part in np.array_split(chosen, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), one)
    # Each thread writes a part of a long stream.
    long = key.words_by_user("p", chosen[:3], size=20_001, n_threads=n_threads)
    np.testing.assert_array_equal(long[:, :37], one[:3])
    assert long[1].tolist() == naive.words(key._secret, "p", 0, int(chosen[1]), 20_001)
    np.testing.assert_array_equal(key.words("p", size=20_001, n_threads=n_threads), key.words("p", size=20_001))


@pytest.mark.parametrize("n_threads", [2, 3, 7])
@pytest.mark.parametrize("size", [1, 2, 100, 2**13, 2**13 + 1, 70_000])
def test_a_permutation_does_not_depend_on_threads(monkeypatch, size, n_threads):
    monkeypatch.setattr(randomness, "_MIN_WORDS_PER_THREAD", 1)
    order = Key.from_seed(3).permutation("p", size=size, n_threads=n_threads)
    words = Key.from_seed(3).words("p", size=size)
    np.testing.assert_array_equal(order, np.argsort(words, kind="stable"))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=400), st.integers(1, 4))
def test_equal_words_keep_their_order_and_last_bits_count(halves, n_threads):
    first, last = np.array(halves, dtype=np.uint64).reshape(-1, 2).T
    words, out = (first << np.uint64(62)) | last, np.full(len(halves), -1)
    kernel.argsort(words, out, n_threads)
    assert out.tolist() == np.argsort(words, kind="stable").tolist()


def test_words_of_one_part_are_sorted_too():
    # Words unlike a stream: most of them are in few parts, and some are equal.
    words = np.r_[np.arange(20_000)[::-1], np.zeros(20_000, dtype=np.int64), np.arange(9)].astype(np.uint64)
    words[20_000:] += np.uint64(2**63)
    for n_threads in (1, 3):
        out = np.full(len(words), -1)
        kernel.argsort(words, out, n_threads)
        np.testing.assert_array_equal(out, np.argsort(words, kind="stable"))
