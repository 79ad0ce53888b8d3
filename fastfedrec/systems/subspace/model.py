"""DPSubspace: a linear recommender for many items from noisy projections of the matrix of item pairs.

Each user's row of items, centred by a public mean, is projected on a few public columns; what it contributes is each
item's entry times the projection of the others, with norm at most 1.  The server adds Gaussian noise to the sums, and
fits a matrix of low rank to all of them.  No array of items x items is made anywhere.  See
docs/explanation/systems/subspace/dp-subspace.md and docs/explanation/systems/subspace/dp-subspace-privacy.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import gaussian_mu
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.check import check_flag, check_integer, check_real
from fastfedrec.core.log import logger
from fastfedrec.core.memory import check_memory, in_words
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import ItemFeaturesLike
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._central import CentralModel
from fastfedrec.systems._feature_prior import prior_factors
from fastfedrec.systems._featured import FeaturedModel
from fastfedrec.systems._from_items import similar_by_factors
from fastfedrec.systems._saved import SavedModel, rules_of
from fastfedrec.systems.claims import layered_noise
from fastfedrec.systems.subspace._inference import Projections, Scoring
from fastfedrec.systems.subspace.rounds import (
    FEWER_COLUMNS,
    MAX_USERS,
    MOST_COLUMNS,
    SCALE,
    UNIT,
    ProjectionSum,
    ShareSum,
    SubspaceState,
    SubspaceSum,
    public_signs,
)

__all__ = ["DPSubspace"]

LEAST_SIGNAL = 0.75  # of the gate
_GROWTH = 2.0  # of a round's part of the squared budget over that of the round before: what it asks about is worth more
_N_ROUNDS = 3  # of projections, where nobody says how many
_MOST_ROUNDS = 16
_LEAST_MEAN = 0.01  # of the largest entry of the mean


@dataclass(repr=False, eq=False)
class DPSubspace(CentralModel, FeaturedModel):
    """EASE for many items, from differentially private projections of the matrix of item pairs.

    **Guarantee.** Everything that is released is (`epsilon`, `delta`)-differentially private for all data of one user
    against none, the user still counted ("zero_out", privacy unit "user"), the whole run together, against everyone but
    the server, which sees exact sums and adds the noise ("central"); with secure aggregation that adds the noise
    inside, against the server too.  `ledger_` also states the figure for replacing a user, about twice as large.  The
    list of items and the number of users are public.

    Parameters
    ----------
    epsilon : float
        Of the whole run, in nats; below 1e12.
    delta : float
        Of the whole run.
    n_columns : int
        Numbers an item that a round's sums have, 1 to 256.
    n_rounds : int or "auto"
        Of projections, after the mean: the first is on random signs, every later one on what was found so far, with
        twice the squared budget of the one before.  "auto" takes 3.
    gate : bool
        Where the public numbers promise more noise than signal, spend everything on popularity instead.
    ridge : float
        Added to the diagonal, in units of the largest singular value that the last round's noise has by itself.
    mean_share : float
        Part of the squared budget that the mean of the users' rows takes, in (0, 1).
    n_users : int or None
        The public number of users that sums are divided by, and that the gate, `communication_` and saved files show;
        None publishes that of the data, and the ledger says so.
    item_features : frame, mapping of str to array_like, array of shape (n_items, n_dimensions), or None
        What is **publicly** known of the items, never made from users' rows: labels, lists of labels, numbers, text,
        vectors (`fastfedrec.data.item_features.ItemFeatures.of`).  The ids are a column `item`, or one of a usual name;
        without ids rows are in the order of the items.  How far each column is believed is fitted to the noisy release,
        which costs nothing.

    Attributes
    ----------
    item_means_ : ndarray of shape (n_items,), float64
        Noisy mean of the users' normalised rows: popularity.
    item_factors_ : ndarray of shape (n_items, rank + 1), float64
        L, whose L L' is the matrix of pairs that was found; without columns where only popularity was released.
    item_uniqueness_ : ndarray of shape (n_items,), float64
        What is added to its diagonal: the part of each item that factors do not explain, and the ridge.
    is_personal_ : bool
        Whether users receive scores of their own; otherwise all get the same popular items.
    signal_ : float
        The gate's number n_users mu / n_items, from public numbers only; below 0.75 it closes.
    ledger_ : fastfedrec.accounting.Ledger
        What the run cost each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        What each user received and sent.

    See Also
    --------
    fastfedrec.DPGram : The whole matrix, for fewer items.

    Notes
    -----
    Server, shard and device hold some arrays of n_items x n_columns, and nothing that grows with the square of the
    items; `costs` says how much.

    References
    ----------
    .. [1] Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019 (the linear model).
    .. [2] Hardt, Price, "The noisy power method", NeurIPS 2014 (private rounds on fewer columns).
    .. [3] Gavish, Donoho, "Optimal shrinkage of singular values", IEEE Transactions on Information Theory, 2017.
    .. [4] Balle, Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018 (its exact cost).

    Examples
    --------
    >>> from fastfedrec import DPSubspace, Key, datasets
    >>> data = datasets.generate_implicit(3000, 200, key=Key.from_seed(1))
    >>> model = DPSubspace(epsilon=2.0, n_columns=16).fit(data, key=Key.from_seed(2))
    >>> ids, scores = model.recommend(data.user_ids[:2], n=3)
    >>> ids.shape
    (2, 3)
    >>> model.ledger_.epsilon()
    inf
    >>> round(model.ledger_.epsilon("public"), 2)
    4.26
    """

    _most_users = MAX_USERS
    _saved: ClassVar[tuple[str, ...]] = ("item_means_", "item_factors_", "item_uniqueness_")

    epsilon: float = 1.0
    delta: float = 1e-6
    n_columns: int = 64
    n_rounds: int | str = "auto"
    gate: bool = True
    ridge: float = 0.5
    mean_share: float = 0.05
    n_users: int | None = None
    item_features: ItemFeaturesLike | None = None

    @property
    def is_personal_(self) -> bool:
        """Whether users receive scores of their own; False where only popularity was released."""
        return self._fitted().item_factors_.shape[1] > 0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self.n_columns = check_integer("n_columns", self.n_columns, low=1, high=MOST_COLUMNS)
        if self.n_rounds != "auto":
            self.n_rounds = check_integer("n_rounds", self.n_rounds, low=1, high=_MOST_ROUNDS)
        self.gate = check_flag("gate", self.gate)
        self.ridge = check_real("ridge", self.ridge, low=0.0, high=1e100, exclusive=True)

    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        features, n_users = self._features_of(data), self._public_users(data)
        if len(phases) > 1:
            logger.info(self.costs(data.n_items))
        else:
            self.ledger_.note(
                f"DPSubspace: the noise would cover the projections (signal {self.signal_:.3g}, {LEAST_SIGNAL:g} "
                "needed), so all of epsilon went to popularity, and everybody gets the same items"
            )
        (first, start, _), *others = phases
        self.item_means_: NDArray[np.float64] = fit.rounds(first, start, data).noisy / (UNIT * n_users)
        self._note_features(features, are_used=bool(others))
        self.item_factors_: NDArray[np.float64] = np.zeros((data.n_items, 0))
        self.item_uniqueness_: NDArray[np.float64] = np.ones(data.n_items)
        if others:
            mean = floored(self.item_means_)
            found = Projections(n_users, mean, () if features is None else prior_factors(features, mean))
            for system, planned, _ in others:
                encoder = found.next_encoder() if len(planned.encoder) else planned.encoder
                found.add(  # which keeps less than it is given
                    fit.rounds(system, SubspaceState(to_grid(mean), encoder), data).noisy / UNIT,
                    encoder if len(encoder) else public_signs(data.n_items, encoder.shape[1]),
                    float(system.noise.stddev) / UNIT,
                )
            self.item_factors_, self.item_uniqueness_ = found.model(self.ridge)

    def costs(self, n_items: int) -> str:
        """What a fit with an open gate moves and holds, before anything is spent: by public sizes alone.

        Parameters
        ----------
        n_items : int
            Length of the list of items.

        Returns
        -------
        str
            Bytes that a user receives and sends, and that the server holds at its peak beside the data: the most, as
            later rounds ask for no more columns than tell something.
        """
        self._check_parameters()
        n_items = check_integer("n_items", n_items, low=1, high=2**31 - 1)
        n_columns, n_rounds = min(self.n_columns, n_items), len(self._shares(is_open=True)) - 1
        mean, encoder, sums = 4 * n_items, 2 * n_items * n_columns, 8 * n_items * n_columns
        down, up = n_rounds * mean + (n_rounds - 1) * encoder, 8 * n_items + n_rounds * sums
        held = in_words(_n_bytes(n_items, n_columns, n_rounds))
        return (
            f"DPSubspace of {n_items:,} items: a user receives {in_words(down)} and sends {in_words(up)} at most, in "
            f"{n_rounds + 1} rounds; the server holds {held} beside the data"
        )

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """The sums of shares, and those of projections unless the noise would cover them."""
        n_items, n_columns = data.n_items, min(self.n_columns, data.n_items)
        mu = gaussian_mu(self.epsilon, self.delta)
        self.signal_ = self._public_users(data) * mu / n_items
        shares = self._shares(is_open=n_items > 1 and not (self.gate and self.signal_ < LEAST_SIGNAL))
        if len(shares) > 1:
            n_needed = _n_bytes(n_items, n_columns, len(shares) - 1)
            check_memory("DPSubspace", n_items, n_needed, FEWER_COLUMNS, growth="number")
        return self._within_delta(mu, lambda mu: self._phases(mu, shares, n_items, n_columns, key), n_items)

    def _shares(self, *, is_open: bool) -> list[float]:
        """Of the squared budget, of each release; they add up to 1."""
        if not is_open:
            return [1.0]
        parts = [_GROWTH**number for number in range(_N_ROUNDS if self.n_rounds == "auto" else int(self.n_rounds))]
        return [self.mean_share, *((1 - self.mean_share) * part / sum(parts) for part in parts)]

    def _phases(self, mu: float, shares: list[float], n_items: int, n_columns: int, key: Key) -> list[Phase]:
        noises = [layered_noise(UNIT / (mu * math.sqrt(share)), "") for share in shares]
        first = ShareSum(noises[0], key, noises[0].total_distance(n_items))
        distances = [noise.total_distance(n_items * n_columns) for noise in noises[1:]]
        pairs = enumerate(zip(noises[1:], distances, strict=True))
        systems = [first, *(ProjectionSum(noise, key, distance, number) for number, (noise, distance) in pairs)]
        return [Phase(system, self._planned(system, n_items, n_columns)) for system in systems]

    def _planned(self, system: SubspaceSum, n_items: int, n_columns: int) -> SubspaceState:
        """A state of the shapes and types of a round's."""
        later = getattr(system, "number", 0) > 0
        encoder = np.zeros((n_items if later else 0, n_columns), dtype=np.int16)
        mean = np.full(n_items, isinstance(system, ProjectionSum), dtype=np.int32)  # nobody is sent one of zeros
        return SubspaceState(mean, encoder)

    # ---- the device ---------------------------------------------------------------------------------------------

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        own = self.interactions_._take_users(users)
        lengths = own.interactions_per_user()
        if self.item_factors_.shape[1] == 0:
            return np.tile(self.item_means_, (len(users), 1))
        scoring = self._scoring()
        rows, entries = self._project(own)
        with one_blas_thread():
            scores = rows @ self.item_factors_.T
        # Without the user's own entry: an item does not speak for itself.
        scores[np.repeat(np.arange(len(users)), lengths), own.indices] -= entries * scoring.itself[own.indices]
        scores *= scoring.scales
        scores[lengths == 0] = self.item_means_
        return scores

    def _project(self, own: Interactions) -> tuple[np.ndarray, np.ndarray]:
        """Each user's part of the factors, which its scores are made of, and its entry for each of its items."""
        lengths = own.interactions_per_user()
        entries = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths)
        weights = entries / self.item_uniqueness_[own.indices]
        with one_blas_thread():
            return sum_rows(own, self.item_factors_, weights=weights) @ self._scoring().inverse, entries

    def _scoring(self) -> Scoring:
        """What is computed from the factors once, for a fitted model."""
        found = getattr(self, "_found_scoring", None)
        if found is None or found[0] is not self.item_factors_:
            found = self._found_scoring = self.item_factors_, Scoring.of(self.item_factors_, self.item_uniqueness_)
        return found[1]

    def _popularity(self) -> np.ndarray:
        return self.item_means_

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        if not self.item_factors_.any():
            raise ValueError(
                "DPSubspace released nothing that items could be compared by: the noise would have covered it; raise "
                "epsilon, or fit it on more users"
            )
        return similar_by_factors(self.item_factors_, columns, n)

    @one_blas_thread()
    def _contributions(self, own: Interactions, column: int) -> np.ndarray:
        if not self.item_factors_.shape[1]:
            raise ValueError("the noise would have covered what pairs tell, so everybody is offered what is popular")
        scoring = self._scoring()
        products = self.item_factors_[own.indices] @ (scoring.inverse @ self.item_factors_[column])
        products /= self.item_uniqueness_[own.indices]
        products[own.indices == column] = 0.0
        return products * scoring.scales[column] / np.sqrt(own.n_interactions)

    # ---- state --------------------------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        return super()._header() | {"signal": self.signal_}

    def _read_header(self, saved: SavedModel) -> None:
        super()._read_header(saved)
        self.signal_ = saved.real("signal", low=0.0)

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_items = self.interactions_.n_items
        vectors = dict.fromkeys(("item_means_", "item_uniqueness_"), (n_items,))
        return rules_of(np.float64, item_factors_=(n_items, None), **vectors)

    def _disagreement(self) -> str | None:
        return None if (self.item_uniqueness_ > 0).all() else "item_uniqueness_ must be greater than 0"


