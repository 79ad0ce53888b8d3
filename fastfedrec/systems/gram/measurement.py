"""A private measurement of candidates: each user ranks one item of their own by each, and the noisy sums are released.

Around it is `measured_model.MeasuredModel`.  See docs/explanation/systems/gram/dp-gram.md and dp-gram-privacy.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import RoundTraffic
from fastfedrec.compute.places import places_factors
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._noisy_sum import NoisySum
from fastfedrec.systems._substitute import pooled
from fastfedrec.systems.gram.decision import Candidate, Decision, PairMatrix
from fastfedrec.systems.gram.scoring import LinearScores

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

UNIT = 2**28  # norm of one user's contribution; its square and sums of squares are exact in int64
#: Users who rank an item, about: the error of a share of so many is .004.
_MAX_MEASURED = 16_384
_MAX_RANK = 64  # of the models that are compared: the strongest directions decide
# Weights of the personal part and ridges; tuned, see "Settings" on the page.  The first is the reference of the others.
# The first three have one weight each: they decide whether any personal model is better than popularity.
_CANDIDATES = ((2.5, 2.0), (1.0, 8.0), (6.0, 8.0), (1.0, 0.5), (2.5, 8.0), (6.0, 2.0), (6.0, 30.0))
_N_SAMPLED, _N_TOP = 99, 10  # the metric is nDCG@10 of an item among 99 others
_MAX_MEAN_NOISE = 0.25  # of the square of the mean; tuned, see "Settings" on the page
_NOISIER = "dp_gram.noisier_mean"  # a public stream


@dataclass(frozen=True)
class MeasurementState:
    """The models that devices compare, and the noisy sums at the end of the round.

    Parameters
    ----------
    factors : ndarray of shape (n_items, rank), float32
        Factors of the matrix of pairs, without popularity; columns that are not used are 0.
    popularity : ndarray of shape (n_items,), float64
        Factor of the part of the matrix that all users share.
    noisier : ndarray of shape (n_items,), float64
        Popularity with twice the noise.
    own_squares : ndarray of shape (n_items,), float64
        Diagonal of the users' matrix.
    noise : ndarray of shape (1,), float64
        Standard deviation of an entry of the matrix.
    noisy : ndarray of int64
        The noisy sums; empty until the round is over.
    """

    factors: NDArray[np.float32]
    popularity: NDArray[np.float64]
    noisier: NDArray[np.float64]
    own_squares: NDArray[np.float64]
    noise: NDArray[np.float64]
    noisy: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def planned(cls, n_items: int, rank: int = _MAX_RANK) -> Self:
        """Return a state of the shapes and types of a round's."""
        ones = np.ones(n_items)
        return cls(np.zeros((n_items, min(rank, n_items)), np.float32), ones, ones, ones, np.ones(1))


@dataclass(frozen=True)
class NoisyMean:
    """The released mean of users' rows.

    Parameters
    ----------
    values : ndarray of shape (n_items,), float64
        The mean with noise.
    noise : float
        Standard deviation of an entry's noise.
    precision : float
        Squared budget of the release.
    """

    values: NDArray[np.float64]
    noise: float
    precision: float

    def noisier(self) -> NDArray[np.float64]:
        """Return the mean with twice the variance of its noise, by public draws."""
        return self.values + self.noise * Key.from_seed(0).normal(_NOISIER, size=len(self.values))

    def spared(self, more: float) -> float:
        """Return the part of the noise's variance that this much more of the squared budget would spare."""
        return more / (self.precision + more)

    def is_noisy(self, precision: float) -> bool:
        """Return whether noise of this precision is too large a part of the square of the mean.

        The ranks of popularity lose as the cosine of the noisy and the exact mean does, which is 1 / sqrt(1 + r) with
        r the noise over the square of the mean: 11% at the limit.
        """
        noise = len(self.values) * self.noise**2
        square = max(float(self.values @ self.values) - noise, 0.0)
        return self.precision * noise > _MAX_MEAN_NOISE * square * precision

    def pooled(self, values: np.ndarray, precision: float) -> "NoisyMean":
        """Return this mean together with another release of it, which has this precision."""
        total = self.precision + precision
        mean = pooled([self.values, values], [self.precision**-0.5, precision**-0.5])
        return NoisyMean(mean, self.noise * math.sqrt(self.precision / total), total)


def candidates_with(
    ridge: float | str, candidates: Sequence[tuple[float, float]] = _CANDIDATES
) -> tuple[Candidate, ...]:
    """Return candidates of these weights and ridges, or these weights with one ridge if it is given."""
    if not isinstance(ridge, str):
        candidates = [(weight, ridge) for weight in dict.fromkeys(weight for weight, _ in candidates)]
    return tuple(Candidate(weight, one) for weight, one in candidates)


