"""DPSubspace: a linear recommender for many items from noisy projections of the matrix of item pairs.

Each user's row of items, centred by a public mean, is projected on a few public columns; what it contributes is each
item's entry times the projection of the others, with norm at most 1.  The server adds Gaussian noise to the sums, and
fits a matrix of low rank to all of them.  No array of items x items is made anywhere.  See
docs/explanation/systems/subspace/dp-subspace.md and docs/explanation/systems/subspace/dp-subspace-privacy.md.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastfedrec.accounting import gaussian_mu
from fastfedrec.core.check import check_integer
from fastfedrec.core.log import logger
from fastfedrec.core.memory import check_memory, format_bytes
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures, ItemFeaturesLike
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._feature_prior import prior_factors
from fastfedrec.systems._public_mean import floored
from fastfedrec.systems.gram.decision import Candidate
from fastfedrec.systems.gram.measured_model import MeasuredModel
from fastfedrec.systems.gram.measurement import candidates_with
from fastfedrec.systems.projection_rounds import FEWER_COLUMNS, MAX_COLUMNS, MAX_USERS, ShareSumAgain, ShareSumInstead
from fastfedrec.systems.subspace._inference import Projections
from fastfedrec.systems.subspace.plan import CANDIDATES, MAX_MEASURED_RANK, planned_rounds

__all__ = ["DPSubspace"]

_N_ROUNDS = 3  # of projections, where nobody says how many
_MOST_ROUNDS = 16


@dataclass(repr=False, eq=False)
class DPSubspace(MeasuredModel):
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
        four times the squared budget of the one before.  "auto" takes 3.
    ridge : float or "auto"
        Added to the diagonal, in units of the largest singular value that the last round's noise has by itself.  "auto"
        chooses it by a measurement (`decision_`).
    mean_share : float
        Part of the squared budget that the mean of the users' rows takes first, in (0, 1).
    n_users : int or None
        The public number of users that sums are divided by, and that `communication_` and saved files show; None
        publishes that of the data, and the ledger states so.
    item_features : frame, mapping of str to array_like, array of shape (n_items, n_dimensions), or None
        What is **publicly** known of the items, never made from users' rows: labels, lists of labels, numbers, text,
        vectors (`fastfedrec.data.item_features.ItemFeatures.of`).  The ids are a column `item`, or one of a usual name;
        without ids rows are in the order of the items.  How far each column is believed is fitted to the noisy release,
        which costs nothing.

    Attributes
    ----------
    is_personal_ : bool
        Whether users receive scores of their own.  Otherwise all get the same popular items, because devices measured
        nothing better, because popularity needed the whole budget, or because pairs take two items.
    decision_ : fastfedrec.systems.gram.decision.Decision or None
        The candidates that devices compared, with their scores and the error of the comparison; None if only popularity
        was released, and for a model from a file.
    item_means_ : ndarray of shape (n_items,), float64
        Noisy mean of the users' normalised rows: popularity.
    item_factors_ : ndarray of shape (n_items, rank + 1), float64
        L, whose L L' is the matrix of pairs that was found, with popularity; without columns where `is_personal_` is
        False.
    scoring_factors_ : ndarray of shape (n_items, rank + 1), float64
        What devices score with, computed from `item_factors_`.
    item_scales_ : ndarray of shape (n_items,), float64
        By which devices divide a user's own entries, and multiply scores: the root of what is added to the diagonal of
        L L', which is the part of each item that factors do not explain, and the ridge.
    signal_ : float
        The public number n_users mu / n_items, with mu the budget as Gaussian differential privacy.
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
    4.19
    """

    _max_users = MAX_USERS
    _more_mean, _mean_instead = ShareSumAgain, ShareSumInstead
    _attributes: ClassVar[dict[str, str]] = {}
    scoring = "ease"

    epsilon: float = 1.0
    delta: float = 1e-6
    n_columns: int = 64
    n_rounds: int | str = "auto"
    ridge: float | str = "auto"
    mean_share: float = 0.1
    n_users: int | None = None
    item_features: ItemFeaturesLike | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self.n_columns = check_integer("n_columns", self.n_columns, low=1, high=MAX_COLUMNS)
        if self.n_rounds != "auto":
            self.n_rounds = check_integer("n_rounds", self.n_rounds, low=1, high=_MOST_ROUNDS)

    def _begin(
        self, fit: Fit, data: Interactions, features: AlignedFeatures | None, mean: np.ndarray, phases: list[Phase]
    ) -> Projections:
        """Return an estimate without any release; all projections are to come."""
        logger.info(self.costs(data.n_items))
        centre = floored(mean)
        priors = () if features is None else prior_factors(features, centre)
        return Projections(self._public_users(data), centre, priors)

    @property
    def _candidates(self) -> tuple[Candidate, ...]:
        return candidates_with(self.ridge, CANDIDATES)

    def costs(self, n_items: int) -> str:
        """What a fit of pairs moves and holds, before anything is spent: by public sizes alone.

        Parameters
        ----------
        n_items : int
            Length of the list of items.

        Returns
        -------
        str
            Bytes that a user receives and sends, and that the server holds at its peak beside the data: the most, as
            later rounds ask for no more columns than tell something, and popularity takes fewer rounds.
        """
        self._check_parameters()
        n_items = check_integer("n_items", n_items, low=1, high=2**31 - 1)
        phases = max(self._plans(self._rounds(1.0, n_items, 1, Key.from_seed(0))), key=len)
        traffic = [phase.system.traffic(phase.state, 1) for phase in phases]
        down, up = sum(one.download for one in traffic), sum(one.upload for one in traffic)
        held = format_bytes(_n_bytes(n_items, min(self.n_columns, n_items), self._n_projections))
        return (
            f"DPSubspace of {n_items:,} items: a user receives {format_bytes(down)} and sends {format_bytes(up)} at "
            f"most, in {len(phases)} rounds; the server holds {held} beside the data"
        )

    # ---- privacy ------------------------------------------------------------------------------------------------

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the rounds of the mean, projections and measurements, which together cost the budget."""
        n_items, n_users = data.n_items, self._public_users(data)
        mu = gaussian_mu(self.epsilon, self.delta)
        self.signal_ = n_users * mu / n_items
        if n_items > 1:
            n_needed = _n_bytes(n_items, min(self.n_columns, n_items), self._n_projections)
            check_memory("DPSubspace", n_items, n_needed, FEWER_COLUMNS, growth="number")
        n_measured = max(n_users, data.n_users)
        return self._within_delta(mu, lambda mu: self._rounds(mu, n_items, n_measured, key), n_items)

    @property
    def _n_projections(self) -> int:
        """Rounds of projections."""
        return _N_ROUNDS if self.n_rounds == "auto" else int(self.n_rounds)

    def _rounds(self, mu: float, n_items: int, n_users: int, key: Key) -> list[Phase]:
        n_columns, n_rounds = min(self.n_columns, n_items), self._n_projections
        return planned_rounds(mu, n_items, n_users, n_columns, n_rounds, key, self.mean_share, self._candidates)


def _n_bytes(n_items: int, n_columns: int, n_rounds: int) -> int:
    """What the server holds at its peak, beside the data.

    Parameters
    ----------
    n_items, n_columns, n_rounds : int
        Of the model.

    Returns
    -------
    int
        All rounds' sums in single precision, and encoders of 16 bits.  Beside them are two arrays of sums, with noise
        and without, and one for what is made of them; or, in a measurement, all factors, and the strongest
        ones in single precision and in four arrays of one candidate.
    """
    n_measured = min(n_columns, MAX_MEASURED_RANK) + 1
    return n_items * (n_columns * 6 * n_rounds + max(24 * n_columns, 8 * n_columns + 36 * n_measured))
