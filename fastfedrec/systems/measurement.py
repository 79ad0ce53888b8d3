"""A private measurement of candidates: each device ranks a held-out item by each, and the noisy sums are released.

`_measured_release.MeasuredRelease` runs it.  See docs/explanation/systems/gram/dp-gram.md and dp-gram-privacy.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import RoundTraffic
from fastfedrec.compute.ranks import rank_counts_factors
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._linear_scores import LinearScores
from fastfedrec.systems._noisy_sum import NoisySum
from fastfedrec.systems._pair_matrix import Candidate, Decision, PairMatrix
from fastfedrec.systems._substitute import pooled

__all__ = [
    "Form",
    "HitSum",
    "MeasurementState",
    "NoisyMean",
    "candidates_with",
    "expected_ndcgs",
    "measured_stride",
    "measurement_state",
]

UNIT = 2**28  # L2 bound of one user's contribution; its square and sums of squares are exact in int64
#: Approximate number of users who rank an item: a share of 16,384 users has an error of .004.
_MAX_MEASURED = 16_384
_MAX_RANK = 64  # largest rank of the compared models, since the strongest directions decide
# Weights of the personal part and ridges; tuned, see "Settings" on the page of DPGram.  The first is the reference.
_CANDIDATES = ((2.5, 2.0), (1.0, 0.5), (1.0, 8.0), (2.5, 8.0), (6.0, 2.0), (6.0, 8.0), (6.0, 30.0))
_N_SAMPLED, _N_TOP = 99, 10  # the metric is nDCG@10 of an item among 99 others
_MAX_MEAN_NOISE = 0.25  # largest noise variance over the square of the mean; tuned, see "Settings" on the page
_NOISIER = "dp_gram.noisier_mean"  # a public stream


@dataclass(frozen=True)
class MeasurementState:
    """The models that devices compare, and the noisy sums at the end of the round."""

    factors: NDArray[np.float32]  # factors of the matrix of pairs without popularity, 0 where not used, (n_items, rank)
    popularity: NDArray[np.float64]  # factor of the part of the matrix that all users share, (n_items,)
    noisier: NDArray[np.float64]  # popularity with twice the noise variance, (n_items,)
    diagonal: NDArray[np.float64]  # diagonal of the users' matrix, (n_items,)
    noise: NDArray[np.float64]  # standard deviation of the noise of an entry of the matrix, (1,)
    # The noisy sums; empty until the end of the round.
    noisy: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def planned(cls, n_items: int, rank: int = _MAX_RANK) -> Self:
        """Return a state with the shapes and types of a round's state."""
        ones = np.ones(n_items)
        return cls(np.zeros((n_items, min(rank, n_items)), np.float32), ones, ones, ones, np.ones(1))


@dataclass(frozen=True)
class NoisyMean:
    """The released mean of users' rows."""

    values: NDArray[np.float64]  # the mean with noise, (n_items,)
    noise: float  # standard deviation of an entry's noise
    precision: float  # squared budget of the release

    def noisier(self) -> NDArray[np.float64]:
        """Return the mean with twice the variance of its noise, by public draws."""
        return self.values + self.noise * Key.from_seed(0).normal(_NOISIER, size=len(self.values))

    def spared(self, precision: float) -> float:
        """Return the share of the noise's variance that additional squared budget would remove."""
        return precision / (self.precision + precision)

    def is_noisy(self, precision: float) -> bool:
        """Return whether noise of this precision is too large compared with the square of the mean."""
        # Ranks by popularity lose accuracy as the cosine of the noisy and the exact mean falls.  It is 1 / sqrt(1 + r)
        # with r the noise over the square of the mean: 11% are lost at the limit.
        noise = len(self.values) * self.noise**2
        square = max(float(self.values @ self.values) - noise, 0.0)
        return self.precision * noise > _MAX_MEAN_NOISE * square * precision

    def pooled(self, values: np.ndarray, precision: float) -> "NoisyMean":
        """Return this mean combined with another release of it, which has this precision."""
        total = self.precision + precision
        mean = pooled([self.values, values], [self.precision**-0.5, precision**-0.5])
        return NoisyMean(mean, self.noise * math.sqrt(self.precision / total), total)


def candidates_with(
    ridge: float | str, candidates: Sequence[tuple[float, float]] = _CANDIDATES
) -> tuple[Candidate, ...]:
    """Return candidates of these weights and ridges, or of these weights with one numeric ridge."""
    if not isinstance(ridge, str):
        candidates = [(weight, ridge) for weight in dict.fromkeys(weight for weight, _ in candidates)]
    return tuple(Candidate(weight, one) for weight, one in candidates)


