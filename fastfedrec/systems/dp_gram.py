"""DPGram: a linear recommender from one noisy matrix of item pairs, private for the whole run.

Each user's row of items, normalised and centred by a public mean, contributes its pairs with norm at most 1; the server
adds Gaussian noise to the sums, keeps the spectrum that stands above the noise, and sends the factors.  Every device
scores with its own row.  See docs/explanation/systems/dp-gram.md and docs/explanation/privacy/dp-gram.md.
"""

import copy
import math
from dataclasses import astuple
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from fastfedrec import ranking
from fastfedrec._check import check_choice, check_epsilon, check_flag, check_instance, check_integer, check_real
from fastfedrec._threads import one_blas_thread, resolve_n_threads
from fastfedrec.accounting import CommunicationLedger, Ledger, RoundTraffic
from fastfedrec.engines.local import LocalEngine
from fastfedrec.interactions import Interactions
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.randomness import Key, resolve_key
from fastfedrec.systems._dp_gram_rounds import MAX_USERS, SCALE, UNIT, GramState, NoisySum, PairSum, ShareSum
from fastfedrec.systems._spectrum import ease_factors, shrink_spectrum
from fastfedrec.systems.item_models import score_neighbors
from fastfedrec.systems.recommender import Recommender, check_interactions

__all__ = ["DPGram", "gaussian_mu"]

_LEAST_SIGNAL = 30.0  # of the gate
_LEAST_MEAN = 0.01  # of the largest entry of the mean
_LEAST_REST = 0.1  # of 1 - |mean|^2, which only much noise brings near 0
_N_NEIGHBORS = 100
_BLOCK_CELLS = 2**23  # similarities held at once


