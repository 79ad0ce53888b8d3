"""Training of factors by epochs: ratings in blocks, the numbers being trained, and the threads.

Users and items are spread over `n_blocks` blocks each, so that all blocks hold about as many ratings; an epoch visits
the pairs of blocks in a fixed order, in which tasks that run at once share no row.  So the result depends on the key
and on `n_blocks`, never on the threads.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from fastfedrec._kernels.compute import _sgd_blocks as _blocks
from fastfedrec._kernels.compute import sgd as _kernel
from fastfedrec.core.randomness import Key

if TYPE_CHECKING:
    from fastfedrec.compute._sgd_loss import CompiledLoss

# Block borders fall on borders of cache lines, also where a row is one float32 (a bias).
_ROW_MULTIPLE = _kernel.LINE_BYTES // 4
_N_CHUNKS = 64


@dataclass(frozen=True)
class Ratings:
    """A rating list by rows, as the kernels take it; mean losses are divided by `total_weight`."""

    records: np.ndarray
    total_weight: float
    largest: float  # of the ratings' absolute values

    @classmethod
    def of(cls, records: np.ndarray, ratings: np.ndarray, weights: np.ndarray) -> "Ratings":
        """With the two numbers of `ratings` and `weights`, which are quicker to read than `records`."""
        total = float(weights.sum(dtype=np.float64)) if weights.size else float(len(ratings))
        return cls(records, total, max(float(ratings.max()), -float(ratings.min())))


def spread_rows(counts: np.ndarray, n_blocks: int) -> tuple[np.ndarray, int]:
    """Give each id a row, so that blocks of rows of one length have about as many ratings; (row of id, block length).

    Ids in falling order of ratings are dealt out to the blocks there and back: frequent rows lie close together too.
    """
    n_ids = len(counts)
    order = np.argsort(-counts, kind="stable")
    rank = np.arange(n_ids)
    turn = rank % (2 * n_blocks)
    length = -(-n_ids // n_blocks)
    length += -length % _ROW_MULTIPLE
    row = np.empty(n_ids, dtype=np.int64)
    row[order] = np.minimum(turn, 2 * n_blocks - 1 - turn) * length + rank // n_blocks
    return row, length


def spread_bits(numbers: np.ndarray) -> np.ndarray:
    """Bits 0, 1, 2 and so on at places 0, 2, 4: what Morton order is made of."""
    return sum(((numbers >> place & 1) << 2 * place for place in range(32)), start=np.zeros_like(numbers))


def _counts(ids: np.ndarray, n_ids: int) -> np.ndarray:
    counts = np.zeros(n_ids, dtype=np.int64)
    _blocks.count_ids(ids, counts)
    return counts


class State:
    """All numbers of a model, in one piece of memory: copied and checked at once."""

    def __init__(self, n_user_rows: int, n_item_rows: int, n_factors: int, dtype: DTypeLike, biases: bool):
        dtype = np.dtype(dtype)
        lanes = _kernel.LINE_BYTES // dtype.itemsize
        width = n_factors + -n_factors % lanes
        in_rows = biases and n_factors + 2 <= width
        beside = biases and not in_rows
        self.layout = _kernel.BIASES_IN_ROWS if in_rows else _kernel.BIASES_BESIDE if beside else _kernel.NO_BIASES
        n_bytes = (n_user_rows + n_item_rows) * (width + beside) * dtype.itemsize
        memory = np.zeros(n_bytes + _kernel.LINE_BYTES, dtype=np.uint8)
        first = -memory.ctypes.data % _kernel.LINE_BYTES
        self.numbers = memory[first : first + n_bytes].view(dtype)
        self.limit = float(np.finfo(dtype).max) ** 0.25  # of what products and sums of few stay finite
        ends = np.cumsum([n_user_rows * width, n_item_rows * width, n_user_rows * beside])
        user_rows, item_rows, self.user_biases, self.item_biases = np.split(self.numbers, ends)
        self.user_rows = user_rows.reshape(n_user_rows, width)
        self.item_rows = item_rows.reshape(n_item_rows, width)
        self.biases = (self.user_biases, self.item_biases) if beside else None  # of rows; None in a model without
        if in_rows:
            self.biases = self.user_rows[:, -2], self.item_rows[:, -1]
            self.user_rows[:, -1] = self.item_rows[:, -2] = 1

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """In the kernels' order."""
        return self.user_rows, self.item_rows, self.user_biases, self.item_biases

    def copy_from(self, other: "State") -> None:
        """Overwrite all numbers."""
        np.copyto(self.numbers, other.numbers)


