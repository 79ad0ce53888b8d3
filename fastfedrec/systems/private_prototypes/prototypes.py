"""Prototypes: noisy sums of each cluster's rows, which an entity may send."""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting.events import ZCDP, CentralRelease, Composed
from fastfedrec.core.check import (
    check_choice,
    check_epsilon,
    check_exact,
    check_instance,
    check_integer,
    check_real,
    plain_array,
)
from fastfedrec.core.exact_sums import DOUBLE_LIMIT, INT64_LIMIT, check_summands, max_summands
from fastfedrec.core.numbers import float_up
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.mechanisms.bounded_rows import check_value_range
from fastfedrec.mechanisms.noise.discrete_gaussian import DiscreteGaussian
from fastfedrec.mechanisms.noise.discrete_laplace import DiscreteLaplace
from fastfedrec.systems.private_prototypes.private_kmeans import draw_loss, selection_event

__all__ = ["NoisySums", "Recovery", "recover_prototypes"]

MAX_STEPS = 2**20  # largest number of steps per unit; with more, sums are exact for few users only
_MAX_SCORE = 2**32  # largest sensitivity of the scores of `draw_loss`, in steps


@dataclass(frozen=True)
class NoisySums:
    """The release of `recover_prototypes`, in steps of the grid; a mean is the centre plus sum / count.

    Parameters
    ----------
    items : ndarray of shape (n_clusters, n_support), int64
        Items of each cluster's entries, in ascending order.
    counts : ndarray of shape (n_clusters, n_support) or (n_clusters, 1), int64
        Noisy numbers of entries of each item ("masked"), or of the cluster's users ("zero_filled"), in steps.
    sums : ndarray of shape (n_clusters, n_support), int64
        Noisy sums of values relative to the centre, in steps.
    """

    items: NDArray[np.int64]
    counts: NDArray[np.int64]
    sums: NDArray[np.int64]


