"""Training of factors by epochs of SGD over blocks of ratings.

Users and items are distributed over `n_blocks` blocks each, with nearly equal numbers of ratings.  An epoch visits the
pairs of blocks in a fixed order, in which simultaneous tasks share no row [Gemulla et al., KDD 2011].  The result
therefore depends on the key and on `n_blocks`, and not on the number of threads.
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

# Blocks begin at cache lines, so that two threads never write to one line, even if a row is one float32 (a bias).
_ROW_MULTIPLE = _kernel.LINE_BYTES // 4
_N_CHUNKS = 64  # partial sums of a mean loss, which make it independent of the number of tasks


def compiled(loss: "str | Callable[[float, float], tuple[float, float]]") -> "str | CompiledLoss":
    """Compile a loss that is a function; a name is returned unchanged."""
    if not callable(loss):
        return loss
    from fastfedrec.compute._sgd_loss import compile_loss  # imports Numba, which takes long

    return compile_loss(loss)


@dataclass(frozen=True)
class Ratings:
    """A rating list in the layout of the kernels, with the divisor of mean losses."""

    records: np.ndarray
    total_weight: float
    largest: float  # largest absolute value of a rating

    @classmethod
    def of(cls, records: np.ndarray, ratings: np.ndarray, weights: np.ndarray) -> "Ratings":
        """Make a rating list with the total weight and the largest absolute value of a rating."""
        # The separate arrays are contiguous and therefore faster to read than `records`.
        total = float(weights.sum(dtype=np.float64)) if weights.size else float(len(ratings))
        return cls(records, total, max(float(ratings.max()), -float(ratings.min())))


def spread_rows(counts: np.ndarray, n_blocks: int) -> tuple[np.ndarray, int]:
    """Assign each id a row such that blocks have nearly equal numbers of ratings; return rows and block length."""
    # Ids in descending order of their counts go to blocks 0, 1, ..., n - 1, n - 1, ..., 1, 0, 0, 1 and so on.  Frequent
    # ids therefore have neighbouring rows at the start of each block.
    n_ids = len(counts)
    order = np.argsort(-counts, kind="stable")
    rank = np.arange(n_ids)
    step = rank % (2 * n_blocks)
    length = -(-n_ids // n_blocks)
    length += -length % _ROW_MULTIPLE
    row = np.empty(n_ids, dtype=np.int64)
    row[order] = np.minimum(step, 2 * n_blocks - 1 - step) * length + rank // n_blocks
    return row, length


def spread_bits(numbers: np.ndarray) -> np.ndarray:
    """Move bit k of each number to bit 2k, as Morton order requires."""
    return sum(((numbers >> bit & 1) << 2 * bit for bit in range(32)), start=np.zeros_like(numbers))


def _counts(ids: np.ndarray, n_ids: int) -> np.ndarray:
    counts = np.zeros(n_ids, dtype=np.int64)
    _blocks.count_ids(ids, counts)
    return counts


class State:
    """All parameters of a model in one block of memory, which is copied and checked as a whole."""

    def __init__(self, n_user_rows: int, n_item_rows: int, n_factors: int, dtype: DTypeLike, biases: bool):
        dtype = np.dtype(dtype)
        lanes = _kernel.LINE_BYTES // dtype.itemsize
        width = n_factors + -n_factors % lanes
        # If the padding of a row has two numbers left, it holds the row's bias and a constant 1.  The inner product of
        # two rows then includes both biases.
        in_rows = biases and n_factors + 2 <= width
        beside = biases and not in_rows
        self.layout = _kernel.BIASES_IN_ROWS if in_rows else _kernel.SEPARATE_BIASES if beside else _kernel.NO_BIASES
        n_bytes = (n_user_rows + n_item_rows) * (width + beside) * dtype.itemsize
        memory = np.zeros(n_bytes + _kernel.LINE_BYTES, dtype=np.uint8)
        first = -memory.ctypes.data % _kernel.LINE_BYTES
        self.numbers = memory[first : first + n_bytes].view(dtype)
        self.limit = float(np.finfo(dtype).max) ** 0.25  # below it, products and short sums of parameters are finite
        ends = np.cumsum([n_user_rows * width, n_item_rows * width, n_user_rows * beside])
        user_rows, item_rows, self.user_biases, self.item_biases = np.split(self.numbers, ends)
        self.user_rows = user_rows.reshape(n_user_rows, width)
        self.item_rows = item_rows.reshape(n_item_rows, width)
        self.biases = (self.user_biases, self.item_biases) if beside else None  # None in a model without biases
        if in_rows:
            self.biases = self.user_rows[:, -2], self.item_rows[:, -1]
            self.user_rows[:, -1] = self.item_rows[:, -2] = 1

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Arrays in the kernels' order."""
        return self.user_rows, self.item_rows, self.user_biases, self.item_biases

    def copy_from(self, other: "State") -> None:
        """Copy all parameters of another state."""
        np.copyto(self.numbers, other.numbers)


