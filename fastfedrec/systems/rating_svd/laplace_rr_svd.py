"""Laplace-RR-SVD: locally private rating collection, then matrix factorisation (Jeyamohan, Chen, Aslam).

Every user sends its ratings once, each through a randomizer on its own device; the server estimates how ratings are
distributed, decodes the reports so that means come out right, and trains.  The published randomizer protects nothing;
the variants that do are exact finite channels.  Corrections: docs/explanation/systems/rating_svd/laplace-rr-svd.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.compute.sgd import MAX_FACTORS
from fastfedrec.core.check import check_choice, check_epsilon, check_flag, check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import Channel, RatedOrNot
from fastfedrec.mechanisms.ratings.bayes_kary import check_prior
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._own_rows import OwnRows
from fastfedrec.systems._saved import SavedModel
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.rating_model import (
    STARS,
    AdditiveModel,
    check_ratings,
    solve_ratings,
    warn_beyond_ends,
    warn_off_grid,
)
from fastfedrec.systems.rating_svd._biases import Biases, fit_biases, fit_hidden_biases, shrink
from fastfedrec.systems.rating_svd._decoder import ReportDecoder
from fastfedrec.systems.rating_svd._factors import Training, fit_published_factors, fit_residual_factors
from fastfedrec.systems.rating_svd.rounds import RatingRounds, RatingState, truth_statement

__all__ = ["LaplaceRRSVD", "RatingState"]

# Chosen on the first two splits of MovieLens 100K, without privacy and at epsilon 2 and 4 a rating.
_AUTO = {
    "ours": Training(20, n_epochs=60, learning_rate=0.04, regularization=0.13),
    "published": Training(20, n_epochs=20, learning_rate=0.02, regularization=0.02),
}
_VARIANTS = ("optimal", "mixture", "serial", "laplace", "published")


@dataclass(repr=False, eq=False)
class LaplaceRRSVD(OwnRows, AdditiveModel, RatingRounds):
    """Matrix factorisation of ratings that were randomized on the users' devices.

    **Guarantee** (every variant but "published" and None).  One rating is `channel`.epsilon-differentially private in
    the local model: any two values of the grid are neighbours ("replace"), the privacy unit is one rating, and nothing
    beyond the user's own device is trusted.  A user's n ratings together cost n times as much.  Which items a user has
    rated is not hidden, and the ledger says so, unless `hide_items`: then everything that a user sends is
    ``n_reports * channel.epsilon``-differentially private for replacing all of that user's data (privacy unit "user").

    Parameters
    ----------
    variant : {"optimal", "mixture", "serial", "laplace", "published"} or None
        The randomizer of one rating.  "optimal": `BayesKary` at ``epsilon_1 + epsilon_2``.  "mixture": the true
        rating as often as that sum allows, else Laplace noise (`MixtureLaplaceRR`).  "serial": noise, then randomized
        response (`SerialLaplaceRR`; its epsilon is below either).  "laplace": noise alone, at the sum
        (`RoundedLaplace`).  "published": as printed, which protects nothing.  None: the ratings as they are.
    epsilon_1, epsilon_2 : float
        Of the Laplace noise and of the randomized response, in nats.
    max_ratings : int or None
        The most ratings that a user sends; of more, so many are drawn uniformly.  A public number: with it a user's
        cost is public as well.
    hide_items : bool
        Every user reports on `n_reports` items drawn without regard to its data, rated or not, through a channel that
        has "not rated" for one more value (`RatedOrNot`).  For "optimal" only.
    n_reports : int
        With `hide_items`: reports of a user; no more than there are items.
    grid : sequence of float
        The ratings there are, increasing, at most 16; public.  A rating off the grid counts as the nearest one on it;
        under a guarantee nothing tells that there was one.  With ``variant=None`` the ends alone count, and ratings
        between them are taken as they are.
    n_factors : int
        Of users and items, on top of the biases; at least 0.  Where held-out reports do not show that they help, they
        are 0; so they are with `hide_items`.
    n_epochs : int or "auto"
        The most epochs of training; held-out reports choose.  "auto" is 60 (published: 20, all of them).
    learning_rate, regularization : float or "auto"
        Of stochastic gradient descent on residuals of variance 1.  "auto" is .04 and .13 (published: .02 and .02, on
        ratings from 0 to 1).
    prior : sequence of float or None
        How often each rating of the grid is expected, from public knowledge and never from the ratings to be collected;
        for "optimal" only, which then tells most about such ratings.  None expects all alike.

    Attributes
    ----------
    channel : Channel or None
        The exact channel of one report, with its `epsilon`; None as published and without privacy.
    mean_ : ndarray of shape (), float64
        After `fit`.
    user_biases_, item_biases_ : ndarray of shape (n_users,) and (n_items,), float64
        What to add to the mean, shrunk by as much as the noise asks for.
    user_factors_, item_factors_ : ndarray of shape (n_users, n_factors) and (n_items, n_factors)
        Their products are added as well.
    bias_prior_ : ndarray of shape (2,), float64
        The variances that a user's bias and the rest of a rating, without any noise, are estimated to have.
    n_epochs_ : int
        For how many epochs the factors were trained; 0 where there are none.
    ledger_ : fastfedrec.accounting.Ledger
        What the fit cost each user.
    communication_ : fastfedrec.accounting.CommunicationLedger
        What each user sent.

    Notes
    -----
    All of the model is computed from the reports, so the guarantee covers it, user biases and factors included.

    Users that `with_users` serves send nothing.  Their devices compute their biases, and factors of least squared error
    with `regularization` for each rating, from their own ratings as they are and the mean, items and prior of this
    model.  That is theirs and costs nobody anything; no guarantee covers it, as it is shown to nobody else.

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

    _communicates = True
    _saved: ClassVar[tuple[str, ...]] = (*AdditiveModel._saved, "bias_prior_")

    variant: str | None = "optimal"
    epsilon_1: float = 1.0
    epsilon_2: float = 1.0
    max_ratings: int | None = None
    hide_items: bool = False
    n_reports: int = 100
    grid: Sequence[float] = STARS
    n_factors: int = 20
    n_epochs: int | str = "auto"
    learning_rate: float | str = "auto"
    regularization: float | str = "auto"
    prior: Sequence[float] | None = None

    def _check_parameters(self) -> None:
        if self.variant is not None:
            self.variant = check_choice("variant", self.variant, _VARIANTS)
        self.epsilon_1 = check_epsilon("epsilon_1", self.epsilon_1)
        self.epsilon_2 = check_epsilon("epsilon_2", self.epsilon_2)
        if self.max_ratings is not None:
            self.max_ratings = check_integer("max_ratings", self.max_ratings, low=1)
        self.hide_items = check_flag("hide_items", self.hide_items)
        if self.hide_items and self.variant != "optimal":
            raise ValueError(f"hide_items needs variant='optimal', got {self.variant!r}: noise has no 'not rated'")
        self.n_reports = check_integer("n_reports", self.n_reports, low=1, high=2**31 - 1)
        self._check_grid(by_ends=self.variant is None)
        if self.prior is not None:
            check_prior("prior", self.prior, len(self.grid))
            self.prior = tuple(check_real("prior", share) for share in self.prior)
            if self.hide_items or self.variant != "optimal":
                raise ValueError("prior needs variant='optimal' and hide_items=False: no other channel has one")
        self.n_factors = check_integer("n_factors", self.n_factors, low=0, high=MAX_FACTORS)
        for name in ("n_epochs", "learning_rate", "regularization"):
            value = getattr(self, name)
            if isinstance(value, str):
                value = check_choice(name, value, ("auto",))
            elif name == "n_epochs":
                value = check_integer(name, value, low=0)
            else:
                value = check_real(name, value, low=0.0, exclusive=name == "learning_rate")
            setattr(self, name, value)

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
    ) -> Self:
        """Collect every user's ratings once, and train on what came.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Ratings as values; every stored one counts, whatever its value.  Under a guarantee data without values are
            not refused, and each counts as 1: whether all ratings are 1 is what no fit may tell.

        Warns
        -----
        UserWarning
            Ratings that are not on the grid (``variant=None``: beyond its ends), in the variants without a guarantee.
        RuntimeWarning
            Training diverged; the last good epoch is kept, and every prediction is finite.
        """
        self._check_parameters()
        data = check_ratings(interactions, is_private=self.channel is not None, min_users=1)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine)
        self._train(self._collect(data, fit), fit.n_threads)
        return self

    def _collect(self, data: Interactions, fit: Fit) -> RatingState:
        """Run the one round."""
        channel = self.channel  # one that cannot be made is refused before anybody is asked
        if self.variant is None:
            warn_beyond_ends(data, self.grid, "count as the nearest of them", stacklevel=4)
        elif channel is None:
            warn_off_grid(data, self.grid, stacklevel=4)
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        self._measure(data)
        self._note_claims(fit.ledger, channel, data.n_users, fit.key)
        ((system, state, _),) = self._plan(data, fit.key)
        return fit.rounds(system, state, data)

    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        return [Phase(self, self.initial_state(data, key))]

    def _note_claims(self, ledger: Ledger, channel: Channel | None, n_users: int, key: Key) -> None:
        """Put into the ledger what the round's own event cannot say."""
        if self.variant == "published":
            ledger.note(truth_statement(self.published_mechanism))
        elif channel is not None and not self.hide_items:
            longest = self._longest or 0
            ledger.record(self.values_event(channel, longest, n_users), simulation=key.is_simulation)
            whose = "any user, by max_ratings" if self.max_ratings is not None else "the user with the most ratings"
            ledger.note(
                f"the figures of the ratings' values are for {whose} ({longest:,}), and for any other values of the "
                "same items: which items a user has rated is not hidden (hide_items=True hides it)"
            )

    # ---- the server's part ----------------------------------------------------------------------------------------

    def _decoder(self, state: RatingState) -> ReportDecoder | None:
        """What makes values of the reports; None where they are values, and where it is hidden what was rated."""
        channel = self.channel
        return None if channel is None or self.hide_items else ReportDecoder(channel, state.reports)

    @property
    def _training(self) -> Training:
        """The settings with "auto" resolved."""
        auto = _AUTO["published" if self.variant == "published" else "ours"]
        given = {name: getattr(self, name) for name in ("n_epochs", "learning_rate", "regularization")}
        chosen = {name: value for name, value in given.items() if not isinstance(value, str)}
        return replace(auto, n_factors=self.n_factors, **chosen)

    def _train(self, state: RatingState, n_threads: int) -> None:
        """Everything from here on looks at the reports only."""
        users, items, decoder = state.users, state.items, self._decoder(state)
        shape = len(state.global_user_ids), state.n_items
        options = (*shape, self._training, Key.from_seed(state.seed), n_threads)
        low, high = self.grid[0], self.grid[-1]
        variance = (high - low) ** 2 / 4  # the most there can be; nothing better is known where items are hidden
        channel = self.channel
        if self.variant == "published":
            biases = Biases(low, np.zeros(shape[0]), np.zeros(shape[1]))
            factors = fit_published_factors(users, items, (state.reports - low) / (high - low), *options)
            factors = (high - low) * factors[0], *factors[1:]
        elif isinstance(channel, RatedOrNot):
            rated, products = channel.estimate_rated(state.reports), channel.estimate(state.reports)
            biases = fit_hidden_biases(users, items, rated, products, *shape, scale=(low, high))
            factors = np.zeros((shape[0], 0)), np.zeros((shape[1], 0)), 0
        else:
            values = state.reports if decoder is None else decoder.decode()
            variance = decoder.variance if decoder is not None else float(values.var()) if len(values) else 0.0
            biases = fit_biases(users, items, values, *shape, n_threads)
            if decoder is not None:
                values = decoder.decode_near(biases.mean + biases.users[users] + biases.items[items])
                biases = fit_biases(users, items, values, *shape, n_threads)
            residuals = values - biases.mean - biases.users[users] - biases.items[items]
            factors = fit_residual_factors(users, items, residuals, *options)
        self.mean_, self.user_biases_, self.item_biases_ = np.array(biases.mean), biases.users, biases.items
        self.user_factors_, self.item_factors_, self.n_epochs_ = factors
        self.bias_prior_: NDArray[np.float64] = np.array([biases.spreads[0], max(variance - sum(biases.spreads), 0.0)])

    # ---- users who were not there ---------------------------------------------------------------------------------

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data  # whose ratings may all be 1: that is not to decide whether a user is served, or a node takes part

    def _serving(self, data: Interactions) -> Self:
        model = super()._serving(data)
        counts = data.interactions_per_user()
        users = np.repeat(np.arange(data.n_users), counts)
        residuals = self._on_scale(data) - self.mean_ - self.item_biases_[data.indices]
        model.user_biases_ = shrink(np.bincount(users, residuals, minlength=data.n_users), counts, *self.bias_prior_)
        rest = data._replace(values=residuals - model.user_biases_[users])
        model.user_factors_ = solve_ratings(rest, self.item_factors_, self._training.regularization)
        return model

    def _header(self) -> dict[str, Any]:
        return super()._header() | {"n_epochs": self.n_epochs_}

    def _read_header(self, saved: SavedModel) -> None:
        super()._read_header(saved)
        self.n_epochs_ = saved.integer("n_epochs", low=0)

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return {**super()._saved_rules(), "bias_prior_": ArrayRule(np.float64, (2,), 0.0)}
