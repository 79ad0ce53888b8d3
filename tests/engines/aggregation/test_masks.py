"""Masks against keystreams of RFC 8439 in Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.engines.aggregation import masks as naive

from fastfedrec.engines.aggregation.masks import add_masks

KINDS = {32: np.uint32, 64: np.uint64}

# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(n=st.integers(0, 40), n_masks=st.integers(0, 4), bits=st.sampled_from([32, 64]), data=st.data())
def test_masked_vectors_equal_the_naive_twin(n, n_masks, bits, data):
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=n, max_size=n))
    keys = data.draw(st.lists(st.binary(min_size=32, max_size=32), min_size=n_masks, max_size=n_masks))
    signs = data.draw(st.lists(st.sampled_from([1, -1]), min_size=n_masks, max_size=n_masks))
    round_number = data.draw(st.integers(0, 2**32 - 1))
    masked = np.array(values, dtype=KINDS[bits])
    add_masks(masked, keys, signs, round=round_number)
    assert masked.tolist() == naive.add_masks(values, keys, signs, round_number, bits)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_long_vector_continues_each_stream(bits):
    n, keys = 4096 * 2 + 77, [bytes([i]) * 32 for i in range(2)]
    masked = np.zeros(n, dtype=KINDS[bits])
    add_masks(masked, keys, [1, -1], round=5)
    assert masked.tolist() == naive.add_masks([0] * n, keys, [1, -1], 5, bits)


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_mask_that_is_subtracted_cancels(kind):
    masked = np.arange(10_000, dtype=kind)
    add_masks(masked, [b"k" * 32] * 2, [1, -1])
    assert masked.tolist() == list(range(10_000))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    values = np.zeros(4, dtype=np.uint32)
    for bad in (np.zeros(4, dtype=np.int64), np.zeros((2, 2), dtype=np.uint32), values[::2]):
        with pytest.raises(ValueError, match="values must be a contiguous vector of uint32 or uint64"):
            add_masks(bad, [], [])
    with pytest.raises(ValueError, match="signs must be 1 numbers, each 1 or -1"):
        add_masks(values, [bytes(32)], [2])
    with pytest.raises(ValueError, match="keys must have 32 bytes each, got \\[31\\]"):
        add_masks(values, [bytes(31)], [1])
    with pytest.raises(ValueError, match="round must be"):
        add_masks(values, [bytes(32)], [1], round=2**32)


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values())
def test_threads_give_the_same_bits(kind):
    one, four = np.zeros((2, 50_001), dtype=kind)
    for values, n_threads in ((one, 1), (four, 4)):
        add_masks(values, [b"a" * 32, b"b" * 32], [1, -1], round=1, n_threads=n_threads)
    assert (one == four).all()
