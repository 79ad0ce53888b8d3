"""Checks of a ledger's budget, and the epsilon that remains."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from fastfedrec.accounting.events import Event
from fastfedrec.accounting.filters import Budget


class BudgetedEvents:
    """Base class of ledgers with the methods that need a budget."""

    budget: Budget | None
    events: Counter[Event]

    def check_budget(self, *plans: Mapping[Event, int]) -> None:
        """Refuse plans that do not fit in the budget, before their first event.

        Parameters
        ----------
        *plans : mapping of event to int
            Alternative plans, each with its events and their numbers of times.

        Raises
        ------
        BudgetError
            A plan would exceed the budget, or has an event without a theorem for its filter.
        """
        if self.budget is not None:
            for plan in plans:
                self.budget.check(self.events, plan)

    def remaining(self, view: str | None = None, *, n_uses: int = 1, use: str = "gaussian") -> float:
        """Compute the epsilon that each of `n_uses` equal further releases may cost within the budget.

        Parameters
        ----------
        view : {"public", "shuffled_server", "server"}, {"local", "shuffle", "central", "aggregator"} or None
            Adversary, or a word for the trusted party; None is the one of the budget.  For another one the figure is
            for the same epsilon and delta, a limit that the ledger does not enforce.
        n_uses : int
            Number of releases, such as the weeks that remain.
        use : {"gaussian", "pure"}
            Kind of the releases: Gaussian noise without sampling, with an epsilon at the ledger's delta, or pure.

        Returns
        -------
        float
            Epsilon of one release in nats, for replacing all data of one user, rounded down; 0 if none fits.  A model
            with an epsilon for another relation (add_remove, zero_out) costs up to twice its epsilon.

        Raises
        ------
        ValueError
            The ledger has no budget.

        Examples
        --------
        >>> from fastfedrec.accounting import Ledger
        >>> ledger = Ledger(delta=1e-6, budget=4.0)
        >>> round(ledger.remaining(), 2), round(ledger.remaining("central", n_uses=4), 2)
        (3.99, 1.85)
        >>> round(ledger.remaining(n_uses=4, use="pure"), 2)
        1.0
        """
        if self.budget is None:
            raise ValueError("`budget` must be set for a remaining epsilon, got None; make the ledger with a budget")
        budget = self.budget if view is None else replace(self.budget, view=view)
        return budget.remaining(self.events, n_uses, use)
