"""Several models on one test: which differences are more than chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fastfedrec.core.check import check_instance, check_integer, check_real
from fastfedrec.core.html import html_card, html_table
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.text import format_table
from fastfedrec.evaluation.metrics import tables
from fastfedrec.evaluation.metrics.resampling import holm, sign_test
from fastfedrec.evaluation.metrics.results import Evaluation

__all__ = ["Comparison", "PairedTest", "compare"]


@dataclass(frozen=True)
class PairedTest:
    """One metric of two models on the same users.

    Parameters
    ----------
    metric : str
        Its name.
    first, second : str
        Names of the models.
    difference : float
        The metric of the first minus that of the second.
    p_value : float
        Of the paired permutation test.
    p_holm : float
        The same, corrected for all tests of the comparison.
    """

    metric: str
    first: str
    second: str
    difference: float
    p_value: float
    p_holm: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Results of several models with intervals, and paired tests of all their differences.

    Parameters
    ----------
    results : dict of str to Evaluation
        By name.
    intervals : dict of str to dict of str to (float, float)
        95% bootstrap intervals, by name and metric.
    tests : tuple of PairedTest
        Each metric of each pair.
    """

    results: dict[str, Evaluation]
    intervals: dict[str, dict[str, tuple[float, float]]]
    tests: tuple[PairedTest, ...]

    def to_frame(self, *, library: str = "pandas") -> Any:
        """The metrics of all models: a row for each model and metric.

        Parameters
        ----------
        library : {"pandas", "polars"}
            Whose frame; imported when it is used.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            Columns "model", "metric", "value", "low" and "high".
        """
        rows = [
            (name, metric, value, *self.intervals[name][metric])
            for name, result in self.results.items()
            for metric, value in result.items()
        ]
        names = ("model", "metric", "value", "low", "high")
        return tables.to_frame(dict(zip(names, zip(*rows, strict=True), strict=True)), library)

    def tests_to_frame(self, *, library: str = "pandas") -> Any:
        """The paired tests: a row for each.

        Parameters
        ----------
        library : {"pandas", "polars"}
            Whose frame; imported when it is used.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            Columns as `PairedTest` has fields.
        """
        return tables.to_frame(self._test_columns(), library)

    def summary(self) -> str:
        """Lay out the metrics with their intervals as plain text, and say whom the tests tell from the best.

        Returns
        -------
        str
            A table, a row for each model, and a line for each metric.
        """
        columns = self._columns("to")
        return "\n".join([format_table(list(columns), zip(*columns.values(), strict=True)), "", *self.verdicts()])

    def verdicts(self, level: float = 0.05) -> list[str]:
        """Say which model is best by each metric, and which others may be as good.

        Parameters
        ----------
        level : float
            Of the paired tests, after Holm's correction; in (0, 1).

        Returns
        -------
        list of str
            A line for each metric that has tests.
        """
        level = check_real("level", level, low=0.0, high=1.0, exclusive=True)
        found = []
        tested = dict.fromkeys(test.metric for test in self.tests)
        for metric, less in ((m.name, m.less_is_better) for m in next(iter(self.results.values())).metrics):
            if metric not in tested:
                continue
            best = (min if less else max)(self.results, key=lambda name: self.results[name][metric])
            of_best = [test for test in self.tests if test.metric == metric and best in (test.first, test.second)]
            equals = [
                f"{test.second if test.first == best else test.first} (p {tables.show(test.p_holm)})"
                for test in of_best
                if test.p_holm >= level
            ]
            rest = f"no more than chance ahead of {', '.join(equals)}" if equals else "by more than chance"
            found.append(f"{metric}: {best} is best, {rest}")
        return found

    def to_markdown(self) -> str:
        """Two tables in Markdown: models by metrics with intervals, and the paired tests.

        Returns
        -------
        str
            Without a final newline.
        """
        return "\n\n".join(tables.to_markdown(columns) for columns in (self._columns("to"), self._test_columns()))

    def to_latex(self) -> str:
        """The same as two LaTeX tabulars, with the rules of booktabs.

        Returns
        -------
        str
            Without a final newline.
        """
        return "\n\n".join(tables.to_latex(columns) for columns in (self._columns("--"), self._test_columns()))

    def to_json(self) -> str:
        """Everything that is known of the results and tests, as JSON.

        Returns
        -------
        str
            An object.
        """
        results = {
            name: {
                "model": result.model,
                "split": result.split,
                "protocol": result.protocol,
                "n_users": result.n_users,
                "metrics": {
                    metric: dict(zip(("value", "low", "high"), (value, *self.intervals[name][metric]), strict=True))
                    for metric, value in result.items()
                },
            }
            for name, result in self.results.items()
        }
        return tables.to_json({"results": results, "tests": [vars(test) for test in self.tests]})

    def _columns(self, dash: str) -> dict[str, list[str]]:
        def cell(name: str, metric: str) -> str:
            return tables.show_interval(self.results[name][metric], self.intervals[name][metric], dash)

        metrics = list(next(iter(self.results.values())))
        return {"model": list(self.results)} | {m: [cell(name, m) for name in self.results] for m in metrics}

    def _test_columns(self) -> dict[str, list[Any]]:
        names = list(PairedTest.__annotations__)
        return {name: [getattr(test, name) for test in self.tests] for name in names}

    def _repr_html_(self) -> str:
        parts = (columns for columns in (self._columns("to"), self._test_columns()) if columns)
        shown = [html_table(tuple(part), zip(*part.values(), strict=True)) for part in parts]
        return html_card(f"Comparison of {', '.join(self.results)}", {}, *shown)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.results)}: {len(self.tests)} paired tests>"


