"""SDCF: federated rating prediction with two-stage randomized response and Langevin noise (Jiang, Li, Lin 2019).

It follows the description by FedRec++ (Liang, Pan, Ming 2021), with that paper's denoisers as an option.
docs/explanation/systems/sdcf/sdcf.md decides what the source leaves open.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.check import check_integer
from fastfedrec.core.parameters import choice, declares_parameters, flag, real
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import Channel
from fastfedrec.mechanisms.channels.channel import TOTAL, log_upper
from fastfedrec.rounds.system import ArrayRule, Update
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems.fedrec.devices import VIRTUAL, Devices, ReportedItems, fill_by_response, response_channel
from fastfedrec.systems.fedrec.model import FedRec
from fastfedrec.systems.fedrec.plus_plus import FedRecPlusPlus
from fastfedrec.systems.fedrec.rounds import FedRecState
from fastfedrec.systems.rating_model import STARS
from fastfedrec.systems.sdcf._prior import PRIORS, draw_precision, shrink

__all__ = ["SDCF", "SDCFState"]

_NOISE = "sdcf.noise"
_VIRTUAL_NOISE = "sdcf.virtual_noise"
_VIRTUAL_ERRORS = "sdcf.virtual_errors"
_USER_NOISE = "sdcf.user_noise"

_MAX_NOISE = 2.0**50  # bound of a standard deviation in steps, as of other integers in messages
_MAX_EXACT_ROUNDS = 512  # rounds with an exact epsilon; more rounds get the limit of infinitely many


@dataclass(frozen=True)
class SDCFState(FedRecState):
    """The state that the server broadcasts; all of it is public.

    Parameters
    ----------
    item_factors, learning_rate, global_user_ids, cohort_size, seed, denoisers, weights, divisors : object
        See `FedRecState`.
    precision : ndarray of shape (n_factors, n_factors), float64
        Precision of the normal prior of users' and items' factors, drawn with the public seed given the item factors.
    """

    precision: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))


def _precision(state: FedRecState) -> NDArray[np.float64]:
    """Return the state's precision."""
    return cast(SDCFState, state).precision


