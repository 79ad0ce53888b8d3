"""Reference baselines: random scores, popularity, and popularity under differential privacy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.mechanisms import item_choice as _kernel
from fastfedrec._kernels.mechanisms.channels import binary_response as _response_kernel
from fastfedrec.accounting import CentralRelease, Ledger, LocalReports, Unprotected
from fastfedrec.core.check import check_epsilon, check_exact, check_integer
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import choice, declares_parameters, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import BinaryResponse, DiscreteLaplace
from fastfedrec.rounds.fit import Fit
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._inputs import check_counts
from fastfedrec.systems._memory import counting_memory
from fastfedrec.systems._parameters import TRUSTED_PARTIES
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import PopularityScores, Served
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.recommender import Recommender

__all__ = ["Baseline", "DPPopularity", "Popularity", "Random", "best_n_reports"]

_SEED = "random.seed"
_SCORES = "random.scores"
_SUBSET = "dp_popularity.subset"
_NOISE = "dp_popularity.noise"
_REPORTS = "dp_popularity.reports"

# Epsilon of one report with the smallest worst-case variance, coth(e / 2)^2 * e, at a fixed total: sinh(e) = 2 e.
BEST_REPORT_EPSILON = 2.1773189849653067
_MAX_REPORTS = 2**24  # per user: more would not lower the variance, and each takes 16 bytes of a thread


class Baseline(Recommender):
    """A model that is fitted in one step: checks, then `_fit`, or `_compute` if all data are used exactly."""

    _released: ClassVar[str]  # release of a model of exact data, for the ledger
    _keeps_values: ClassVar[bool] = False  # False: interactions are binary
    _is_private: ClassVar[bool] = False  # True: data without interactions are accepted, and values cause no warning

    @property
    def _ignores_values(self) -> bool:
        """Return whether all values above 0 count alike, so that a fit without a guarantee warns if they vary."""
        return not self._keeps_values

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
    ) -> Self:
        """Fit the model in one step.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Users' data, see `fastfedrec.data.conversion.as_interactions`.  Entries with value 0 are no interactions,
            and negative values are refused; other values matter only if the model's page says so.
        show_progress : bool
            Whether to draw a progress bar if the work has several blocks (needs tqdm).

        Warns
        -----
        UserWarning
            Values vary, and the model ignores them.  A model with a guarantee never warns, since one user's value may
            be the cause.
        """
        self._fit(*self._begin(interactions, key, n_threads, show_progress, ledger))
        return self

    def _begin(
        self,
        interactions: InteractionsLike,
        key: Key | None,
        n_threads: int,
        show_progress: bool,
        ledger: Ledger | None,
    ) -> tuple[Interactions, Key, int, bool]:
        """Check the arguments of `fit`, open the ledger, and return the arguments of `_fit`."""
        checked = check_counts(self, interactions, is_private=self._is_private, ignores_values=self._ignores_values)
        data = self._among_items(self._as_fitted(checked))
        fit = Fit.resolve(key, n_threads, show_progress, ledger, None)
        self.interactions_, (self.ledger_, _) = data, fit.begin(self, data)
        return data, fit.key, fit.n_threads, fit.show_progress

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data.positive() if self._keeps_values else data.binarize()

    def _among_items(self, data: Interactions) -> Interactions:
        """Return the data of the items that are fitted."""
        return data

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        """Record the event, then compute the fitted arrays; without an override, those of exact data."""
        self.ledger_.record(Unprotected(self._released))
        self._compute(data, n_threads, show_progress)

    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        """Set the fitted arrays of a model of exact data."""


@dataclass(frozen=True, eq=False, repr=False)
class _RandomScores(Served):
    """Uniform numbers from a public seed."""

    needs_rows = False

    seed_: NDArray[np.uint64]

    def score_block(self, users: np.ndarray) -> np.ndarray:
        # Word i of the user's stream is the score of item i, as a multiple of 2^-53 in [0, 1).
        words = Key.from_seed(int(self.seed_[0])).words_by_user(
            _SCORES, self.interactions_.global_user_ids[users], size=self.interactions_.n_items
        )
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Random(Baseline):
    """Scores that are independent of the data: a fixed uniform number for each user and item.

    **Guarantee.** The model depends on no interaction, so its ledger is empty.

    Attributes
    ----------
    ledger_ : fastfedrec.accounting.Ledger
        Ledger without events.
    seed_ : ndarray of shape (1,), uint64
        Public seed of the scores, which is saved with the model.  It reveals no information about the key of the fit.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.systems.baselines.popularity import Random
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20])
    >>> model = Random().fit(data, key=Key.from_seed(1))
    >>> scores = model.score([1, 3], [20, 20])
    >>> bool(scores[1] == model.score([3], [20])[0])
    True
    """

    _serves = _RandomScores
    _is_private: ClassVar[bool] = True
    _ignores_values = False  # no interaction matters, so there is no warning

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        self.seed_ = key.words(_SEED, size=1)

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        return [{"seed": Array.of("uint64", 1)}]

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return rules_of(np.uint64, seed_=(1,))


class Popularity(Baseline):
    """Popularity, the number of users who have the item.

    **Guarantee.** None: the exact counts are released, as the ledger states.

    Attributes
    ----------
    item_counts_ : ndarray of shape (n_items,), float64
        Number of users of each item.
    ledger_ : fastfedrec.accounting.Ledger
        Ledger with one unprotected release.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.systems.baselines.popularity import Popularity
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20])
    >>> Popularity().fit(data).score([3, 3], [10, 30])
    array([2., 1.])
    """

    _serves = PopularityScores
    _released = "exact item counts"

    def _compute(self, data: Interactions, n_threads: int, show_progress: bool) -> None:
        self.item_counts_ = data.interactions_per_item().astype(np.float64)

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        return [counting_memory(sizes)]


@declares_parameters
class DPPopularity(Baseline):
    """Item counts released once under differential privacy.

    **Guarantee.** With ``trust="central"`` the released counts are `epsilon`-differentially private for adding or
    removing one user ("add_remove", privacy unit "user"), and the server that counts and adds the noise is trusted.
    With ``trust="local"`` all messages of a user are `epsilon`-differentially private for replacing all of that user's
    data ("replace", privacy unit "user"), and the user trusts only the user's own device.

    Attributes
    ----------
    item_counts_ : ndarray of shape (n_items,), float64
        Central: unbiased estimates of the number of users who contributed the item, from their random subsets; they may
        be negative.  Local: unbiased estimates of the number of users who have the item; 0 for an item without reports.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the fit for each user.

    References
    ----------
    .. [1] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020 (the noise).
    .. [2] Nguyen et al., "Collecting and analyzing data from smart device users with local differential privacy",
       2016 (the reports).

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.systems.baselines.popularity import DPPopularity
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20])
    >>> model = DPPopularity(epsilon=1.0).fit(data, key=Key.from_seed(1))
    >>> model.item_counts_.shape
    (3,)
    >>> model.ledger_.epsilon("public")
    2.0
    """

    _serves = PopularityScores
    _is_private: ClassVar[bool] = True

    epsilon: float = real(1.0, low=1e-100, high=1e100).doc("Epsilon of the whole release, in nats, above 0.")
    trust: str = choice("central", {name: TRUSTED_PARTIES[name] for name in ("central", "local")}).doc("""
        Trust model: the server sees the interactions, or only randomized reports.""")
    max_items_per_user: int = integer(10, low=1, high=2**31 - 1).doc("""
        Central only: the number of items, drawn uniformly, that a user contributes at most; the noise is
        proportional to it.  This is a public number, never taken from the data.  A user with at least this number
        of items adds signal in proportion to the noise; a user with fewer adds noise only.  A low number suits most
        data.""")
    n_reports: int | str = integer("auto", low=1, high=_MAX_REPORTS, also=["auto"]).doc("""
        Local only: the number of items, drawn uniformly with replacement, that a user reports on.  "auto" minimizes
        the worst-case variance at a total of `epsilon`, with about one report for each 2.18 of it.""")

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        self.ledger_.record(self._event(data.n_users), simulation=key.is_simulation)
        release = self._release_centrally if self.trust == "central" else self._collect_reports
        self.item_counts_ = release(data, key, n_threads)

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        if self.trust == "central":
            return [{"counts, and draws of noise": Array.of("int64", 3, sizes.n_items)}]
        by_thread = Array.of("int64", 2, sizes.n_threads, sizes.n_items)
        return [{"sums by thread": by_thread, "estimates": Array.of("float64", 5, sizes.n_items)}]

    def _event(self, n_users: int) -> CentralRelease | LocalReports:
        """Return the event of a fit."""
        if self.trust == "central":
            epsilon = self._count_noise.epsilon(self.max_items_per_user)
            return CentralRelease("discrete Laplace on item counts", epsilon)
        epsilon = self._channel.epsilon
        return LocalReports("binary response on interaction bits", epsilon, self._n_reports, n_users, separable=True)

    @property
    def _count_noise(self) -> DiscreteLaplace:
        # The sensitivity of the counts is the number of items that a user contributes, so the scale is that / epsilon.
        return DiscreteLaplace(Fraction(self.max_items_per_user) / Fraction(self.epsilon))

    @property
    def _n_reports(self) -> int:
        return best_n_reports(self.epsilon) if isinstance(self.n_reports, str) else self.n_reports

    @property
    def _channel(self) -> BinaryResponse:
        return BinaryResponse(split_epsilon(self.epsilon, self._n_reports))

    def _release_centrally(self, data: Interactions, key: Key, n_threads: int) -> np.ndarray:
        """Return counts of each user's random subset of items, with discrete Laplace noise."""
        noise = self._count_noise
        counts = np.zeros(data.n_items, dtype=np.int64)
        _kernel.contributed_counts(
            data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET), self.max_items_per_user
        )
        return noise.add_noise(counts, key=key, purpose=_NOISE).astype(np.float64)

    def _collect_reports(self, data: Interactions, key: Key, n_threads: int) -> np.ndarray:
        """Return debiased counts from users' reports on random items."""
        channel, n_reports = self._channel, self._n_reports
        by_thread = np.zeros((2, n_threads, data.n_items), dtype=np.int64)
        failed = np.zeros(n_threads, dtype=np.int64)
        _response_kernel.sample_memberships(
            data.indptr, data.indices, data.global_user_ids, by_thread[0], by_thread[1], failed, key.subkey(_REPORTS),
            channel.span, n_reports, n_threads,
        )  # fmt: skip
        if failed.any():
            raise MemoryError("a thread's marks of items do not fit into memory; use fewer threads or n_reports")
        # Integer sums of each thread, so that the result does not depend on the number of threads.
        sums, n_sampled = by_thread.sum(axis=1)
        # An answer, debiased, estimates 2 * bit - 1 of a random user.
        share = (1 + channel.decoder * sums / np.maximum(n_sampled, 1)) / 2
        return np.where(n_sampled > 0, data.n_users * share, 0.0)


