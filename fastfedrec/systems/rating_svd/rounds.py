"""Reports of Laplace-RR-SVD's users and the server's checks of them.

There is one round: all users send randomized ratings, and the server trains on them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.rating_svd import laplace_rr_svd as _kernel
from fastfedrec.accounting import LocalReports, RoundTraffic, Unprotected
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.memory import Array, Arrays
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.pairs import sort_pairs
from fastfedrec.evaluation.splits import choose_entries
from fastfedrec.mechanisms import Channel, PublishedLaplaceRR, RatedOrNot
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update

__all__ = ["RatingRounds", "RatingState", "nearest_codes", "on_scale", "reports_memory", "truth_statement"]

_REPORTS = "laplace_rr_svd.reports"
_SEED = "laplace_rr_svd.training"
_CHOICE = "laplace_rr_svd.ratings"


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


@dataclass(frozen=True, eq=False)
class RatingRounds(FederatedSystem):
    """The round of Laplace-RR-SVD, in which each user's device sends reports of the user's ratings.

    Parameters
    ----------
    mechanism : Channel, PublishedLaplaceRR or None
        Randomizer of one rating; None for exact ratings.
    grid : tuple of float
        Possible ratings, increasing.
    max_ratings : int or None
        Largest number of ratings that a user sends; None for all of them.
    n_reports : int
        Number of reports of each user, at most the number of items, if `mechanism` is a `RatedOrNot`.
    mean_reports : float
        Mean number of reports of a user, for traffic.
    """

    mechanism: Channel | PublishedLaplaceRR | None
    grid: tuple[float, ...]
    max_ratings: int | None
    n_reports: int
    mean_reports: float

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
        return np.uint16 if isinstance(self.mechanism, Channel) else np.float64

    @property
    def _hides_items(self) -> bool:
        """Return whether the reports hide the rated items."""
        return isinstance(self.mechanism, RatedOrNot)

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
        mechanism, users = self.mechanism, shard.global_user_ids
        if mechanism is not None:
            key.claim_message(_REPORTS, round, sender)
        if isinstance(mechanism, RatedOrNot):
            # Code 0 is the value "not rated".
            codes = nearest_codes(shard, self.grid) + np.uint8(1)
            items, reports = self._report_items(mechanism, shard, codes, key, round_number, n_threads)
            users = np.repeat(users, self.n_reports)
        else:
            shard = shard.keep_interactions(self._choose(shard, key, n_threads))
            items, users = shard.indices.astype(np.int64), np.repeat(users, shard.interactions_per_user())
            reports = self._report_ratings(shard, key, round_number, n_threads)
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
        n = n_clients * self.n_reports if self._hides_items else None
        if isinstance(self.mechanism, Channel):
            report = ArrayRule(np.uint16, (n,), 0, len(self.mechanism.outputs) - 1)
        elif self.mechanism is None:
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
        max_reports = self.n_reports if self._hides_items else self.max_ratings
        if max_reports is not None and n_largest > max_reports:
            return f"a user has {n_largest} reports in it, and {max_reports} are allowed"
        if by_pair is not None:
            rows, items = rows[by_pair], items[by_pair]
        return "a user reports an item twice" if _is_repeated(rows, items).any() else None

    def round_event(self, n_clients: int) -> LocalReports | Unprotected:
        """Return the event for all of a user's data, unprotected unless the rated items are hidden."""
        if self.mechanism is None:
            return Unprotected("exact ratings, and which items they are of")
        if isinstance(self.mechanism, PublishedLaplaceRR):
            p = self.mechanism.truth_probability
            return Unprotected(f"ratings with Laplace noise, but the exact rating with probability {p:.3f}")
        if self._hides_items:
            epsilon = self.mechanism.epsilon
            return LocalReports("randomized response on rating or none", epsilon, self.n_reports, n_clients)
        return Unprotected("which items each user has rated")

    def traffic(self, state: RatingState, n_clients: int) -> RoundTraffic:
        """Return the traffic of an average user: up, an item (4 bytes) and a report (1, 2 or 8 bytes) per rating."""
        report_bytes = (1 if len(self.mechanism.outputs) <= 256 else 2) if isinstance(self.mechanism, Channel) else 8
        return RoundTraffic(download=0, upload=round((4 + report_bytes) * self.mean_reports), n_clients=n_clients)

    # ---- on the device ------------------------------------------------------------------------------------------

    def _choose(self, shard: Interactions, key: Key, n_threads: int) -> np.ndarray:
        """Return a mask of the ratings to send: all of them, or `max_ratings` of a user, drawn uniformly."""
        lengths = shard.interactions_per_user()
        if self.max_ratings is None or not shard.n_interactions or lengths.max() <= self.max_ratings:
            return np.ones(shard.n_interactions, dtype=bool)
        counts = np.minimum(lengths, self.max_ratings)
        return choose_entries(shard.indptr, shard.global_user_ids, counts, key.subkey(_CHOICE), n_threads)

    def _report_ratings(self, shard: Interactions, key: Key, round_number: int, n_threads: int) -> np.ndarray:
        """Return the randomized reports of a shard's ratings."""
        if self.mechanism is None:
            return on_scale(shard, self.grid, is_exact=True)
        if isinstance(self.mechanism, PublishedLaplaceRR):
            # The published mechanism draws two words per rating: the Laplace noise, and the choice.
            two_each = 2 * shard.interactions_per_user()
            words, _ = key.ragged_words(
                _REPORTS, shard.global_user_ids, two_each, round=round_number, n_threads=n_threads
            )
            return self.mechanism._report(on_scale(shard, self.grid, is_exact=False), words.reshape(-1, 2))
        codes = nearest_codes(shard, self.grid)
        reports = np.empty(len(codes), dtype=np.uint16)
        _kernel.report_ratings(
            shard.indptr, codes, shard.global_user_ids, *self.mechanism._thresholds, reports, key.subkey(_REPORTS),
            round_number, n_threads,
        )  # fmt: skip
        return reports

    def _report_items(
        self, channel: RatedOrNot, shard: Interactions, codes: np.ndarray, key: Key, round_number: int, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the items of the reports, drawn independently of the data, and the randomized reports."""
        shape = shard.n_users, self.n_reports
        items, reports = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.uint16)
        failed = np.zeros(n_threads, dtype=np.int64)
        _kernel.report_items(
            shard.indptr, shard.indices, codes, shard.global_user_ids, *channel._thresholds, items, reports, failed,
            key.subkey(_REPORTS), round_number, shard.n_items, n_threads,
        )  # fmt: skip
        if failed.any():
            raise MemoryError("no memory for a thread's marks, one bit an item; use fewer threads")
        return items.reshape(-1), reports.reshape(-1)


def nearest_codes(shard: Interactions, grid: Sequence[float]) -> NDArray[np.uint8]:
    """Return the position of the nearest grid value of each rating."""
    values, points = shard.values_or_ones(), np.array(grid, dtype=np.float64)
    codes = np.zeros(len(values), dtype=np.uint8)
    # The grid is short, and comparisons with its middles are 20 times as fast as a binary search.
    for middle in (points[1:] + points[:-1]) / 2:
        codes += values >= middle
    return codes


def on_scale(shard: Interactions, grid: Sequence[float], *, is_exact: bool) -> NDArray[np.float64]:
    """Return ratings clipped to the ends of the grid, and rounded to it unless they are exact."""
    if is_exact:
        return np.clip(shard.values_or_ones(), grid[0], grid[-1])
    return np.array(grid, dtype=np.float64)[nearest_codes(shard, grid)]


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


def reports_memory(n_reports: int) -> Arrays:
    """Return the arrays of the server that receives and decodes reports."""
    return {
        "users and items, received and sorted": Array.of("int64", 4, n_reports),
        "values, decoded and centred": Array.of("float64", 2, n_reports),
    }


def truth_statement(published: PublishedLaplaceRR) -> str:
    """Return the note about the published mechanism for the ledger."""
    p, claim = published.truth_probability, Fraction(published.epsilon_1) + Fraction(published.epsilon_2)
    return (
        f"The paper of the variant 'published' states epsilon {float(claim):g}, but no epsilon holds. A rating r gives "
        f"the report r with probability {p:.3f}, and no other rating gives this report. Hence delta is {p:.3f} for "
        f"each epsilon of at least {published.epsilon_1:g}."
    )
