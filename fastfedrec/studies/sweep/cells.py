"""The cells of a sweep: one setting over all its seeds, comparisons of cells, and the front of each trust model."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastfedrec.accounting.views import TRUST_VIEWS, View, epsilon_under
from fastfedrec.evaluation.metrics.resampling import share_error

__all__ = ["Cell", "best_cells", "chosen_cells", "is_better", "label_of", "margin", "pareto_front", "trusts_of"]

SAME_EPSILON = 1.01  # ratio to the smallest cost of a group up to which costs count as equal


@dataclass(frozen=True)
class Cell:
    """One setting of one system, over its seeds.

    Parameters
    ----------
    system : str
        Name of the system's class.
    parameters : dict
        Given parameters; all remaining ones have their defaults.
    seeds : tuple of int
        Seeds of the finished runs.
    metrics : dict
        Values of each metric, one per seed.
    n_tested : int
        Smallest number of tested users over the seeds.
    epsilon : dict
        True cost of the whole run by view, in nats, for replacing all data of one user.  It is the maximum over seeds,
        and infinite without a guarantee.
    delta : float
        Delta of these epsilons.
    trust : tuple of str
        Parties that the events of the ledger trust.
    bytes_per_client : dict or None
        Bytes of download and upload; None if no communication was counted.
    seconds : float
        Mean duration of a fit, in seconds.
    is_baseline : bool
        Whether the cell was added for comparison.
    """

    system: str
    parameters: dict[str, Any]
    seeds: tuple[int, ...]
    metrics: dict[str, tuple[float, ...]]
    n_tested: int
    epsilon: dict[View, float]
    delta: float
    trust: tuple[str, ...]
    bytes_per_client: dict[str, int] | None
    seconds: float
    is_baseline: bool = False

    @property
    def label(self) -> str:
        """System and given parameters."""
        return label_of(self.system, self.parameters)

    @property
    def is_private(self) -> bool:
        """Whether the cell has a finite guarantee in any trust model."""
        return any(self.true_epsilon(trust) < math.inf for trust in TRUST_VIEWS)

    def mean(self, metric: str) -> float:
        """Return the mean over seeds.

        Parameters
        ----------
        metric : str
            Name of a measured metric.

        Returns
        -------
        float
            Mean, between 0 and 1.
        """
        return statistics.fmean(self.metrics[metric])

    def std(self, metric: str) -> float | None:
        """Return the standard deviation over seeds.

        Parameters
        ----------
        metric : str
            Name of a measured metric.

        Returns
        -------
        float or None
            Standard deviation; None with a single seed.
        """
        values = self.metrics[metric]
        return statistics.stdev(values) if len(values) > 1 else None

    def error(self, metric: str) -> float:
        """Return the standard error of the mean.

        Parameters
        ----------
        metric : str
            Name of a measured metric.

        Returns
        -------
        float
            Standard error by `share_error`.
        """
        return share_error(self.metrics[metric], self.n_tested)

    def true_epsilon(self, trust: str) -> float:
        """Return a user's true privacy cost in a trust model.

        Parameters
        ----------
        trust : {"local", "shuffle", "central", "aggregator"}
            Trust model.

        Returns
        -------
        float
            Epsilon in nats; infinite if the trust model has no guarantee.  A guarantee that depends on trust in an
            entity, which is neither the user's device nor a shuffler, counts only with a trusted server.  One that
            depends on honest nodes counts only with an aggregator or a trusted server.
        """
        return epsilon_under(trust, self.epsilon, self.trust)


def trusts_of(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return the trust models in which cells are compared.

    Parameters
    ----------
    cells : sequence of Cell
        Cells of one data set.

    Returns
    -------
    tuple of str
        "local", "shuffle" and "central", and "aggregator" if a cell depends on honest nodes.
    """
    has_nodes = any("aggregator" in cell.trust for cell in cells)
    return tuple(trust for trust in TRUST_VIEWS if has_nodes or trust != "aggregator")