def best_n_reports(epsilon: float) -> int:
    """Choose the number of binary responses with the smallest worst-case variance at a total of `epsilon`.

    Parameters
    ----------
    epsilon : float
        Epsilon of all reports of one user, in nats.

    Returns
    -------
    int
        Number of reports, from 1 to 2**24.
    """
    epsilon = check_epsilon("epsilon", epsilon)

    def variance(n_reports):
        return 1 / (n_reports * math.tanh(epsilon / n_reports / 2) ** 2)

    if epsilon <= BEST_REPORT_EPSILON:
        return 1
    below = min(math.floor(epsilon / BEST_REPORT_EPSILON), _MAX_REPORTS - 1)
    # The real number with the smallest variance lies between these two integers.
    return min(below, below + 1, key=variance)


def split_epsilon(epsilon: float, n_reports: int) -> float:
    """Divide a budget evenly, rounded down so that `n_reports` times the result never exceeds `epsilon`.

    Parameters
    ----------
    epsilon : float
        Epsilon of all reports, in nats, at least 0.
    n_reports : int
        Number of reports, at least 1.

    Returns
    -------
    float
        Epsilon of one report.
    """
    # Exact rationals decide whether the rounded quotient is too large.
    total, n_reports = check_exact("epsilon", epsilon, low=0), check_integer("n_reports", n_reports, low=1)
    share = float(total / n_reports)
    return share if Fraction(share) * n_reports <= total else math.nextafter(share, 0.0)
