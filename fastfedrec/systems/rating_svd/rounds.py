"""Reports of Laplace-RR-SVD's users and the server's checks of them, for `laplace_rr_svd.LaplaceRRSVD`.

There is one round: all users send randomized ratings, and the server trains on them.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.rating_svd import laplace_rr_svd as _kernel
from fastfedrec.accounting import LocalReports, RoundTraffic, Unprotected
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.numbers import renamed
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.pairs import sort_pairs
from fastfedrec.data.remote_users import RemoteUsers
from fastfedrec.evaluation.splits import choose_entries
from fastfedrec.mechanisms import (
    BayesKary,
    Channel,
    MixtureLaplaceRR,
    PublishedLaplaceRR,
    RatedOrNot,
    RoundedLaplace,
    SerialLaplaceRR,
)
from fastfedrec.mechanisms.channels.exact_counts import sum_lower
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update

__all__ = ["RatingRounds", "RatingState", "truth_statement"]

_REPORTS = "laplace_rr_svd.reports"
_SEED = "laplace_rr_svd.training"
_CHOICE = "laplace_rr_svd.ratings"
_MAX_NOISE_SCALES = 12.0  # range of Laplace noise in its scales; larger noise has a probability of 6 in a million

_NAMES = {
    "optimal": "k-ary channel of least Bayes error",
    "mixture": "Laplace noise or the rating, in a certified mixture,",
    "serial": "Laplace noise and then randomized response",
    "laplace": "Laplace noise",
}


@functools.lru_cache(maxsize=256)
def rating_channel(
    variant: str,
    epsilon_1: float,
    epsilon_2: float,
    grid: tuple[float, ...],
    prior: tuple[float, ...] | None = None,
) -> Channel:
    """Return the exact channel of one rating in a guaranteed variant."""
    if variant == "serial":
        return SerialLaplaceRR(epsilon_1, epsilon_2, grid)
    if variant == "mixture":
        return MixtureLaplaceRR(epsilon_1, epsilon_2, grid)
    # The sum of the epsilons, rounded down, so that the channel never exceeds the claim.
    total = sum_lower(epsilon_1, epsilon_2)
    return (
        BayesKary(total, grid, prior) if variant == "optimal" else RoundedLaplace(total, grid, margin=_MAX_NOISE_SCALES)
    )


@functools.lru_cache(maxsize=16)
def _hiding_channel(epsilon: float, grid: tuple[float, ...]) -> RatedOrNot:
    """Return the channel of one report if rated items are hidden."""
    return RatedOrNot(epsilon, grid)


@dataclass(frozen=True)
class RatingState:
    """The server's state.

    Parameters
    ----------
    global_user_ids : ndarray of shape (n_users,), uint64
        Participating users.
    n_items : int
        Size of the public catalogue.
    users, items : ndarray of shape (n_reports,), int64
        Row and column of each received report, by user and then by item.
    reports : ndarray of shape (n_reports,)
        Received reports: positions in the channel's outputs, or ratings without a channel.
    seed : int
        Public seed of the training, which reveals no information about the key that it was drawn from.
    """

    global_user_ids: NDArray[np.uint64]
    n_items: int
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    reports: np.ndarray
    seed: int


class RatingRounds(FederatedSystem):
    """The round of Laplace-RR-SVD with the parameters of `laplace_rr_svd.LaplaceRRSVD`."""

    variant: str | None
    epsilon_1: float
    epsilon_2: float
    max_ratings: int | None
    hide_items: bool
    n_reports: int
    grid: Sequence[float]
    prior: Sequence[float] | None

    _max_reports: int | None = None  # of one user; the server knows it anyway unless rated items are hidden
    _mean_length = 0.0

    @property
    def channel(self) -> Channel | None:
        """Exact channel of one report; None for "published" and without privacy, which have no channel."""
        if self.variant is None or self.variant == "published":
            return None
        grid = tuple(map(float, self.grid))
        prior = None if self.prior is None else tuple(map(float, self.prior))
        with renamed("nominal_epsilon", "epsilon_1 + epsilon_2"):
            if self.hide_items:
                return _hiding_channel(sum_lower(float(self.epsilon_1), float(self.epsilon_2)), grid)
            return rating_channel(self.variant, float(self.epsilon_1), float(self.epsilon_2), grid, prior)

    @property
    def published_mechanism(self) -> PublishedLaplaceRR:
        """Mechanism of the variant "published"."""
        return PublishedLaplaceRR(self.epsilon_1, self.epsilon_2, low=self.grid[0], high=self.grid[-1])

    def initial_state(self, interactions: Interactions, key: Key) -> RatingState:
        """Return the server's state without reports; the seed of its training is drawn from `key`."""
        check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
        none = np.zeros(0, dtype=np.int64)
        reports: np.ndarray = np.zeros(0, dtype=self._report_type)
        seed = int(key.words(_SEED, size=1)[0])
        return RatingState(interactions.global_user_ids, interactions.n_items, none, none, reports, seed)

    @property
    def _report_type(self) -> type:
        """Return the type of a report."""
        return np.float64 if self.channel is None else np.uint16

    # ---- the three functions ------------------------------------------------------------------------------------

    def local_round(
        self,
        state: RatingState,
        shard: Interactions,
        key: Key,
        round: int,
        *,
        sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Update:
        """Randomize the ratings of all users of a shard, with a random stream for each user.

        A rating off the grid counts as the nearest value on it, since errors must not depend on a user's data.
        """
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        n_threads = resolve_n_threads(n_threads)
        if self.variant is not None:
            key.claim_message(_REPORTS, round, sender)
        users = shard.global_user_ids
        channel = self.channel
        if isinstance(channel, RatedOrNot):
            n_reports = min(self.n_reports, shard.n_items)
            # Code 0 is the value "not rated".
            codes = self._codes(shard) + np.uint8(1)
            items, reports = self._report_items(channel, shard, codes, key, round_number, n_threads)
            users = np.repeat(users, n_reports)
        else:
            shard = shard.keep_interactions(self._choose(shard, key, n_threads))
            items, users = shard.indices.astype(np.int64), np.repeat(users, shard.interactions_per_user())
            reports = self._report_ratings(channel, shard, key, round_number, n_threads)
        return Update(round, sender, shard.n_users, {"user": users, "item": items, "report": reports})

    def merge(self, a: Update, b: Update) -> Update:
        """Concatenate two lists of reports."""
        arrays = {name: np.concatenate([a.arrays[name], b.arrays[name]]) for name in ("user", "item", "report")}
        return Update(a.round, "merged", a.n_clients + b.n_clients, arrays)

    def apply(self, state: RatingState, update: Update) -> RatingState:
        """Store the reports, sorted by user and item; the first report of a pair counts."""
        users, items, reports = (update.arrays[name] for name in ("user", "item", "report"))
        users = _rows_of(users, state.global_user_ids)
        _, by_pair = sort_pairs(users, items.astype(np.int32), len(state.global_user_ids), state.n_items)
        if by_pair is not None:
            users, items, reports = users[by_pair], items[by_pair], reports[by_pair]
        is_repeated = _is_repeated(users, items)
        if is_repeated.any():
            users, items, reports = users[~is_repeated], items[~is_repeated], reports[~is_repeated]
        return replace(state, users=users, items=items, reports=reports)

    # ---- checks of updates --------------------------------------------------------------------------------------

    def zero_update(self, state: RatingState, round: int) -> Update:
        """Return the identity of `merge`."""
        arrays = {
            "user": np.zeros(0, dtype=np.uint64),
            "item": np.zeros(0, dtype=np.int64),
            "report": np.zeros(0, dtype=self._report_type),
        }
        return Update(round, "nobody", 0, arrays)

    def rules(self, state: RatingState, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return type, shape and range of the arrays of an update."""
        channel = self.channel
        n = n_clients * min(self.n_reports, state.n_items) if self.hide_items else None
        if channel is not None:
            report = ArrayRule(np.uint16, (n,), 0, len(channel.outputs) - 1)
        elif self.variant is None:
            report = ArrayRule(np.float64, (n,), self.grid[0], self.grid[-1])
        else:
            report = ArrayRule(np.float64, (n,))
        return {
            "user": ArrayRule(np.uint64, (n,)),
            "item": ArrayRule(np.int64, (n,), 0, state.n_items - 1),
            "report": report,
        }

    def inconsistency(self, state: RatingState, update: Update) -> str | None:
        """Return why the fields of an update contradict each other, or None."""
        users, items, reports = (update.arrays[name] for name in ("user", "item", "report"))
        if not len(users) == len(items) == len(reports):
            return f"it has {len(users)} users, {len(items)} items and {len(reports)} reports"
        rows = _rows_of(users, state.global_user_ids)
        if (rows < 0).any():
            return "it has reports of users who do not take part"
        starts, by_pair = sort_pairs(rows, items.astype(np.int32), len(state.global_user_ids), state.n_items)
        counts = np.diff(starts)
        n_senders, n_largest = np.count_nonzero(counts), counts.max(initial=0)
        if n_senders > update.n_clients:
            return f"it has reports of {n_senders} users, and counts {update.n_clients}"
        max_reports = self.n_reports if self.hide_items else self.max_ratings
        if max_reports is not None and n_largest > max_reports:
            return f"a user has {n_largest} reports in it, and {max_reports} are allowed"
        if by_pair is not None:
            rows, items = rows[by_pair], items[by_pair]
        return "a user reports an item twice" if _is_repeated(rows, items).any() else None

    def round_event(self, n_clients: int) -> LocalReports | Unprotected:
        """Return the event for all of a user's data, unprotected unless items are hidden; see `values_event`."""
        if self.variant is None:
            return Unprotected("exact ratings, and which items they are of")
        channel = self.channel
        if channel is None:
            p = self.published_mechanism.truth_probability
            return Unprotected(f"ratings with Laplace noise, but the exact rating with probability {p:.3f}")
        if self.hide_items:
            n_reports = self.n_reports if self._max_reports is None else self._max_reports
            return LocalReports("randomized response on rating or none", channel.epsilon, n_reports, n_clients)
        return Unprotected("which items each user has rated")

    def values_event(self, channel: Channel, longest: int, n_clients: int) -> LocalReports:
        """Return the event for the values of a user's ratings, with the set of rated items given."""
        return LocalReports(f"{_NAMES[str(self.variant)]} on the ratings' values", channel.epsilon, longest, n_clients)

    def traffic(self, state: RatingState, n_clients: int) -> RoundTraffic:
        """Return the traffic of an average user: up, an item (4 bytes) and a report (1, 2 or 8 bytes) per rating."""
        channel = self.channel
        report_bytes = 4 + (8 if channel is None else 1 if len(channel.outputs) <= 256 else 2)
        return RoundTraffic(download=0, upload=round(report_bytes * self._mean_length), n_clients=n_clients)

    # ---- on the device ------------------------------------------------------------------------------------------

    def _measure(self, interactions: Interactions) -> None:
        """Set the number of reports of users, for the ledgers."""
        lengths = interactions.interactions_per_user()
        longest = int(lengths.max(initial=0))
        if self.hide_items:
            longest = min(self.n_reports, interactions.n_items)
            lengths = np.full(len(lengths), longest)
        elif self.max_ratings is not None:
            longest = self.max_ratings
            # For rows on nodes only this upper bound is known.
            lengths = np.where(isinstance(interactions, RemoteUsers), longest, np.minimum(lengths, longest))
        self._max_reports, self._mean_length = longest, float(lengths.mean()) if len(lengths) else 0.0

    def _codes(self, shard: Interactions) -> np.ndarray:
        """Return the position of the nearest grid value of each rating."""
        grid, values = np.array(self.grid, dtype=np.float64), shard.values_or_ones()
        codes = np.zeros(len(values), dtype=np.uint8)
        # The grid is short, and comparisons with its middles are 20 times as fast as a binary search.
        for middle in (grid[1:] + grid[:-1]) / 2:
            codes += values >= middle
        return codes

    def _on_scale(self, shard: Interactions) -> NDArray[np.float64]:
        """Return ratings clipped to the ends of the grid, and rounded to it unless the variant is None."""
        if self.variant is None:
            return np.clip(shard.values_or_ones(), self.grid[0], self.grid[-1])
        return np.array(self.grid, dtype=np.float64)[self._codes(shard)]

    def _choose(self, shard: Interactions, key: Key, n_threads: int) -> np.ndarray:
        """Return a mask of the ratings to send: all of them, or `max_ratings` of a user, drawn uniformly."""
        lengths = shard.interactions_per_user()
        if self.max_ratings is None or not shard.n_interactions or lengths.max() <= self.max_ratings:
            return np.ones(shard.n_interactions, dtype=bool)
        counts = np.minimum(lengths, self.max_ratings)
        return choose_entries(shard.indptr, shard.global_user_ids, counts, key.subkey(_CHOICE), n_threads)

    def _report_ratings(
        self,
        channel: Channel | None,
        shard: Interactions,
        key: Key,
        round_number: int,
        n_threads: int,
    ) -> np.ndarray:
        """Return the randomized reports of a shard's ratings."""
        if channel is None:
            values = self._on_scale(shard)
            if self.variant is None:
                return values
            # The published mechanism draws two words per rating: the Laplace noise, and the choice.
            two_each = 2 * shard.interactions_per_user()
            words, _ = key.ragged_words(
                _REPORTS, shard.global_user_ids, two_each, round=round_number, n_threads=n_threads
            )
            return self.published_mechanism._report(values, words.reshape(-1, 2))
        codes = self._codes(shard)
        reports = np.empty(len(codes), dtype=np.uint16)
        _kernel.report_ratings(
            shard.indptr, codes, shard.global_user_ids, *channel._thresholds, reports, key.subkey(_REPORTS),
            round_number, n_threads,
        )  # fmt: skip
        return reports

    def _report_items(
        self, channel: RatedOrNot, shard: Interactions, codes: np.ndarray, key: Key, round_number: int, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the items of the reports, drawn independently of the data, and the randomized reports."""
        shape = shard.n_users, min(self.n_reports, shard.n_items)
        items, reports = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.uint16)
        failed = np.zeros(n_threads, dtype=np.int64)
        _kernel.report_items(
            shard.indptr, shard.indices, codes, shard.global_user_ids, *channel._thresholds, items, reports, failed,
            key.subkey(_REPORTS), round_number, shard.n_items, n_threads,
        )  # fmt: skip
        if failed.any():
            raise MemoryError("no memory for a thread's marks, one bit an item; use fewer threads")
        return items.reshape(-1), reports.reshape(-1)


def _rows_of(users: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the position of each user in `ids`, or -1; each run of equal users needs one search."""
    # Reports arrive grouped by user, so there are far fewer runs than reports.
    begins = np.ones(len(users), dtype=bool)
    np.not_equal(users[1:], users[:-1], out=begins[1:])
    first = np.flatnonzero(begins)
    order = np.argsort(ids)
    rows = np.append(order, -1)[np.searchsorted(ids, users[first], sorter=order)]
    known = rows >= 0
    known[known] = ids[rows[known]] == users[first[known]]
    rows[~known] = -1
    return np.repeat(rows, np.diff(first, append=len(users)))


def _is_repeated(users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Return whether each pair equals the pair before it."""
    is_repeated = np.zeros(len(users), dtype=bool)
    is_repeated[1:] = (users[1:] == users[:-1]) & (items[1:] == items[:-1])
    return is_repeated


def truth_statement(published: PublishedLaplaceRR) -> str:
    """Return the note about the published mechanism for the ledger."""
    p, claim = published.truth_probability, Fraction(published.epsilon_1) + Fraction(published.epsilon_2)
    return (
        f"variant 'published': the paper states {float(claim):g}, and no epsilon holds: the report is exactly r with "
        f"probability {p:.3f} where the rating is r, and never where it is another; delta is {p:.3f} for every "
        f"epsilon from {published.epsilon_1:g} on"
    )