@declares_parameters
class SDCF(FedRecPlusPlus):
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

    _saved: ClassVar[tuple[str, ...]] = ("user_factors_", "item_factors_", "precision_")
    _seen = (
        "the server sees each vector e u that a user sends with normal noise, and nothing bounds e u: the noise is "
        "worth no epsilon, and another rating moves the vector by |u| for each star"
    )

    denoise: bool = flag(False).doc("""
        Whether FedRec++'s denoisers remove the contributions of unrated items, errors and noise alike, to the bit.
        `n_denoisers`, `sharing` and `min_clients_per_denoiser` have an effect only with it.""")
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

    def __init__(
        self,
        denoise: bool = False,
        n_denoisers: int = 1,
        sharing: str = "additive",
        min_clients_per_denoiser: int = 100,
        filling: str = "randomized_response",
        keep_probability: float = 0.9,
        add_probability: float = 0.02,
        report_probability: float = 0.9,
        false_report_probability: float = 0.01,
        prior: str = "gamma",
        prior_shape: float = 1.0,
        prior_rate: float = 1.0,
        temperature: float = 1.0,
        client_share: float = 1.0,
        n_factors: int = 20,
        n_rounds: int = 100,
        learning_rate: float = 0.8,
        learning_rate_decay: float = 0.9,
        grid: Sequence[float] = STARS,
    ):
        self.denoise, self.temperature = denoise, temperature
        self.report_probability, self.false_report_probability = report_probability, false_report_probability
        self.prior, self.prior_shape, self.prior_rate = prior, prior_shape, prior_rate
        super().__init__(
            n_denoisers, sharing, min_clients_per_denoiser, rho=0, filling=filling, t_predict=0,
            client_share=client_share, n_factors=n_factors, n_rounds=n_rounds, learning_rate=learning_rate,
            learning_rate_decay=learning_rate_decay, regularization=0.0, keep_probability=keep_probability,
            add_probability=add_probability, grid=grid,
        )  # fmt: skip

    def _check_filling(self) -> None:
        """Check the probabilities of both stages."""
        if not self._likelihood_ratio(1) > 1:
            raise ValueError(
                "keep_probability must differ from add_probability, and report_probability from "
                f"false_report_probability, got {self.keep_probability}, {self.add_probability}, "
                f"{self.report_probability} and {self.false_report_probability}: the reported items would not depend "
                "on the rated ones"
            )

    # ---- randomized response ------------------------------------------------------------------------------------

    @property
    def _first_stage(self) -> Channel:
        """First stage of randomized response."""
        return response_channel(float(self.keep_probability or 0), float(self.add_probability or 0))

    @property
    def channel(self) -> Channel | None:
        """First stage, from "rated" to the permanent answer; None if only rated items are reported."""
        return self._first_stage if self.filling == "randomized_response" else None

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
        n_rounds = check_integer("n_rounds", n_rounds, low=1)
        return math.inf if self.channel is None else log_upper(self._likelihood_ratio(n_rounds))

    def _likelihood_ratio(self, n_rounds: int) -> Fraction:
        """Return the largest likelihood ratio of a rated and an unrated item over all rounds, exactly."""
        unrated, rated = (Fraction(row[1], TOTAL) for row in self._first_stage.counts)
        no, yes = (Fraction(row[1], TOTAL) for row in self.report_channel.counts)
        worst = Fraction(1)
        for on_yes, on_no in ((yes, no), (1 - yes, 1 - no)):
            # Likelihoods of "in all rounds" and of "in none", after a first "yes" and "no", up to a common factor; the
            # smaller one tends to 0 with many rounds.
            ratio = min(on_yes, on_no) / max(on_yes, on_no)
            rarer = ratio**n_rounds if n_rounds <= _MAX_EXACT_ROUNDS else Fraction(0)
            on_yes, on_no = (Fraction(1), rarer) if on_yes >= on_no else (rarer, Fraction(1))
            ratio = (rated * on_yes + (1 - rated) * on_no) / (unrated * on_yes + (1 - unrated) * on_no)
            worst = max(worst, ratio, 1 / ratio)
        return worst

    @property
    def _chances(self) -> tuple[float, float]:
        no, yes = (row[1] / TOTAL for row in self.report_channel.counts)
        unrated, rated = (row[1] / TOTAL * yes + row[0] / TOTAL * no for row in self._first_stage.counts)
        return (unrated if self.filling == "randomized_response" else 0.0), rated

    def _response_cost(self, channel: Channel) -> tuple[float, str]:
        return self.epsilon_after(self.n_rounds), (
            f"over {self.n_rounds} rounds ({self.epsilon_after(1):.6g} in one, and never more than "
            f"{channel.epsilon:.6g}, for the first stage is drawn once)"
        )

    def _select_reported(
        self,
        state: FedRecState,
        shard: Interactions,
        key: Key,
        round_number: int,
        n_threads: int,
        previous: ReportedItems | None,
    ) -> ReportedItems:
        reported = fill_by_response(shard, self._first_stage, key, n_threads, self.report_channel, round_number)
        if self.filling == "none":
            is_rated = reported.kinds != VIRTUAL
            return ReportedItems(shard.indptr, reported.items[is_rated], reported.kinds[is_rated])
        return reported

    def _redraws_in(self, round_number: int) -> bool:
        return True  # draws the second stage; the first stage reads the same words in every round

    # ---- Langevin dynamics --------------------------------------------------------------------------------------

    def initial_state(self, interactions: Interactions, key: Key) -> SDCFState:
        """Return the server's first state, with a denoiser for every user if `denoise` is True.

        Parameters
        ----------
        interactions : Interactions
            Data with all users and the catalogue.
        key : Key
            Source of the first factors, and of the public seed.

        Returns
        -------
        SDCFState
            State with the first precision.
        """
        make_state = super().initial_state if self.denoise else functools.partial(FedRec.initial_state, self)
        state = make_state(interactions, key)
        return SDCFState(**vars(state), precision=self._draw_precision(state.item_factors, state.seed, 0))

    def _draw_precision(self, item_factors: np.ndarray, seed: int, round_number: int) -> np.ndarray:
        # The precision is public, since it depends on item factors and seed, which are public.
        key = Key.from_seed(seed)
        return draw_precision(self.prior, item_factors, self.prior_shape, self.prior_rate, key, round_number)

    def _langevin(self, state: FedRecState, key: Key) -> tuple[np.ndarray, float]:
        subkeys = [key.subkey(purpose) for purpose in (_NOISE, _VIRTUAL_NOISE, _VIRTUAL_ERRORS)]
        # The step is learning_rate times the vector, so noise of variance temperature * learning_rate on the step needs
        # this standard deviation on the vector.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            stddev = self._scale * np.sqrt(np.float64(self.temperature) / state.learning_rate)
        return np.stack(subkeys), float(min(stddev, _MAX_NOISE)) if self.temperature else 0.0

    def _finish_step(
        self, devices: Devices, state: FedRecState, shard: Interactions, roles: np.ndarray, key: Key, round_number: int
    ) -> None:
        from scipy.special import ndtri

        lengths = shard.interactions_per_user()
        moved = (roles > 0) & (lengths > 0)
        variance = self.temperature * state.learning_rate / lengths[moved]  # of the mean over the user's gradients
        # A step on the user's factors has the noise of the mean gradient, then the prior's implicit step.
        words = key.words_by_user(_USER_NOISE, shard.global_user_ids[moved], round=round_number, size=self.n_factors)
        factors = devices.user_factors[moved] + np.sqrt(variance)[:, None] * ndtri(as_uniform(words))
        devices.user_factors[moved] = shrink(factors, variance / 2, _precision(state))

    def apply(self, state: FedRecState, update: Update) -> SDCFState:
        """Take one step along the mean gradient of each reported item, and one along the prior's gradient.

        Parameters
        ----------
        state : SDCFState
            State of the round.
        update : Update
            Sum over all shards.

        Returns
        -------
        SDCFState
            State with a new precision.
        """
        moved = cast(SDCFState, super().apply(state, update))
        counts = self.real_sums(update)[:, -1]
        is_reported = counts > 0
        weights = self.temperature * state.learning_rate / (2 * counts[is_reported])
        factors = moved.item_factors
        factors[is_reported] = shrink(factors[is_reported], weights, _precision(state))
        precision = self._draw_precision(factors, state.seed, update.round + 1)
        return replace(moved, item_factors=factors, precision=precision)

    # ---- with denoisers, and without ----------------------------------------------------------------------------

    @property
    def _sharing(self) -> int:  # type: ignore[override]
        return super()._sharing if self.denoise else FedRec._sharing

    @property
    def _fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return FedRecPlusPlus._fields if self.denoise else FedRec._fields

    def real_sums(self, update: Update) -> NDArray[np.int64]:
        """Decode an update: each item's sum of vectors, in steps, and its count of users.

        Parameters
        ----------
        update : Update
            Sum over all shards.

        Returns
        -------
        ndarray of shape (n_items, n_factors + 1), int64
            Exact sums; with `denoise` only over users who rated the item.
        """
        return super().real_sums(update) if self.denoise else FedRec.real_sums(self, update)

    def _expected_sent(self, data: Interactions) -> float:
        return super()._expected_sent(data) if self.denoise else FedRec._expected_sent(self, data)

    def _not_protected(self, data: Interactions, state: FedRecState) -> list[str]:
        find_notes = super()._not_protected if self.denoise else functools.partial(FedRec._not_protected, self)
        notes = find_notes(data, state)
        if self.filling == "none":
            notes.append("users speak of what they rated alone, so each item that they speak of is told")
        return notes

    # ---- attributes of the model --------------------------------------------------------------------------------

    def _set_factors(self, state: FedRecState, n_rounds: int) -> None:
        super()._set_factors(state, n_rounds)
        self.precision_ = _precision(state)

    @property
    def _ridge(self) -> np.ndarray:
        return self.temperature / 2 * self.precision_

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return {**super()._saved_rules(), **rules_of(np.float64, precision_=(self.n_factors, self.n_factors))}
