"""Rounds in which users send plain messages about cells among fake messages, and estimates from their counts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import ChosenMessages, RoundTraffic, ShuffledCounts
from fastfedrec.core.check import check_instance
from fastfedrec.core.memory import Array, Arrays, check_memory, total_bytes
from fastfedrec.core.numbers import float_up
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.fit import Phase
from fastfedrec.rounds.system import ArrayRule, DeploymentTerms, FederatedSystem, Update
from fastfedrec.systems._linear_scores import popularity_shares
from fastfedrec.systems._pair_matrix import PairMatrix
from fastfedrec.systems.claims import FEWER_ITEMS
from fastfedrec.systems.gram.fake_messages import MAX_THREADS, FakeMessages, choose_ranks, shares_of_rows
from fastfedrec.systems.measurement import NoisyMean

__all__ = [
    "TERMS",
    "CellRound",
    "CellState",
    "CountReader",
    "FirstCellRound",
    "LastCellRound",
    "counts_memory",
    "split_pairs",
]

#: Conditions of a run with data on nodes.
TERMS = DeploymentTerms(
    only_simulated="its messages need a shuffler, and there is none between these nodes and the server",
    note="There was no shuffler between nodes and server. The figure behind a shuffler is for the deployment that this "
    "run simulates, and it holds for no message of this run.",
)
_CHUNK = 2**20  # approximate number of messages in memory at the same time
_BYTES = 4  # bytes of a message


def counts_memory(n_items: int, n_threads: int) -> Arrays:
    """Return the arrays of a round about pairs.

    Parameters
    ----------
    n_items, n_threads : int
        Numbers of items and of threads.

    Returns
    -------
    mapping of str to Array
        Arrays by name.
    """
    return {
        "counts": Array.of("int64", 1 + min(n_threads, MAX_THREADS), n_items * (n_items - 1) // 2),
        "messages": Array.of("int64", 3, _CHUNK),
    }


@dataclass(frozen=True)
class CellState:
    """The round's result; the server broadcasts nothing."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # messages about each cell
    n_users: int = 0  # number of users who sent them


