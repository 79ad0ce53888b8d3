"""FedRec++: FedRec with virtual ratings that are removed from the sums, exactly to the bit (Liang, Pan, Ming 2021).

Some users are denoisers.  Each receives messages of the users it serves, and sends sums, which the server subtracts.
The remainder are the gradients of rated items.  docs/explanation/systems/fedrec/fedrec.md lists corrections.
"""

from collections.abc import Collection, Sequence
from typing import Self

from fastfedrec.core.parameters import choice, declares_parameters
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import Channel
from fastfedrec.systems.fedrec.attacks import note_attacks
from fastfedrec.systems.gradient_rounds import fitting, parameters
from fastfedrec.systems.gradient_rounds.dynamics import GradientDescent
from fastfedrec.systems.gradient_rounds.filling import Filling
from fastfedrec.systems.gradient_rounds.parties import Denoisers
from fastfedrec.systems.gradient_rounds.rounds import FedRecRounds
from fastfedrec.systems.rating_model import RatingModel

__all__ = ["FedRecPlusPlus"]


@declares_parameters
class FedRecPlusPlus(RatingModel):
    """FedRec with exact denoising: virtual ratings do not change the result.

    **Guarantee.** No differential privacy by default, and the ledger says "none".  With ``sharing="additive"`` the
    server alone, and each denoiser alone, receives integers that are uniform modulo 2^64 for any data, and the set of
    items that each user reports.  The server and the denoisers together see everything, and the sums that the server
    computes are exact.  With ``sharing="published"`` the server receives each user's gradients.  `clip_norm` and
    ``filling="randomized_response"`` have the guarantees of `FedRec`.

    With `clip_norm`, only gradients of rated items are clipped and counted.

    Attributes
    ----------
    vectors_ : VectorTraffic
        Number of latent vectors that a round moves.
    user_factors_, item_factors_, n_rounds_, ledger_, communication_, records_ : object
        See `FedRec`.

    See Also
    --------
    fastfedrec.attacks : Attacks of the parties, by experiment.

    References
    ----------
    .. [1] Liang, Pan, Ming, "FedRec++: lossless federated recommendation with explicit feedback", AAAI 2021.
    .. [2] Jiang, Li, Lin, "Towards a more reliable privacy-preserving recommender system", Information Sciences 482,
       2019 (SDCF, whose filling is "randomized_response").

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import FedRec, FedRecPlusPlus, Interactions, Key
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [5, 3, 4, 1])
    >>> options = {"n_rounds": 5, "n_factors": 3}
    >>> lossless = FedRecPlusPlus(rho=1, **options).fit(data, key=Key.from_seed(1))
    >>> bare = FedRec(rho=0, **options).fit(data, key=Key.from_seed(1))
    >>> bool(np.array_equal(lossless.item_factors_, bare.item_factors_))
    True
    """

    _deployment = fitting.DEPLOYMENT
    _serves = fitting.FedRecScores
    _communicates = True
    _saved_fields = fitting.SAVED_FIELDS

    n_denoisers: int = parameters.N_DENOISERS
    sharing: str = parameters.SHARING
    min_clients_per_denoiser: int = parameters.MIN_CLIENTS_PER_DENOISER
    fill_by: str = choice("uniform", ("uniform", "popularity")).doc("""
        Distribution of unrated items: uniform, or proportional to the numbers of raters, which the server knows
        anyway.""")
    rho: int = parameters.RHO
    filling: str = parameters.FILLING
    t_predict: int = parameters.T_PREDICT
    t_local: int = parameters.T_LOCAL
    client_share: float = parameters.CLIENT_SHARE
    n_factors: int = parameters.N_FACTORS
    n_rounds: int = parameters.N_ROUNDS
    learning_rate: float = parameters.LEARNING_RATE
    learning_rate_decay: float = parameters.LEARNING_RATE_DECAY
    regularization: float = parameters.REGULARIZATION
    keep_probability: float | None = parameters.KEEP_PROBABILITY
    add_probability: float | None = parameters.ADD_PROBABILITY
    clip_norm: float | None = parameters.CLIP_NORM
    noise_multiplier: float = parameters.NOISE_MULTIPLIER
    divisor: float | None = parameters.DIVISOR
    max_items: int | None = parameters.MAX_ITEMS
    grid: Sequence[float] = parameters.GRID

    def _check_parameters(self) -> None:
        parameters.check_filling(self)
        parameters.check_central(self)
        if self.fill_by == "popularity" and self.clip_norm is not None:
            raise ValueError(
                "fill_by must be 'uniform' with clip_norm, got 'popularity': exact counts of all users' items would "
                "decide the messages"
            )
        if self.fill_by == "popularity" and self.filling != "hybrid":
            raise ValueError("fill_by='popularity' needs filling='hybrid'; randomized response has no weights")

    def _objection_to_nodes(self) -> str | None:
        objection = parameters.objection_to_nodes(self)
        if objection is None and self.fill_by != "uniform":
            return "fill_by must be 'uniform': fit counts raters in all data"
        return objection

    @property
    def channel(self) -> Channel | None:
        """Exact channel from "rated" to "reported"; None with hybrid filling."""
        return self._filling.channel

    @property
    def _filling(self) -> Filling:
        return parameters.filling_of(self, redraws=self.sharing == "published")

    @property
    def _denoisers(self) -> Denoisers:
        is_additive, by_popularity = self.sharing == "additive", self.fill_by == "popularity"
        return Denoisers(self.n_denoisers, is_additive, self.min_clients_per_denoiser, by_popularity)

    # ---- training -----------------------------------------------------------------------------------------------

    fit = fitting.fit
    _plan = fitting.plan
    _memory = fitting.memory

    def _set_run(self, run: fitting.Run) -> None:
        """Set the attributes of a run, and note the results of attacks on its records."""
        self.user_factors_, self.item_factors_, self.n_rounds_ = run.user_factors, run.state.item_factors, run.n_rounds
        self.vectors_, self.records_ = run.vectors, run.records
        note_attacks(self)

    def _rounds(self, data: Interactions, key: Key, recorded: Collection[int] = ()) -> FedRecRounds:
        """Return the rounds with these parameters, in which denoisers receive messages too."""
        return FedRecRounds(
            data.n_items, parameters.training_of(self), self._filling, self._denoisers, parameters.central_of(self),
            GradientDescent(), key, recorded,
        )  # fmt: skip

    def _not_protected(self, n_users: int) -> list[str]:
        """Return notes on the knowledge of each party."""
        return self._denoisers.notes([fitting.SEEN, *self._filling.notes()], n_users, self.client_share)

    # ---- served and saved ---------------------------------------------------------------------------------------

    def _serving(self, data: Interactions) -> Self:
        return fitting.serve_users(self, data, self.regularization)
