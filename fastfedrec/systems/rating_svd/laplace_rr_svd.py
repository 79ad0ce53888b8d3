"""Laplace-RR-SVD: locally private rating collection, then matrix factorisation (Jeyamohan, Chen, Aslam).

Each user sends the user's ratings once, each through a randomizer on the user's device.  The server estimates the
distribution of ratings, decodes the reports so that means are unbiased, and trains.  The published randomizer gives no
protection; the guaranteed variants are exact finite channels.  docs/explanation/systems/rating_svd/laplace-rr-svd.md
lists corrections of the paper.
"""

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger, LocalReports
from fastfedrec.compute.sgd import MAX_FACTORS
from fastfedrec.core.check import check_instance, check_real
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.numbers import renamed
from fastfedrec.core.parameters import choice, declares_parameters, flag, integer, parameter, real
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.remote_users import RemoteUsers
from fastfedrec.mechanisms import (
    BayesKary,
    Channel,
    MixtureLaplaceRR,
    PublishedLaplaceRR,
    RatedOrNot,
    RoundedLaplace,
    SerialLaplaceRR,
)
from fastfedrec.mechanisms.channels.exact_counts import sum_lower
from fastfedrec.mechanisms.ratings.bayes_kary import check_prior
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.run_account import RunAccount
from fastfedrec.rounds.system import ArrayRule, DeploymentTerms
from fastfedrec.systems._checkpoint import open_checkpoint
from fastfedrec.systems._saved import saved_integer
from fastfedrec.systems._served import AdditiveScores
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.rating_model import (
    RatingModel,
    check_ratings,
    rating_grid,
    solve_ratings,
    warn_beyond_ends,
    warn_off_grid,
)
from fastfedrec.systems.rating_svd._biases import Biases, fit_biases, fit_hidden_biases, shrink
from fastfedrec.systems.rating_svd._decoder import ReportDecoder, fit_twice
from fastfedrec.systems.rating_svd._factors import (
    Training,
    fit_published_factors,
    fit_residual_factors,
    training_memory,
)
from fastfedrec.systems.rating_svd.rounds import RatingRounds, RatingState, on_scale, reports_memory, truth_statement

__all__ = ["BIAS_PRIOR_RULE", "COUNT_AS_NEAREST", "LaplaceRRSVD", "RatingState"]

# Tuned on the first two splits of MovieLens 100K, without privacy and at epsilon 2 and 4 per rating.
_AUTO = {
    "ours": Training(20, n_epochs=60, learning_rate=0.04, regularization=0.13),
    "published": Training(20, n_epochs=20, learning_rate=0.02, regularization=0.02),
}
_MAX_NOISE_SCALES = 12.0  # range of Laplace noise in its scales; larger noise has a probability of 6 in a million
COUNT_AS_NEAREST = "count as the nearest of them"  # use of ratings beyond the ends of the grid, for a warning
BIAS_PRIOR_RULE = {"bias_prior_": ArrayRule(np.float64, (2,), 0.0)}
_NAMES = {
    "optimal": "k-ary channel of least Bayes error",
    "mixture": "Laplace noise or the rating, in a certified mixture,",
    "serial": "Laplace noise and then randomized response",
    "laplace": "Laplace noise",
}


@functools.lru_cache(maxsize=256)
def rating_channel(
    variant: str,
    epsilon_1: float,
    epsilon_2: float,
    grid: tuple[float, ...],
    prior: tuple[float, ...] | None = None,
    hides_items: bool = False,
) -> Channel:
    """Return the exact channel of one report in a guaranteed variant."""
    if variant == "serial":
        return SerialLaplaceRR(epsilon_1, epsilon_2, grid)
    if variant == "mixture":
        return MixtureLaplaceRR(epsilon_1, epsilon_2, grid)
    # The sum of the epsilons, rounded down, so that the channel never exceeds the claim.
    total = sum_lower(epsilon_1, epsilon_2)
    if hides_items:
        return RatedOrNot(total, grid)
    return (
        BayesKary(total, grid, prior) if variant == "optimal" else RoundedLaplace(total, grid, margin=_MAX_NOISE_SCALES)
    )


def _check_shares(name: str, prior: Sequence[float]) -> tuple[float, ...]:
    """Return the shares of the ratings as floats."""
    check_instance(name, prior, Iterable, "pass a share for each rating of the grid")
    return tuple(check_real(f"{name}[{i}]", share, low=0.0) for i, share in enumerate(prior))


