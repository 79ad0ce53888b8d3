"""Results of `evaluate`: metrics, protocol, tested users and bootstrap intervals."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting.ledger import Ledger
from fastfedrec.accounting.views import OBSERVERS, View, parties_of
from fastfedrec.core.check import check_choice, check_integer, check_real
from fastfedrec.core.html import html_card, html_table
from fastfedrec.core.old_names import OldAttribute
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.evaluation.metrics import tables
from fastfedrec.evaluation.metrics.breakdown import rows_of_groups
from fastfedrec.evaluation.metrics.names import Metric
from fastfedrec.evaluation.metrics.plots import draw_intervals
from fastfedrec.evaluation.metrics.resampling import bootstrap_sums, fit_deviations
from fastfedrec.evaluation.metrics.user_values import UserValues

__all__ = ["Evaluation"]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Mapping[str, float]):
    """Metrics of one model on one test, as a mapping of names to values, with intervals and tables.

    Parameters
    ----------
    model : str
        Name of the model's class.
    protocol : str
        Items that test items were ranked against, or "predicted ratings".
    split : str or None
        Name of the split that made train and test, if it is known.
    metrics : tuple of Metric
        Parsed metrics.
    n_users : int
        Number of tested users.
    n_interactions : int
        Number of test interactions that were ranked or predicted.
    dropped : dict of str to int
        Numbers of dropped test interactions by reason: "unknown_users" (users in neither `train` nor `given`, or
        unknown to the model), "unknown_items" (items outside `train`, or unknown to a model that predicts ratings),
        "seen_again" (pairs that are also in `train` or `given`), "not_relevant" (values of 0 or below, or not above the
        threshold; only present if there are any).  "users" is the number of users without a remaining interaction.
    means : dict of str to float
        Value of each metric.
    user_values : dict of str to UserValues
        Values by user of each metric except coverage and Gini, which are not means over users.
    user_ids : ndarray of shape (n_users,)
        External ids of the tested users.
    keeps_users : bool
        Whether `per_user` and exports have the values by user.
    digests : dict of str to str
        Digests of the ranked data; `compare` uses them to check that two results are of the same test.
    user_counts : ndarray of shape (n_users,), int64
        Number of ranked or predicted test interactions of each user.
    per_item : dict of str to ndarray, or None
        "item", "n_test" (number of test interactions), and a column for each metric of ranks or ratings, by tested
        item; None unless `evaluate` got ``per_item=True``.  A value is the mean over the item's test interactions,
        each of which counts as the only test item of its user.
    fits : tuple of Evaluation
        Results of single fits if this is their average (`average_fits`), else empty.
    ledger : Ledger or None
        The model's ledger at the evaluation; None if the model has none.
    """

    model: str
    protocol: str
    split: str | None
    metrics: tuple[Metric, ...]
    n_users: int
    n_interactions: int
    dropped: dict[str, int]
    means: dict[str, float]
    user_values: dict[str, UserValues] = field(default_factory=dict)
    user_ids: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    keeps_users: bool = False
    digests: dict[str, str] = field(default_factory=dict)
    user_counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    per_item: dict[str, NDArray[Any]] | None = None
    fits: "tuple[Evaluation, ...]" = ()
    ledger: Ledger | None = None

    of_users = OldAttribute("user_values")

    def __getitem__(self, name: str) -> float:
        if name not in self.means:
            raise KeyError(f"metric {name!r} was not measured, but {', '.join(self.means)}; add it to metrics=")
        return self.means[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.means)

    def __len__(self) -> int:
        return len(self.means)

    @property
    def cutoffs(self) -> dict[str, int | None]:
        """Cut-off of each metric.

        Returns
        -------
        dict of str to int or None
            Number of top ranks that count; None for all.
        """
        return {metric.name: metric.cutoff for metric in self.metrics}

    @property
    def epsilon(self) -> dict[View, float]:
        """True privacy cost of the model to one user, which its ledger states.

        Returns
        -------
        dict of str to float
            Epsilon in nats against "server", "shuffled_server" and "public"; the largest one of all fits of an average.
            It is infinite without a guarantee, and for a model without a ledger.
        """
        ledgers = [result.ledger for result in self.fits or (self,)]
        return {
            view: max(math.inf if ledger is None else ledger.epsilon(view) for ledger in ledgers) for view in OBSERVERS
        }

    @property
    def parties(self) -> tuple[str, ...]:
        """Parties on which the figures of `epsilon` depend.

        Returns
        -------
        tuple of str
            The `trust` of each event of the ledgers; empty for a model without a ledger.
        """
        ledgers = [result.ledger for result in self.fits or (self,)]
        return parties_of(event for ledger in ledgers if ledger is not None for event in ledger.events)

    @property
    def per_user(self) -> dict[str, NDArray[Any]] | None:
        """Values of each user.

        Returns
        -------
        dict of str to ndarray, or None
            "user" and a column for each metric of users; None unless `evaluate` got ``per_user=True``.
        """
        if not self.keeps_users:
            return None
        # The values of RMSE are mean squared errors; a user's RMSE is their root.
        roots = {name: np.sqrt(of.values) if of.is_root else of.values for name, of in self.user_values.items()}
        return {"user": self.user_ids} | roots

    def by_group(self, groups: Any) -> "dict[Any, Evaluation]":
        """Return the result of each group of users.

        Parameters
        ----------
        groups : mapping or frame
            Group of each user: a mapping of user ids to groups, or a frame with the column "user" and one other.  Every
            tested user must have a group.

        Returns
        -------
        dict of object to Evaluation
            Results by group in ascending order, with intervals over the group's users.  They lack coverage, Gini and
            other metrics that are not means over users, and figures by item; `dropped` is that of all users.

        Raises
        ------
        ValueError
            A tested user has no group, or several.

        Examples
        --------
        >>> from fastfedrec import Key, Popularity, datasets
        >>> from fastfedrec.evaluation import LeaveOneOut, evaluate
        >>> data = datasets.generate_implicit(200, 40, key=Key.from_seed(1))
        >>> train, test = next(LeaveOneOut().split(data, key=Key.from_seed(2)))
        >>> result = evaluate(Popularity().fit(train), train, test, metrics=["ndcg@10"])
        >>> is_active = train.interactions_per_user() > 20
        >>> groups = dict(zip(train.user_ids.tolist(), is_active.tolist()))
        >>> of_group = result.by_group(groups)
        >>> list(of_group), of_group[False].n_users + of_group[True].n_users == result.n_users
        ([False, True], True)
        """
        return {name: self._take(users) for name, users in rows_of_groups(groups, self.user_ids).items()}

    def _take(self, users: np.ndarray) -> "Evaluation":
        values = {name: of.take(users) for name, of in self.user_values.items()}
        return replace(
            self,
            metrics=tuple(metric for metric in self.metrics if metric.name in values),
            n_users=len(users),
            n_interactions=int(self.user_counts[users].sum()),
            means={name: of.mean for name, of in values.items()},
            user_values=values,
            user_ids=self.user_ids[users],
            user_counts=self.user_counts[users],
            per_item=None,
            fits=tuple(fit._take(users) for fit in self.fits),
        )

    def intervals(
        self, *, level: float = 0.95, n_resamples: int = 1000, key: Key | None = None
    ) -> dict[str, tuple[float, float]]:
        """Return intervals of the metrics: a bootstrap over users and, for an average, the variation between fits.

        Parameters
        ----------
        level : float
            Confidence level, in (0, 1).
        n_resamples : int
            Number of resamples of `n_users` users with replacement, at least 1.
        key : Key or None
            Random key of the resamples; None draws a new entropy key.

        Returns
        -------
        dict of str to (float, float)
            Percentiles of the resampled metric; NaN for coverage and Gini, which are not means over users.

        Notes
        -----
        Without `fits` the model is fixed: the interval covers the choice of users, and not the noise of a fit.  The
        interval of an average covers both.  A draw with the distribution of the deviation of the fits' mean, a scaled
        t distribution, is added to each resample, which is the Behrens-Fisher interval of a sum of two means [1]_.  No
        interval covers the variation between splits.

        References
        ----------
        .. [1] Fisher, "The fiducial argument in statistical inference", Annals of Eugenics 6, 1935.

        Examples
        --------
        >>> from fastfedrec import Key, Popularity, datasets
        >>> from fastfedrec.evaluation import LeaveOneOut, evaluate
        >>> data = datasets.generate_implicit(200, 40, key=Key.from_seed(1))
        >>> [split] = LeaveOneOut().split(data, key=Key.from_seed(2))
        >>> result = evaluate(Popularity().fit(split.train), split.train, split.test, metrics=["ndcg@10"])
        >>> low, high = result.intervals(key=Key.from_seed(3))["ndcg@10"]
        >>> low < result["ndcg@10"] < high
        True
        """
        level = check_real("level", level, low=0.0, high=1.0, exclusive=True)
        n_resamples = check_integer("n_resamples", n_resamples, low=1)
        bounds = dict.fromkeys(self.means, (float("nan"), float("nan")))
        if not self.user_values:
            return bounds
        # All metrics share the resamples: two columns, weighted values and weights, for each metric.
        columns = np.hstack([values.columns for values in self.user_values.values()])
        shares = {metric.name for metric in self.metrics if metric.is_share}
        key = resolve_key(key)
        sums = bootstrap_sums(columns, n_resamples, key).reshape(n_resamples, -1, 2)
        for column, (name, values) in enumerate(self.user_values.items()):
            resampled = values.of_sums(sums[:, column])
            if self.fits:
                resampled = resampled + fit_deviations([fit[name] for fit in self.fits], n_resamples, key, name)
            resampled = resampled[~np.isnan(resampled)]  # NaN: the metric is defined for no user of the resample
            if len(resampled):
                # The t distribution has no bounds, but shares have: no value outside them is possible.
                if name in shares:
                    resampled = resampled.clip(0.0, 1.0)
                low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2]).tolist()
                bounds[name] = low, high
        return bounds

    def to_frame(self, *, library: str = "pandas", key: Key | None = None) -> Any:
        """Return a frame with a row for each metric.

        Parameters
        ----------
        library : {"pandas", "polars"}
            Library of the frame, imported at the call.
        key : Key or None
            Random key as for `intervals`.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            Columns "metric", "value", "low" and "high".
        """
        return tables.to_frame(self._columns(key), library)

    def to_markdown(self, *, key: Key | None = None) -> str:
        """Format the columns of `to_frame` as a Markdown table.

        Parameters
        ----------
        key : Key or None
            Random key as for `intervals`.

        Returns
        -------
        str
            Markdown text without a final newline.
        """
        return tables.to_markdown(self._columns(key))

    def to_latex(self, *, key: Key | None = None) -> str:
        """Format the columns of `to_frame` as a LaTeX tabular with the rules of booktabs.

        Parameters
        ----------
        key : Key or None
            Random key as for `intervals`.

        Returns
        -------
        str
            LaTeX text without a final newline.
        """
        return tables.to_latex(self._columns(key))

    def to_json(self, *, key: Key | None = None) -> str:
        """Format the result as JSON.

        Parameters
        ----------
        key : Key or None
            Random key as for `intervals`.

        Returns
        -------
        str
            JSON object; it has the values of each user if `evaluate` got ``per_user=True``.
        """
        return tables.to_json(self._document(key))

    def plot(self, metric: str | None = None, *, ax: Any = None, key: Key | None = None) -> Any:
        """Draw the metrics with their bootstrap intervals, a row for each.

        Parameters
        ----------
        metric : str or None
            Name of one metric; None for all.
        ax : matplotlib.axes.Axes or None
            Axes to draw on; None for a new figure, ``plot().figure``, without pyplot.
        key : Key or None
            Random key as for `intervals`.

        Returns
        -------
        matplotlib.axes.Axes
            Axes of the plot.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            The result has no such metric.
        """
        names = list(self) if metric is None else [check_choice("metric", metric, list(self))]
        intervals = self.intervals(key=key)
        label = f"{self.model}, 95% intervals"
        return draw_intervals(names, [self[n] for n in names], [intervals[n] for n in names], label, ax)

    def _columns(self, key: Key | None) -> dict[str, list[Any]]:
        intervals = self.intervals(key=key)
        return {
            "metric": list(self),
            "value": list(self.values()),
            "low": [intervals[name][0] for name in self],
            "high": [intervals[name][1] for name in self],
        }

    def _document(self, key: Key | None) -> dict[str, Any]:
        columns = self._columns(key)
        rows = zip(columns["value"], columns["low"], columns["high"], strict=True)
        document: dict[str, Any] = {
            "model": self.model,
            "split": self.split,
            "protocol": self.protocol,
            "n_users": self.n_users,
            "n_interactions": self.n_interactions,
            "dropped": self.dropped,
            "metrics": {
                metric.name: {"value": value, "low": low, "high": high, "cutoff": metric.cutoff}
                for metric, (value, low, high) in zip(self.metrics, rows, strict=True)
            },
        }
        if (per_user := self.per_user) is not None:
            # JSON has no dates, and `tolist` turns dates finer than microseconds into numbers: write them as text.
            texts = {name: c.astype(str) if c.dtype.kind in "Mm" else c for name, c in per_user.items()}
            document["per_user"] = {name: column.tolist() for name, column in texts.items()}
        return document

    def _repr_html_(self) -> str:
        facts = {"users": f"{self.n_users:,}", "interactions": f"{self.n_interactions:,}", "protocol": self.protocol}
        facts |= {"split": self.split} if self.split else {}
        facts |= {f"dropped: {name.replace('_', ' ')}": f"{n:,}" for name, n in self.dropped.items() if n}
        values = [(name, tables.show(value)) for name, value in self.items()]
        return html_card(f"Evaluation of {self.model}", facts, html_table(("metric", "value"), values))

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {tables.show(value)}" for name, value in self.items())
        split = f", {self.split}" if self.split else ""
        return f"<Evaluation of {self.model}: {metrics} ({self.protocol}{split}, {self.n_users:,} users)>"