def _n_bytes(n_items: int, n_columns: int, n_rounds: int) -> int:
    """What the server holds at its peak, beside the data.

    Parameters
    ----------
    n_items, n_columns, n_rounds : int
        Of the model.

    Returns
    -------
    int
        Two arrays of sums, with noise and without, and one for what is made of them; all rounds' sums in single
        precision, and encoders of 16 bits.
    """
    return n_items * n_columns * (3 * 8 + 6 * n_rounds)


@one_blas_thread()
def floored(item_means: np.ndarray) -> NDArray[np.float64]:
    """The mean by which rows are centred: never below a hundredth of its largest entry, of norm at most 1.

    Parameters
    ----------
    item_means : ndarray of shape (n_items,), float64
        Noisy.

    Returns
    -------
    ndarray of shape (n_items,), float64
        Positive.
    """
    largest = max(float(item_means.max()), np.finfo(float).tiny / _LEAST_MEAN)
    mean = np.clip(item_means, _LEAST_MEAN * largest, 1.0)
    return mean / max(1.0, math.sqrt(mean @ mean))


def to_grid(mean: np.ndarray) -> NDArray[np.int32]:
    """A mean in whole numbers of 1 / `SCALE`.

    Parameters
    ----------
    mean : ndarray of shape (n_items,), float64
        Of norm at most 1, none below 0.

    Returns
    -------
    ndarray of shape (n_items,), int32
        Of norm at most `SCALE`: rounded, and down where that would be too long.
    """
    grid = np.rint(mean * SCALE).astype(np.int64)
    if int(grid @ grid) > SCALE**2:
        grid = (mean * (SCALE * (1 - 2.0**-40))).astype(np.int64)
    return grid.astype(np.int32)
