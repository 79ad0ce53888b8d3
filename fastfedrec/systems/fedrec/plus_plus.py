"""FedRec++: FedRec with virtual ratings that are removed from the sums, exactly to the bit (Liang, Pan, Ming 2021).

Some users are denoisers.  Each receives messages of the users it serves, and sends sums, which the server subtracts.
The remainder are the gradients of rated items.  docs/explanation/systems/fedrec/fedrec.md lists corrections.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Gaussian, Unprotected
from fastfedrec.core.parameters import choice, declares_parameters, integer
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import Update
from fastfedrec.systems.fedrec._views import ADDITIVE, PUBLISHED
from fastfedrec.systems.fedrec.devices import count_raters
from fastfedrec.systems.fedrec.model import FedRec
from fastfedrec.systems.fedrec.rounds import FedRecState

__all__ = ["FedRecPlusPlus"]

_DEAL = "fedrec.denoisers"


@declares_parameters
class _Denoising:
    """The parameters of denoisers."""

    n_denoisers: int = integer(1, low=1).doc("""
        Number of denoisers, which the server draws from the users; the other users are divided among them evenly.""")
    sharing: str = choice("additive", ("additive", "published")).doc("""
        "additive": virtual items are drawn once, and for each reported item the server and the denoiser get shares
        that are each uniform; a denoiser keeps its own share.  "published": as in the paper, the server gets every
        gradient and a denoiser the virtual ones, and virtual items are drawn anew in each round.""")
    min_clients_per_denoiser: int = integer(100, low=1).doc("""
        With "additive" and several denoisers: smallest number of users, including the denoiser, in the sum of one
        denoiser; a fit with fewer users per denoiser is refused.""")
    fill_by: str = choice("uniform", ("uniform", "popularity")).doc("""
        Distribution of unrated items: uniform, or proportional to the numbers of raters, which the server knows
        anyway.""")


# `dataclass` puts the parameters of the last base, `_Denoising`, first.
@declares_parameters
class FedRecPlusPlus(FedRec, _Denoising):
    """FedRec without the loss of accuracy: the same bits as ``FedRec(rho=0)`` for any virtual items.

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

    _fields = ("server", "denoisers")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.fill_by == "popularity" and self.clip_norm is not None:
            raise ValueError(
                "fill_by must be 'uniform' with clip_norm, got 'popularity': exact counts of all users' items would "
                "decide the messages"
            )
        if self.fill_by == "popularity" and self.filling != "hybrid":
            raise ValueError("fill_by='popularity' needs filling='hybrid'; randomized response has no weights")

    def _objection_to_nodes(self) -> str | None:
        objection = super()._objection_to_nodes()
        if objection is None and self.fill_by != "uniform":
            return "fill_by must be 'uniform': fit counts raters in all data"
        return objection

    @property
    def _sharing(self) -> int:  # type: ignore[override]
        return ADDITIVE if self.sharing == "additive" else PUBLISHED

    @property
    def _redraws(self) -> bool:  # type: ignore[override]
        return self.sharing == "published"

    def initial_state(self, interactions: Interactions, key: Key) -> FedRecState:
        """Return the server's first state, with a denoiser for every user.

        Parameters
        ----------
        interactions : Interactions
            Data with all users and the catalogue; "popularity" counts each item's raters.
        key : Key
            Source of the first factors, of the public seed, and of the server's noise.

        Returns
        -------
        FedRecState
            State with a denoiser for every user.
        """
        n_users, weights = interactions.n_users, np.zeros(0)
        if self.n_denoisers > n_users:
            raise ValueError(f"n_denoisers must be at most the number of users, {n_users}, got {self.n_denoisers}")
        is_below_minimum = n_users // self.n_denoisers < self.min_clients_per_denoiser
        if self.sharing == "additive" and is_below_minimum and self.n_denoisers > 1:
            raise ValueError(
                f"n_denoisers={self.n_denoisers} leaves {n_users // self.n_denoisers} of {n_users} users to each, and "
                f"min_clients_per_denoiser is {self.min_clients_per_denoiser}: sums over few users reveal single "
                "users; lower n_denoisers"
            )
        state = super().initial_state(interactions, key)
        order = Key.from_seed(state.seed).permutation(_DEAL, size=n_users)
        denoisers = np.empty(n_users, dtype=np.uint64)
        # Dealt out in turn in a random order, so that the groups differ by one user at most.
        denoisers[order] = interactions.global_user_ids[order[np.arange(n_users) % self.n_denoisers]]
        if self.fill_by == "popularity":
            weights = count_raters(interactions, None, key, 1).astype(np.float64)
        return replace(state, denoisers=denoisers, weights=weights)

    def real_sums(self, update: Update) -> NDArray[np.int64]:
        """Subtract the denoisers' sums from the server's: each item's sum of gradients over users who rated it.

        Parameters
        ----------
        update : Update
            Sum over all shards.

        Returns
        -------
        ndarray of shape (n_items, n_factors + 1), int64
            Exact sums; the count of raters is the last column.
        """
        return (update.arrays["server"] - update.arrays["denoisers"]).view(np.int64)

    def round_event(self, n_clients: int) -> Gaussian | Unprotected:
        """Return the event of one round.

        Parameters
        ----------
        n_clients : int
            Number of users in the run.

        Returns
        -------
        Gaussian or Unprotected
            Gaussian with central privacy.
        """
        if self.clip_norm is None and self._sharing == ADDITIVE:
            items = "" if self.filling == "randomized_response" else ", and which items each user speaks of"
            return Unprotected("exact sums of gradients and counts of raters" + items)
        return super().round_event(n_clients)

    # ---- the ledgers --------------------------------------------------------------------------------------------

    def _expected_sent(self, data: Interactions) -> float:
        reported = super()._expected_sent(data)
        # Additive sharing sends each vector to both parties; the published variant sends the virtual ones twice.
        if self.sharing == "additive":
            return 2 * reported
        keep_chance = 1.0 if self._chances is None else self._chances[1]
        rated = 0.0 if self.clip_norm is not None else float(data.interactions_per_user().mean())
        return 2 * reported - keep_chance * rated

    def _not_protected(self, data: Interactions, state: FedRecState) -> list[str]:
        fewest = data.n_users // self.n_denoisers
        share = f"; {self.client_share * fewest:.3g} of them in a round, on average" if self.client_share < 1 else ""
        groups = (
            f"a denoiser adds up what {fewest} users or more sent, itself among them{share}; if its sum is seen alone, "
            "items that one of them alone speaks of are told (attacks.group_sums)"
        )
        if self.sharing == "published":
            collusion = (
                "a server that colludes with denoisers finds the virtual items by their values, whether or not users "
                "are anonymous to them (attacks.value_matching)"
            )
            return [*super()._not_protected(data, state), collusion, groups]
        return [
            "against the server and the denoisers together nothing holds: both get the same share of a virtual item "
            "(attacks.value_matching)",
            "which items a user speaks of is open to the server, rated or not; what is popular is rather rated "
            "(attacks.popularity)",
            "the sums of gradients and the counts of raters of every item, in every round, are exact",
            groups,
            "shares must reach denoisers encrypted for them, and the server must see no denoiser's sum alone where few "
            "users are behind it; here both are simulated in one process",
        ]
