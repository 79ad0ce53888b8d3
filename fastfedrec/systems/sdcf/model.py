"""SDCF: federated rating prediction with two-stage randomized response and Langevin noise (Jiang, Li, Lin 2019).

It follows the description by FedRec++ (Liang, Pan, Ming 2021), with that paper's denoisers as an option.
docs/explanation/systems/sdcf/sdcf.md decides what the source leaves open.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from fastfedrec.core.check import check_integer
from fastfedrec.core.parameters import choice, declares_parameters, flag, real
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import Channel
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems.fedrec.attacks import note_attacks
from fastfedrec.systems.gradient_rounds import fitting, parameters
from fastfedrec.systems.gradient_rounds.devices import response_channel
from fastfedrec.systems.gradient_rounds.parties import Denoisers, Parties, ServerOnly
from fastfedrec.systems.gradient_rounds.rounds import FedRecRounds, Training
from fastfedrec.systems.rating_model import RatingModel
from fastfedrec.systems.sdcf._filling import TwoStageFilling
from fastfedrec.systems.sdcf._langevin import LangevinDynamics, SDCFState
from fastfedrec.systems.sdcf._prior import PRIORS

__all__ = ["SDCF", "SDCFState"]

_SEEN = (
    "The server sees each vector e u of a user with normal noise. The noise gives no epsilon, because e u has no bound "
    "and another rating moves the vector by |u| for each star."
)


@declares_parameters
class SDCF(RatingModel):
    """Federated matrix factorisation of ratings with two stages of randomized response on the rated items.

    **Guarantee.** None for all messages of a user, and the ledger says "none": the server receives the vectors, or with
    `denoise` their exact sums, and their noise has no epsilon, because the vectors have no bound.  But *the set of
    items that a user reports*, in all rounds together, is ``epsilon_after(n_rounds)``-differentially private for each
    item in the local model ("replace", one item of one user), exactly; the vectors of these items are not.  With
    `denoise` and ``sharing="additive"`` the server alone, and each denoiser alone, otherwise receives uniform numbers,
    see `FedRecPlusPlus`.

    Attributes
    ----------
    channel : Channel or None
        First stage, from "rated or not" to "yes or no"; the total cost of all rounds never exceeds its `epsilon`.
    report_channel : Channel
        Second stage, from "yes or no" to "reported or not".
    precision_ : ndarray of shape (n_factors, n_factors), float64
        Precision of the last round.
    user_factors_, item_factors_, n_rounds_, ledger_, communication_, vectors_, records_ : object
        See `FedRec`.

    Notes
    -----
    The model is one draw from a tempered posterior, not its mean.  Users of `with_users` get the most probable factors
    given the items' factors and `precision_`.

    References
    ----------
    .. [1] Jiang, Li, Lin, "Towards a more reliable privacy-preserving recommender system", Information Sciences 482,
       2019.
    .. [2] Liang, Pan, Ming, "FedRec++: lossless federated recommendation with explicit feedback", AAAI 2021.
    .. [3] Welling, Teh, "Bayesian learning via stochastic gradient Langevin dynamics", ICML 2011.

    Examples
    --------
    >>> from fastfedrec import SDCF, Interactions, Key
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [5, 3, 4, 1])
    >>> model = SDCF(n_rounds=5, n_factors=3).fit(data, key=Key.from_seed(1))
    >>> model.predict([1, 3], [20, 10]).shape
    (2,)
    >>> round(model.epsilon_after(1), 3), round(model.epsilon_after(5), 3), round(model.channel.epsilon, 3)
    (3.373, 3.807, 3.807)
    """

    _deployment = fitting.DEPLOYMENT
    _serves = fitting.FedRecScores
    _communicates = True
    _saved_fields = fitting.SAVED_FIELDS
    _saved: ClassVar[tuple[str, ...]] = ("user_factors_", "item_factors_", "precision_")

    denoise: bool = flag(False).doc("""
        Whether FedRec++'s denoisers remove the contributions of unrated items, errors and noise alike, to the bit.
        `n_denoisers`, `sharing` and `min_clients_per_denoiser` have an effect only with it.""")
    n_denoisers: int = parameters.N_DENOISERS
    sharing: str = parameters.SHARING
    min_clients_per_denoiser: int = parameters.MIN_CLIENTS_PER_DENOISER
    filling: str = choice("randomized_response", ("randomized_response", "none")).doc("""
        "none": only rated items are sent among those that randomized response reports, which reveals them; a
        reference for runs with `denoise`.""")
    keep_probability: float = real(0.9, above=0.0, below=1.0).doc("""
        First stage, in (0, 1), drawn once for each user and item: the probability of "yes" for a rated item.""")
    add_probability: float = real(0.02, above=0.0, below=1.0).doc("""
        First stage: the probability of "yes" for another item, in (0, 1).""")
    report_probability: float = real(0.9, above=0.0, below=1.0).doc("""
        Second stage, in (0, 1), drawn in each round: the probability that a user reports an item with "yes".""")
    false_report_probability: float = real(0.01, above=0.0, below=1.0).doc("""
        Second stage: the probability that a user reports an item with "no", in (0, 1).""")
    prior: str = choice("gamma", PRIORS).doc("""
        Distribution of the precision of factors: diagonal with gamma entries, or a full matrix.""")
    prior_shape: float = real(1.0, low=1e-6, high=1e6).doc("""
        Shape of the gamma distribution.  Wishart's has ``2 prior_shape + n_factors - 1`` degrees of freedom.""")
    prior_rate: float = real(1.0, low=1e-6, high=1e6).doc("""
        Rate of the gamma distribution.  Wishart's scale is ``I / (2 prior_rate)``.""")
    temperature: float = real(1.0, low=0.0, high=1e6).doc("""
        Temperature of the Langevin noise: every step of a sent vector has normal noise with variance
        `temperature` * learning rate.  This models ratings with variance temperature / 2.  0 is gradient descent,
        without a prior.""")
    client_share: float = parameters.CLIENT_SHARE
    n_factors: int = parameters.N_FACTORS
    n_rounds: int = parameters.N_ROUNDS
    learning_rate: float = parameters.LEARNING_RATE
    learning_rate_decay: float = parameters.LEARNING_RATE_DECAY
    grid: Sequence[float] = parameters.GRID

    def _check_parameters(self) -> None:
        if not self._filling.likelihood_ratio(1) > 1:
            raise ValueError(
                "keep_probability must differ from add_probability, and report_probability from "
                f"false_report_probability, got {self.keep_probability}, {self.add_probability}, "
                f"{self.report_probability} and {self.false_report_probability}: the reported items would not depend "
                "on the rated ones"
            )

    # ---- randomized response ------------------------------------------------------------------------------------

    @property
    def _filling(self) -> TwoStageFilling:
        first_stage = response_channel(self.keep_probability, self.add_probability)
        return TwoStageFilling(first_stage, self.report_channel, only_rated=self.filling == "none")

    @property
    def channel(self) -> Channel | None:
        """First stage, from "rated" to the permanent answer; None if only rated items are reported."""
        return self._filling.channel

    @property
    def report_channel(self) -> Channel:
        """Second stage, from the permanent answer to "reported in this round"."""
        return response_channel(self.report_probability, self.false_report_probability)

    def epsilon_after(self, n_rounds: int) -> float:
        """Compute the epsilon of a user's reports on one item, in all rounds of the user.

        Parameters
        ----------
        n_rounds : int
            Number of rounds in which the user takes part, at least 1.

        Returns
        -------
        float
            Epsilon in nats, rounded up.  It is exact up to 512 rounds, and the limit of infinitely many rounds beyond.
            It is infinite if only rated items are reported.

        Notes
        -----
        The number of rounds with a report of the item is a sufficient statistic, and its likelihood ratio is monotone,
        so "in all rounds" or "in none" is the worst case.
        """
        return self._filling.epsilon_after(check_integer("n_rounds", n_rounds, low=1))

    # ---- training -----------------------------------------------------------------------------------------------

    fit = fitting.fit
    _plan = fitting.plan
    _memory = fitting.memory

    def _set_run(self, run: fitting.Run) -> None:
        """Set the attributes of a run, and note the results of attacks on its records."""
        self.user_factors_, self.item_factors_, self.n_rounds_ = run.user_factors, run.state.item_factors, run.n_rounds
        self.vectors_, self.records_ = run.vectors, run.records
        assert isinstance(run.state, SDCFState)
        self.precision_ = run.state.precision
        note_attacks(self)

    @property
    def _parties(self) -> Parties:
        if not self.denoise:
            return ServerOnly()
        is_additive = self.sharing == "additive"
        return Denoisers(self.n_denoisers, is_additive, self.min_clients_per_denoiser, by_popularity=False)

    def _rounds(self, data: Interactions, key: Key, recorded: Collection[int] = ()) -> FedRecRounds:
        """Return the rounds with these parameters, without central privacy."""
        training = Training(self.n_factors, self.client_share, self.learning_rate, self.learning_rate_decay)
        dynamics = LangevinDynamics(self.temperature, self.prior, self.prior_shape, self.prior_rate)
        return FedRecRounds(data.n_items, training, self._filling, self._parties, None, dynamics, key, recorded)

    def _not_protected(self, n_users: int) -> list[str]:
        """Return notes on the knowledge of each party."""
        notes = self._parties.notes([_SEEN], n_users, self.client_share)
        if self.filling == "none":
            notes.append("Messages contain rated items alone, so they reveal each of these items.")
        return notes

    # ---- served and saved ---------------------------------------------------------------------------------------

    def _serving(self, data: Interactions) -> Self:
        return fitting.serve_users(self, data, self.temperature / 2 * self.precision_)

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return {**super()._saved_rules(), **rules_of(np.float64, precision_=(self.n_factors, self.n_factors))}