class Training:
    """One training run over one rating list; a context manager that ends its threads."""

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
        self._loss = (_kernel.LOSSES[loss], 0) if isinstance(loss, str) else (_kernel.CUSTOM_LOSS, loss.address)
        self._failed = np.zeros((self.n_tasks, 2))  # (prediction, rating) at which a custom loss raised an error

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
        """Sort the ratings by block, shuffle each block, and return the block lengths of users and of items."""
        words, (self.user_row, user_length), (self.item_row, item_length) = self._run_all(
            lambda: key.words("sgd.order", size=len(users)),
            lambda: spread_rows(_counts(users, shape[0]), n_blocks),
            lambda: spread_rows(_counts(items, shape[1]), n_blocks),
        )
        pairs = users, items
        # The pair of user block j and item block i belongs to stratum i ^ j.  Memory has the pairs in Morton order of
        # (stratum, j).  The index is 2 spread(i ^ j) | spread(j), which equals 3 spread(j) ^ 2 spread(i).
        spread = spread_bits(np.arange(n_blocks))
        blocks = 3 * spread[self.user_row // user_length], 2 * spread[self.item_row // item_length]
        counts = np.zeros((self.n_tasks, n_blocks**2), dtype=np.int64)
        self._run(lambda task: _blocks.count_blocks(*pairs, *blocks, counts, task))
        # A block has the first task's ratings, then the second's and so on.  Each task has consecutive ratings, so this
        # is the input order for any number of tasks.
        ends = counts.T.cumsum().reshape(-1, self.n_tasks).T
        slots = np.ascontiguousarray(ends - counts, dtype=np.uint64)
        self._starts = np.append(slots[0], np.uint64(len(users)))
        records = np.empty(len(users), dtype=_blocks.record_type(ratings.dtype))
        rows = self.user_row, self.item_row
        self._run(lambda task: _blocks.scatter_ratings(*pairs, ratings, weights, *rows, *blocks, slots, records, task))
        self._run(lambda task: _blocks.shuffle_blocks(words, self._starts, records, task, self.n_tasks))
        self._block_losses = np.zeros(n_blocks**2)
        self._arrivals = np.zeros((self.n_tasks, _kernel.COUNTERS_PER_LINE), dtype=np.int64)
        self.data = Ratings.of(records, ratings, weights)
        return user_length, item_length

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def new_state(self) -> State:
        """Allocate another state of the same size."""
        return State(*self._state_size)

    def draw_start(self, key: Key, init_scale: float) -> None:
        """Draw normal factors of standard deviation `init_scale`, with the bits of `Key.normal`."""
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
        """Return the biases of users and of items in order of their ids; zeros in a model without biases."""
        if self.state.biases is None:
            dtype = self.state.numbers.dtype
            return np.zeros(self.user_row.size, dtype), np.zeros(self.item_row.size, dtype)
        user_biases, item_biases = self.state.biases
        return user_biases[self.user_row], item_biases[self.item_row]

    def by_row(self, users: np.ndarray, items: np.ndarray, ratings: np.ndarray, weights: np.ndarray) -> Ratings:
        """Convert another rating list of the same users and items to the layout of the kernels."""
        records = np.empty(len(users), dtype=self.data.records.dtype)
        records["user"], records["item"], records["rating"] = self.user_row[users], self.item_row[items], ratings
        records["weight"] = weights if weights.size else 1
        return Ratings.of(records, ratings, weights)

    def run_epoch(
        self, rate: float, regularization: float, bias_regularization: float, backup: State
    ) -> tuple[float, bool]:
        """Visit every rating once and copy the state to `backup`; return the mean loss, and if it stays finite."""
        data = self.data
        # The counter is read before any task runs, because an interrupted task overwrites it.
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
                *backup.arrays,
                self.state.limit,
                self._arrivals,
                before,
                task,
                self._failed[task],
            )

        try:
            usable = self._all_usable(self._run(work))
        except BaseException:
            self._arrivals[...] = np.iinfo(np.int64).max  # releases the threads that wait for the stopped one
            raise
        return float(self._block_losses.sum()) / data.total_weight, usable

    def mean_loss(self, data: Ratings) -> float:
        """Compute the mean loss of the current state."""
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
        """Return whether all tasks ended with usable numbers, or raise the error of a custom loss."""
        for end, pair in zip(ends, self._failed.tolist(), strict=True):
            if end == _kernel.NO_LOSS and self._compiled_loss is not None:
                self._compiled_loss.reraise(*pair)
        return all(end == _kernel.USABLE for end in ends)

    def _run(self, work: Callable[[int], Any]) -> list[Any]:
        """Run all tasks simultaneously; the kernels release the GIL."""
        return self._run_all(*(functools.partial(work, task) for task in range(self.n_tasks)))

    def _run_all(self, *works: Callable[[], Any]) -> list[Any]:
        # The calling thread runs the first task, so the pool has one thread fewer than there are tasks.
        futures = [self._pool.submit(work) for work in works[1:]] if self._pool else []
        return [works[0](), *(future.result() for future in futures)] if self._pool else [work() for work in works]
