"""Average of the results of several fits on one test."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastfedrec.core.check import check_instance
from fastfedrec.evaluation.metrics.results import Evaluation
from fastfedrec.evaluation.metrics.user_values import UserValues

__all__ = ["average_fits"]


def average_fits(results: Sequence[Evaluation]) -> Evaluation:
    """Average the results of several fits of one model, such as with several keys, on the same test.

    Parameters
    ----------
    results : sequence of Evaluation
        At least one result; all have the same users, test interactions, candidates and metrics.

    Returns
    -------
    Evaluation
        Means over the fits, for each user and in all, without `per_item`; `fits` has the results.  The RMSE is the
        root of the mean squared error of all fits.

    Raises
    ------
    ValueError
        There is no result, or two results are of different tests or metrics.

    Notes
    -----
    Intervals and paired tests of the average cover the choice of users and the variation between fits.

    Examples
    --------
    >>> from fastfedrec import Key, datasets
    >>> from fastfedrec.evaluation import LeaveOneOut, evaluate
    >>> from fastfedrec.evaluation import average_fits
    >>> from fastfedrec.systems.baselines.popularity import Random
    >>> data = datasets.generate_implicit(200, 40, key=Key.from_seed(1))
    >>> [split] = LeaveOneOut().split(data, key=Key.from_seed(2))
    >>> fits = [
    ...     evaluate(Random().fit(split.train, key=Key.from_seed(n)), split.train, split.test, metrics=["ndcg@10"])
    ...     for n in range(3)
    ... ]
    >>> average = average_fits(fits)
    >>> min(fit["ndcg@10"] for fit in fits) < average["ndcg@10"] < max(fit["ndcg@10"] for fit in fits)
    True
    """
    if not results:
        raise ValueError("results must hold at least one result, got none; add one")
    for number, result in enumerate(results):
        check_instance(f"results[{number}]", result, Evaluation, "use evaluation.evaluate")
    first, *others = results
    for number, other in enumerate(others, start=1):
        if (other.digests, other.metrics) != (first.digests, first.metrics):
            raise ValueError(
                f"results must be of one test and of the same metrics, and results[{number}] differs from results[0]; "
                "evaluate all fits with the same train, test, metrics and key"
            )
    if not others:
        return first
    user_values = {name: _average([result.user_values[name] for result in results]) for name in first.user_values}
    means = {
        name: user_values[name].mean if name in user_values else statistics.fmean(result[name] for result in results)
        for name in first
    }
    return replace(first, means=means, user_values=user_values, per_item=None, fits=tuple(results))


def _average(fits: Sequence[UserValues]) -> UserValues:
    """Return means over fits by user; a fit without a value for a user does not count for this user."""
    sums, weights = np.mean([fit.columns for fit in fits], axis=0).T
    values = np.divide(sums, weights, out=np.full(len(sums), np.nan), where=weights > 0)
    is_weighted = any(fit.weights is not None for fit in fits)
    return replace(fits[0], values=values, weights=weights if is_weighted else None)