def label_of(system: str, parameters: Mapping[str, Any]) -> str:
    """Return the label of a setting.

    Parameters
    ----------
    system : str
        Name of the system's class.
    parameters : mapping
        Given parameters.

    Returns
    -------
    str
        Text such as "DPGram(epsilon=1.0)".
    """
    return f"{system}({', '.join(f'{name}={value!r}' for name, value in parameters.items())})"


def best_cells(cells: Sequence[Cell], metric: str) -> list[Cell]:
    """Return the best cell of each system.

    Parameters
    ----------
    cells : sequence of Cell
        Cells of one data set, of all systems.
    metric : str
        Name of a metric; a larger value is better.

    Returns
    -------
    list of Cell
        One cell for each system, in the order of the systems; the first one of equal cells.
    """
    systems = dict.fromkeys(cell.system for cell in cells)
    return [
        max((cell for cell in cells if cell.system == system), key=lambda cell: cell.mean(metric)) for system in systems
    ]


def chosen_cells(cells: Sequence[Cell], metric: str) -> list[Cell]:
    """Return the best cell of each system and the cells on the front of any trust model.

    Parameters
    ----------
    cells : sequence of Cell
        Cells of one data set, of all systems.
    metric : str
        Name of a metric; a larger value is better.

    Returns
    -------
    list of Cell
        Distinct cells in their order.
    """
    fronts = [cell for trust in trusts_of(cells) for cell in pareto_front(cells, trust, metric)]
    chosen = {id(cell) for cell in [*best_cells(cells, metric), *fronts]}
    return [cell for cell in cells if id(cell) in chosen]


def margin(a: Cell, b: Cell, metric: str) -> float:
    """Return the largest difference of two cells that chance explains.

    Parameters
    ----------
    a, b : Cell
        Cells of one data set.
    metric : str
        Name of a metric that both cells have.

    Returns
    -------
    float
        Two standard errors of the difference, as if the two cells were tested on different users.  For the same users
        the margin is too wide rather than too narrow.
    """
    return 2 * math.hypot(a.error(metric), b.error(metric))


def is_better(a: Cell, b: Cell, metric: str) -> bool:
    """Return whether one cell is better than another by more than chance explains.

    Parameters
    ----------
    a, b : Cell
        Cells of one data set.
    metric : str
        Name of a metric that both cells have.

    Returns
    -------
    bool
        Whether `a` is better; False for ties.
    """
    return a.mean(metric) - b.mean(metric) > margin(a, b, metric)


def pareto_front(cells: Sequence[Cell], trust: str, metric: str) -> list[Cell]:
    """Return the Pareto front: cells that no cheaper cell equals, and that no cell of the same cost beats.

    Parameters
    ----------
    cells : sequence of Cell
        Cells of one data set, of all systems.
    trust : {"local", "shuffle", "central", "aggregator"}
        Trust model.  All costs are against the same adversary, and for replacing all data of one user.
    metric : str
        Name of a metric; a larger value is better.

    Returns
    -------
    list of Cell
        Cells of the front by ascending true epsilon.  A cell is added only if it is better than every cheaper cell of
        the front by more than chance explains.  Of several cells at one cost (within one percent), those are added that
        are not worse than the best of them by more than chance explains.
    """
    costs: list[tuple[float, Cell]] = []
    for cell in cells:
        epsilon = cell.true_epsilon(trust)
        if epsilon < math.inf:
            costs.append((epsilon, cell))
    costs.sort(key=lambda entry: entry[0])
    front: list[Cell] = []
    while costs:
        # A group holds all cells of about the cost of the cheapest remaining cell.
        n = sum(epsilon <= SAME_EPSILON * costs[0][0] for epsilon, _ in costs)
        group, costs = [cell for _, cell in costs[:n]], costs[n:]
        # A cell must beat all cheaper cells of the front.
        better = [cell for cell in group if all(is_better(cell, other, metric) for other in front)]
        best = max(better, key=lambda cell: cell.mean(metric), default=None)
        if best is not None:
            # Chance may explain the difference between these cells and the best one of the group.
            front += [cell for cell in better if not is_better(best, cell, metric)]
    return front
