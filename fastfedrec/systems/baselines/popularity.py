"""What every figure stands beside: random scores, popularity, and popularity under differential privacy."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.mechanisms import item_choice as _kernel
from fastfedrec._kernels.mechanisms.channels import binary_response as _response_kernel
from fastfedrec.accounting import CentralRelease, Ledger, LocalReports, Unprotected
from fastfedrec.core.check import (
    check_choice,
    check_epsilon,
    check_exact,
    check_flag,
    check_integer,
    check_noise_epsilon,
)
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import BinaryResponse, DiscreteLaplace
from fastfedrec.rounds.fit import resolve_ledger
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._inputs import check_counts
from fastfedrec.systems._own_rows import OwnRows
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._transaction import transactional

__all__ = ["Baseline", "DPPopularity", "Popularity", "Random", "best_n_reports"]

_SEED = "random.seed"
_SCORES = "random.scores"
_SUBSET = "dp_popularity.subset"
_NOISE = "dp_popularity.noise"
_REPORTS = "dp_popularity.reports"

# Of one report, where coth(e / 2)^2 * e, the worst variance for a given total, is least: the root of sinh(e) = 2 e.
BEST_REPORT_EPSILON = 2.1773189849653067
_MOST_REPORTS = 2**24  # of a user: more would change nothing, and each takes 16 bytes of a thread


class Baseline(OwnRows):
    """A model that is fitted in one step: checks, then `_fit`."""

    _keeps_values: ClassVar[bool] = False  # otherwise what is stored counts once
    _is_private: ClassVar[bool] = False  # then a fit releases as much of nobody as of anybody

    @property
    def _ignores_values(self) -> bool:
        """Whether all values above 0 count alike, so that a fit without a guarantee says so where they vary."""
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
        """Fit in one step.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            As `fastfedrec.data.conversion.as_interactions` takes it.  Entries with value 0 are no interactions, and
            values below 0 are refused; values matter only where the model's own page says so.
        show_progress : bool
            Draw a progress bar where the work comes in blocks (needs tqdm).

        Warns
        -----
        UserWarning
            Values vary, and the model ignores them.  A model with a guarantee never says so: one user's value may be
            why.
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
        """Check what every `fit` takes, and open the ledger: what `_fit` goes on with."""
        self._check_parameters()
        checked = check_counts(self, interactions, is_private=self._is_private, ignores_values=self._ignores_values)
        data = self._among_items(self._as_fitted(checked))
        key = resolve_key(key)
        ledger = resolve_ledger(ledger)
        n_threads = resolve_n_threads(n_threads)
        show_progress = check_flag("show_progress", show_progress)
        key.claim(f"{type(self).__name__}.fit")
        self.interactions_, self.ledger_ = data, self._open_account(ledger, data, simulation=key.is_simulation)
        return data, key, n_threads, show_progress

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data.positive() if self._keeps_values else data.binarize()

    def _among_items(self, data: Interactions) -> Interactions:
        """The items that are fitted, where not all are."""
        return data

    @abstractmethod
    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        """Write to the ledger, then compute."""


