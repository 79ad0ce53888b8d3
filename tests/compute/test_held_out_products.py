"""Ranks of held-out items by 16-bit products: whole vectors of items, remainders, and memory after the last item."""

import numpy as np
import pytest
from naive.compute import ranking as naive

from fastfedrec import hardware
from fastfedrec.compute.ranking import held_out_ranks_factors

N_USERS, N_ITEMS = 70, 90


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_factors", [5, 16, 64, 130])
@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_ranks_among_every_number_of_items_equal_naive(instruction_set, n_factors, dtype):
    rng = np.random.default_rng(13)
    users, items = (rng.integers(-9, 10, (n, n_factors)).astype(dtype) for n in (N_USERS, N_ITEMS))
    other_items, held_out = rng.integers(0, N_ITEMS, (N_USERS, N_USERS)), rng.integers(0, N_ITEMS, N_USERS)
    counts = rng.permutation(N_USERS)
    with hardware.use_instruction_set(instruction_set):
        ranks = held_out_ranks_factors(users, items, held_out, other_items, counts)
    expected = [
        naive.held_out_ranks_factors(users[r], items, [held_out[r]], other_items[r, : counts[r]])[0]
        for r in range(N_USERS)
    ]
    assert ranks.tolist() == expected


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_score_beyond_what_is_compared_equals_naive(instruction_set, sign):
    """In steps of the user's numbers it is infinite in single precision, where products are compared."""
    rng = np.random.default_rng(14)
    users, items = (rng.integers(1, 10, (n, 20)).astype(np.float64) for n in (3, 30))
    items[0] = np.ldexp(items[0], 900) * sign
    other_items = rng.integers(1, 30, (3, 21))
    with hardware.use_instruction_set(instruction_set):
        ranks = held_out_ranks_factors(users, items, [0, 0, 0], other_items, [21, 5, 0])
    assert ranks.tolist() == ([22.0, 6.0, 1.0] if sign < 0 else [1.0, 1.0, 1.0])