@dataclass(frozen=True)
class Recovery:
    """The recovery of prototypes from sums, by public numbers only.

    **Guarantee.** A recovery is epsilon-differentially private with discrete Laplace noise (`epsilon`), or
    rho-zero-concentrated with discrete Gaussian noise (`rho`), plus `support_epsilon`, for "add_remove" of one user,
    against everyone who sees the prototypes; the entity that adds the noise is trusted ("entity").  The clusters must
    be public or released before.

    Parameters
    ----------
    kind : {"zero_filled", "masked"}
        Sums over all users of a cluster, with missing entries as 0, or over the observed entries only.
    max_entries : int
        Largest number of entries of a user, see `fastfedrec.mechanisms.bounded_rows.limit_contributions`.
    value_range : tuple of two floats
        Range of the values, see there; it begins at 0 for "zero_filled".
    epsilon, rho : float or None
        Cost of the noise on values; at most one of them, and none for exact sums without a guarantee.
    support_size : int or None
        Number of items of each cluster to release, chosen by the noisy sum or count of entries; None releases all.
    support_epsilon : float or None
        Cost of the choice; needed with `support_size`, except for exact sums.
    steps_per_unit : int
        Steps of the grid to which values are rounded, at least 1; 1 suffices for whole ratings with a whole centre.
    sampler : {"exact", "table"}
        Sampler of `DiscreteLaplace` and `DiscreteGaussian`; "table" is much faster and has a delta.

    Attributes
    ----------
    kind, max_entries, value_range, epsilon, rho, support_size, support_epsilon, steps_per_unit, sampler
        The parameters.

    Examples
    --------
    >>> from fastfedrec.systems.private_prototypes.prototypes import Recovery
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
        set_ = functools.partial(object.__setattr__, self)
        set_("kind", check_choice("kind", self.kind, ("zero_filled", "masked")))
        set_("max_entries", check_integer("max_entries", self.max_entries, low=1))
        set_("value_range", check_value_range(self.value_range))
        if self.kind == "zero_filled" and self.value_range[0]:
            raise ValueError(f"value_range must start at 0 for kind='zero_filled', got {self.value_range}")
        if self.epsilon is not None and self.rho is not None:
            raise ValueError(f"give epsilon or rho, got epsilon={self.epsilon!r} and rho={self.rho!r}")
        if self.epsilon is not None:
            set_("epsilon", check_epsilon("epsilon", self.epsilon))
        elif self.rho is not None:
            set_("rho", check_real("rho", self.rho, low=0.0, exclusive=True))
        if (self.support_epsilon is None) != (self.support_size is None or self.is_exact):
            raise ValueError("support_size and support_epsilon must be given together, and the latter with noise only")
        if self.support_size is not None:
            set_("support_size", check_integer("support_size", self.support_size, low=1))
        if self.support_size is not None and self.support_epsilon is not None:
            min_epsilon = self.support_size * 2.0**-16
            set_("support_epsilon", check_real("support_epsilon", self.support_epsilon, low=min_epsilon))
        set_("steps_per_unit", check_integer("steps_per_unit", self.steps_per_unit, low=1, high=MAX_STEPS))
        if self.kind == "zero_filled" and self.support_epsilon is not None and self.largest >= _MAX_SCORE:
            raise ValueError(
                f"value_range must end below {_MAX_SCORE / self.steps_per_unit:g} where sums choose the items, got "
                f"{self.value_range}; use a coarser unit for the values"
            )
        set_("sampler", check_choice("sampler", self.sampler, ("exact", "table")))

    @property
    def is_exact(self) -> bool:
        """Whether there is no noise, and so no guarantee."""
        return self.epsilon is None and self.rho is None

    @property
    def center(self) -> Fraction:
        """Origin of the sums: the middle of the range, on the grid, or 0 for "zero_filled"."""
        if self.kind == "zero_filled":
            return Fraction(0)
        low, high = self.value_range
        middle = Fraction(low) / 2 + Fraction(high) / 2
        return Fraction(round(middle * self.steps_per_unit), self.steps_per_unit)

    @property
    def largest(self) -> int:
        """Largest absolute value of a summand, in steps: of a value, or of its difference to the centre."""
        steps = self.steps_per_unit
        low, high = (Fraction(end) for end in self.value_range)
        return max(round((self.center - low) * steps), round((high - self.center) * steps))

    @property
    def max_users(self) -> int:
        """Largest number of users with exact sums: noise protects a user's contribution, not the rounding of a sum."""
        # Noise has no bound and is clipped to the range of int64, so it needs no capacity here.  Sums without noise
        # carry no guarantee, and may round as doubles do.
        return max_summands(max(self.largest, self.steps_per_unit), INT64_LIMIT if self.is_exact else DOUBLE_LIMIT)

    def check_users(self, n_users: int) -> None:
        """Refuse more users than sums are exact for, by public numbers and before any data are read.

        Parameters
        ----------
        n_users : int
            Public number of users.

        Raises
        ------
        ValueError
            There are more than `max_users` users.
        """
        n_users = check_integer("n_users", n_users, low=0)
        # A range that is too large for one user is refused also without users.
        check_summands(
            "value_range", self.value_range, max(n_users, 1), self.max_users,
            "use a coarser unit for the values, or fewer users",
        )  # fmt: skip

    @property
    def released_entries(self) -> int:
        """Largest number of summed entries of a user: the smaller of `max_entries` and `support_size`."""
        return min(self.max_entries, self.support_size or self.max_entries)

    @property
    def sensitivity(self) -> Fraction:
        """Largest sum of absolute changes of all sums and counts by one user, in steps."""
        q, step = self.released_entries, self.steps_per_unit
        # Zero-filled prototypes have q values and one count of a user, masked ones q values and q counts.
        return Fraction(q * self.largest + step if self.kind == "zero_filled" else q * (self.largest + step))

    @property
    def squared_norm_sensitivity(self) -> int:
        """Largest squared Euclidean norm of the changes by one user, in squared steps."""
        q, step = self.released_entries, self.steps_per_unit
        return q * self.largest**2 + step**2 if self.kind == "zero_filled" else q * (self.largest**2 + step**2)

    @property
    def noise(self) -> DiscreteLaplace | DiscreteGaussian | None:
        """Noise on each sum and count, in steps; None for exact sums."""
        if self.is_exact:
            return None
        if self.epsilon is not None:
            return DiscreteLaplace(self.sensitivity / check_exact("epsilon", self.epsilon, low=0), sampler=self.sampler)
        variance = self.squared_norm_sensitivity / (2 * check_exact("rho", self.rho, low=0))
        stddev = float_up(variance) ** 0.5
        # The square root is raised until its exact square reaches the variance, so that the noise is never too small.
        while Fraction(stddev) ** 2 < variance:
            stddev = float(np.nextafter(stddev, np.inf))
        return DiscreteGaussian(stddev, sampler=self.sampler)

    @property
    def stddev(self) -> float:
        """Standard deviation of the noise on one count, in users."""
        return math.sqrt(self.noise.variance) / self.steps_per_unit if self.noise else 0.0

    def n_draws(self, n_clusters: int, n_items: int) -> int:
        """Count the draws of noise of one recovery.

        Parameters
        ----------
        n_clusters, n_items : int
            Shape of the prototypes.

        Returns
        -------
        int
            One draw for each sum and each count that is released.
        """
        n_clusters = check_integer("n_clusters", n_clusters, low=1)
        n_items = check_integer("n_items", n_items, low=1)
        n_sums = n_clusters * min(n_items, self.support_size or n_items)
        return 2 * n_sums if self.kind == "masked" else n_sums + n_clusters

    def events(self, n_clusters: int, n_items: int, *, accounting: str = "pure", n_rows: int = 1) -> Composed:
        """Return the events of one recovery for an accountant.

        Parameters
        ----------
        n_clusters, n_items : int
            Shape of the prototypes, which gives the number of draws and their distance from ideal ones.
        accounting : {"pure", "zcdp"}
            See `fastfedrec.systems.private_prototypes.private_kmeans.clustering_events`; noise with `rho` needs "zcdp".
        n_rows : int
            Largest number of rows of one user, over all entities.

        Returns
        -------
        Composed
            Events for "add_remove" of one user.
        """
        check_choice("accounting", accounting, ("pure", "zcdp"))
        n_rows = check_integer("n_rows", n_rows, low=1)
        noise = self.noise
        if noise is None:
            raise ValueError("exact sums have no guarantee, and no events; give epsilon or rho")
        parts: list[CentralRelease | ZCDP] = []
        if self.support_size is not None and self.support_epsilon is not None:
            item_epsilon = self.support_epsilon / self.support_size
            parts.append(selection_event("choice of items", item_epsilon, self.support_size, accounting, n_rows))
        name = f"{self.kind} sums with {type(noise).__name__}"
        distance = noise.total_variation_of(
            self.n_draws(n_clusters, n_items) * n_rows
        )  # each row's entity draws its own
        if self.epsilon is not None:
            parts.append(
                CentralRelease(name, float_up(n_rows * Fraction(self.epsilon)), trust="entity", distance=distance)
            )
        elif accounting == "pure":
            raise ValueError("accounting must be 'zcdp' for noise with rho, got 'pure': it has no pure epsilon")
        else:
            # One event for all numbers together, by their L2 norm.  `DiscreteGaussianRelease` needs a fixed number of
            # changes, but here it depends on the data, and replacing a user changes twice as many.
            cost = float_up(n_rows**2 * Fraction(self.rho or 0))
            parts.append(ZCDP(name, cost, neighboring="add_remove", sampling="none", trust="entity", distance=distance))
        return Composed(tuple(parts), mechanism="prototypes")