def compare(
    results: Mapping[str, Evaluation] | Sequence[Evaluation],
    *,
    n_permutations: int = 10_000,
    n_resamples: int = 1000,
    key: Key | None = None,
) -> Comparison:
    """Compare models that were evaluated on the same test: every metric of every pair.

    Parameters
    ----------
    results : mapping of str to Evaluation, or sequence of Evaluation
        Two at least, of the same users, metrics and protocol.  A sequence takes the names of the models' classes.
    n_permutations : int
        Exchanges of the two models that are drawn for each test, a user at a time; where there are not more than that
        all are taken.
    n_resamples : int
        Of the bootstrap intervals.
    key : Key or None
        Source of the draws; None draws a new entropy key.

    Returns
    -------
    Comparison
        Coverage and Gini have no tests: they are not means over users.

    Raises
    ------
    ValueError
        Fewer than two results, two of one name, or of different users, metrics or protocols.

    Notes
    -----
    The null hypothesis of a test is that the two models could be exchanged for each user; its statistic is the sum of
    the users' differences (of weighted squared errors for RMSE).  Holm's correction covers all tests of the comparison.
    What is compared are two fitted models, not two ways of training: other seeds and other splits are not in the
    p-value.

    References
    ----------
    .. [1] Smucker, Allan, Carterette, "A comparison of statistical significance tests for information retrieval
       evaluation", CIKM 2007.

    Examples
    --------
    >>> from fastfedrec import Key, Popularity, datasets
    >>> from fastfedrec.evaluation import LeaveOneOut, compare, evaluate
    >>> from fastfedrec.systems.baselines.popularity import Random
    >>> data = datasets.generate_implicit(200, 40, key=Key.from_seed(1))
    >>> [split] = LeaveOneOut().split(data, key=Key.from_seed(2))
    >>> results = [
    ...     evaluate(model.fit(split.train, key=Key.from_seed(3)), split.train, split.test, metrics=["ndcg@10"])
    ...     for model in (Popularity(), Random())
    ... ]
    >>> [test] = compare(results, key=Key.from_seed(4)).tests
    >>> test.first, test.second, test.difference > 0, test.p_holm < 0.01
    ('Popularity', 'Random', True, True)
    """
    named = _named(results)
    n_permutations = check_integer("n_permutations", n_permutations, low=1)
    key = resolve_key(key)
    _check_alike(named)
    intervals = {name: result.intervals(n_resamples=n_resamples, key=key) for name, result in named.items()}
    asked = [
        (metric, first, second)
        for metric in next(iter(named.values())).of_users
        for first, second in combinations(named, 2)
    ]
    if not asked:
        return Comparison(named, intervals, ())
    differences = np.column_stack(
        [named[a].of_users[m].columns[:, 0] - named[b].of_users[m].columns[:, 0] for m, a, b in asked]
    )
    p_values = sign_test(differences, n_permutations, key)
    tests = tuple(
        PairedTest(m, a, b, named[a][m] - named[b][m], float(p), float(corrected))
        for (m, a, b), p, corrected in zip(asked, p_values, holm(p_values), strict=True)
    )
    return Comparison(named, intervals, tests)


def _named(results: Mapping[str, Evaluation] | Sequence[Evaluation]) -> dict[str, Evaluation]:
    if isinstance(results, Evaluation):
        raise TypeError("results must hold two results at least, got one; pass [first, second]")
    if isinstance(results, Mapping):
        named = {str(name): result for name, result in results.items()}
        if len(named) < len(results):
            raise ValueError(f"results must have distinct names, got {list(results)}")
    else:
        results = list(results)
        for place, result in enumerate(results):
            check_instance(f"results[{place}]", result, Evaluation, "use evaluation.evaluate")
        named = {result.model: result for result in results}
        if len(named) < len(results):
            raise ValueError(
                f"results must have distinct names, got models {[r.model for r in results]}; pass a dict of your own"
            )
    for name, result in named.items():
        check_instance(f"results[{name!r}]", result, Evaluation, "use evaluation.evaluate")
    if len(named) < 2:
        raise ValueError(f"results must hold two results at least, got {len(named)}")
    return named


def _check_alike(named: dict[str, Evaluation]) -> None:
    (one, first), *others = named.items()
    for name, other in others:
        for what, ours, theirs in (
            ("metrics", list(first), list(other)),
            ("protocol", first.protocol, other.protocol),
            ("split", first.split, other.split),
        ):
            if ours != theirs:
                raise ValueError(f"results must have the same {what}, got {ours!r} of {one} and {theirs!r} of {name}")
        if not np.array_equal(first.user_ids, other.user_ids) or first.n_interactions != other.n_interactions:
            raise ValueError(
                f"results must be of the same users and test interactions, got {first.n_users} users with "
                f"{first.n_interactions} of {one} and {other.n_users} with {other.n_interactions} of {name}; evaluate "
                "both models on one train and test"
            )
        if differ := [what for what, digest in first.digests.items() if other.digests.get(what) != digest]:
            raise ValueError(
                f"results must be of the same {differ[0]}, and those of {name} are others than of {one}; evaluate "
                "both models on one train and test, and with one key where items are sampled"
            )
