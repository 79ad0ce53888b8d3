"""The cells of a sweep: one setting over all its seeds; what is better than what; the front of each trust model."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.evaluation.metrics.resampling import share_error

__all__ = ["Cell", "is_better", "margin", "pareto_front"]

SAME_EPSILON = 1.01  # costs within one percent of the least count as equal


@dataclass(frozen=True)
class Cell:
    """One setting of one system, over its seeds.

    Parameters
    ----------
    system : str
        Name of the class.
    parameters : dict
        Those that were given; all others have their defaults.
    seeds : tuple of int
        That were finished.
    metrics : dict
        For each metric its values by seed.
    n_tested : int
        Users who were tested under one seed, at least.
    epsilon : dict
        True cost of the whole run by view, in nats, for replacing all data of one user; the largest over seeds;
        infinite where nothing is guaranteed.
    delta : float
        At which that is stated.
    trust : tuple of str
        Whom the events of the ledger trust.
    bytes_per_client : dict or None
        Download and upload; None where nothing was counted.
    seconds : float
        Of a fit, on average.
    is_baseline : bool
        Whether it was added for comparison.
    """

    system: str
    parameters: dict[str, Any]
    seeds: tuple[int, ...]
    metrics: dict[str, tuple[float, ...]]
    n_tested: int
    epsilon: dict[str, float]
    delta: float
    trust: tuple[str, ...]
    bytes_per_client: dict[str, int] | None
    seconds: float
    is_baseline: bool = False

    @property
    def label(self) -> str:
        """System and given parameters."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{self.system}({given})"

    @property
    def is_private(self) -> bool:
        """Whether it has a finite guarantee in any trust model."""
        return any(self.true_epsilon(trust) < math.inf for trust in TRUST_VIEWS)

    def mean(self, metric: str) -> float:
        """Average over seeds.

        Parameters
        ----------
        metric : str
            One that was measured.

        Returns
        -------
        float
            Between 0 and 1.
        """
        return statistics.fmean(self.metrics[metric])

    def std(self, metric: str) -> float | None:
        """Standard deviation over seeds.

        Parameters
        ----------
        metric : str
            One that was measured.

        Returns
        -------
        float or None
            None with a single seed.
        """
        values = self.metrics[metric]
        return statistics.stdev(values) if len(values) > 1 else None

    def error(self, metric: str) -> float:
        """How far the mean may be off.

        Parameters
        ----------
        metric : str
            One that was measured.

        Returns
        -------
        float
            As `share_error`.
        """
        return share_error(self.metrics[metric], self.n_tested)

    def true_epsilon(self, trust: str) -> float:
        """What a user pays where no more than this is trusted.

        Parameters
        ----------
        trust : {"local", "shuffle", "central"}
            Whom.

        Returns
        -------
        float
            Infinite where nothing is guaranteed then.  What rests on trust in an entity, which is neither the user's
            own device nor a shuffler, counts with a trusted server only.
        """
        if trust != "central" and "entity" in self.trust:
            return math.inf
        return self.epsilon[TRUST_VIEWS[trust]]


def margin(a: Cell, b: Cell, metric: str) -> float:
    """What two cells may differ by for no other reason than chance.

    Parameters
    ----------
    a, b : Cell
        Of one data set.
    metric : str
        That both have.

    Returns
    -------
    float
        Two standard errors of the difference, as if the two had been tested on other people; for the same people it is
        too wide rather than too narrow.
    """
    return 2 * math.hypot(a.error(metric), b.error(metric))


def is_better(a: Cell, b: Cell, metric: str) -> bool:
    """Whether one cell is better than another by more than chance explains.

    Parameters
    ----------
    a, b : Cell
        Of one data set.
    metric : str
        That both have.

    Returns
    -------
    bool
        False for ties.
    """
    return a.mean(metric) - b.mean(metric) > margin(a, b, metric)


def pareto_front(cells: Sequence[Cell], trust: str, metric: str) -> list[Cell]:
    """Cells that nothing cheaper equals, and nothing of the same cost beats.

    Parameters
    ----------
    cells : sequence of Cell
        Of one data set, all systems together.
    trust : {"local", "shuffle", "central"}
        All costs are against the same adversary, and for the same unit: replacing all data of one user.
    metric : str
        More is better.

    Returns
    -------
    list of Cell
        By true epsilon.  Going up, a cell is added only where it is better by more than chance explains than every cell
        that is there already and costs less; of several at one cost (within a percent) those are added that are not
        worse than the best of them by more than that.
    """
    paid: list[tuple[float, Cell]] = []
    for cell in cells:
        epsilon = cell.true_epsilon(trust)
        if epsilon < math.inf:
            paid.append((epsilon, cell))
    paid.sort(key=lambda entry: entry[0])
    front: list[Cell] = []
    while paid:
        n = sum(epsilon <= SAME_EPSILON * paid[0][0] for epsilon, _ in paid)
        group, paid = [cell for _, cell in paid[:n]], paid[n:]
        better = [cell for cell in group if all(is_better(cell, other, metric) for other in front)]
        best = max(better, key=lambda cell: cell.mean(metric), default=None)
        if best is not None:
            front += [cell for cell in better if not is_better(best, cell, metric)]
    return front