def recover_prototypes(
    interactions: InteractionsLike,
    labels: np.ndarray,
    n_clusters: int,
    recovery: Recovery,
    *,
    key: Key,
    round: int = 0,
    n_threads: int = 0,
) -> NoisySums:
    """Release each cluster's noisy sums.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or frame
        Rows that `fastfedrec.mechanisms.bounded_rows.limit_contributions` returned, with the entries and range of
        `recovery`.
    labels : ndarray of shape (n_users,), int
        Cluster of each user, the nearest of public or released centres; -1 leaves a user out.
    n_clusters : int
        Number of clusters, at least 1.
    recovery : Recovery
        Content and cost of the release.
    key : Key
        Source of the noise.  The caller claims it, once for a whole run.
    round : int
        Number in the streams' names, below 2^16; it must differ between calls with one key.
    n_threads : int
        Number of threads, 0 for all; the result does not depend on it.

    Returns
    -------
    NoisySums
        Released sums, which are no longer private.

    Raises
    ------
    ValueError
        There are more users than sums are exact for, or a user has more entries than `recovery` allows, or a value
        outside its range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.systems.private_prototypes.prototypes import Recovery, recover_prototypes
    >>> data = Interactions.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [5.0, 1.0, 4.0, 2.0])
    >>> exact = Recovery("masked", max_entries=2, value_range=(1.0, 5.0))
    >>> sums = recover_prototypes(data, np.zeros(2, dtype=int), 1, exact, key=Key.from_seed(1))
    >>> (float(exact.center) + sums.sums / sums.counts).tolist()
    [[4.5, 1.5]]
    """
    check_instance("recovery", recovery, Recovery, "build one with Recovery(kind, ...)")
    interactions = as_interactions("interactions", interactions, is_private=not recovery.is_exact)
    n_clusters = check_integer("n_clusters", n_clusters, low=1, high=2**16)
    round_number = check_integer("round", round, low=0, high=2**16 - 1)
    labels = plain_array("labels", labels)
    if labels.dtype.kind not in "iu" or labels.shape != (interactions.n_users,):
        raise ValueError(f"labels must be integers, one a user ({interactions.n_users}), got {labels.dtype} "
                         f"{labels.shape}")  # fmt: skip
    if labels.size and not -1 <= labels.min() <= labels.max() < n_clusters:
        raise ValueError(f"labels must be in [-1, {n_clusters}), got {labels.min()} to {labels.max()}")
    recovery.check_users(interactions.n_users)
    values = interactions.values_or_ones()
    low, high = recovery.value_range
    if values.size and not low <= values.min() <= values.max() <= high:
        raise ValueError(f"interactions must have values in {recovery.value_range}; use limit_contributions first")
    if interactions.interactions_per_user().max(initial=0) > recovery.max_entries:
        raise ValueError(f"interactions must have at most {recovery.max_entries} a user; use limit_contributions first")
    check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) for a simulation")
    n_threads = resolve_n_threads(n_threads)
    steps, shape = recovery.steps_per_unit, (n_clusters, interactions.n_items)
    # Values on the integer grid, relative to the centre, so that sums are exact.
    summands = np.rint((values - float(recovery.center)) * steps).astype(np.int64)
    summands = np.clip(summands, -recovery.largest, recovery.largest)
    rows = np.repeat(labels.astype(np.int64), interactions.interactions_per_user())
    # One number for each (cluster, item); users with label -1 are left out.
    cells, summands = (rows * shape[1] + interactions.indices)[rows >= 0], summands[rows >= 0]
    sums = _sums(cells, summands, shape)
    entries = _sums(cells, None, shape) if recovery.kind == "masked" else None
    items = np.broadcast_to(np.arange(shape[1]), shape)
    if recovery.support_size is not None and recovery.support_size < shape[1]:
        items = _support(sums if entries is None else entries, entries is None, recovery, key, round_number)
        sums = np.take_along_axis(sums, items, axis=1)
    if entries is not None:
        counts = np.take_along_axis(entries, items, axis=1)
    else:
        counts = np.bincount(labels[labels >= 0], minlength=n_clusters)[:, None]
    # Counts are on the same grid as sums, so that one noise fits both.
    counts = counts * steps
    if noise := recovery.noise:
        sums, counts = (
            noise.add_noise(exact, key=key, purpose=f"prototypes.{name}", round=round_number, n_threads=n_threads)
            for name, exact in (("sums", sums), ("counts", counts))
        )
    return NoisySums(items.astype(np.int64), counts, sums)


