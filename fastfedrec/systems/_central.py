"""Models whose server adds Gaussian noise to sums over all users: one budget, one `fit`, a public number of users."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

from fastfedrec.accounting import Ledger, gaussian_mu
from fastfedrec.accounting.rounding import stretched_delta
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.exact_sums import check_summands
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._inputs import check_counts, check_interactions
from fastfedrec.systems._own_rows import OwnRows
from fastfedrec.systems._substitute import all_phases
from fastfedrec.systems._transaction import transactional

_MOST_EPSILON = 1e12  # of a run whose noise stays above the least that LayeredGaussian draws


class CentralModel(OwnRows):
    """A model of sums with noise that cost (`epsilon`, `delta`) together, for all data of one user against none.

    A subclass plans the rounds (`_plan`) and says what is made of them (`_release`).
    """

    _communicates = True
    _most_users: ClassVar[int]  # whose sums stay far from the ends of int64

    epsilon: float
    delta: float
    n_users: int | None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self.epsilon = check_real("epsilon", self.epsilon, low=0.0, high=_MOST_EPSILON, exclusive=True)
        for name in ("delta", "mean_share"):
            if hasattr(self, name):  # not every model releases a mean
                setattr(self, name, check_real(name, getattr(self, name), low=0.0, high=1.0, exclusive=True))
        if self.n_users is not None:
            self.n_users = check_integer("n_users", self.n_users, low=1, high=self._most_users)

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
        """Add up what all users contribute, release the sums with noise, and learn from these alone.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Entries with value 0 are no interactions; values do not matter otherwise, and one below 0 is refused.
        """
        self._check_parameters()
        data = check_interactions(interactions, may_be_empty=True)
        self._check_n_users(data.n_users)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, self.delta)
        phases = self._plan(data, fit.key)  # by its public sizes
        data = check_counts(self, data, is_private=True).binarize()
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        self.ledger_.note(self._claim(data.n_users))
        self._release(fit, data, phases)
        return self

    @abstractmethod
    def _plan(self, data: Interactions, key: Key) -> list[Phase]:
        """Return all rounds, which together cost the budget, by public numbers alone and before any data are read."""

    def _plans(self, phases: list[Phase]) -> list[list[Phase]]:
        """Return the plan, then the plans of equal cost that a release may choose instead."""
        return [phases]

    def _all_phases(self, data: Interactions, key: Key) -> list[Phase]:
        """Return all rounds that users may be asked for: the plan, then those that may come in place of its rest."""
        return all_phases(self._plans(self._plan(data, key)))

    @abstractmethod
    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        """Run the rounds, and set what is made of them; what else the ledger is to say comes before."""

    # ---- the number of users ------------------------------------------------------------------------------------

    def _check_n_users(self, n_users: int) -> None:
        """Refuse more users than sums are exact for, before any of their data are read."""
        check_summands(
            "the number of users in interactions", n_users, n_users, self._most_users, "fit a random part of the users"
        )

    def _public_users(self, data: Interactions) -> int:
        """What sums are divided by: of nobody's data, one."""
        return self.n_users or max(data.n_users, 1)

    def _claim(self, n_in_data: int) -> str:
        """The nominal epsilon; the number of users in the data is told only where it is the one that is used."""
        public = f"its number of users ({self.n_users}) is public"
        if self.n_users is None:
            public = (
                f"its number of users ({n_in_data}) was taken from the data, and is the same in neighbouring data: "
                "that somebody takes part is not hidden"
            )
        return (
            f"{type(self).__name__}: epsilon {self.epsilon:g} at delta {self.delta:g} for one user's data against "
            f"none, the user still counted (zero_out), the whole run together; {public}"
        )

    # ---- what draws take of delta -------------------------------------------------------------------------------

    def _within_delta(self, mu: float, phases_at: Callable[[float], list[Phase]], n_items: int) -> list[Phase]:
        """Rounds whose noise, and whose draws' distance from normal ones, cost no more than delta together.

        `phases_at` makes them of what noise may cost; `mu` is the most of that, were draws free.
        """
        room, phases = 0.0, phases_at(mu)
        while (distance := max(map(sum_distances, self._plans(phases)))) > room:
            room = 2 * distance  # with a little more noise it is about the same
            phases = phases_at(self._mu_beside(room, n_items))
        return phases

    def _mu_beside(self, distance: float, n_items: int) -> float:
        """What noise may cost where its draws are as far as this from normal ones, all rounds together."""
        taken = stretched_delta(distance, self.epsilon)
        if taken >= self.delta / 2:
            # Where e^epsilon times the distance is delta / 2; the distance is no larger at a smaller epsilon.
            enough = 0.99 * math.log(self.delta / 2 / distance)
            if 2 * taken >= 1:
                raise ValueError(
                    f"`epsilon` must be smaller for {n_items} items, got {self.epsilon:g}: the noise would be too far "
                    f"from Gaussian noise. Pass at most {enough:.3g} at delta {self.delta:g}"
                )
            other = f", or an epsilon of at most {enough:.3g}" if enough > 0 else ""
            raise ValueError(
                f"`delta` must be above {2 * taken:g} at epsilon {self.epsilon:g} for {n_items} items, got "
                f"{self.delta:g}; pass a larger delta{other}"
            )
        return gaussian_mu(self.epsilon, self.delta - taken)


def sum_distances(phases: list[Phase]) -> float:
    """How far the draws of all rounds are from normal ones, in total variation."""
    return math.fsum(n_rounds * system.round_event(1).distance for system, _, n_rounds in phases)
