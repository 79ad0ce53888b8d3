"""Collection of all users' ratings by baselines, exactly or through private reports."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.fit import Fit
from fastfedrec.systems.rating_model import warn_beyond_ends
from fastfedrec.systems.rating_svd._decoder import ReportDecoder
from fastfedrec.systems.rating_svd.laplace_rr_svd import COUNT_AS_NEAREST, LaplaceRRSVD


def collect_ratings(
    data: Interactions,
    epsilon: float | None,
    grid: Sequence[float],
    key: Key,
    ledger: Ledger,
    n_threads: int,
    *,
    caller: str,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], ReportDecoder | None]:
    """Return rows, columns and values of all ratings, and the decoder of their reports if `epsilon` is given.

    The ledger gets its entries before any report; `caller` is the name of the fitted model, for errors about keys.
    """
    half_epsilon = 1.0 if epsilon is None else epsilon / 2  # exact, and the two halves add up to epsilon
    collector = LaplaceRRSVD(None if epsilon is None else "optimal", half_epsilon, half_epsilon, grid=grid)
    if epsilon is None:
        warn_beyond_ends(data, grid, COUNT_AS_NEAREST, stacklevel=3)
    fit = Fit.resolve(key, n_threads, False, ledger, None)
    fit.caller = caller
    fit.key.claim(f"{caller}.fit")
    state = collector._collect(data, fit)
    decoder = collector._decoder(state)
    return state.users, state.items, state.reports if decoder is None else decoder.decode(), decoder