class Training:
    """One training run over one rating list; a context manager, because it may hold threads."""

    def __init__(
        self,
        users: np.ndarray,
        items: np.ndarray,
        ratings: np.ndarray,
        weights: np.ndarray,
        *,
        shape: tuple[int, int],
        n_factors: int,
        biases: bool,
        loss: "str | CompiledLoss",
        mean: float,
        key: Key,
        n_blocks: int,
        n_threads: int,
    ):
        self.mean, self.n_factors = mean, n_factors
        self.n_tasks = 1 << (min(n_threads, n_blocks).bit_length() - 1)
        self._pool = ThreadPoolExecutor(self.n_tasks - 1) if self.n_tasks > 1 else None
        lengths = self._arrange(users, items, ratings, weights, shape, key, n_blocks)
        self._state_size = (n_blocks * lengths[0], n_blocks * lengths[1], n_factors, ratings.dtype, biases)
        self.state = self.new_state()
        self._weighted = weights.size > 0
        self._compiled_loss = None if isinstance(loss, str) else loss
        self._loss = (_kernel.LOSSES[loss], 0) if isinstance(loss, str) else (_kernel.OWN_LOSS, loss.address)
        self._failed = np.zeros((self.n_tasks, 2))  # pairs of which the user's loss has no value

    def _arrange(
        self,
        users: np.ndarray,
        items: np.ndarray,
        ratings: np.ndarray,
        weights: np.ndarray,
        shape: tuple[int, int],
        key: Key,
        n_blocks: int,
    ) -> tuple[int, int]:
        """Put the ratings in order, by blocks and at random within each; the lengths of blocks of users and items."""
        words, (self.user_row, user_length), (self.item_row, item_length) = self._run_all(
            lambda: key.words("sgd.order", size=len(users)),
            lambda: spread_rows(_counts(users, shape[0]), n_blocks),
            lambda: spread_rows(_counts(items, shape[1]), n_blocks),
        )
        pairs = users, items
        # Users' block j and items' block i meet in stratum i ^ j, and lie in memory in Morton order of (stratum, j): in
        # such numbers the bits of j are spread over every other place, 2 spread(i ^ j) | spread(j).
        spread = spread_bits(np.arange(n_blocks))
        blocks = 3 * spread[self.user_row // user_length], 2 * spread[self.item_row // item_length]
        counts = np.zeros((self.n_tasks, n_blocks**2), dtype=np.int64)
        self._run(lambda task: _blocks.count_blocks(*pairs, *blocks, counts, task))
        # A block holds the first task's ratings, then the second's: the order they came in, however many tasks.
        ends = counts.T.cumsum().reshape(-1, self.n_tasks).T
        slots = np.ascontiguousarray(ends - counts, dtype=np.uint64)
        self._starts = np.append(slots[0], np.uint64(len(users)))
        records = np.empty(len(users), dtype=_blocks.record_type(ratings.dtype))
        rows = self.user_row, self.item_row
        self._run(lambda task: _blocks.place_ratings(*pairs, ratings, weights, *rows, *blocks, slots, records, task))
        self._run(lambda task: _blocks.shuffle_blocks(words, self._starts, records, task, self.n_tasks))
        self._block_losses = np.zeros(n_blocks**2)
        self._arrivals = np.zeros((self.n_tasks, _kernel.COUNTERS_A_LINE), dtype=np.int64)
        self.data = Ratings.of(records, ratings, weights)
        return user_length, item_length

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def new_state(self) -> State:
        """Room for a copy of the state."""
        return State(*self._state_size)

    def draw_start(self, key: Key, init_scale: float) -> None:
        """Normal factors of standard deviation `init_scale`, as `Key.normal` draws them; biases stay 0."""
        from scipy.special import ndtri

        sides = ("user", self.state.user_rows, self.user_row), ("item", self.state.item_rows, self.item_row)
        draw = [
            functools.partial(key.uniform, f"sgd.{name}_factors", size=row.size * self.n_factors)
            for name, _, row in sides
        ]
        uniforms = self._run_all(*draw)

        def fill(task: int) -> None:
            for (_, rows, row), uniform in zip(sides, uniforms, strict=True):
                part = slice(task * row.size // self.n_tasks, (task + 1) * row.size // self.n_tasks)
                rows[row[part], : self.n_factors] = init_scale * ndtri(uniform.reshape(row.size, -1)[part])

        self._run(fill)

    def biases(self) -> tuple[np.ndarray, np.ndarray]:
        """Of users and of items, by id; zeros in a model without."""
        if self.state.biases is None:
            dtype = self.state.numbers.dtype
            return np.zeros(self.user_row.size, dtype), np.zeros(self.item_row.size, dtype)
        user_biases, item_biases = self.state.biases
        return user_biases[self.user_row], item_biases[self.item_row]

    def by_row(self, users: np.ndarray, items: np.ndarray, ratings: np.ndarray, weights: np.ndarray) -> Ratings:
        """Another rating list of the same users and items."""
        records = np.empty(len(users), dtype=self.data.records.dtype)
        records["user"], records["item"], records["rating"] = self.user_row[users], self.item_row[items], ratings
        records["weight"] = weights if weights.size else 1
        return Ratings.of(records, ratings, weights)

    def run_epoch(
        self, rate: float, regularization: float, bias_regularization: float, kept: State
    ) -> tuple[float, bool]:
        """Visit every rating once, and copy the state to `kept`.

        Returns the mean loss before each step, and whether every prediction of every pair is sure to be finite.
        """
        data = self.data
        # Read before any task runs: what stands there is changed at once where another is interrupted.
        before = int(self._arrivals[0, 0])

        def work(task: int) -> int:
            return _kernel.run_epoch(
                data.records.view(np.uint8),
                self._starts,
                *self._model,
                self._weighted,
                self._block_losses,
                rate,
                regularization,
                bias_regularization,
                *kept.arrays,
                self.state.limit,
                self._arrivals,
                before,
                task,
                self._failed[task],
            )

        try:
            usable = self._all_usable(self._run(work))
        except BaseException:
            self._arrivals[...] = np.iinfo(np.int64).max  # let no thread wait for one that stopped
            raise
        return float(self._block_losses.sum()) / data.total_weight, usable

    def mean_loss(self, data: Ratings) -> float:
        """The mean loss of the state as it stands."""
        losses = np.zeros(_N_CHUNKS)

        def work(task: int) -> int:
            return _kernel.sum_losses(
                data.records.view(np.uint8), *self._model, losses, task, self.n_tasks, self._failed[task]
            )

        self._all_usable(self._run(work))
        return float(losses.sum()) / data.total_weight

    @property
    def _model(self) -> tuple[Any, ...]:
        return *self.state.arrays, self.state.layout, *self._loss, self.mean

    def _all_usable(self, ends: list[int]) -> bool:
        """Whether all tasks of an epoch ended well; raises what the user's loss raised."""
        for end, pair in zip(ends, self._failed.tolist(), strict=True):
            if end == _kernel.NO_LOSS and self._compiled_loss is not None:
                self._compiled_loss.reraise(*pair)
        return all(end == _kernel.USABLE for end in ends)

    def _run(self, work: Callable[[int], Any]) -> list[Any]:
        """Do all tasks at once; the kernels release the GIL."""
        return self._run_all(*(functools.partial(work, task) for task in range(self.n_tasks)))

    def _run_all(self, *works: Callable[[], Any]) -> list[Any]:
        # The calling thread does the first.
        others = [self._pool.submit(work) for work in works[1:]] if self._pool else []
        return [works[0](), *(other.result() for other in others)] if self._pool else [work() for work in works]
