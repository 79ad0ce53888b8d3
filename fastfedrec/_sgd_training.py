"""Training of factors by epochs: ratings in blocks, the numbers being trained, and the threads.

Imports Numba, so `fastfedrec.sgd` imports it when first needed.  Users and items are spread over `n_blocks` blocks
each, so that all blocks hold about as many ratings; an epoch visits the pairs of blocks in a fixed order, in which
tasks that run at once share no row.  So the result depends on the key and on `n_blocks`, never on the threads.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from fastfedrec._kernels import sgd as _kernel
from fastfedrec.randomness import Key

# Block borders fall on borders of cache lines, also where a row is one float32 (a bias).
_ROW_MULTIPLE = _kernel.VECTOR_BYTES // 4
_N_CHUNKS = 64
_LOSSES = {
    "squared": _kernel.Squared(),
    "absolute": _kernel.Absolute(),
    "huber": _kernel.Huber(),
    "logistic": _kernel.Logistic(),
}


@dataclass(frozen=True)
class Ratings:
    """A rating list by rows, as the kernels take it; `weights` is empty where all are 1."""

    users: np.ndarray
    items: np.ndarray
    ratings: np.ndarray
    weights: np.ndarray

    @property
    def total_weight(self) -> float:
        """What mean losses are divided by."""
        return float(self.weights.sum(dtype=np.float64)) if self.weights.size else float(len(self.ratings))


def spread_rows(ids: np.ndarray, n_ids: int, n_blocks: int) -> tuple[np.ndarray, int]:
    """Give each id a row, so that blocks of rows of one length have about as many ratings; (row of id, block length).

    Ids in falling order of ratings are dealt out to the blocks there and back: frequent rows lie close together too.
    """
    order = np.argsort(-np.bincount(ids, minlength=n_ids), kind="stable")
    rank = np.arange(n_ids)
    turn = rank % (2 * n_blocks)
    length = -(-n_ids // n_blocks)
    length += -length % _ROW_MULTIPLE
    row = np.empty(n_ids, dtype=np.int64)
    row[order] = np.minimum(turn, 2 * n_blocks - 1 - turn) * length + rank // n_blocks
    return row, length


class State:
    """All numbers of a model, in one piece of memory: copied and checked at once."""

    def __init__(self, n_user_rows: int, n_item_rows: int, n_factors: int, dtype: DTypeLike):
        dtype = np.dtype(dtype)
        lanes = _kernel.VECTOR_BYTES // dtype.itemsize
        self.vectors = (0,) * -(-n_factors // lanes)
        width = lanes * len(self.vectors)
        n_bytes = (n_user_rows + n_item_rows) * (width + 1) * dtype.itemsize
        memory = np.zeros(n_bytes + _kernel.VECTOR_BYTES, dtype=np.uint8)
        first = -memory.ctypes.data % _kernel.VECTOR_BYTES
        self.numbers = memory[first : first + n_bytes].view(dtype)
        ends = np.cumsum([n_user_rows * width, n_item_rows * width, n_user_rows])
        user_rows, item_rows, self.user_biases, self.item_biases = np.split(self.numbers, ends)
        self.user_rows = user_rows.reshape(n_user_rows, width)
        self.item_rows = item_rows.reshape(n_item_rows, width)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """In the kernels' order."""
        return self.user_rows, self.item_rows, self.user_biases, self.item_biases

    def copy_from(self, other: "State") -> None:
        """Overwrite all numbers."""
        np.copyto(self.numbers, other.numbers)

    def is_usable(self) -> bool:
        """Whether every prediction of every pair is sure to be finite."""
        limit = float(np.finfo(self.numbers.dtype).max) ** 0.25
        return bool(self.numbers.max() < limit and self.numbers.min() > -limit)  # false for NaN, which max passes on


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
        loss: str | Callable,
        mean: float,
        key: Key,
        n_blocks: int,
        n_threads: int,
    ):
        self.mean, self.n_factors = mean, n_factors
        self.n_tasks = 1 << (min(n_threads, n_blocks).bit_length() - 1)
        self._pool = ThreadPoolExecutor(self.n_tasks - 1) if self.n_tasks > 1 else None
        self.user_row, user_length = spread_rows(users, shape[0], n_blocks)
        self.item_row, item_length = spread_rows(items, shape[1], n_blocks)
        self._starts = np.zeros(n_blocks**2 + 1, dtype=np.int64)
        self._block_losses = np.zeros((n_blocks, n_blocks))
        rows = np.empty((2, len(users)), dtype=np.int32)
        self.data = Ratings(rows[0], rows[1], np.empty_like(ratings), np.empty_like(weights))
        _kernel.arrange(
            users,
            items,
            ratings,
            weights,
            self.user_row,
            self.item_row,
            key.words("sgd.order", size=len(users)),
            self._starts,
            self.data.users,
            self.data.items,
            self.data.ratings,
            self.data.weights,
            n_blocks,
            user_length,
            item_length,
        )
        self._state_size = (n_blocks * user_length, n_blocks * item_length, n_factors, ratings.dtype)
        self.state = self.new_state()
        self._loss = _LOSSES[loss] if isinstance(loss, str) else loss
        self._train = _kernel.train if isinstance(loss, str) else _kernel.train_own
        self._sum_losses = _kernel.sum_losses if isinstance(loss, str) else _kernel.sum_losses_own

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def new_state(self) -> State:
        """Room for a copy of the state."""
        return State(*self._state_size)

    def draw_start(self, key: Key, init_scale: float) -> None:
        """Normal factors of standard deviation `init_scale`; biases stay 0."""
        for rows, row, side in (
            (self.state.user_rows, self.user_row, "user"),
            (self.state.item_rows, self.item_row, "item"),
        ):
            draws = key.normal(f"sgd.{side}_factors", size=len(row) * self.n_factors)
            rows[row, : self.n_factors] = init_scale * draws.reshape(len(row), self.n_factors)

    def by_row(self, users: np.ndarray, items: np.ndarray, ratings: np.ndarray, weights: np.ndarray) -> Ratings:
        """Another rating list of the same users and items."""
        return Ratings(self.user_row[users].astype(np.int32), self.item_row[items].astype(np.int32), ratings, weights)

    def run_epoch(self, rate: float, bias_rate: float, regularization: float, bias_regularization: float) -> float:
        """Visit every rating once; the mean loss before each step."""
        data = self.data
        for phase in range(self.n_tasks):

            def work(task: int, phase: int = phase) -> None:
                self._train(
                    data.users,
                    data.items,
                    data.ratings,
                    data.weights,
                    self._starts,
                    *self.state.arrays,
                    self._block_losses,
                    self.state.vectors,
                    self._loss,
                    self.mean,
                    rate,
                    bias_rate,
                    regularization,
                    bias_regularization,
                    phase,
                    task,
                    self.n_tasks,
                )

            self._run(work)
        return float(self._block_losses.sum()) / data.total_weight

    def mean_loss(self, data: Ratings) -> float:
        """The mean loss of the state as it stands."""
        losses = np.zeros(_N_CHUNKS)

        def work(task: int) -> None:
            self._sum_losses(
                data.users,
                data.items,
                data.ratings,
                data.weights,
                *self.state.arrays,
                losses,
                self.state.vectors,
                self._loss,
                self.mean,
                task,
                self.n_tasks,
            )

        self._run(work)
        return float(losses.sum()) / data.total_weight

    def _run(self, work: Callable[[int], None]) -> None:
        # The kernels release the GIL; the calling thread does the first share.
        others = [self._pool.submit(work, task) for task in range(1, self.n_tasks)] if self._pool else []
        work(0)
        for other in others:
            other.result()