def measured_stride(n_users: int) -> int:
    """Return the number of users of whom one takes part."""
    return max(1, n_users // _MAX_MEASURED)


class HitSum(NoisySum):
    """Users add up how much better each candidate ranks one of their items than popularity does.

    A user contributes differences of expected nDCG: of popularity with twice the noise and of the first candidate from
    popularity, and of the other candidates from the first.  They are scaled to a norm of at most `UNIT`, and rounded
    towards 0.

    Parameters
    ----------
    noise, key, distance : object
        As for `NoisySum`.
    number : int
        Position among these rounds: each has noise of its own.
    stride : int
        One of so many users takes part, by a hash of their own rows.
    candidates : sequence of Candidate
        Public.
    """

    _unit, _field = UNIT, "hits"
    _stream: ClassVar[str] = "dp_gram.hits"

    def __init__(
        self, noise: Any, key: Any, distance: float, number: int, stride: int, candidates: Sequence[Candidate]
    ):
        super().__init__(noise, key, distance)
        self.number, self.stride, self.candidates = number, stride, tuple(candidates)

    @property
    def _purpose(self) -> str:  # type: ignore[override]
        return f"{self._stream}.{self.number}"

    def _shape(self, state: MeasurementState) -> tuple[int, ...]:
        return (1 + len(self.candidates),)

    def _objection(self, state: MeasurementState) -> str | None:
        """Return an objection to numbers that no model has."""
        if not (state.own_squares > 0).all() or not (state.noise > 0).all():
            return "own_squares and noise must be above 0"
        return None

    def traffic(self, state: MeasurementState, n_clients: int) -> RoundTraffic:
        """Return the traffic of the round: the models down, an int64 for each sum up."""
        arrays = (state.factors, state.popularity, state.noisier, state.own_squares)
        return RoundTraffic(sum(array.nbytes for array in arrays), self._sent_bytes(state), n_clients)

    @one_blas_thread()
    def _sums(self, state: MeasurementState, shard: Interactions, n_threads: int) -> NDArray[np.int64]:
        lengths, hashes = shard.interactions_per_user(), _hashes(shard)
        measured = np.flatnonzero((lengths > 1) & (hashes // 2**16 % self.stride == 0))
        part = shard._take_users(measured)
        if not part.n_users:
            return np.zeros(self._shape(state), dtype=np.int64)
        held_out = part.indptr[:-1] + hashes[measured] % lengths[measured]
        chosen, kept = part.indices[held_out], np.ones(part.n_interactions, dtype=bool)
        kept[held_out] = False
        rest = part._keep(kept)
        ones = np.ones(rest.n_interactions)

        def hits(users: np.ndarray, items: np.ndarray) -> NDArray[np.float64]:
            # The kernel adds up in one order: no user's scores depend on other users.
            return expected_ndcgs(_scaled(users, 1), _scaled(items, None), chosen, rest, n_threads)

        def hits_of(model: LinearScores) -> NDArray[np.float64]:
            return hits(sum_rows(rest, model.left, weights=ones, n_threads=n_threads), model.right)

        everyone = np.ones((part.n_users, 1))
        shared, noisier = hits(everyone, state.popularity[:, None]), hits(everyone, state.noisier[:, None])
        pairs = PairMatrix(np.empty((0, 0), np.float32), float(state.noise[0]), state.own_squares, state.popularity)
        # One model at a time: each is several arrays of the size of the factors.
        first, *others = (hits_of(pairs.score(state.factors, candidate, pairs.noise)) for candidate in self.candidates)
        # Candidates mostly hit the same items: differences from the first one leave more of the norm.
        differences = [noisier - shared, first - shared, *(other - first for other in others)]
        return _clipped(np.stack(differences, axis=1)).sum(axis=0)

    def decide(self, noisy: np.ndarray, n_users: int, spared: float) -> Decision:
        """Choose popularity or the best candidate by the noisy sums.

        The nDCG of popularity falls with the variance of its noise.  `spared` is the part of this variance that
        popularity would lose if it had the rest of the budget; its gain is in proportion to the loss that twice the
        variance brings.  A candidate has to be better than that by a standard error, unless popularity cannot have more
        of the budget.
        """
        n_measured = n_users / self.stride
        doubled, first, *others = (noisy / (UNIT * n_measured)).tolist()
        gains = [first, *(first + other for other in others)]
        popularity = Candidate(0.0, 0.0)
        scores = {popularity: -spared * doubled, **dict(zip(self.candidates, gains, strict=True))}
        best = max(self.candidates, key=scores.__getitem__)
        gain = scores[best] - scores[popularity]
        error = self.width / n_measured * math.sqrt(1 + spared**2 + (best != self.candidates[0]))
        return Decision(best if gain > error * (spared > 0) else popularity, scores, gain, error)


class Form(Protocol):
    """How a system centres rows, and the trace of the users' matrix."""

    @property
    def weight(self) -> float:
        """Trace of the users' matrix."""

    def public(self, item_means: np.ndarray) -> NDArray[np.float64]:
        """Return the mean that users are sent, for a noisy one."""

    def about(self, mean: np.ndarray) -> PairMatrix:
        """Return an empty matrix beside the popularity of a mean of the rows."""


def measurement_state(
    planned: MeasurementState, factors: np.ndarray, form: Form, mean: NoisyMean, noise: float
) -> MeasurementState:
    """Return the state of a measurement of these factors, whose noise has this standard deviation."""
    strongest = np.zeros_like(planned.factors)
    rank = min(strongest.shape[1], factors.shape[1])
    strongest[:, :rank] = factors[:, :rank]
    now, noisier = (form.public(values) for values in (mean.values, mean.noisier()))
    root, own_squares = math.sqrt(form.weight), form.about(now).own_squares
    return MeasurementState(strongest, root * now, root * noisier, own_squares, np.array([noise]))


def _hashes(rows: Interactions) -> NDArray[np.int64]:
    """Return a hash of the items of each user, from 0 to 2^32 - 1."""
    ends = np.zeros(rows.n_interactions + 1, dtype=np.uint32)
    products = ends[1:]  # modulo 2^32, as all of it; in place, since pages of memory cost more than the arithmetic
    np.add(rows.indices.view(np.uint32), np.uint32(1), out=products)
    products *= np.uint32(2_654_435_761)
    np.cumsum(products, dtype=np.uint32, out=products)
    return np.diff(ends[rows.indptr]).astype(np.int64)


def expected_ndcgs(
    users: np.ndarray, items: np.ndarray, held_out: np.ndarray, rest: Interactions, n_threads: int
) -> NDArray[np.float64]:
    """Return the expected nDCG@10 of a held-out item among 99 random unseen items: 1 / log2(1 + rank), or 0.

    Parameters
    ----------
    users : ndarray of shape (n_users, n_factors), float32
        Inner products with `items` are the scores.
    items : ndarray of shape (n_items, n_factors), float32
        Factors of all items.
    held_out : ndarray of shape (n_users,), int32
        One item of each user.
    rest : Interactions
        The users' other items.
    n_threads : int
        The result does not depend on it.

    Returns
    -------
    ndarray of shape (n_users,), float64
        Ties count as half.
    """
    each = np.arange(rest.n_users + 1)
    above, same = places_factors(users, items, (each, held_out), seen=rest, n_threads=n_threads)
    n_others = np.maximum(rest.n_items - 1 - rest.interactions_per_user(), 1)
    better = (above + (same - 1) / 2) / n_others
    # How many of 99 draws are above the item is binomial, with draws taken as independent.  Products and sums alone
    # have the same bits at every place of an array, so that no answer depends on other users.
    worse, gains, power = 1.0 - better, np.ones(rest.n_users), np.ones(rest.n_users)
    for n_better in range(1, _N_TOP):
        power *= better
        gains = gains * worse + math.comb(_N_SAMPLED, n_better) / math.log2(n_better + 2) * power
    for _ in range(_N_SAMPLED - _N_TOP + 1):
        gains *= worse
    return gains


def _scaled(factors: np.ndarray, axis: int | None) -> NDArray[np.float32]:
    """Return factors in single precision with 1 as the largest magnitude of a row or of all: no product overflows."""
    highest, lowest = (of(factors, axis=axis, keepdims=True, initial=0.0) for of in (np.max, np.min))
    largest = np.maximum(np.maximum(highest, -lowest), np.finfo(float).tiny)
    return np.divide(factors, largest, out=np.empty(factors.shape, np.float32), casting="same_kind")


def _clipped(differences: np.ndarray) -> NDArray[np.int64]:
    """Return rows of whole numbers of norm at most `UNIT`, rounded towards 0; infinite numbers and NaN count as 0."""
    finite = np.nan_to_num(differences, nan=0.0, posinf=0.0, neginf=0.0)
    norms = np.maximum(np.sqrt(np.square(finite).sum(axis=1, keepdims=True)), 1.0)
    whole = np.trunc(finite / norms * UNIT).astype(np.int64)
    # Rounding of the quotients might bring a norm above the unit.
    whole[np.square(whole).sum(axis=1) > UNIT**2] //= 2
    return whole
