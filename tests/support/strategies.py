"""Hypothesis strategies, named by what they draw."""

from hypothesis import strategies as st

from fastfedrec import Key
from fastfedrec.testing import interactions as interaction_matrices

__all__ = ["interaction_matrices", "keys", "seeds"]


def seeds():
    return st.integers(0, 2**32 - 1)


def keys():
    return seeds().map(Key.from_seed)