def measured_stride(n_users: int) -> int:
    """Return n such that one in n users takes part."""
    return max(1, n_users // _MAX_MEASURED)


class HitSum(NoisySum):
    """A round that sums how much better each public candidate ranks one of a user's items than popularity does.

    A user contributes differences of expected nDCG.  Popularity with twice the noise and the first candidate are
    compared with popularity, and the other candidates with the first.  The differences are scaled to a norm of at most
    `UNIT`, and rounded towards 0.  One in `stride` users takes part, by a hash of the user's row, and `number` is the
    position among the measurements of a plan.
    """

    _unit, _field = UNIT, "hits"
    _stream: ClassVar[str] = "dp_gram.hits"

    def __init__(
        self, noise: Any, key: Any, distance: float, number: int, stride: int, candidates: Sequence[Candidate]
    ):
        super().__init__(noise, key, distance)
        self.number, self.stride, self.candidates = number, stride, tuple(candidates)

    @property
    # Each measurement draws its noise from a separate stream.
    def _purpose(self) -> str:  # type: ignore[override]
        return f"{self._stream}.{self.number}"

    def _shapes(self, state: MeasurementState) -> dict[str, tuple[int, ...]]:
        return {self._field: (1 + len(self.candidates),)}

    def _objection(self, state: MeasurementState) -> str | None:
        """Return an error message for numbers that no model has, or None."""
        if not (state.diagonal > 0).all() or not (state.noise > 0).all():
            return "diagonal and noise must be above 0"
        return None

    def traffic(self, state: MeasurementState, n_clients: int) -> RoundTraffic:
        """Return the traffic of the round: the models down, an int64 for each sum up."""
        arrays = (state.factors, state.popularity, state.noisier, state.diagonal)
        down = sum(array.nbytes for array in arrays)
        return self.source.traffic(RoundTraffic(down, 8 * self.n_sums(state), n_clients))

    @one_blas_thread()
    def _sums(
        self, state: MeasurementState, shard: Interactions, key: Key, n_threads: int
    ) -> dict[str, NDArray[np.int64]]:
        lengths, hashes = shard.interactions_per_user(), _hashes(shard)
        # Participation and the held-out item of a user depend on that user's row only.
        measured = np.flatnonzero((lengths > 1) & (hashes // 2**16 % self.stride == 0))
        part = shard._take_users(measured)
        if not part.n_users:
            return {self._field: np.zeros(self.n_sums(state), dtype=np.int64)}
        held_out = part.indptr[:-1] + hashes[measured] % lengths[measured]
        test_items, is_training = part.indices[held_out], np.ones(part.n_interactions, dtype=bool)
        is_training[held_out] = False
        training = part._keep(is_training)
        ones = np.ones(training.n_interactions)

        def hits(users: np.ndarray, items: np.ndarray) -> NDArray[np.float64]:
            # The kernel adds up in one order, so no user's scores depend on other users.
            return expected_ndcgs(_scaled(users, 1), _scaled(items, None), test_items, training, n_threads)

        def hits_of(model: LinearScores) -> NDArray[np.float64]:
            return hits(sum_rows(training, model.left, weights=ones, n_threads=n_threads), model.right)

        all_users = np.ones((part.n_users, 1))
        shared, noisier = hits(all_users, state.popularity[:, None]), hits(all_users, state.noisier[:, None])
        pairs = PairMatrix(np.empty((0, 0), np.float32), float(state.noise[0]), state.diagonal, state.popularity)
        # The models are evaluated one after another, since each needs several arrays of the size of the factors.
        first, *later = (hits_of(pairs.score(state.factors, candidate, pairs.noise)) for candidate in self.candidates)
        # Candidates mostly hit the same items, so differences from the first one use less of the norm.
        differences = [noisier - shared, first - shared, *(hit - first for hit in later)]
        return {self._field: _clipped(np.stack(differences, axis=1)).sum(axis=0)}

    def decide(self, noisy: np.ndarray, n_users: int, spared: float) -> Decision:
        """Choose popularity or the best candidate by the noisy sums.

        `spared` is the share of the noise's variance that popularity would lose with the remaining budget.
        """
        n_measured = n_users / self.stride
        doubled, first, *later = (noisy / (UNIT * n_measured)).tolist()
        gains = [first, *(first + difference for difference in later)]
        # The nDCG of popularity falls with the variance of its noise: the gain from the remaining budget is in
        # proportion to the loss from twice the variance.  A candidate must be better than that by a standard error,
        # unless popularity cannot have more of the budget.
        popularity = Candidate(0.0, 0.0)
        scores = {popularity: -spared * doubled, **dict(zip(self.candidates, gains, strict=True))}
        best = max(self.candidates, key=scores.__getitem__)
        gain = scores[best] - scores[popularity]
        error = self.width / n_measured * math.sqrt(1 + spared**2 + (best != self.candidates[0]))
        return Decision(best if gain > error * (spared > 0) else popularity, scores, gain, error)


class Form(Protocol):
    """The centring of a system's rows, and the trace of the users' matrix."""

    @property
    def weight(self) -> float:
        """Trace of the users' matrix."""

    def public(self, item_means: np.ndarray) -> NDArray[np.float64]:
        """Return the mean that users receive, for a noisy one."""

    def about(self, mean: np.ndarray) -> PairMatrix:
        """Return an empty matrix with the popularity of a mean of the rows."""


def measurement_state(
    planned: MeasurementState, factors: np.ndarray, form: Form, mean: NoisyMean, noise: float
) -> MeasurementState:
    """Return the state of a measurement of factors with noise of this standard deviation."""
    strongest = np.zeros_like(planned.factors)
    rank = min(strongest.shape[1], factors.shape[1])
    strongest[:, :rank] = factors[:, :rank]
    popularity, noisier = (form.public(values) for values in (mean.values, mean.noisier()))
    root, item_squares = math.sqrt(form.weight), form.about(popularity).item_squares
    return MeasurementState(strongest, root * popularity, root * noisier, item_squares, np.array([noise]))


def _hashes(rows: Interactions) -> NDArray[np.int64]:
    """Return a hash of the items of each user, from 0 to 2^32 - 1."""
    ends = np.zeros(rows.n_interactions + 1, dtype=np.uint32)
    products = ends[1:]  # modulo 2^32, and in place, since fresh memory costs more than the arithmetic
    np.add(rows.indices.view(np.uint32), np.uint32(1), out=products)
    products *= np.uint32(2_654_435_761)
    np.cumsum(products, dtype=np.uint32, out=products)
    return np.diff(ends[rows.indptr]).astype(np.int64)


def expected_ndcgs(
    users: np.ndarray, items: np.ndarray, held_out: np.ndarray, seen: Interactions, n_threads: int
) -> NDArray[np.float64]:
    """Return the expected nDCG@10, 1 / log2(1 + rank) or 0, of each user's held-out item among 99 random unseen items.

    Scores are inner products of `users` and `items`, ties count as half, and `seen` has the users' other items.
    """
    indptr = np.arange(seen.n_users + 1)  # one held-out item for each user
    above, same = rank_counts_factors(users, items, (indptr, held_out), seen=seen, n_threads=n_threads)
    n_unseen = np.maximum(seen.n_items - 1 - seen.interactions_per_user(), 1)
    better = (above + (same - 1) / 2) / n_unseen
    # The number of 99 draws above the item is binomial if draws are independent.  Products and sums have the same bits
    # at every position of an array, so that no user's contribution depends on other users.
    worse, gains, power = 1.0 - better, np.ones(seen.n_users), np.ones(seen.n_users)
    for n_better in range(1, _N_TOP):
        power *= better
        gains = gains * worse + math.comb(_N_SAMPLED, n_better) / math.log2(n_better + 2) * power
    for _ in range(_N_SAMPLED - _N_TOP + 1):
        gains *= worse
    return gains


def _scaled(factors: np.ndarray, axis: int | None) -> NDArray[np.float32]:
    """Return factors in single precision with 1 as the largest magnitude of a row or of all."""
    # No product of scaled factors overflows.
    highest, lowest = (of(factors, axis=axis, keepdims=True, initial=0.0) for of in (np.max, np.min))
    largest = np.maximum(np.maximum(highest, -lowest), np.finfo(float).tiny)
    return np.divide(factors, largest, out=np.empty(factors.shape, np.float32), casting="same_kind")


def _clipped(differences: np.ndarray) -> NDArray[np.int64]:
    """Return rows of integers of norm at most `UNIT`, rounded towards 0; infinite numbers and NaN count as 0."""
    finite = np.nan_to_num(differences, nan=0.0, posinf=0.0, neginf=0.0)
    norms = np.maximum(np.sqrt(np.square(finite).sum(axis=1, keepdims=True)), 1.0)
    whole = np.trunc(finite / norms * UNIT).astype(np.int64)
    # Rounding errors of the quotients might raise a norm above the bound; halved, it is below.
    whole[np.square(whole).sum(axis=1) > UNIT**2] //= 2
    return whole