@declares_parameters
class LaplaceRRSVD(RatingModel):
    """Matrix factorisation of ratings that the users' devices randomize.

    **Guarantee** (every variant but "published" and None).  One rating is `channel`.epsilon-differentially private in
    the local model: any two values of the grid are neighbours ("replace"), the privacy unit is one rating, and the user
    trusts only the user's own device.  A user's n ratings cost n times as much in total.  The set of rated items is not
    hidden, as the ledger states, unless `hide_items` is True: then all messages of a user are
    ``n_reports * channel.epsilon``-differentially private for replacing all of that user's data (privacy unit "user").

    Attributes
    ----------
    channel : Channel or None
        Exact channel of one report, with its `epsilon`; None for "published" and without privacy.
    mean_ : ndarray of shape (), float64
        Mean rating.
    user_biases_, item_biases_ : ndarray of shape (n_users,) and (n_items,), float64
        Deviations from the mean, shrunk according to the noise.
    user_factors_, item_factors_ : ndarray of shape (n_users, n_factors) and (n_items, n_factors)
        Factors with inner products that are added to the biases.
    bias_prior_ : ndarray of shape (2,), float64
        Estimated variances of a user's bias and of the residual of a rating, both without noise.
    n_epochs_ : int
        Number of epochs of training the factors; 0 without factors.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the fit for each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        Traffic of each user.

    Notes
    -----
    The whole model is computed from the reports, so the guarantee covers it, including user biases and factors.

    Users of `with_users` send no message.  Their devices compute biases and least squares factors, with
    `regularization` for each rating, from the users' exact ratings and this model's mean, items and prior.  This has no
    privacy cost, and no guarantee covers the results, which only the user sees.

    References
    ----------
    .. [1] Jeyamohan, Chen, Aslam, "Local differentially private matrix factorization for recommendations", 2019.
    .. [2] Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy", JMLR 17, 2016.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key, LaplaceRRSVD
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [5, 3, 4, 1])
    >>> model = LaplaceRRSVD(epsilon_1=1.0, epsilon_2=1.0, max_ratings=50).fit(data, key=Key.from_seed(1))
    >>> round(model.channel.epsilon, 6)
    2.0
    >>> model.predict([1, 3], [20, 10]).shape
    (2,)
    """

    _deployment = DeploymentTerms(names_users=True, keeps_users=True)
    _communicates = True
    _serves = AdditiveScores
    _saved: ClassVar[tuple[str, ...]] = (*AdditiveScores.arrays(), "bias_prior_")
    _saved_fields = (saved_integer("n_epochs", low=0),)

    variant: str | None = choice("optimal", (*_NAMES, "published"), also=[None]).doc("""
        Randomizer of one rating.  "optimal": `BayesKary` at ``epsilon_1 + epsilon_2``.  "mixture": the true rating
        with the largest probability that this sum allows, otherwise Laplace noise (`MixtureLaplaceRR`).  "serial":
        Laplace noise, then randomized response (`SerialLaplaceRR`, with an epsilon below both).  "laplace": Laplace
        noise only, at the sum (`RoundedLaplace`).  "published": as in the paper, without protection.  None: exact
        ratings.""")
    epsilon_1: float = real(1.0, above=0.0).doc("Epsilon of the Laplace noise, in nats, above 0.")
    epsilon_2: float = real(1.0, above=0.0).doc("Epsilon of the randomized response, in nats, above 0.")
    max_ratings: int | None = integer(None, low=1, also=[None]).doc("""
        Largest number of ratings that a user sends; a user with more ratings draws this number uniformly.  It is a
        public number, and makes the cost of a user public.""")
    hide_items: bool = flag(False).doc("""
        Whether every user reports on `n_reports` items that are drawn independently of the user's data, rated or
        not, through a channel with an additional value "not rated" (`RatedOrNot`).  For "optimal" only.""")
    n_reports: int = integer(100, low=1, high=2**31 - 1).doc("""
        Number of reports of a user with `hide_items`, limited by the number of items.""")
    grid: Sequence[float] = rating_grid(by_ends=None).doc("""
        Possible ratings, increasing, at most 32 (16 for "optimal"); public.  A rating off the grid counts as the
        nearest value on it, without a warning in guaranteed variants.  With ``variant=None`` only the ends matter,
        and ratings between them keep their values.""")
    n_factors: int = integer(20, low=0, high=MAX_FACTORS).doc("""
        Number of factors in addition to the biases, at least 0.  The factors are 0 unless they lower the error of
        held-out reports, and with `hide_items`.""")
    n_epochs: int | str = integer("auto", low=0, also=["auto"]).doc("""
        Largest number of training epochs; held-out reports choose.  "auto" is 60 (published: 20, without a choice).""")
    learning_rate: float | str = real("auto", above=0.0, also=["auto"]).doc("""
        Step size of stochastic gradient descent on residuals of variance 1.  "auto" is .04 (published: .02, on
        ratings from 0 to 1).""")
    regularization: float | str = real("auto", low=0.0, also=["auto"]).doc("""
        L2 penalty of the factors for each rating.  "auto" is .13 (published: .02, on ratings from 0 to 1).""")
    prior: Sequence[float] | None = parameter(None, "sequence of float", _check_shares, also=[None]).doc("""
        Expected share of each rating of the grid, from public knowledge and never from the collected ratings; for
        "optimal" only, which is then most informative for such ratings.  None is the uniform distribution.""")

    def _check_parameters(self) -> None:
        if self.hide_items and self.variant != "optimal":
            raise ValueError(f"hide_items needs variant='optimal', got {self.variant!r}: noise has no 'not rated'")
        self._check_grid(by_ends=self.variant is None)
        if self.prior is not None:
            check_prior("prior", self.prior, len(self.grid))
            if self.hide_items or self.variant != "optimal":
                raise ValueError("prior needs variant='optimal' and hide_items=False: no other channel has one")

    def _objection_to_nodes(self) -> str | None:
        if self.max_ratings is None and not self.hide_items:
            return "max_ratings must be given: its default is the maximum over users, which no party may see"
        return None

    @property
    def channel(self) -> Channel | None:
        """Exact channel of one report; None for "published" and without privacy, which have no channel."""
        mechanism = self._mechanism
        return mechanism if isinstance(mechanism, Channel) else None

    @property
    def _mechanism(self) -> Channel | PublishedLaplaceRR | None:
        """Randomizer of one rating; None for exact ratings."""
        if self.variant is None:
            return None
        if self.variant == "published":
            return PublishedLaplaceRR(self.epsilon_1, self.epsilon_2, low=self.grid[0], high=self.grid[-1])
        grid = tuple(map(float, self.grid))
        prior = None if self.prior is None else tuple(map(float, self.prior))
        with renamed("nominal_epsilon", "epsilon_1 + epsilon_2"):
            return rating_channel(
                self.variant, float(self.epsilon_1), float(self.epsilon_2), grid, prior, self.hide_items
            )

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
        *,
        engine: Engine | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Collect every user's ratings once, and train on the reports.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Ratings as values; every stored one counts, also zeros.  In guaranteed variants data without values are
            accepted as ratings of 1, since an error would reveal whether all ratings are 1.

        Warns
        -----
        UserWarning
            Ratings are off the grid (``variant=None``: beyond its ends), in the variants without a guarantee.
        RuntimeWarning
            Training diverged; the model has the last finite epoch, and all predictions are finite.
        """
        data = check_ratings(interactions, is_private=self.channel is not None, min_users=1)
        stored = open_checkpoint(self, checkpoint, data, engine)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, stored=stored)
        if self.variant is None:
            warn_beyond_ends(data, self.grid, COUNT_AS_NEAREST)
        elif self.channel is None:
            warn_off_grid(data, self.grid)
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        self._train(self._collect(data, fit), fit.n_threads)
        return self

    def _collect(self, data: Interactions, fit: Fit) -> RatingState:
        """Run the one round, after notes on its claims."""
        ((rounds, state, _),) = plan = self._plan(data, fit.key)
        of_values = self._value_event(data)
        fit.check_budget(data, lambda: [plan], [] if of_values is None else [of_values])
        self._note_claims(fit.account, rounds.mechanism, data, fit.key)
        return fit.rounds(rounds, state, data)

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return the single phase of one round."""
        rounds = self._rounds(data)
        return [Phase(rounds, rounds.initial_state(data, key))]

    def _rounds(self, data: Interactions) -> RatingRounds:
        """Return the round, which depends on the rows in its traffic only."""
        n_reports = min(self.n_reports, data.n_items)
        largest = n_reports if self.hide_items else self.max_ratings or data.n_items
        if self.hide_items or isinstance(data, RemoteUsers):
            mean_reports = float(largest)  # for rows on nodes only this upper bound is known
        else:
            mean_reports = float(np.minimum(data.interactions_per_user(), largest).mean())
        return RatingRounds(self._mechanism, tuple(self.grid), self.max_ratings, n_reports, mean_reports)

    def _value_event(self, data: Interactions) -> LocalReports | None:
        """Return the event of the ratings' values if rated items are not hidden."""
        mechanism = self._mechanism
        if mechanism is None or isinstance(mechanism, PublishedLaplaceRR) or self.hide_items:
            return None
        longest = self.max_ratings or int(data.interactions_per_user().max(initial=0))
        name = f"{_NAMES[str(self.variant)]} on the ratings' values"
        return LocalReports(name, mechanism.epsilon, longest, data.n_users)

    def _note_claims(
        self, ledger: Ledger | RunAccount, mechanism: Channel | PublishedLaplaceRR | None, data: Interactions, key: Key
    ) -> None:
        """Record in the ledger the claims that the round's event does not state."""
        if isinstance(mechanism, PublishedLaplaceRR):
            ledger.note(truth_statement(mechanism), "not covered")
        elif (event := self._value_event(data)) is not None:
            ledger.record(event, simulation=key.is_simulation)
            longest = event.n_reports
            affected = "any user, by max_ratings" if self.max_ratings is not None else "the user with the most ratings"
            ledger.note(
                f"The figures of the ratings' values are for {affected} ({longest:,}), and for any other values of the "
                "same items.",
                "guarantee",
            )
            ledger.note(
                "The set of items that a user has rated is not hidden; hide_items=True hides it.", "not covered"
            )

    # ---- training on the reports ----------------------------------------------------------------------------------

    def _decoder(self, state: RatingState) -> ReportDecoder | None:
        """Return the decoder of the reports, or None if they are values or hide the rated items."""
        channel = self.channel
        return None if channel is None or self.hide_items else ReportDecoder(channel, state.reports)

    @property
    def _training(self) -> Training:
        """Return the settings with "auto" resolved."""
        auto = _AUTO["published" if self.variant == "published" else "ours"]
        given = {name: getattr(self, name) for name in ("n_epochs", "learning_rate", "regularization")}
        chosen = {name: value for name, value in given.items() if not isinstance(value, str)}
        return replace(auto, n_factors=self.n_factors, **chosen)

    def _train(self, state: RatingState, n_threads: int) -> None:
        """Fit biases and factors; from here on the data are the reports only."""
        users, items, decoder = state.users, state.items, self._decoder(state)
        shape = len(state.global_user_ids), state.n_items
        options = (*shape, self._training, Key.from_seed(state.seed), n_threads)
        low, high = self.grid[0], self.grid[-1]
        variance = (high - low) ** 2 / 4  # the largest possible variance, if the reports do not give a better bound
        channel = self.channel
        if self.variant == "published":
            biases = Biases(low, np.zeros(shape[0]), np.zeros(shape[1]))
            factors = fit_published_factors(users, items, (state.reports - low) / (high - low), *options)
            # The training was on ratings scaled to [0, 1]; one side of the factors undoes this.
            factors = (high - low) * factors[0], *factors[1:]
        elif isinstance(channel, RatedOrNot):
            rated, products = channel.estimate_rated(state.reports), channel.estimate(state.reports)
            biases = fit_hidden_biases(users, items, rated, products, *shape, scale=(low, high))
            factors = np.zeros((shape[0], 0)), np.zeros((shape[1], 0)), 0
        else:
            # Without privacy the reports are values.
            values = state.reports if decoder is None else decoder.decode()
            variance = decoder.variance if decoder is not None else float(values.var()) if len(values) else 0.0
            fit = functools.partial(fit_biases, users, items, n_users=shape[0], n_items=shape[1], n_threads=n_threads)
            biases, values = fit_twice(fit, users, items, values, decoder)
            residuals = values - biases.mean - biases.users[users] - biases.items[items]
            factors = fit_residual_factors(users, items, residuals, *options)
        self.mean_: NDArray[np.float64] = np.array(biases.mean)
        self.user_biases_, self.item_biases_ = biases.users, biases.items
        self.user_factors_: NDArray[np.float64]
        self.item_factors_: NDArray[np.float64]
        self.user_factors_, self.item_factors_, self.n_epochs_ = factors
        self.bias_prior_: NDArray[np.float64] = np.array([biases.spreads[0], max(variance - sum(biases.spreads), 0.0)])

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        if self.hide_items:
            n_reports = sizes.n_users * min(self.n_reports, sizes.n_items)
            return [{**reports_memory(n_reports), "estimates": Array.of("float64", n_reports)}]
        longest = sizes.n_users * (self.max_ratings or sizes.n_items)
        sizes = sizes._replace(n_interactions=min(sizes.n_interactions, longest))
        reports = reports_memory(sizes.n_interactions)
        return [{**reports, **training_memory(sizes, self._training, has_trial=self.variant != "published")}]

    # ---- new users ------------------------------------------------------------------------------------------------

    def _serving(self, data: Interactions) -> Self:
        return self._serve(super()._serving(data))

    def _serve(self, model: Any) -> Any:
        """Set the biases and factors of a model's users, as their devices compute them from exact ratings."""
        data = model.interactions_
        counts = data.interactions_per_user()
        users = np.repeat(np.arange(data.n_users), counts)
        # The same shrinkage as in the fit, with the noise-free residual variance of `bias_prior_`.
        values = on_scale(data, self.grid, is_exact=self.variant is None)
        residuals = values - model.mean_ - model.item_biases_[data.indices]
        model.user_biases_ = shrink(np.bincount(users, residuals, minlength=data.n_users), counts, *model.bias_prior_)
        bias_residuals = data._replace(values=residuals - model.user_biases_[users])
        model.user_factors_ = solve_ratings(bias_residuals, model.item_factors_, self._training.regularization)
        return model

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return {**super()._saved_rules(), **BIAS_PRIOR_RULE}
