"""Prototypes: noisy sums of each cluster's rows, as rows that an entity may send."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastfedrec._check import check_choice, check_epsilon, check_instance, check_integer, check_real
from fastfedrec.accounting.events import ZCDP, CentralRelease, Composed
from fastfedrec.interactions import Interactions
from fastfedrec.mechanisms.discrete_gaussian import DiscreteGaussian
from fastfedrec.mechanisms.discrete_laplace import DiscreteLaplace
from fastfedrec.mechanisms.integer_noise import exact_number, float_upper
from fastfedrec.private_kmeans import draw_loss, selection_event
from fastfedrec.projection import check_value_range
from fastfedrec.randomness import Key

_LARGEST_EPSILON = 40.0  # of a whole run, up to which the delta of a table of Gaussian noise is booked


@dataclass(frozen=True)
class Prototypes:
    """What `recover_prototypes` released.

    Parameters
    ----------
    values : ndarray of shape (n_clusters, n_items), float64
        Within the value range; outside the support 0 ("zero_filled") or the range's centre ("masked").
    counts : ndarray of shape (n_clusters,) or (n_clusters, n_items), float64
        Noisy numbers of users of each cluster ("zero_filled"), or of entries of each item in it ("masked"), at least 0:
        how much a value is worth.  Outside the support 0.
    support : ndarray of shape (n_clusters, n_items), bool, or None
        The items that were chosen; None where all are released.
    """

    values: np.ndarray
    counts: np.ndarray
    support: np.ndarray | None


@dataclass(frozen=True)
class Recovery:
    """How prototypes are recovered from sums, in public numbers alone.

    **Guarantee.** A recovery is epsilon-differentially private with discrete Laplace noise (`epsilon`), or
    rho-zero-concentrated with discrete Gaussian noise (`rho`), plus `support_epsilon`, for "add_remove" of one user,
    against everyone who sees the prototypes; the entity that adds the noise is trusted ("central").  What clusters
    there are must be public or released before.

    Parameters
    ----------
    kind : {"zero_filled", "masked"}
        Sums over all users of a cluster, missing entries counting as 0, or over the observed entries alone.
    max_entries : int
        Entries of a user at most, as in `fastfedrec.projection.limit_contributions`.
    value_range : tuple of two floats
        As there; starts at 0 for "zero_filled".
    epsilon, rho : float or None
        What the noise on values costs; give one of them.
    support_size : int or None
        Release that many items of each cluster, chosen by the noisy sum or count of entries; None releases all.
    support_epsilon : float or None
        What the choice costs; needed with `support_size`.
    steps_per_unit : int
        The grid that values are rounded to, at least 1: 1 suffices for whole ratings with a whole centre.
    sampler : {"exact", "table"}
        As for `DiscreteLaplace` and `DiscreteGaussian`; "table" is much faster and has a delta.

    Attributes
    ----------
    kind, max_entries, value_range, epsilon, rho, support_size, support_epsilon, steps_per_unit, sampler
        As given.

    Examples
    --------
    >>> from fastfedrec.prototypes import Recovery
    >>> ratings = Recovery("masked", max_entries=100, value_range=(1.0, 5.0), epsilon=1.0)
    >>> ratings.sensitivity, ratings.noise
    (Fraction(300, 1), DiscreteLaplace(scale=300, sampler='exact'))
    """

    kind: str
    max_entries: int
    value_range: tuple[float, float]
    epsilon: float | None = None
    rho: float | None = None
    support_size: int | None = None
    support_epsilon: float | None = None
    steps_per_unit: int = 1
    sampler: str = "exact"

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("zero_filled", "masked"))
        check_integer("max_entries", self.max_entries, low=1)
        low, _ = check_value_range(self.value_range)
        if self.kind == "zero_filled" and low:
            raise ValueError(f"value_range must start at 0 for kind='zero_filled', got {self.value_range}")
        if (self.epsilon is None) == (self.rho is None):
            raise ValueError(f"give epsilon or rho, got epsilon={self.epsilon!r} and rho={self.rho!r}")
        if self.epsilon is not None:
            check_epsilon("epsilon", self.epsilon)
        else:
            check_real("rho", self.rho, low=0.0, exclusive=True)
        if (self.support_size is None) != (self.support_epsilon is None):
            raise ValueError("support_size and support_epsilon must be given together")
        if self.support_size is not None:
            check_integer("support_size", self.support_size, low=1)
            check_real("support_epsilon", self.support_epsilon, low=self.support_size * 2.0**-16)
        check_integer("steps_per_unit", self.steps_per_unit, low=1, high=2**20)
        check_choice("sampler", self.sampler, ("exact", "table"))

    @property
    def center(self) -> Fraction:
        """What masked sums are relative to: the middle of the range, on the grid."""
        low, high = self.value_range
        middle = Fraction(low) / 2 + Fraction(high) / 2
        return Fraction(round(middle * self.steps_per_unit), self.steps_per_unit)

    @property
    def largest(self) -> int:
        """The largest size of a summand, in steps: of a value, or of its difference to the centre."""
        steps = self.steps_per_unit
        low, high = (Fraction(end) for end in self.value_range)
        if self.kind == "zero_filled":
            return round(high * steps)
        return max(round((self.center - low) * steps), round((high - self.center) * steps))

    @property
    def released_entries(self) -> int:
        """Entries of a user that are summed at most: the smaller of `max_entries` and `support_size`."""
        return min(self.max_entries, self.support_size or self.max_entries)

    @property
    def sensitivity(self) -> Fraction:
        """The most that one user changes all sums and counts by together, in absolute values, in steps."""
        q, step = self.released_entries, self.steps_per_unit
        return Fraction(q * self.largest + step if self.kind == "zero_filled" else q * (self.largest + step))

    @property
    def squared_norm_sensitivity(self) -> int:
        """The square of the most that one user changes them by in Euclidean norm, in steps."""
        q, step = self.released_entries, self.steps_per_unit
        return q * self.largest**2 + step**2 if self.kind == "zero_filled" else q * (self.largest**2 + step**2)

    @property
    def noise(self) -> DiscreteLaplace | DiscreteGaussian:
        """The noise on each sum and count, in steps."""
        if self.epsilon is not None:
            return DiscreteLaplace(self.sensitivity / exact_number("epsilon", self.epsilon), sampler=self.sampler)
        variance = self.squared_norm_sensitivity / (2 * exact_number("rho", self.rho))
        stddev = float_upper(variance) ** 0.5
        while Fraction(stddev) ** 2 < variance:
            stddev = float(np.nextafter(stddev, np.inf))
        return DiscreteGaussian(stddev, sampler=self.sampler)

    def events(self, n_clusters: int, n_items: int, *, accounting: str = "pure") -> Composed:
        """What an accountant is told of one recovery.

        Parameters
        ----------
        n_clusters, n_items : int
            Of the prototypes: how many draws of noise there are, for the table's delta.
        accounting : {"pure", "zcdp"}
            As for `fastfedrec.private_kmeans.clustering_events`; noise with `rho` has the latter only.

        Returns
        -------
        Composed
            For "add_remove" of one user.
        """
        check_choice("accounting", accounting, ("pure", "zcdp"))
        n_draws = n_clusters * n_items * (1 if self.kind == "zero_filled" else 2)
        n_draws += n_clusters if self.kind == "zero_filled" else 0
        parts: list[CentralRelease | ZCDP] = []
        if self.support_size is not None and self.support_epsilon is not None:
            each = self.support_epsilon / self.support_size
            if accounting == "pure":
                parts.append(CentralRelease("choice of items", self.support_epsilon))
            else:
                parts.append(selection_event("choice of items", each, self.support_size, accounting))
        name = f"{self.kind} sums with {type(self.noise).__name__}"
        if self.epsilon is not None:
            # A release with a delta is booked as such whatever the accountant.
            parts.append(CentralRelease(name, self.epsilon, delta=self.noise.delta(self.epsilon, n_draws)))
        elif accounting == "pure":
            raise ValueError("accounting must be 'zcdp' for noise with rho, got 'pure': it has no pure epsilon")
        else:
            parts.append(ZCDP(name, float(self.rho or 0), neighboring="add_remove", sampling="none"))
            if self.sampler == "table":
                # zCDP has no delta: it is booked beside it, with an epsilon of nothing.
                lost = self.noise.delta(_LARGEST_EPSILON, n_draws)
                parts.append(CentralRelease("table of the discrete Gaussian", 2.0**-60, delta=lost))
        return Composed(tuple(parts), mechanism="prototypes")


def recover_prototypes(
    interactions: Interactions,
    labels: np.ndarray,
    n_clusters: int,
    recovery: Recovery,
    *,
    key: Key,
    round: int = 0,
    n_threads: int = 0,
) -> Prototypes:
    """Release each cluster's prototype from noisy sums.

    Parameters
    ----------
    interactions : Interactions
        As `fastfedrec.projection.limit_contributions` returns them, with the entries and range of `recovery`.
    labels : ndarray of shape (n_users,), int
        The cluster of each user: the nearest of public or released centres.
    n_clusters : int
        At least 1.
    recovery : Recovery
        What is released, and at which cost.
    key : Key
        Source of the noise.  It is not used up here: the caller claims it, once for a whole run.
    round : int
        Part of the streams' name, below 2^16: another for each call under one key.
    n_threads : int
        0 for all; the result does not depend on it.

    Returns
    -------
    Prototypes
        Released: no longer private.

    Raises
    ------
    ValueError
        A user with more entries, or a value outside the range, that `recovery` was not told of.
    """
    check_instance("interactions", interactions, Interactions, "build one with Interactions.from_arrays")
    check_instance("recovery", recovery, Recovery, "build one with Recovery(kind, ...)")
    n_clusters = check_integer("n_clusters", n_clusters, low=1, high=2**16)
    round_number = check_integer("round", round, low=0, high=2**16 - 1)
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iu" or labels.shape != (interactions.n_users,):
        raise ValueError(f"labels must be integers, one a user ({interactions.n_users}), got {labels.dtype} "
                         f"{labels.shape}")  # fmt: skip
    if labels.size and not 0 <= labels.min() <= labels.max() < n_clusters:
        raise ValueError(f"labels must lie in [0, {n_clusters}), got {labels.min()} to {labels.max()}")
    values = interactions.values_or_ones()
    low, high = recovery.value_range
    if values.size and not low <= values.min() <= values.max() <= high:
        raise ValueError(f"interactions must have values in {recovery.value_range}; use limit_contributions first")
    if interactions.interactions_per_user().max(initial=0) > recovery.max_entries:
        raise ValueError(f"interactions must have at most {recovery.max_entries} a user; use limit_contributions first")
    check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) for a simulation")
    shape = n_clusters, interactions.n_items
    masked, steps = recovery.kind == "masked", recovery.steps_per_unit
    user_clusters = labels.astype(np.int64)
    cells = np.repeat(user_clusters, interactions.interactions_per_user()) * shape[1] + interactions.indices
    summands = np.rint((values - float(recovery.center if masked else 0)) * steps).astype(np.int64)
    summands = np.clip(summands, -recovery.largest, recovery.largest)
    support = None
    if recovery.support_size is not None:
        scores = _sums(cells, None if masked else summands, shape)
        support = _support(scores, 1 if masked else recovery.largest, recovery, key, round_number)
        kept = support.reshape(-1)[cells]
        cells, summands = cells[kept], summands[kept]
    sums = _sums(cells, summands, shape)
    counts = _sums(cells, None, shape) if masked else np.bincount(user_clusters, minlength=n_clusters)
    noise = recovery.noise
    noisy_sums, noisy_counts = (
        noise.add_noise(exact, key=key, purpose=f"prototypes.{name}", round=round_number, n_threads=n_threads)
        for name, exact in (("sums", sums), ("counts", counts.astype(np.int64) * steps))
    )
    known = np.maximum(noisy_counts / steps, 0.0)
    divisor = np.maximum(known, 1.0)
    if masked:
        means = np.clip(float(recovery.center) + noisy_sums / steps / divisor, low, high)
    else:
        means = np.clip(noisy_sums / steps / divisor[:, None], 0.0, high)
    if support is not None:
        means = np.where(support, means, float(recovery.center) if masked else 0.0)
        known = np.where(support, known, 0.0) if masked else known
    return Prototypes(means, known, support)


def _sums(cells: np.ndarray, summands: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
    """Exact sums of integers by cell: doubles hold them below 2^53."""
    return np.bincount(cells, weights=summands, minlength=shape[0] * shape[1]).astype(np.int64).reshape(shape)


def _support(scores: np.ndarray, sensitivity: int, recovery: Recovery, key: Key, round_number: int) -> np.ndarray:
    """The items of each cluster, one after the other, which is what one-shot Gumbel noise chooses.

    A user is in one cluster, so all choices together cost what one does.
    """
    size = min(recovery.support_size or 0, scores.shape[1])
    epsilon = (recovery.support_epsilon or 0.0) / (recovery.support_size or 1)
    chosen = np.zeros(scores.shape, dtype=bool)
    for cluster, row in enumerate(scores):
        words = key.words("prototypes.support", round=round_number, user=cluster, size=2 * size).reshape(-1, 2)
        left = np.arange(len(row))
        for draw in words:
            place = draw_loss(-row[left], epsilon, draw, sensitivity)
            chosen[cluster, left[place]] = True
            left = np.delete(left, place)
    return chosen
