"""Sampling of the clients of a round: Poisson, and a fixed size without replacement."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.mechanisms import client_sampling as _kernel
from fastfedrec.core.check import check_exact, check_instance, check_integer
from fastfedrec.core.immutable import Immutable
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads, threads_for_rows
from fastfedrec.mechanisms.channels.channel import TOTAL

__all__ = ["FixedSizeSampling", "PoissonSampling"]

_MIN_MARKED_PER_THREAD = 250_000  # clients; with fewer, starting a thread costs more time than it saves
_KEY_REMEDY = "use Key.from_entropy(), or Key.from_seed(n) for a simulation"


class PoissonSampling(Immutable):
    """Poisson sampling: each client takes part with the same probability, independently of all others.

    **Guarantee.** None alone.  It amplifies the guarantee of the mechanism that processes the cohort's data, under
    "add_remove" (privacy unit "user"), as an accountant for Poisson sampling states, as long as it stays secret who
    took part; the server that samples is trusted ("central").

    Parameters
    ----------
    sampling_probability : float
        Greater than 0 and at most 1.

    Attributes
    ----------
    sampling_probability : Fraction
        The exact probability: the largest multiple of 2^-64 that is at most the given number, and below 1.

    Notes
    -----
    A client is sampled if one uniform 64-bit word is below an integer threshold.  The cohort may be empty.  Its size
    depends on which users exist, so a mean divides by the planned size.  See
    docs/explanation/mechanisms/client-sampling.md.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import PoissonSampling
    >>> cohort = PoissonSampling(0.01).sample(100_000, key=Key.from_seed(1), round=3)
    >>> 850 < len(cohort) < 1150
    True
    """

    def __init__(self, sampling_probability: float):
        nominal = check_exact("sampling_probability", sampling_probability, low=0, high=1)
        self._threshold = min(int(nominal * TOTAL), TOTAL - 1)  # int() rounds toward privacy
        if self._threshold == 0:
            raise ValueError(f"sampling_probability must be at least 2**-64, got {float(nominal)}")
        self.sampling_probability = Fraction(self._threshold, TOTAL)

    def sample(self, n_clients: int, *, key: Key, round: int = 0, n_threads: int = 0) -> NDArray[np.int64]:
        """Draw the cohort of one round.

        Parameters
        ----------
        n_clients : int
            Number of clients, whose global ids are 0 to n_clients - 1.  The draw of a client does not depend on it.
        key : Key
            Source of the bits.  This call does not claim the key: the caller claims it once for a whole run.
        round : int
            Round number.  Use a new number for each round, or the cohort repeats.
        n_threads : int
            Number of threads, 0 for all; the cohort does not depend on it.

        Returns
        -------
        ndarray of int64
            Ids of the sampled clients, ascending; the length is random.
        """
        n_clients = check_integer("n_clients", n_clients, low=0)
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        check_instance("key", key, Key, _KEY_REMEDY)
        marked, subkey = _no_marks(n_clients), key.subkey("client_sampling.poisson")
        n_threads = resolve_n_threads(n_threads)
        _kernel.mark_poisson(marked, subkey, n_clients, self._threshold, round_number, n_threads)
        return _marked_clients(marked, int(np.bitwise_count(marked).sum()), n_threads)

    def __repr__(self) -> str:
        return f"PoissonSampling({float(self.sampling_probability)})"


class FixedSizeSampling(Immutable):
    """Sampling without replacement: every cohort of a fixed number of clients is equally likely.

    **Guarantee.** None alone.  It amplifies the guarantee of the mechanism that processes the cohort's data, under
    "replace" (privacy unit "user"), as an accountant for sampling without replacement states, as long as it stays
    secret who took part; the server that samples is trusted ("central").

    Parameters
    ----------
    cohort_size : int
        Number of clients, at least 1.

    Attributes
    ----------
    cohort_size : int
        As given.

    Notes
    -----
    Floyd's algorithm [1]_ on unbiased integers gives every subset exactly the same probability if the bits are uniform.
    See docs/explanation/mechanisms/client-sampling.md.

    References
    ----------
    .. [1] Bentley, Floyd, "A sample of brilliance", Communications of the ACM 30(9), 1987.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import FixedSizeSampling
    >>> cohort = FixedSizeSampling(20).sample(4800, key=Key.from_seed(1), round=3)
    >>> len(set(cohort.tolist()))
    20
    """

    def __init__(self, cohort_size: int):
        self.cohort_size = check_integer("cohort_size", cohort_size, low=1)

    def sample(
        self, n_clients: int, *, key: Key, round: int = 0, purpose: str = "client_sampling.fixed_size"
    ) -> NDArray[np.int64]:
        """Draw the cohort of one round.

        Parameters
        ----------
        n_clients : int
            Number of clients, whose ids are 0 to n_clients - 1; at least `cohort_size`.
        key : Key
            Source of the bits.  This call does not claim the key: the caller claims it once for a whole run.
        round : int
            Round number.  Use a new number for each round, or the cohort repeats.
        purpose : str
            Name of the random stream: one for each part of a run that counts its rounds from 0.

        Returns
        -------
        ndarray of shape (cohort_size,), int64
            Ids of the sampled clients, ascending and distinct.

        Raises
        ------
        ValueError
            There are fewer clients than `cohort_size`.
        """
        n_clients = check_integer("n_clients", n_clients, low=1)
        if n_clients < self.cohort_size:
            raise ValueError(f"n_clients must be at least cohort_size={self.cohort_size}, got {n_clients}")
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        check_instance("key", key, Key, _KEY_REMEDY)
        marked = _no_marks(n_clients)
        _kernel.mark_fixed_size(marked, key.subkey(purpose), n_clients, self.cohort_size, round_number)
        return _marked_clients(marked, self.cohort_size, resolve_n_threads(0))

    def __repr__(self) -> str:
        return f"FixedSizeSampling({self.cohort_size})"


def _no_marks(n_clients: int) -> np.ndarray:
    # One bit for each client, in words of 64.
    return np.zeros(-(-n_clients // 64), dtype=np.uint64)


def _marked_clients(marked: np.ndarray, n_marked: int, n_threads: int) -> np.ndarray:
    cohort = np.empty(n_marked, dtype=np.int64)
    _kernel.list_marked(marked, cohort, threads_for_rows(n_marked, n_threads, min_rows=_MIN_MARKED_PER_THREAD))
    return cohort
