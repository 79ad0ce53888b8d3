"""The shares of noise that count, if all nodes that drop out are honest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec.accounting.shares import count_honest_shares, needed_shares

# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(n_nodes=st.integers(1, 1000), data=st.data())
def test_nodes_that_drop_out_may_all_be_honest(n_nodes, data):
    n_answers, fraction = data.draw(st.integers(0, n_nodes)), data.draw(st.floats(0.01, 1.0))
    n_honest = int(fraction * n_nodes)
    # The fewest honest answers over all choices of the honest nodes that drop out.
    n_dropped = n_nodes - n_answers
    assert count_honest_shares(n_nodes, n_answers, fraction) == max(0, n_honest - min(n_dropped, n_honest))


def test_noise_is_sized_by_the_shares_that_count():
    assert needed_shares(1000, 950, 0.7) == count_honest_shares(1000, 950, 0.7) == 650


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"), [((4, 5, 0.5), "n_answers must be"), ((4, 3, 1.5), "honest_fraction")]
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        count_honest_shares(*arguments)


def test_noise_without_a_share_that_counts_is_refused():
    with pytest.raises(ValueError, match=r"got 30 of 100 nodes with honest_fraction 0\.7; wait for more answers"):
        needed_shares(100, 30, 0.7)
