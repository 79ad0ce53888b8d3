"""Comparison of several models on one test, with paired significance tests."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fastfedrec.accounting.views import TRUST_VIEWS, epsilon_under, show_costs
from fastfedrec.core.calls import explains_calls
from fastfedrec.core.check import check_choice, check_instance, check_integer, check_real
from fastfedrec.core.html import html_card, html_table
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.text import epsilon_to_json, format_csv, format_table
from fastfedrec.evaluation.metrics import tables
from fastfedrec.evaluation.metrics.lists import GIVEN_LISTS
from fastfedrec.evaluation.metrics.plots import draw_intervals
from fastfedrec.evaluation.metrics.resampling import fit_deviations, holm, sign_test
from fastfedrec.evaluation.metrics.results import Evaluation

__all__ = ["Comparison", "PairedTest", "compare"]


@dataclass(frozen=True)
class PairedTest:
    """Paired test of one metric of two models on the same users.

    Parameters
    ----------
    metric : str
        Name of the metric.
    first, second : str
        Names of the models.
    difference : float
        Metric of the first model minus metric of the second model.
    p_value : float
        p-value of the paired permutation test.
    p_holm : float
        p-value with Holm's correction for all tests of the comparison.
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
        Results by the model's name.
    intervals : dict of str to dict of str to (float, float)
        95% intervals by the model's name and the metric (`Evaluation.intervals`).
    tests : tuple of PairedTest
        Tests of every metric of every pair of models.
    """

    results: dict[str, Evaluation]
    intervals: dict[str, dict[str, tuple[float, float]]]
    tests: tuple[PairedTest, ...]

    def to_frame(self, *, library: str = "pandas") -> Any:
        """Return a frame with a row for each model and metric.

        Parameters
        ----------
        library : {"pandas", "polars"}
            Library of the frame, imported at the call.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            Columns "model", "metric", "value", "low" and "high"; then "epsilon_local", "epsilon_shuffle",
            "epsilon_aggregator" and "epsilon_central", the model's true cost if no party, a shuffler, honest nodes
            that add noise, or the server is trusted; then "n_users" and "protocol", as in `Evaluation`.
        """
        names, rows = self._rows()
        return tables.to_frame(dict(zip(names, zip(*rows, strict=True), strict=True)), library)

    def to_csv(self) -> str:
        """Format the rows of `to_frame` as comma-separated values.

        Returns
        -------
        str
            CSV text with a header.
        """
        return format_csv(*self._rows())

    def tests_to_frame(self, *, library: str = "pandas") -> Any:
        """Return a frame with a row for each paired test.

        Parameters
        ----------
        library : {"pandas", "polars"}
            Library of the frame, imported at the call.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            Columns named after the fields of `PairedTest`.
        """
        return tables.to_frame(self._test_columns(), library)

    def summary(self) -> str:
        """Format the metrics, their intervals and the verdicts as plain text.

        Returns
        -------
        str
            Table with each model's metrics and true privacy cost (`Evaluation.epsilon`), a verdict for each metric, and
            the variation that intervals cover.
        """
        columns = self._columns("to")
        table = format_table(list(columns), zip(*columns.values(), strict=True))
        remedy = "; pass evaluation.average_fits of several fits of each model to cover both"
        return "\n".join([table, "", *self.verdicts(), self.coverage(remedy)])

    def coverage(self, remedy: str = "") -> str:
        """State which variation intervals and tests cover.

        Parameters
        ----------
        remedy : str
            End of the sentence if a result is of a single fit.

        Returns
        -------
        str
            One sentence.
        """
        n_fits = min(len(result.fits) for result in self.results.values())
        noise = f" and the noise of {n_fits} fits of each model" if n_fits > 1 else f", not the noise of a fit{remedy}"
        return f"95% intervals and paired tests cover the choice of users{noise}."

    def verdicts(self, level: float = 0.05) -> list[str]:
        """Describe the best model by each metric and the models that do not differ from it significantly.

        Parameters
        ----------
        level : float
            Significance level of the paired tests after Holm's correction, in (0, 1).

        Returns
        -------
        list of str
            One line for each metric with tests.
        """
        level = check_real("level", level, low=0.0, high=1.0, exclusive=True)
        lines = []
        tested = dict.fromkeys(test.metric for test in self.tests)
        for metric, less in ((m.name, m.less_is_better) for m in next(iter(self.results.values())).metrics):
            if metric not in tested:
                continue
            best = (min if less else max)(self.results, key=lambda name: self.results[name][metric])
            if all(result[metric] == self.results[best][metric] for result in self.results.values()):
                lines.append(f"{metric}: all models score equally.")
                continue
            # Only tests that involve the best model can show a model that is as good.
            of_best = [test for test in self.tests if test.metric == metric and best in (test.first, test.second)]
            extreme, more = ("lowest", "lower") if less else ("highest", "higher")
            equals = [
                f"{test.second if test.first == best else test.first} (p = {test.p_holm:.2g})"
                for test in of_best
                if test.p_holm >= level
            ]
            verdict = (
                f", but not significantly {more} than {_listed(equals)}"
                if equals
                else f", significantly {more} than all others"
            )
            lines.append(f"{metric}: {best} scores {extreme}{verdict}.")
        return lines

    def to_markdown(self) -> str:
        """Format two Markdown tables: models by metrics with intervals, and the paired tests.

        Returns
        -------
        str
            Markdown text without a final newline.
        """
        return "\n\n".join(tables.to_markdown(columns) for columns in (self._columns("to"), self._test_columns()))

    def to_latex(self) -> str:
        """Format the tables of `to_markdown` as two LaTeX tabulars with the rules of booktabs.

        Returns
        -------
        str
            LaTeX text without a final newline.
        """
        return "\n\n".join(tables.to_latex(columns) for columns in (self._columns("--"), self._test_columns()))

    def to_json(self) -> str:
        """Format all results and tests as JSON.

        Returns
        -------
        str
            JSON object with the keys "results" and "tests".
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
                "epsilon": {
                    trust: epsilon_to_json(epsilon_under(trust, result.epsilon, result.parties))
                    for trust in TRUST_VIEWS
                },
            }
            for name, result in self.results.items()
        }
        return tables.to_json({"results": results, "tests": [vars(test) for test in self.tests]})

    def plot(self, metric: str | None = None, *, ax: Any = None) -> Any:
        """Draw the values of a metric with their intervals, a row for each model.

        Parameters
        ----------
        metric : str or None
            Name of the metric; None for the first one.
        ax : matplotlib.axes.Axes or None
            Axes to draw on; None for a new figure, ``plot().figure``, without pyplot.

        Returns
        -------
        matplotlib.axes.Axes
            Axes of the plot.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            The comparison has no such metric.

        Examples
        --------
        Write the plot of a comparison to a file::

            compare(results).plot("ndcg@10").figure.savefig("comparison.png")
        """
        known = list(next(iter(self.results.values())))
        name = known[0] if metric is None else check_choice("metric", metric, known)
        values = [result[name] for result in self.results.values()]
        intervals = [self.intervals[model][name] for model in self.results]
        return draw_intervals(list(self.results), values, intervals, f"{name}, 95% intervals", ax)

    def _rows(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return names of columns, and a row for each model and metric."""
        names = ["model", "metric", "value", "low", "high", *(f"epsilon_{trust}" for trust in TRUST_VIEWS)]
        rows = [
            (name, metric, value, *self.intervals[name][metric], *costs, result.n_users, result.protocol)
            for name, result in self.results.items()
            for costs in [[epsilon_under(trust, result.epsilon, result.parties) for trust in TRUST_VIEWS]]
            for metric, value in result.items()
        ]
        return [*names, "n_users", "protocol"], rows

    # Tables are dicts of columns, as `tables` takes them.
    def _columns(self, dash: str) -> dict[str, list[str]]:
        def cell(name: str, metric: str) -> str:
            return tables.show_interval(self.results[name][metric], self.intervals[name][metric], dash)

        metrics = list(next(iter(self.results.values())))
        columns = {"model": list(self.results)} | {m: [cell(name, m) for name in self.results] for m in metrics}
        return columns | {"true epsilon": [show_costs(one.epsilon, one.parties) for one in self.results.values()]}

    def _test_columns(self) -> dict[str, list[Any]]:
        names = list(PairedTest.__annotations__)
        return {name: [getattr(test, name) for test in self.tests] for name in names}

    def _repr_html_(self) -> str:
        parts = (columns for columns in (self._columns("to"), self._test_columns()) if columns)
        shown = [html_table(tuple(part), zip(*part.values(), strict=True)) for part in parts]
        return html_card(f"Comparison of {', '.join(self.results)}", {}, *shown)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.results)}: {len(self.tests)} paired tests>"


@explains_calls
def compare(
    results: Mapping[str, Evaluation] | Sequence[Evaluation],
    *,
    n_permutations: int = 10_000,
    n_resamples: int = 1000,
    key: Key | None = None,
) -> Comparison:
    """Compare models that were evaluated on the same test, by every metric and pair of models.

    Parameters
    ----------
    results : mapping of str to Evaluation, or sequence of Evaluation
        At least two results with the same users, metrics and protocol.  In a sequence, the class of a model is its
        name.
    n_permutations : int
        Number of random permutations for each test, at least 1.  A permutation exchanges the two models for a random
        subset of users.  If there are at most this many permutations, the test uses all of them.
    n_resamples : int
        Number of resamples of the bootstrap intervals.
    key : Key or None
        Random key; None draws a new entropy key.

    Returns
    -------
    Comparison
        Results, intervals and tests.  Coverage and Gini have no tests, since they are not means over users.

    Raises
    ------
    ValueError
        There are fewer than two results, two have the same name, or users, metrics or protocols differ.

    Notes
    -----
    The null hypothesis of a test is that the two models can be exchanged for each user.  Its statistic is the sum of
    the users' differences (of weighted squared errors for RMSE).  Holm's correction covers all tests of the comparison.
    The tests of single fits compare two fitted models, not two training methods: their p-values do not include the
    variation between seeds.  For averages (`average_fits`), the null distribution includes it: a draw of each model's
    deviation between fits, by the t distribution, is added to each permutation's sum.  No test includes the variation
    between splits.

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
    pairs = [
        (metric, first, second)
        for metric in next(iter(named.values())).user_values
        for first, second in combinations(named, 2)
    ]
    if not pairs:
        return Comparison(named, intervals, ())
    # One column for each test.  `columns[:, 0]` has weighted values, and both models have the same weights.
    differences = np.column_stack(
        [named[a].user_values[m].columns[:, 0] - named[b].user_values[m].columns[:, 0] for m, a, b in pairs]
    )
    noise = None
    if any(result.fits for result in named.values()):
        deviations = functools.partial(_deviations, n_draws=n_permutations, key=key)
        noise = np.column_stack(
            [deviations(named[a], m, name="first") - deviations(named[b], m, name="second") for m, a, b in pairs]
        )
    p_values = sign_test(differences, n_permutations, key, noise)
    tests = tuple(
        PairedTest(m, a, b, named[a][m] - named[b][m], float(p), float(corrected))
        for (m, a, b), p, corrected in zip(pairs, p_values, holm(p_values), strict=True)
    )
    return Comparison(named, intervals, tests)


def _deviations(result: Evaluation, metric: str, *, n_draws: int, key: Key, name: str) -> np.ndarray:
    """Draw deviations between fits of the sum over users that `sign_test` compares."""
    sums = [float(fit.user_values[metric].columns[:, 0].sum()) for fit in result.fits]
    return fit_deviations(sums, n_draws, key, f"{name}/{metric}")


def _listed(names: Sequence[str]) -> str:
    """Join names as "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _named(results: Mapping[str, Evaluation] | Sequence[Evaluation]) -> dict[str, Evaluation]:
    if isinstance(results, Evaluation):
        raise TypeError("results must hold at least two results, got one; pass [first, second]")
    if isinstance(results, Mapping):
        named = {str(name): result for name, result in results.items()}
        if len(named) < len(results):
            raise ValueError(f"results must have distinct names, got {list(results)}; rename one")
    else:
        results = list(results)
        for i, result in enumerate(results):
            check_instance(f"results[{i}]", result, Evaluation, "use evaluation.evaluate")
        named = {result.model: result for result in results}
        if len(named) < len(results):
            raise ValueError(
                f"results must have distinct names, got models {[r.model for r in results]}; pass a dict by name"
            )
    for name, result in named.items():
        check_instance(f"results[{name!r}]", result, Evaluation, "use evaluation.evaluate")
    if len(named) < 2:
        raise ValueError(f"results must hold at least two results, got {len(named)}; add one")
    return named


def _check_alike(named: dict[str, Evaluation]) -> None:
    (first_name, first), *further = named.items()
    for name, other in further:
        for field, expected, got in (
            ("metrics", list(first), list(other)),
            ("protocol", first.protocol, other.protocol),
            ("split", first.split, other.split),
        ):
            if expected != got:
                remedy = "evaluate both models alike"
                if field == "protocol" and GIVEN_LISTS in (expected, got):
                    remedy = "evaluate the model by its lists too, evaluate_lists(model.recommend(as_frame=True), ...)"
                raise ValueError(
                    f"results must have the same {field}, got {expected!r} of {first_name} and {got!r} of {name}; "
                    f"{remedy}"
                )
        if not np.array_equal(first.user_ids, other.user_ids) or first.n_interactions != other.n_interactions:
            raise ValueError(
                f"results must be of the same users and test interactions, got {first.n_users} users with "
                f"{first.n_interactions} of {first_name} and {other.n_users} with {other.n_interactions} of {name}; "
                "evaluate both models on one train and test"
            )
        # Digests show that train, test or sampled items differ even if all counts are equal.
        if differing := [field for field, digest in first.digests.items() if other.digests.get(field) != digest]:
            raise ValueError(
                f"results must be of the same {differing[0]}, and {name} differs from {first_name}; evaluate both "
                "models on one train and test, and with one key if items are sampled"
            )