class DPGram(Recommender):
    """EASE, ridge or nearest neighbours from a differentially private matrix of item pairs.

    **Guarantee.** Everything that is released is (`epsilon`, `delta`)-differentially private for adding or removing one
    user with all data ("add_remove", privacy unit "user"), the whole run together, against everyone but the server,
    which sees exact sums and adds the noise ("central"); with secure aggregation that adds the noise inside, against
    the server too.  `ledger_` also states the figure for replacing a user, about twice as large.  The number of users
    and the list of items are public.

    Parameters
    ----------
    epsilon : float
        Of the whole run, in nats.
    delta : float
        Of the whole run.
    scoring : {"ease", "ridge", "knn"}
        What devices compute from the released matrix: a linear model without a diagonal, one with it, or cosines of
        the 100 nearest items.
    gate : bool
        Where the public numbers promise more noise than signal, spend everything on popularity instead.
    regularization : float
        Added to the matrix's diagonal, in users' shares: this times the number of users.
    mean_share : float
        Part of the squared budget that the mean of the users' rows takes, in (0, 1).
    n_users : int or None
        The public number of users that sums are divided by; None publishes that of the data.

    Attributes
    ----------
    item_means_ : ndarray of shape (n_items,), float64
        Noisy mean of the users' normalised rows: popularity.
    item_factors_ : ndarray of shape (n_items, rank + 1), float64
        L, whose L L' is the denoised matrix of pairs; without columns where only popularity was released.
    scoring_factors_ : ndarray of shape (n_items, rank + 1), float64
        What devices score with, computed from `item_factors_`.
    signal_ : float
        The gate's number n_users mu / sqrt(n_items), from public numbers only; below 30 it closes.
    ledger_ : fastfedrec.accounting.Ledger
        What the run cost each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        What each user received and sent.

    See Also
    --------
    fastfedrec.EASE : The same without privacy.

    References
    ----------
    .. [1] Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019 (the linear model).
    .. [2] Dwork, Talwar, Thakurta, Zhang, "Analyze Gauss", STOC 2014 (noise on a Gram matrix).
    .. [3] Balle, Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018 (its exact cost).

    Examples
    --------
    >>> from fastfedrec import DPGram, Key, datasets
    >>> data = datasets.generate_implicit(3000, 100, key=Key.from_seed(1))
    >>> model = DPGram(epsilon=1.0).fit(data, key=Key.from_seed(2))
    >>> model.signal_ > 30
    True
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon()
    inf
    >>> round(model.ledger_.epsilon("public"), 2)
    2.12
    """

    _saved: ClassVar[tuple[str, ...]] = ("item_means_", "item_factors_", "scoring_factors_")

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        scoring: str = "ease",
        gate: bool = True,
        regularization: float = 0.003,
        mean_share: float = 0.05,
        n_users: int | None = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = scoring
        self.gate = gate
        self.regularization = regularization
        self.mean_share = mean_share
        self.n_users = n_users
        self._check_parameters()

    def _check_parameters(self) -> None:
        check_epsilon("epsilon", self.epsilon)
        check_real("delta", self.delta, low=0.0, high=1.0, exclusive=True)
        check_choice("scoring", self.scoring, ("ease", "ridge", "knn"))
        check_flag("gate", self.gate)
        check_real("regularization", self.regularization, low=0.0, exclusive=True)
        check_real("mean_share", self.mean_share, low=0.0, high=1.0, exclusive=True)
        if self.n_users is not None:
            check_integer("n_users", self.n_users, low=1, high=MAX_USERS)

    def fit(
        self,
        interactions: Interactions,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
        *,
        engine: LocalEngine | None = None,
    ) -> Self:
        """Release the mean row, then the matrix of pairs, and denoise it.

        Parameters
        ----------
        interactions : Interactions
            Entries with value 0 are no interactions; values do not matter otherwise.
        key : Key or None
            Source of the server's noise; None draws one from entropy.  An entropy key serves one fit.
        n_threads : int
            0 for all; the model does not depend on it.
        show_progress : bool
            Draw a progress bar (needs tqdm).
        ledger : Ledger or None
            An earlier ledger on the same people, to which this run is added; None starts one.
        engine : LocalEngine or None
            Where shards run; None runs one shard in this process.

        Returns
        -------
        DPGram
            This model, fitted.
        """
        self._check_parameters()
        data = check_interactions(interactions).binarize()
        check_integer("the number of users in interactions", data.n_users, low=1, high=MAX_USERS)
        n_users = self.n_users or data.n_users
        key = resolve_key(key)
        ledger = (
            Ledger(self.delta) if ledger is None else check_instance("ledger", ledger, Ledger, "pass a model's ledger_")
        )
        engine = LocalEngine() if engine is None else engine
        n_threads = resolve_n_threads(n_threads)
        show_progress = check_flag("show_progress", show_progress)
        mu, distance = self._budget(data.n_items)
        self.signal_ = n_users * mu / math.sqrt(data.n_items)
        is_open = data.n_items > 1 and (not self.gate or self.signal_ >= _LEAST_SIGNAL)
        key.claim(f"{type(self).__name__}.fit")
        self.interactions_, self.ledger_, self.communication_ = data, ledger, CommunicationLedger()
        self._note(n_users, is_open)

        def release(kind: type[NoisySum], state: GramState, share: float) -> tuple[NoisySum, np.ndarray]:
            system = kind(LayeredGaussian(UNIT / (mu * math.sqrt(share))), key, distance)
            state = engine.run(
                system,
                state,
                data,
                key=key,
                n_rounds=1,
                ledger=ledger,
                communication=self.communication_,
                n_threads=n_threads,
                show_progress=show_progress,
            )
            return system, state.noisy / UNIT

        state = GramState(np.zeros(data.n_items, dtype=np.int64))
        _, shares = release(ShareSum, state, self.mean_share if is_open else 1.0)
        self.item_means_ = shares / n_users
        self.item_factors_ = np.zeros((data.n_items, 0))
        if is_open:
            state = GramState(public_mean(self.item_means_))
            system, pairs = release(PairSum, state, 1 - self.mean_share)
            noise = float(system.noise.stddev) / UNIT
            self.item_factors_ = self._denoise(pairs, state.mean / SCALE, noise, n_users)
        self.scoring_factors_ = self._scoring_factors(n_users)
        return self

    def with_users(self, interactions: Interactions) -> Self:
        """Serve other users with the same released matrix, without refitting and at no cost to anybody.

        Parameters
        ----------
        interactions : Interactions
            Their data, over the same items.

        Returns
        -------
        DPGram
            A model of its own for these users.

        Raises
        ------
        ValueError
            Other items than the model was fitted on.
        """
        items = self._fitted_interactions().item_ids
        data = check_interactions(interactions).binarize()
        if not np.array_equal(data.item_ids, items):
            raise ValueError(
                f"interactions must have the {len(items)} items the model was fitted on, in their order, got "
                f"{data.n_items} others; build them with the same item ids"
            )
        model = copy.copy(self)
        model.interactions_ = data
        return model

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _budget(self, n_items: int) -> tuple[float, float]:
        """The mu of the whole run, and how far the draws of each of the two rounds are from rounded normal ones."""
        first = gaussian_mu(self.epsilon, self.delta)
        n_draws = n_items * (n_items + 1) // 2
        # The noise of both rounds is wider than this.
        noise = LayeredGaussian(UNIT / first)
        taken = noise.delta(self.epsilon, 2 * n_draws)
        if taken >= self.delta / 2:
            raise ValueError(f"delta must be above {2 * taken:g} for {n_items} items, got {self.delta}")
        return gaussian_mu(self.epsilon, self.delta - taken), noise.total_distance(n_draws)

    def _note(self, n_users: int, is_open: bool) -> None:
        self.ledger_.note(
            f"DPGram: epsilon {self.epsilon:g} at delta {self.delta:g} for adding or removing one user, the whole run "
            f"together; its number of users ({n_users}) and its list of items are public"
        )
        if not is_open:
            self.ledger_.note(
                f"DPGram: the noise would cover the pairs of items (signal {self.signal_:.3g}, {_LEAST_SIGNAL:g} "
                "needed), so all of epsilon went to popularity, and everybody gets the same items"
            )

    # ---- the server, after the noise ----------------------------------------------------------------------------

    def _denoise(self, pairs: np.ndarray, mean: np.ndarray, noise: float, n_users: int) -> np.ndarray:
        n_items = len(mean)
        matrix = np.zeros((n_items, n_items), dtype=np.float32)
        start = 0
        for item in range(n_items - 1):
            stop = start + n_items - 1 - item
            matrix[item, item + 1 :] = matrix[item + 1 :, item] = pairs[start:stop]
            start = stop
        weight = math.sqrt(2) * n_users / max(1 - float(mean @ mean), _LEAST_REST)
        return np.column_stack([shrink_spectrum(matrix, noise), math.sqrt(weight) * mean])

    def _scoring_factors(self, n_users: int) -> np.ndarray:
        if self.scoring != "knn":
            return ease_factors(self.item_factors_, self.regularization * n_users)
        lengths = np.sqrt(np.square(self.item_factors_).sum(axis=1, keepdims=True))
        return np.divide(self.item_factors_, lengths, out=np.zeros_like(self.item_factors_), where=lengths > 0)

    # ---- the device ---------------------------------------------------------------------------------------------

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        own = self.interactions_._take_users(users)
        if self.scoring_factors_.shape[1] == 0:
            return np.tile(self.item_means_, (len(users), 1))
        lengths = own.interactions_per_user()
        entries = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths)
        if self.scoring == "knn":
            scores = score_neighbors(own, *self._neighbors())
        else:
            factors = self.scoring_factors_
            rows = scipy.sparse.csr_array((entries, own.indices, own.indptr), shape=own.shape)
            with one_blas_thread():
                scores = (rows @ factors) @ factors.T
            if self.scoring == "ease":
                # Column j of the weights is row j of I - F F' over its diagonal, so an item does not speak for itself.
                itself = np.square(factors).sum(axis=1)
                scores[np.repeat(np.arange(len(users)), lengths), own.indices] -= entries * itself[own.indices]
                scores /= 1 - itself
        scores[lengths == 0] = self.item_means_
        return scores

    def _neighbors(self) -> tuple[np.ndarray, np.ndarray]:
        """Items with the largest cosines to each, without itself; found once for a fitted matrix."""
        found = getattr(self, "_found_neighbors", None)
        if found is None or found[0] is not self.scoring_factors_:
            factors = self.scoring_factors_
            n_kept = min(_N_NEIGHBORS, len(factors) - 1)
            items, cosines = np.empty((len(factors), n_kept), dtype=np.int64), np.empty((len(factors), n_kept))
            step = max(1, _BLOCK_CELLS // len(factors))
            for start in range(0, len(factors), step):
                part = slice(start, min(start + step, len(factors)))
                with one_blas_thread():
                    block = factors[part] @ factors.T
                block[np.arange(len(block)), np.arange(part.start, part.stop)] = -2.0  # below every cosine
                items[part], cosines[part] = ranking.top_k(block, n_kept)
            found = self._found_neighbors = self.scoring_factors_, items, np.maximum(cosines, 0.0)
        return found[1], found[2]

    # ---- state --------------------------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        rounds = [astuple(traffic) for traffic in self.communication_.rounds]
        return super()._header() | {"rounds": rounds, "signal": self.signal_}

    @classmethod
    def _from_saved(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        model = super()._from_saved(header, arrays)
        model.communication_ = CommunicationLedger([RoundTraffic(*traffic) for traffic in header["rounds"]])
        model.signal_ = header["signal"]
        return model


def public_mean(item_means: np.ndarray) -> np.ndarray:
    """The mean by which rows are centred: never below a hundredth of its largest entry, in units of 1 / SCALE.

    Parameters
    ----------
    item_means : ndarray of shape (n_items,), float64
        Noisy.

    Returns
    -------
    ndarray of shape (n_items,), int64
        From 0 to SCALE.
    """
    largest = max(float(item_means.max()), 0.0)
    floored = np.clip(item_means, _LEAST_MEAN * largest, 1.0)
    return np.rint(floored * SCALE).astype(np.int64)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu = sensitivity / stddev at which Gaussian noise is (`epsilon`, `delta`)-differentially private.

    The root of delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu); releases compose as mu^2 adds up.

    Parameters
    ----------
    epsilon : float
        In nats.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        Rounded down.

    References
    ----------
    .. [1] Balle, Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
    .. [2] Dong, Roth, Su, "Gaussian differential privacy", JRSS B 2022, Corollary 1 (composition).

    Examples
    --------
    >>> from fastfedrec.systems.dp_gram import gaussian_mu
    >>> [round(gaussian_mu(epsilon, 1e-6), 3) for epsilon in (0.5, 1.0, 2.0, 4.0)]
    [0.124, 0.237, 0.448, 0.838]
    """
    from scipy.special import log_ndtr

    epsilon = check_epsilon("epsilon", epsilon)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)

    def cost(mu: float) -> float:
        return math.exp(log_ndtr(mu / 2 - epsilon / mu)) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))

    low, high = 0.0, 1.0
    while cost(high) <= delta:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= delta else (low, middle)
    return low * (1 - 1e-9)
