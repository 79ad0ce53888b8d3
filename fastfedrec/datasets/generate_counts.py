"""Generator of counts: a Poisson draw for every user and item, with rates from a low-rank model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.calls import explains_calls
from fastfedrec.core.check import check_choice, check_instance, check_integer
from fastfedrec.core.old_names import OldAttribute, refuse_old_keywords
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions

__all__ = ["PoissonCounts", "generate_counts"]

_DISTRIBUTIONS = ("normal", "gamma")
_N_FACTORS = {"normal": 100, "gamma": 10}  # defaults
_BLOCK_CELLS = 2**22  # cells of the users x items matrix that are drawn at once; bounds the memory


@dataclass(frozen=True)
class PoissonCounts:
    """Poisson counts, and the factors of their rates.

    Parameters
    ----------
    interactions : Interactions
        Interactions with counts of at least 1 as values; the user feature ``entity`` is the entity of each user.
    user_factors, item_factors : ndarray of shape (n_users, n_factors) and (n_items, n_factors), float64
        Factors of the rates.
    distribution : {"normal", "gamma"}
        Distribution of the factors, see `generate_counts`.

    See Also
    --------
    generate_counts : Draw counts.
    """

    interactions: Interactions
    user_factors: NDArray[np.float64]
    item_factors: NDArray[np.float64]
    distribution: str

    law = OldAttribute("distribution")

    def rates(self, rows: slice | np.ndarray) -> NDArray[np.float64]:
        """Return the Poisson rate of each count.

        Parameters
        ----------
        rows : slice or ndarray
            Rows of the users.

        Returns
        -------
        ndarray of shape (n_rows, n_items), float64
            Rates, which are the means of the counts and so the best predictions.
        """
        return _rates(self.user_factors[rows], self.item_factors, self.distribution)


@refuse_old_keywords(law="distribution")
@explains_calls
def generate_counts(
    n_users: int,
    n_items: int,
    *,
    key: Key,
    distribution: str = "normal",
    n_factors: int | None = None,
    n_entities: int = 10,
) -> PoissonCounts:
    """Draw a Poisson count for every user and item, as in the paper on private prototypes or with more structure.

    Parameters
    ----------
    n_users, n_items : int
        Number of users and of items; the paper has 100,000 and 500.
    key : Key
        Key of the data set; each user's draws come from streams of that user.
    distribution : {"normal", "gamma"}
        Distribution of the factors.  "normal": rates are exp(u'v), where u and v are standard normal and scaled to
        length 1.  With the paper's 100 factors nearly all rates are within 1 +- 0.3 (standard deviation 0.1), so the
        data have almost no structure.  "gamma": rates are u'v / n_factors with Gamma(1, 1) entries, so their mean is 1
        and their standard deviation is sqrt(3 / n_factors).
    n_factors : int or None
        Number of factors; None is 100 ("normal") or 10 ("gamma").
    n_entities : int
        Number of entities, from 1 to `n_users`; user i belongs to entity ``i % n_entities``.

    Returns
    -------
    PoissonCounts
        Counts with their rates, so that an error can be measured against the rates instead of the noisy counts.

    References
    ----------
    .. [1] Ribero, Henderson, Williamson, Vikalo, "Federating recommendations using differentially private prototypes",
       2020, section 5.1.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.datasets import generate_counts
    >>> data = generate_counts(50, 20, key=Key.from_seed(1), distribution="gamma")
    >>> data.interactions.shape, data.rates(slice(0, 3)).shape
    ((50, 20), (3, 20))
    """
    n_users = check_integer("n_users", n_users, low=1, high=2**31 - 1)
    n_items = check_integer("n_items", n_items, low=1, high=2**31 - 1)
    check_choice("distribution", distribution, _DISTRIBUTIONS)
    n_factors = (
        _N_FACTORS[distribution] if n_factors is None else check_integer("n_factors", n_factors, low=1, high=2**16)
    )
    n_entities = check_integer("n_entities", n_entities, low=1, high=n_users)
    check_instance("key", key, Key, "use Key.from_seed(n)")
    users = np.arange(n_users, dtype=np.uint64)
    user_factors = _factors(key, "datasets.generate_counts.users", users, n_factors, distribution)
    item_factors = _factors(
        key, "datasets.generate_counts.items", np.arange(n_items, dtype=np.uint64), n_factors, distribution
    )
    lengths, columns, counts = [], [], []
    # Blocks of users bound the memory of the dense rates.
    step = max(1, _BLOCK_CELLS // n_items)
    for start in range(0, n_users, step):
        rows = slice(start, start + step)
        words = key.words_by_user("datasets.generate_counts.counts", users[rows], size=n_items)
        block = _poisson(_rates(user_factors[rows], item_factors, distribution), as_uniform(words))
        is_positive = block > 0
        lengths.append(is_positive.sum(axis=1))
        columns.append(np.nonzero(is_positive)[1].astype(np.int32))
        counts.append(block[is_positive].astype(np.float32))
    arrays = np.concatenate([[0], *lengths]).cumsum(), np.concatenate(columns), np.concatenate(counts)
    for array in arrays:
        array.flags.writeable = False  # `Interactions` copies writable arrays
    data = Interactions(
        *arrays, None, np.arange(n_users), np.arange(n_items), users,
        user_features={"entity": np.arange(n_users) % n_entities},
    )  # fmt: skip
    return PoissonCounts(data, user_factors, item_factors, distribution)


def _factors(key: Key, purpose: str, rows: np.ndarray, n_factors: int, distribution: str) -> np.ndarray:
    uniform = as_uniform(key.words_by_user(purpose, rows, size=n_factors))
    if distribution == "gamma":
        return -np.log(uniform)  # Gamma(1, 1) is the exponential distribution
    from scipy.special import ndtri

    normal = ndtri(uniform)
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


def _rates(user_factors: np.ndarray, item_factors: np.ndarray, distribution: str) -> np.ndarray:
    with one_blas_thread():
        products = user_factors @ item_factors.T
    return np.exp(products) if distribution == "normal" else products / item_factors.shape[1]


def _poisson(rates: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return Poisson quantiles: the number of values k with P(X <= k) below the uniform number, for all cells."""
    # `weight` is P(X = value), and `below` is the sum P(X <= value).
    weight = np.exp(-rates)
    below, counts = weight.copy(), np.zeros(rates.shape, dtype=np.int32)
    open_ = uniform > below
    value = 0
    while open_.any():
        value += 1
        counts += open_
        weight *= rates / value
        # Above the rate the terms decrease.  Once a term does not change the rounded sum, no later term does, so a
        # uniform number above the sum stops here.
        open_ &= (below + weight > below) | (value < rates)
        below += weight
        open_ &= uniform > below
    return counts
