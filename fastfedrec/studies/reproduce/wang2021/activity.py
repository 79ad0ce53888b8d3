"""Wang et al. 2021 (PrivRec): Figure 2, the distribution of the number of items that users visit, and its tail.

The paper draws the distribution on MovieLens, states that Frappe's is similar, and prints no numbers.  These are exact
counts of the data, without training and without privacy.
"""

import itertools
from typing import Any

import numpy as np

from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.studies.files import checksum
from fastfedrec.studies.report import Report, Study

__all__ = ["activity_figure"]

PAPER_CLAIM = "The paper: a long tail; most users visited only a small number of items."
TAIL = 3  # start of the tail as a multiple of the mean; an exponential distribution of any mean has e^-3 above it


def _visited(report: Report) -> np.ndarray:
    """Return the number of visited items of each user."""
    return np.repeat(*(np.array([point[name] for point in report.points]) for name in ("visited", "users")))


def _summarise(report: Report) -> str:
    """Summarise the median, the mean, the busiest tenth and the tail."""
    visited = _visited(report)
    half, mean = np.quantile(visited, 0.5, method="lower"), visited.mean()
    # With fewer than ten users, the busiest tenth is one user.
    busiest = np.sort(visited)[-max(len(visited) // 10, 1) :]
    return (
        f"Half of the users visited at most {half:,} of {report.n_items:,} items; "
        f"the mean is {mean:,.1f}, and {np.mean(visited < mean):.0%} of the users are below it.\n"
        f"The busiest tenth has {busiest.sum() / visited.sum():.0%} of all visits.\n"
        f"Above {TAIL} times the mean are {np.mean(visited > TAIL * mean):.1%} of the users; an exponential "
        f"distribution, which has no long tail, would have {np.exp(-TAIL):.1%}."
    )


def _bins(report: Report) -> list[tuple[int, int, int, float]]:
    """Return the limits, the number of users and their share of bins, each twice as wide as the previous one."""
    visited = _visited(report)
    powers = 2 ** np.arange(int(visited.max()).bit_length() + 1)
    users, _ = np.histogram(visited, bins=powers)
    limits = itertools.pairwise(powers.tolist())
    return [(low, high - 1, n, n / len(visited)) for (low, high), n in zip(limits, users.tolist(), strict=True)]


def _draw(report: Report, figure: Any) -> None:
    figure.set_size_inches(6, 4)
    axes = figure.subplots()
    visited = _visited(report)
    axes.hist(visited, bins=60)
    axes.axvline(visited.mean(), color="black", linestyle=":", label="mean")
    axes.set(xlabel="visited items", ylabel="users")
    axes.legend()


STUDY = Study(
    title="PrivRec, Figure 2: users by number of visited items",
    legend="share: of all users.  These are exact counts of the data, without training and without a guarantee.",
    columns=[("visited items", "{0[0]:,} to {0[1]:,}"), ("users", "{[2]:,}"), ("share", "{[3]:.1%}")],
    verdict=_summarise,
    draw=_draw,
    records=_bins,
    remarks=[PAPER_CLAIM],
)


def activity_figure(data: Interactions | InteractionLog) -> Report:
    """Count users by the number of items that they visited: Figure 2 of the paper.

    Parameters
    ----------
    data : Interactions or InteractionLog
        Data in which every item of a user counts once, independently of ratings and repeated visits.

    Returns
    -------
    Report
        The whole distribution.  `points` have the numbers of "visited" items that occur, ascending, each with its
        number of "users"; `n_items` is the number of items of the catalogue.

    Raises
    ------
    ValueError
        If no user visited any item.

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
    # Users without items are not part of the figure.
    numbers, users = np.unique(counts[counts > 0], return_counts=True)
    points = zip(numbers.tolist(), users.tolist(), strict=True)
    return Report(
        STUDY,
        source=f"The data given: {visited!r}",
        settings={"version": __version__, "data": checksum([visited])},
        n_items=visited.n_items,
        points=tuple({"visited": number, "users": n} for number, n in points),
    )


refuse_old_names(__name__, ActivityFigure="studies.report.Report")
