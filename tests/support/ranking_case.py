"""Users' items as masks."""

import numpy as np
from hypothesis import strategies as st

from fastfedrec import Key
from support.data import of_dense

KEY = Key.from_seed(11)


def interactions_of(mask):
    return of_dense(np.asarray(mask, dtype=np.float32))


@st.composite
def masks(draw):
    n_users, n_items = draw(st.integers(1, 6)), draw(st.integers(1, 150))
    density = draw(st.sampled_from([0.0, 0.1, 0.5, 0.95, 1.0]))
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1))).random((n_users, n_items)) < density