class CellRound(FederatedSystem):
    """One round in which each user sends messages about single items, or about pairs of items, through a shuffler.

    A message is the number of a cell.  `n_messages` bounds the sum of squares of a user's numbers of messages about its
    data, which is the same for all its cells, and `fake_rate` is the mean number of its fake messages about each cell.
    """

    _stream: ClassVar[str] = "shuffled_gram"
    #: Round of reports that an earlier release may choose in place of this one, for the ledger.
    other: Any = None

    def __init__(self, n_items: int, n_messages: int, fake_rate: float, has_pairs: bool, honest_fraction: float = 1.0):
        self.n_items, self.n_messages, self.has_pairs = n_items, n_messages, has_pairs
        self.honest_fraction = honest_fraction
        self.n_cells = n_items * (n_items - 1) // 2 if has_pairs else n_items
        self.fakes = FakeMessages.of(fake_rate, self.n_cells)

    def _purpose(self, draws: str) -> str:
        return f"{self._stream}.{'pairs' if self.has_pairs else 'items'}.{draws}"

    @property
    def _subject(self) -> str:
        """The subject of messages, for the ledger."""
        return "pairs" if self.has_pairs else "items"

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self, key: Key) -> CellState:
        """Return the state before the round, which has no draws."""
        check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
        return CellState()

    def local_round(
        self,
        state: CellState,
        shard: Interactions,
        key: Key,
        round: int,
        *,
        sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Update:
        """Draw and count one shard's messages."""
        if self.has_pairs:
            check_memory(
                "a shard of ShuffledGram", self.n_items,
                lambda n: total_bytes(counts_memory(n, resolve_n_threads(n_threads))), FEWER_ITEMS, speaks=False,
            )  # fmt: skip
        key.claim_message(self._purpose("messages"), round, sender)
        users = np.asarray(shard.global_user_ids, dtype=np.uint64)
        numbers = self._numbers(users, key, round, n_threads)
        counts = self.fakes.counts(key, self._purpose("fakes"), users, numbers, round, n_threads)
        for block in _blocks(shard.n_users, self.n_messages):
            cells = self._own_cells(shard._user_range(block.start, block.stop), users[block], key, round)
            counts += np.bincount(cells, minlength=self.n_cells)
        return Update(round, sender, shard.n_users, {"counts": counts})

    def messages(
        self, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0", n_threads: int = 0
    ) -> NDArray[np.uint32]:
        """Return the messages that `local_round` counts, for a shuffler; their order has information about users."""
        key.claim_message(self._purpose("messages"), round, sender)
        users = np.asarray(shard.global_user_ids, dtype=np.uint64)
        numbers = self._numbers(users, key, round, n_threads)
        parts = [np.empty(0, np.uint32)]
        for block in _blocks(shard.n_users, self.n_messages + float(self.fakes.total)):
            own = self._own_cells(shard._user_range(block.start, block.stop), users[block], key, round)
            fakes = self.fakes.cells(key, self._purpose("fakes"), users[block], numbers[block], round, n_threads)
            parts += own.astype(np.uint32), fakes.astype(np.uint32)
        return np.concatenate(parts)

    def apply(self, state: CellState, update: Update) -> CellState:
        """Return the counts."""
        return CellState(update.arrays["counts"], update.n_clients)

    def about_items(self) -> "CellRound":
        """Return a round about items with the cost and the class of this one, which takes its place."""
        other = type(self)(self.n_items, self.n_messages, self.fakes.rate, False, self.honest_fraction)
        other.other = self.other
        return other

    # ---- what a server accepts ----------------------------------------------------------------------------------

    def zero_update(self, state: CellState, round: int) -> Update:
        """Return the identity of `merge`."""
        return Update(round, "nobody", 0, {"counts": np.zeros(self.n_cells, dtype=np.int64)})

    def rules(self, state: CellState, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return the rules of an update: no count exceeds the largest number of messages."""
        most = n_clients * (self.n_messages + self.fakes.table.high)
        return {"counts": ArrayRule(np.int64, (self.n_cells,), 0, most)}

    def round_event(self, n_clients: int) -> ShuffledCounts | ChosenMessages:
        """Return the event of the round's privacy cost."""
        counts = self.own_event(n_clients)
        return (
            counts
            if self.other is None
            else ChosenMessages.of(f"messages about {self._subject}", self.other.own_event(n_clients), counts)
        )

    def own_event(self, n_clients: int) -> ShuffledCounts:
        """Return the event of the counts, without another kind of messages that may take their place."""
        return ShuffledCounts(
            f"counts of {self._subject}",
            self.fakes.rate,
            self.n_messages,
            n_clients,
            self.honest_fraction,
            neighboring="zero_out",
            distance=min(1.0, float_up(n_clients * self.fakes.table.total_variation)),
        )

    def traffic(self, state: CellState, n_clients: int) -> RoundTraffic:
        """Return the traffic of the round: nothing down, and the mean number of messages of 4 bytes up."""
        return RoundTraffic(0, _BYTES * (self.n_messages + -int(-self.fakes.total // 1)), n_clients)

    # ---- messages -----------------------------------------------------------------------------------------------

    def _numbers(self, users: np.ndarray, key: Key, round_number: int, n_threads: int) -> NDArray[np.int64]:
        """Return the number of fake messages of each user."""
        words = key.words_by_user(self._purpose("numbers"), users, round=round_number, size=2, n_threads=n_threads)
        return self.fakes.table.draw(words)

    def _own_cells(self, shard: Interactions, users: np.ndarray, key: Key, round_number: int) -> NDArray[np.int64]:
        """Return the cells of the messages about users' data."""
        lengths = shard.interactions_per_user()
        n_cells = lengths * (lengths - 1) // 2 if self.has_pairs else lengths
        times, sizes = shares_of_rows(n_cells, self.n_messages)
        owners, ranks, repeats = [], [], []
        is_whole = sizes == n_cells
        whole = np.flatnonzero(is_whole)
        starts = np.cumsum(sizes[whole]) - sizes[whole]
        owners.append(np.repeat(whole, sizes[whole]))
        ranks.append(np.arange(len(owners[0])) - np.repeat(starts, sizes[whole]))
        repeats.append(times[owners[0]])
        for size in np.unique(sizes[~is_whole]).tolist():
            some = np.flatnonzero(~is_whole & (sizes == size))
            words = key.words_by_user(self._purpose("choice"), users[some], round=round_number, size=size)
            ranks.append(choose_ranks(words, n_cells[some]).ravel())
            owners.append(np.repeat(some, size))
            repeats.append(np.repeat(times[some], size))
        owner, rank = np.concatenate(owners), np.concatenate(ranks)
        return np.repeat(self._cells_of(shard, owner, rank), np.concatenate(repeats))

    def _cells_of(self, shard: Interactions, owner: np.ndarray, rank: np.ndarray) -> NDArray[np.int64]:
        """Return the cells with these numbers among the cells of their owners."""
        first = shard.indptr[owner]
        if not self.has_pairs:
            return shard.indices[first + rank].astype(np.int64)
        # The pair (a, b), a < b, has the number b (b - 1) / 2 + a.
        later, earlier = split_pairs(rank)
        i, j = shard.indices[first + earlier].astype(np.int64), shard.indices[first + later].astype(np.int64)
        low, high = np.minimum(i, j), np.maximum(i, j)
        return high * (high - 1) // 2 + low


class FirstCellRound(CellRound):
    """The round about items before a choice; it has a random stream of its own."""

    _stream = "shuffled_gram.first"


class LastCellRound(CellRound):
    """The round about items after the decision; it has a random stream of its own."""

    _stream = "shuffled_gram.last"


def _blocks(n_users: int, n_messages: float) -> Iterator[slice]:
    """Yield blocks of users who send about `_CHUNK` messages, `n_messages` each."""
    step = max(1, int(_CHUNK // n_messages))
    return (slice(start, min(start + step, n_users)) for start in range(0, n_users, step))


def split_pairs(numbers: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the larger and the smaller member of the pairs with these numbers.

    Parameters
    ----------
    numbers : ndarray of int64
        Numbers b (b - 1) / 2 + a of pairs a < b, below 2^50.

    Returns
    -------
    larger, smaller : ndarray of int64
        Members b and a.
    """
    later = ((1 + np.sqrt(1 + 8.0 * numbers)) / 2).astype(np.int64)
    later -= later * (later - 1) // 2 > numbers  # a root that was rounded up
    later += later * (later + 1) // 2 <= numbers
    return later, numbers - later * (later - 1) // 2


@dataclass(frozen=True)
class CountReader:
    """Estimates from counts of messages; `n_users` is the public number of users."""

    n_users: int

    @staticmethod
    def counts(phase: Phase) -> NDArray[np.float64]:
        """Return the number of messages about each cell in a round, without the mean number of fakes."""
        system, state, _ = phase
        return state.counts - state.n_users * float(system.fakes.total) / system.n_cells

    def means(self, rounds: Sequence[Phase]) -> NDArray[np.float64]:
        """Return the number of messages about each item for each user, from all rounds about items."""
        # The best weights of counts are in proportion to the signal over the variance of the noise.
        about_items = [phase for phase in rounds if not phase.system.has_pairs]
        weights = [phase.system.n_messages / phase.system.fakes.rate for phase in about_items]
        return np.average([self.counts(phase) for phase in about_items], axis=0, weights=weights) / self.n_users

    def noisy_mean(self, rounds: Sequence[Phase]) -> NoisyMean:
        """Return the number of messages about each item by the first round, with its noise."""
        return NoisyMean(self.means(rounds[:1]), _noise(rounds[:1]) / self.n_users, 1.0)

    def squares(self, rounds: Sequence[Phase]) -> float:
        """Return the sum over users of messages about each pair, times items, if all rows have the same length."""
        about_pairs = [phase for phase in rounds if phase.system.has_pairs]
        return math.fsum(
            _trace(float(self.counts(phase).sum()), phase.system.n_messages, phase.state.n_users)
            for phase in about_pairs
        )

    def pairs(self, rounds: Sequence[Phase]) -> PairMatrix:
        """Return the matrix of pairs, from the messages of all rounds about pairs."""
        about_pairs = [phase for phase in rounds if phase.system.has_pairs]
        counts, n_items = np.sum([self.counts(phase) for phase in about_pairs], axis=0), about_pairs[0].system.n_items
        values = np.zeros((n_items, n_items), dtype=np.float32)
        for item in range(1, n_items):
            start = item * (item - 1) // 2
            values[item, :item] = values[:item, item] = counts[start : start + item]
        means = self.means(rounds)
        squares = self.squares(rounds) * popularity_shares(means)
        return PairMatrix(values, _noise(about_pairs), squares, common_scores=means)


def _noise(rounds: Sequence[Phase]) -> float:
    """Return the standard deviation of a cell's number of fake messages in all rounds."""
    return math.sqrt(sum(state.n_users * float(system.fakes.total) / system.n_cells for system, state, _ in rounds))


def _trace(n_pairs: float, n_messages: int, n_users: int) -> float:
    """Return the sum over users of messages for each pair, times items, if all users have rows of one length."""
    # A user with P pairs sends about sqrt(n_messages P) messages, and has (1 + sqrt(1 + 8 P)) / 2 items.
    mean = min(max(n_pairs / n_users, 1.0), float(n_messages))
    length = (1 + math.sqrt(1 + 8 * max(1.0, mean**2 / n_messages))) / 2
    return 2 * mean * n_users / (length - 1)
