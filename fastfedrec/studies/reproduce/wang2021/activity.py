"""Wang et al. 2021 (PrivRec): Figure 2, how many items users visit, and whether that is a long tail.

The paper draws the distribution on MovieLens and says that Frappe's is alike; it prints no numbers.  Nothing is trained
here and nothing is private: these are counts of the data themselves.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.studies.reproduce.side_by_side import SideBySide, checksum

__all__ = ["ActivityFigure", "activity_figure"]

FIGURE = "2"
SAID = "The paper: a long tail; most users visited only a small number of items."
TAIL = 3  # times the mean: there an exponential distribution keeps e^-3 of the users, whatever its mean


@dataclass(frozen=True)
class ActivityFigure(SideBySide):
    """Users by the number of items that they visited.

    Parameters
    ----------
    source, settings : object
        As for `SideBySide`.
    n_items : int
        Of the catalogue.
    points : tuple of dict
        "visited" items and "users" that visited so many, ascending; numbers that no user has are left out.
    """

    n_items: int
    points: tuple[dict[str, int], ...]

    title = "PrivRec, Figure 2: users by number of visited items"
    legend = "share: of all users.  Counts of the data themselves: nothing is guaranteed, and nothing was trained."
    remarks = (SAID,)

    @property
    def _visited(self) -> np.ndarray:
        return np.repeat(*(np.array([point[name] for point in self.points]) for name in ("visited", "users")))

    def verdict(self) -> str:
        """Say how long the tail is, and how small a small number.

        Returns
        -------
        str
            Three sentences.
        """
        visited = self._visited
        half, mean = np.quantile(visited, 0.5, method="lower"), visited.mean()
        busiest = np.sort(visited)[-max(len(visited) // 10, 1) :]
        return (
            f"Half of the users visited at most {half:,} of {self.n_items:,} items; "
            f"the mean is {mean:,.1f}, and {np.mean(visited < mean):.0%} of the users are below it.\n"
            f"The busiest tenth has {busiest.sum() / visited.sum():.0%} of all visits.\n"
            f"Above {TAIL} times the mean are {np.mean(visited > TAIL * mean):.1%} of the users; an exponential "
            f"distribution, which has no long tail, would have {np.exp(-TAIL):.1%}."
        )

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        visited = self._visited
        powers = 2 ** np.arange(int(visited.max()).bit_length() + 1)  # each bin twice as wide as the one before
        users, _ = np.histogram(visited, bins=powers)
        body = [
            [f"{low:,} to {high - 1:,}", f"{n:,}", f"{n / len(visited):.1%}"]
            for low, high, n in zip(powers[:-1].tolist(), powers[1:].tolist(), users.tolist(), strict=True)
        ]
        return ["visited items", "users", "share"], body

    def _draw(self, figure: Any) -> None:
        figure.set_size_inches(6, 4)
        axes = figure.subplots()
        axes.hist(self._visited, bins=60)
        axes.axvline(self._visited.mean(), color="black", linestyle=":", label="mean")
        axes.set(xlabel="visited items", ylabel="users")
        axes.legend()


def activity_figure(data: Interactions | InteractionLog) -> ActivityFigure:
    """Count users by the number of items that they visited: Figure 2 of the paper.

    Parameters
    ----------
    data : Interactions or InteractionLog
        Every item counts once for a user, however often it was visited and whatever its rating.

    Returns
    -------
    ActivityFigure
        The whole distribution.

    Raises
    ------
    ValueError
        No user visited anything.

    References
    ----------
    .. [1] Wang, Yin, Chen, et al., "Fast-adapting and privacy-preserving federated recommender system", The VLDB
       Journal, 2021, Figure 2.

    Examples
    --------
    >>> from fastfedrec import Key, datasets
    >>> from fastfedrec.studies.reproduce.wang2021.activity import activity_figure
    >>> found = activity_figure(datasets.generate_implicit(500, 400, key=Key.from_seed(1)))
    >>> print(found.verdict().splitlines()[1])
    The busiest tenth has 24% of all visits.
    """
    if not isinstance(data, Interactions | InteractionLog):
        raise TypeError(f"data must be Interactions or InteractionLog, got {type(data).__name__}")
    visited = data.interactions if isinstance(data, InteractionLog) else data
    counts = visited.interactions_per_user()
    if not counts.any():
        raise ValueError(f"data must have interactions, got {visited!r}")
    numbers, users = np.unique(counts[counts > 0], return_counts=True)
    points = zip(numbers.tolist(), users.tolist(), strict=True)
    return ActivityFigure(
        source=f"The data given: {visited!r}",
        settings={"version": __version__, "data": checksum([visited])},
        n_items=visited.n_items,
        points=tuple({"visited": number, "users": n} for number, n in points),
    )