class Random(Baseline):
    """Scores that know nothing: a fixed uniform number for each user and item.

    **Guarantee.** The model depends on no interaction, so its ledger is empty.

    Attributes
    ----------
    ledger_ : fastfedrec.accounting.Ledger
        Without events.
    seed_ : ndarray of shape (1,), uint64
        Public: names the scores, and is saved with the model.  It reveals nothing of the key it was drawn from.

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

    _saved: ClassVar[tuple[str, ...]] = ("seed_",)
    _is_private: ClassVar[bool] = True
    _ignores_values = False  # nothing that anybody has matters
    _needs_rows = False

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        self.seed_ = key.words(_SEED, size=1)

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return rules_of(np.uint64, seed_=(1,))

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        # Word i of the user's stream is the score of item i, as a multiple of 2^-53 in [0, 1).
        words = Key.from_seed(int(self.seed_[0])).words_by_user(
            _SCORES, self.interactions_.global_user_ids[users], size=self.interactions_.n_items
        )
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class _CountBaseline(Baseline):
    """Every user sees the items in one order: that of `item_counts_`."""

    _saved: ClassVar[tuple[str, ...]] = ("item_counts_",)
    _needs_rows = False

    item_counts_: NDArray[np.float64]

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return rules_of(np.float64, item_counts_=(self.interactions_.n_items,))

    def _popularity(self) -> np.ndarray:
        return self.item_counts_

    def _score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return self.item_counts_[items]

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        return np.tile(self.item_counts_, (len(users), 1))


class Popularity(_CountBaseline):
    """The number of users who have the item.

    **Guarantee.** None: the exact counts are released, and the ledger says so.

    Attributes
    ----------
    item_counts_ : ndarray of shape (n_items,), float64
        Users of each item.
    ledger_ : fastfedrec.accounting.Ledger
        One unprotected release.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.systems.baselines.popularity import Popularity
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20])
    >>> Popularity().fit(data).score([3, 3], [10, 30])
    array([2., 1.])
    """

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        self.ledger_.record(Unprotected("exact item counts"))
        self.item_counts_ = data.interactions_per_item().astype(np.float64)


@dataclass(repr=False, eq=False)
class DPPopularity(_CountBaseline):
    """Item counts released once under differential privacy.

    **Guarantee.** With ``trust="central"`` the released counts are `epsilon`-differentially private for adding or
    removing one user ("add_remove", privacy unit "user"), where the server that counts and adds the noise is trusted;
    with ``trust="local"`` everything that a user sends is `epsilon`-differentially private for replacing all of that
    user's data ("replace", privacy unit "user"), trusting nothing but the user's own device.

    Parameters
    ----------
    epsilon : float
        Of the whole release, in nats.
    trust : {"central", "local"}
        Who sees the interactions.
    max_items_per_user : int
        Central only: how many of its items a user is counted with, drawn uniformly; the noise is proportional to it.
        A public number, never taken from the data.  For users who all have as many, signal and noise grow alike and
        only the error of the draw falls; users with fewer add noise and no signal, so a low number serves most data.
    n_reports : int or "auto"
        Local only: how many items, drawn uniformly with replacement, a user answers for.  "auto" is the number with
        the least worst-case variance at `epsilon` in total, near one for each 2.18 of it.

    Attributes
    ----------
    item_counts_ : ndarray of shape (n_items,), float64
        Central: unbiased estimates of how many users contributed the item (out of their random subsets), which may be
        negative.  Local: unbiased estimates of how many users have it; 0 for an item that nobody was asked about.
    ledger_ : fastfedrec.accounting.Ledger
        What the fit cost each user.

    References
    ----------
    .. [1] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020 (the noise).
    .. [2] Nguyen et al., "Collecting and analyzing data from smart device users with local differential privacy",
       2016 (the answers).

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

    _is_private: ClassVar[bool] = True

    epsilon: float = 1.0
    trust: str = "central"
    max_items_per_user: int = 10
    n_reports: int | str = "auto"

    def _check_parameters(self) -> None:
        self.epsilon = check_noise_epsilon("epsilon", self.epsilon)
        self.trust = check_choice("trust", self.trust, ("central", "local"))
        self.max_items_per_user = check_integer("max_items_per_user", self.max_items_per_user, low=1, high=2**31 - 1)
        if isinstance(self.n_reports, str):
            self.n_reports = check_choice("n_reports", self.n_reports, ("auto",))
        else:
            self.n_reports = check_integer("n_reports", self.n_reports, low=1, high=_MOST_REPORTS)

    def _fit(self, data: Interactions, key: Key, n_threads: int, show_progress: bool) -> None:
        self.ledger_.record(self._event(data.n_users), simulation=key.is_simulation)
        release = self._release_centrally if self.trust == "central" else self._ask_locally
        self.item_counts_ = release(data, key, n_threads)

    def _event(self, n_users: int) -> CentralRelease | LocalReports:
        """What a fit costs."""
        if self.trust == "central":
            epsilon = self._count_noise.epsilon(self.max_items_per_user)
            return CentralRelease("discrete Laplace on item counts", epsilon)
        epsilon = self._channel.epsilon
        return LocalReports("binary response on interaction bits", epsilon, self._n_reports, n_users, separable=True)

    @property
    def _count_noise(self) -> DiscreteLaplace:
        return DiscreteLaplace(Fraction(self.max_items_per_user) / Fraction(self.epsilon))

    @property
    def _n_reports(self) -> int:
        return best_n_reports(self.epsilon) if isinstance(self.n_reports, str) else self.n_reports

    @property
    def _channel(self) -> BinaryResponse:
        return BinaryResponse(split_epsilon(self.epsilon, self._n_reports))

    def _release_centrally(self, data: Interactions, key: Key, n_threads: int) -> np.ndarray:
        noise = self._count_noise
        counts = np.zeros(data.n_items, dtype=np.int64)
        _kernel.contributed_counts(
            data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET), self.max_items_per_user
        )
        return noise.add_noise(counts, key=key, purpose=_NOISE).astype(np.float64)

    def _ask_locally(self, data: Interactions, key: Key, n_threads: int) -> np.ndarray:
        channel, n_reports = self._channel, self._n_reports
        by_thread = np.zeros((2, n_threads, data.n_items), dtype=np.int64)
        failed = np.zeros(n_threads, dtype=np.int64)
        _response_kernel.sample_memberships(
            data.indptr, data.indices, data.global_user_ids, by_thread[0], by_thread[1], failed, key.subkey(_REPORTS),
            channel.span, n_reports, n_threads,
        )  # fmt: skip
        if failed.any():
            raise MemoryError("no memory for a thread's marks of items and reports; use fewer threads or n_reports")
        sums, asked = by_thread.sum(axis=1)
        # An answer estimates 2 * bit - 1 of a user drawn at random.
        share = (1 + channel.decoder * sums / np.maximum(asked, 1)) / 2
        return np.where(asked > 0, data.n_users * share, 0.0)


def best_n_reports(epsilon: float) -> int:
    """Choose the number of binary responses with the least worst-case variance at `epsilon` in total.

    Parameters
    ----------
    epsilon : float
        Of all reports of one user, in nats.

    Returns
    -------
    int
        From 1 to 2**24.
    """
    epsilon = check_epsilon("epsilon", epsilon)

    def variance(n_reports):
        return 1 / (n_reports * math.tanh(epsilon / n_reports / 2) ** 2)

    if epsilon <= BEST_REPORT_EPSILON:
        return 1
    below = min(math.floor(epsilon / BEST_REPORT_EPSILON), _MOST_REPORTS - 1)
    return min(below, below + 1, key=variance)


def split_epsilon(epsilon: float, n_reports: int) -> float:
    """Divide a budget evenly, rounding down: `n_reports` times the result never exceeds `epsilon`.

    Parameters
    ----------
    epsilon : float
        Of all reports, in nats.
    n_reports : int
        At least 1.

    Returns
    -------
    float
        Of one report.
    """
    total, n_reports = check_exact("epsilon", epsilon, low=0), check_integer("n_reports", n_reports, low=1)
    share = float(total / n_reports)
    return share if Fraction(share) * n_reports <= total else math.nextafter(share, 0.0)
