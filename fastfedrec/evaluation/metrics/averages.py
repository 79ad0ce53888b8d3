"""Average of the results of several fits on one test."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastfedrec.core.check import check_instance
from fastfedrec.evaluation.metrics.results import Evaluation

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
        Means over the fits, for each user and in all.  The RMSE is the root of the mean squared error of all fits.

    Raises
    ------
    ValueError
        There is no result, or two results are of different tests or metrics.

    Notes
    -----
    Intervals and paired tests of the average describe the variation between users; the variation between fits is
    averaged and not shown.

    Examples
    --------
    >>> from fastfedrec import Key, datasets
    >>> from fastfedrec.evaluation import LeaveOneOut, evaluate
    >>> from fastfedrec.evaluation.metrics.averages import average_fits
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
    user_values = {
        name: replace(values, values=np.mean([result.user_values[name].values for result in results], axis=0))
        for name, values in first.user_values.items()
    }
    means = {
        name: user_values[name].mean if name in user_values else statistics.fmean(result[name] for result in results)
        for name in first
    }
    return replace(first, means=means, user_values=user_values)
