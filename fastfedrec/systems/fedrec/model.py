"""FedRec: federated rating prediction in which users hide their rated items among others (Lin et al. 2020).

In each round the server sends V.  Each user takes a step on the user's factors, and sends the gradients of rated items
and of some unrated ones with virtual ratings.  The server takes a step along each item's mean gradient.  This protects
little, as the ledger states with figures.  docs/explanation/systems/fedrec/fedrec.md lists corrections of the paper.
"""

from collections.abc import Collection, Sequence
from typing import Self

from fastfedrec.core.parameters import declares_parameters
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import Channel
from fastfedrec.systems.fedrec.attacks import note_attacks
from fastfedrec.systems.gradient_rounds import fitting, parameters
from fastfedrec.systems.gradient_rounds.dynamics import GradientDescent
from fastfedrec.systems.gradient_rounds.filling import Filling
from fastfedrec.systems.gradient_rounds.parties import ServerOnly
from fastfedrec.systems.gradient_rounds.rounds import FedRecRounds
from fastfedrec.systems.gradient_rounds.state import FedRecState
from fastfedrec.systems.gradient_rounds.traffic import VectorTraffic
from fastfedrec.systems.gradient_rounds.views import Messages, RecordedRound
from fastfedrec.systems.rating_model import RatingModel

__all__ = ["FedRec", "FedRecState", "Messages", "RecordedRound", "VectorTraffic"]


@declares_parameters
class FedRec(RatingModel):
    """Federated probabilistic matrix factorisation of ratings, with virtual ratings of unrated items.

    **Guarantee.** None by default: the server receives each user's real-valued gradients with their items, and the
    ledger says "none".  With `clip_norm`, the releases of the server (the item factors of every round) are
    differentially private for replacing all of one user's data ("replace", privacy unit "user"; participation is
    public), if the server is trusted ("central"); `ledger_` has the epsilon.  With ``filling="randomized_response"``,
    *the set of items that a user reports* is ``channel.epsilon``-differentially private for each item in the local
    model; the gradients of these items are not.

    Attributes
    ----------
    channel : Channel or None
        Channel from "rated or not" to "reported or not", with its exact `epsilon`; None with hybrid filling.
    user_factors_, item_factors_ : ndarray of shape (n_users, n_factors) and (n_items, n_factors), float64
        Factors after `fit`.  User factors never leave the users, and no guarantee covers them.
    n_rounds_ : int
        Number of rounds behind the factors; fewer than `n_rounds` if training diverged.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the run for each user, with notes on what is not protected.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Traffic of each user.
    vectors_ : VectorTraffic
        Number of latent vectors that a round moves.
    records_ : list of RecordedRound
        Messages to every party in the rounds of ``fit(record_views=...)``.

    Notes
    -----
    Users of `with_users` get least squares factors, with `regularization` for each rating; the devices of a run have
    only taken some steps towards these.

    References
    ----------
    .. [1] Lin, Liang, Pan, Ming, "FedRec: federated recommendation with explicit feedback", IEEE Intelligent Systems
       36(5), 2021.
    .. [2] Liang, Pan, Ming, "FedRec++: lossless federated recommendation with explicit feedback", AAAI 2021.

    Examples
    --------
    >>> from fastfedrec import FedRec, Interactions, Key
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [5, 3, 4, 1])
    >>> model = FedRec(rho=1, n_rounds=5).fit(data, key=Key.from_seed(1))
    >>> model.predict([1, 3], [20, 10]).shape
    (2,)
    >>> model.ledger_.epsilon()
    inf
    """

    _deployment = fitting.DEPLOYMENT
    _serves = fitting.FedRecScores
    _communicates = True
    _saved_fields = fitting.SAVED_FIELDS

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

    def _objection_to_nodes(self) -> str | None:
        return parameters.objection_to_nodes(self)

    @property
    def channel(self) -> Channel | None:
        """Exact channel from "rated" to "reported"; None with hybrid filling."""
        return self._filling.channel

    @property
    def _filling(self) -> Filling:
        return parameters.filling_of(self, redraws=True)

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
        """Return the rounds with these parameters, in which messages go to the server only."""
        return FedRecRounds(
            data.n_items, parameters.training_of(self), self._filling, ServerOnly(), parameters.central_of(self),
            GradientDescent(), key, recorded,
        )  # fmt: skip

    def _not_protected(self, n_users: int) -> list[str]:
        """Return notes on the server's knowledge."""
        return [fitting.SEEN, *self._filling.notes()]

    # ---- served and saved ---------------------------------------------------------------------------------------

    def _serving(self, data: Interactions) -> Self:
        return fitting.serve_users(self, data, self.regularization)
