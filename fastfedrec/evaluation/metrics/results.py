"""What `evaluate` returns: the metrics, by what protocol, on whom, and how sure they are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.html import html_card, html_table
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.evaluation.metrics import tables
from fastfedrec.evaluation.metrics.names import Metric
from fastfedrec.evaluation.metrics.resampling import bootstrap_sums

__all__ = ["Evaluation", "UserValues"]


@dataclass(frozen=True, eq=False)
class UserValues:
    """A metric of each tested user, and how the mean is made of it.

    Parameters
    ----------
    values : ndarray of shape (n_users,), float64
        NaN where it is not defined for the user.
    weights : ndarray of shape (n_users,), float64, or None
        What each user weighs in the mean, 0 where there is no value; None where all weigh the same.
    is_root : bool
        Whether the metric is the root of the mean.
    """

    values: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    is_root: bool = False

    @property
    def columns(self) -> NDArray[np.float64]:
        """What the metric is a quotient of sums of.

        Returns
        -------
        ndarray of shape (n_users, 2), float64
            Weighted values, and weights.
        """
        if self.weights is None:
            return np.column_stack([self.values, np.ones(len(self.values))])
        used = self.weights > 0
        weights = np.where(used, self.weights, 0.0)
        return np.column_stack([weights * np.where(used, self.values, 0.0), weights])

    def of_sums(self, sums: np.ndarray) -> NDArray[np.float64]:
        """The metric from sums over `columns`.

        Parameters
        ----------
        sums : ndarray of shape (..., 2), float64
            Of one sample, or of many.

        Returns
        -------
        ndarray of shape (...)
            NaN where nobody weighs anything.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            means = sums[..., 0] / sums[..., 1]
        return np.sqrt(means) if self.is_root else means

    @property
    def mean(self) -> float:
        """The metric over all users.

        Returns
        -------
        float
            NaN where it is defined for nobody.
        """
        if self.weights is None:
            return float(self.values.mean())
        return float(self.of_sums(self.columns.sum(axis=0)))


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Mapping[str, float]):
    """Metrics of one model on one test: a mapping of their names to numbers, and what they are worth.

    Parameters
    ----------
    model : str
        Name of the model's class.
    protocol : str
        What test items were ranked against, or that ratings were predicted.
    split : str or None
        Where train and test came from, if it was told.
    metrics : tuple of Metric
        What was asked for.
    n_users : int
        Users that were tested.
    n_interactions : int
        Test interactions that were ranked or predicted.
    dropped : dict of str to int
        Test interactions that were not: "unknown_users" (in neither `train` nor `given`, or not known to the model),
        "unknown_items" (not among the items of `train`, or those of a model that predicts ratings), "seen_again" (in
        `train` or `given` as well), "not_relevant" (with a value of 0 or below, or not above the threshold; only where
        there are such); and "users", those that were left without any.
    means : dict of str to float
        The metrics.
    of_users : dict of str to UserValues
        What metrics of users are made of; coverage and Gini are not.
    user_ids : ndarray of shape (n_users,)
        External ids.
    keeps_users : bool
        Whether values of users are in `per_user` and in what is exported.
    digests : dict of str to str
        Of what was ranked, by which `compare` knows that two results are of one test.
    """

    model: str
    protocol: str
    split: str | None
    metrics: tuple[Metric, ...]
    n_users: int
    n_interactions: int
    dropped: dict[str, int]
    means: dict[str, float]
    of_users: dict[str, UserValues] = field(default_factory=dict)
    user_ids: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    keeps_users: bool = False
    digests: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return self.means[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.means)

    def __len__(self) -> int:
        return len(self.means)

    @property
    def cutoffs(self) -> dict[str, int | None]:
        """The cut-off of each metric.

        Returns
        -------
        dict of str to int or None
            None where all places count.
        """
        return {metric.name: metric.cutoff for metric in self.metrics}

    @property
    def per_user(self) -> dict[str, NDArray[Any]] | None:
        """Each user's own values.

        Returns
        -------
        dict of str to ndarray, or None
            "user" and a column for each metric of users; None unless `evaluate` was asked for it.
        """
        if not self.keeps_users:
            return None
        roots = {name: np.sqrt(of.values) if of.is_root else of.values for name, of in self.of_users.items()}
        return {"user": self.user_ids} | roots

    def intervals(
        self, *, level: float = 0.95, n_resamples: int = 1000, key: Key | None = None
    ) -> dict[str, tuple[float, float]]:
        """Bootstrap intervals of the metrics: what the mean is for other users of the same kind.

        Parameters
        ----------
        level : float
            Between 0 and 1.
        n_resamples : int
            Samples of as many users, drawn with replacement; at least 1.
        key : Key or None
            Source of the draws; None draws a new entropy key.

        Returns
        -------
        dict of str to (float, float)
            Percentiles of the resampled metric; NaN for coverage and Gini, which are not means over users.

        Notes
        -----
        The model is held fixed: what another training run or another split would give is not in the interval.

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
        found = dict.fromkeys(self.means, (float("nan"), float("nan")))
        if not self.of_users:
            return found
        columns = np.hstack([of.columns for of in self.of_users.values()])
        sums = bootstrap_sums(columns, n_resamples, resolve_key(key)).reshape(n_resamples, -1, 2)
        for place, (name, of) in enumerate(self.of_users.items()):
            resampled = of.of_sums(sums[:, place])
            resampled = resampled[~np.isnan(resampled)]  # a sample of users for none of whom it is defined
            if len(resampled):
                low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2]).tolist()
                found[name] = low, high
        return found

    def to_frame(self, *, library: str = "pandas", key: Key | None = None) -> Any:
        """A table with a row for each metric.

        Parameters
        ----------
        library : {"pandas", "polars"}
            Whose frame; imported when it is used.
        key : Key or None
            As for `intervals`.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            Columns "metric", "value", "low" and "high".
        """
        return tables.to_frame(self._columns(key), library)

    def to_markdown(self, *, key: Key | None = None) -> str:
        """The same as a Markdown table.

        Parameters
        ----------
        key : Key or None
            As for `intervals`.

        Returns
        -------
        str
            Without a final newline.
        """
        return tables.to_markdown(self._columns(key))

    def to_latex(self, *, key: Key | None = None) -> str:
        """The same as a LaTeX tabular, with the rules of booktabs.

        Parameters
        ----------
        key : Key or None
            As for `intervals`.

        Returns
        -------
        str
            Without a final newline.
        """
        return tables.to_latex(self._columns(key))

    def to_json(self, *, key: Key | None = None) -> str:
        """Everything that is known of the result, as JSON.

        Parameters
        ----------
        key : Key or None
            As for `intervals`.

        Returns
        -------
        str
            An object; each user's values are in it if `evaluate` was asked for them.
        """
        return tables.to_json(self._document(key))

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
            # Dates as they are written: JSON has none, and of fine-grained ones `tolist` makes bare numbers.
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