def _sums(cells: np.ndarray, summands: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
    """Return exact sums of integers by cell, which doubles can hold according to `Recovery.check_users`."""
    return np.bincount(cells, weights=summands, minlength=shape[0] * shape[1]).astype(np.int64).reshape(shape)


def _support(scores: np.ndarray, are_sums: bool, recovery: Recovery, key: Key, round_number: int) -> np.ndarray:
    """Return the items of each cluster, drawn in sequence, which has the distribution of one-shot Gumbel noise."""
    # A user is in one cluster, so all clusters' choices together cost the same as one cluster's.
    size = recovery.support_size or 0
    if recovery.support_epsilon is None:
        return np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :size], axis=1)
    item_epsilon, sensitivity = recovery.support_epsilon / size, recovery.largest if are_sums else 1
    chosen = np.empty((len(scores), size), dtype=np.int64)
    for cluster, row in enumerate(scores):
        # Two words for each draw, for any scores.
        words = key.words("prototypes.support", round=round_number, user=cluster, size=2 * size).reshape(-1, 2)
        remaining_items = np.arange(len(row))
        for draw, two_words in enumerate(words):
            position = draw_loss(-row[remaining_items], item_epsilon, two_words, sensitivity)
            chosen[cluster, draw] = remaining_items[position]
            remaining_items = np.delete(remaining_items, position)
    return np.sort(chosen, axis=1)
