"""Matrix factorisation of a rating list by stochastic gradient descent, in blocks that threads update without locks."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastfedrec.core.arrays import FloatArray, check_out, split_permutation
from fastfedrec.core.check import check_array, check_choice, check_flag, check_integer, check_real, plain_array
from fastfedrec.core.log import log_done
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import InteractionsLike, RowsLike, borrow_rows, is_table

if TYPE_CHECKING:
    from fastfedrec.compute._sgd_training import Ratings, State, Training

__all__ = ["LOSSES", "FactorModel", "fit_factors"]

__dir__ = __all__.copy  # dir() lists only the public names

LOSSES = ("squared", "absolute", "huber", "logistic")
MAX_BLOCKS = 256
MAX_FACTORS = 2**16
_MAX_ROWS = 2**31 - 1  # row numbers are int32 in the kernels

_SCHEDULES: dict[str, Callable[[int], float]] = {
    "constant": lambda epoch: 1.0,
    "inverse": lambda epoch: 10 / (9 + epoch),
}
# Training has diverged if an epoch's mean loss exceeds the mean loss of the start by this factor.
_DIVERGENCE_FACTOR = 10.0
# Distance of the mean from 0 and 1 under the logistic loss, so that its log-odds are finite if all ratings are equal.
_MEAN_MARGIN = 1e-3


@dataclass(frozen=True)
class FactorModel:
    """Factors and biases that `fit_factors` returns; every number is finite.

    Parameters
    ----------
    mean : float
        Constant term of every prediction; 0 without biases.
    user_biases : ndarray of shape (n_users,)
        Bias of each user; 0 for a user without ratings.
    item_biases : ndarray of shape (n_items,)
        Bias of each item; 0 for an item without ratings.
    user_factors : ndarray of shape (n_users, n_factors)
        Factors of each user; the initial ones for a user without ratings.
    item_factors : ndarray of shape (n_items, n_factors)
        Factors of each item; the initial ones for an item without ratings.
    train_losses : ndarray of shape (n_epochs,), float64
        Weighted mean loss of each epoch, with each rating's loss taken before its own step.
    validation_losses : ndarray of shape (n_epochs,), float64, or None
        Mean loss on the held-out ratings after each epoch; None without held-out ratings.
    epoch : int
        Number of the epoch after which the model was taken, 0 for the start.  It is the best epoch on held-out ratings,
        or the last one before divergence.
    stopped : str
        Reason for the end of training: ``"epochs"`` (all were run), ``"patience"`` (no improvement on held-out
        ratings), or ``"diverged"`` (found in the last epoch of the losses, and undone with any other diverged epoch).
    """

    mean: float
    user_biases: FloatArray
    item_biases: FloatArray
    user_factors: FloatArray
    item_factors: FloatArray
    train_losses: NDArray[np.float64]
    validation_losses: NDArray[np.float64] | None
    epoch: int
    stopped: str

    def predict(self, users: np.ndarray, items: np.ndarray, *, out: Any = None) -> FloatArray:
        """Predict the ratings of pairs: ``mean + b_u + c_i + p_u'q_i``; log-odds under the logistic loss.

        Parameters
        ----------
        users : ndarray of shape (n_pairs,), int64
            Row of `user_factors` of each pair.
        items : ndarray of shape (n_pairs,), int64
            Row of `item_factors` of each pair.
        out : ndarray of shape (n_pairs,) or None
            Output array of the factors' dtype; None makes a new array.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Predictions of the factors' dtype, not clipped to any range.
        """
        from fastfedrec._kernels.compute import sgd as _kernel

        users = _check_ids("users", users, len(self.user_factors))
        items = _check_ids("items", items, len(self.item_factors), len(users))
        dtype = self.user_factors.dtype
        arrays = self.user_factors, self.item_factors, self.user_biases, self.item_biases
        array = check_out(out, users.shape, dtype.type, apart_from=(users, items, *arrays))
        _kernel.predict(users, items, *(np.ascontiguousarray(x, dtype=dtype) for x in arrays), self.mean, array)
        return array if out is None else out


def fit_factors(
    users: RowsLike,
    items: ArrayLike | None = None,
    ratings: ArrayLike | None = None,
    *,
    n_users: int | None = None,
    n_items: int | None = None,
    n_factors: int = 20,
    n_epochs: int = 20,
    learning_rate: float = 0.02,
    regularization: float = 0.1,
    bias_regularization: float | None = None,
    biases: bool = True,
    weights: ArrayLike | None = None,
    loss: str | Callable[[float, float], tuple[float, float]] = "squared",
    schedule: str | Callable[[int], float] = "inverse",
    validation: float | tuple[ArrayLike, ArrayLike, ArrayLike] | InteractionsLike | None = None,
    patience: int = 3,
    init_scale: float = 0.1,
    dtype: DTypeLike = np.float32,
    key: Key | None = None,
    n_blocks: int = 16,
    n_threads: int = 0,
) -> FactorModel:
    """Factorise a rating list: user u's rating of item i is predicted as ``mean + b_u + c_i + p_u'q_i``.

    Each step of SGD takes one rating.  The objective is the sum over all ratings of ``w * loss(prediction, rating) +
    (regularization (|p_u|^2 + |q_i|^2) + bias_regularization (b_u^2 + c_i^2)) / 2``.

    Parameters
    ----------
    users : array_like of shape (n_ratings,), int64, or Interactions, SciPy sparse matrix or array
        User of each rating, from 0 to ``n_users - 1``; a pair may occur more than once.  Alternatively one table of
        users x items, as for `fastfedrec.data.conversion.borrow_rows`, without the next four arguments.
    items : array_like of shape (n_ratings,), int64
        Item of each rating, from 0 to ``n_items - 1``.
    ratings : array_like of shape (n_ratings,)
        Ratings, at least one; from 0 to 1 under the logistic loss.
    n_users : int
        Number of users, at least 1; users without ratings keep their initial factors.
    n_items : int
        Number of items, at least 1.
    n_factors : int
        Number of factors, at least 1.
    n_epochs : int
        Number of passes over the ratings, at least 0.
    learning_rate : float
        Learning rate of the first epoch, above 0.  A rate that is too high makes training diverge: see `FactorModel`.
    regularization : float
        Ridge penalty of the factors for each rating, at least 0.
    bias_regularization : float or None
        Ridge penalty of the biases for each rating, at least 0; None for `regularization`.
    biases : bool
        Whether the model has a mean and biases; without them it predicts ``p_u'q_i``.
    weights : array_like of shape (n_ratings,) or None
        Weight of each rating, at least 0 and not all 0; None for 1.  If the variance of the noise in each rating is
        known, use its inverse, scaled to mean 1.  Steps are proportional to the weight, and regularization is not.
    loss : str or callable
        ``"squared"`` (half the square), ``"absolute"``, ``"huber"`` (squared up to an error of 1, then linear),
        ``"logistic"``, or a function (prediction, rating) -> (loss, derivative by the prediction) of two floats.  Numba
        compiles the function unless it is compiled already.
    schedule : str or callable
        Factor of the learning rate in epoch 1, 2, ...: ``"constant"``; ``"inverse"``, which is 10 / (9 + epoch); or a
        function of the epoch.
    validation : float, tuple of (users, items, ratings), Interactions, SciPy matrix, or None
        Held-out ratings that select the best epoch.  A float is the share of the ratings to hold out at random, with
        their weights.  These are data of users too, and a selection by them is not covered by a privacy guarantee.
    patience : int
        Number of consecutive epochs without a better loss on held-out ratings before training stops, at least 1.
    init_scale : float
        Standard deviation of the initial factors, at least 0.
    dtype : dtype
        float32 or float64, the type of the model; losses are summed in double.
    key : Key or None
        Key of the initial factors and of the order of the ratings; None for new entropy.
    n_blocks : int
        Number of blocks, a power of two up to 256.  It determines the order of the steps and bounds the threads.
    n_threads : int
        Number of threads, rounded down to a power of two; 0 for all.  The result does not depend on it.

    Returns
    -------
    FactorModel
        Model of the best epoch on held-out ratings, or of the last epoch before divergence.

    Raises
    ------
    TypeError, ValueError
        An argument is out of range, or Numba cannot compile the loss.

    Warns
    -----
    RuntimeWarning
        Training diverged; the last good epoch is returned.

    References
    ----------
    .. [1] Koren, Bell, Volinsky, "Matrix factorization techniques for recommender systems", Computer 42(8), 2009.
    .. [2] Gemulla, Nijkamp, Haas, Sismanis, "Large-scale matrix factorization with distributed stochastic gradient
       descent", KDD 2011.

    Examples
    --------
    >>> from fastfedrec import Key, sgd
    >>> users, items = [0, 0, 1, 1, 2], [0, 1, 0, 1, 0]
    >>> ratings = [5.0, 1.0, 4.0, 2.0, 5.0]
    >>> model = sgd.fit_factors(users, items, ratings, n_users=3, n_items=2, n_epochs=200, key=Key.from_seed(1))
    >>> model.stopped, model.epoch
    ('epochs', 200)
    >>> bool(model.predict([2], [0]) > model.predict([2], [1]) + 1)
    True
    """
    from fastfedrec.compute._sgd_training import Training, compiled

    if items is None and ratings is None:
        users, items, ratings, n_users, n_items = _rating_list("users", users, n_users, n_items, weights)
    shape = _check_size("n_users", n_users), _check_size("n_items", n_items)
    n_epochs = check_integer("n_epochs", n_epochs, low=0)
    learning_rate = check_real("learning_rate", learning_rate, low=0.0, exclusive=True)
    regularization = check_real("regularization", regularization, low=0.0)
    if bias_regularization is None:
        bias_regularization = regularization
    bias_regularization = check_real("bias_regularization", bias_regularization, low=0.0)
    patience = check_integer("patience", patience, low=1)
    init_scale = check_real("init_scale", init_scale, low=0.0, high=1e3)
    n_blocks = check_integer("n_blocks", n_blocks, low=1, high=MAX_BLOCKS)
    if n_blocks & (n_blocks - 1):
        raise ValueError(f"n_blocks must be a power of two, got {n_blocks}; the default is 16")
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise TypeError(f"dtype must be float32 or float64, got {np.dtype(dtype)}")
    key = resolve_key(key)
    factor_of = _resolve_schedule(schedule)
    if not callable(loss):
        check_choice("loss", loss, LOSSES)
    names = "users", "items", "ratings"
    data = _check_ratings(names, users, items, ratings, weights, shape, dtype, loss)
    n_threads = resolve_n_threads(n_threads)
    data, held_out = _split(data, validation, shape, dtype, loss, key, n_threads)
    mean = _start_mean(data[2], data[3], loss) if check_flag("biases", biases) else 0.0
    with (
        np.errstate(all="ignore"),  # each epoch ends with a check for NaN and infinities
        Training(
            *data,
            shape=shape,
            n_factors=check_integer("n_factors", n_factors, low=1, high=MAX_FACTORS),
            biases=biases,
            loss=compiled(loss),
            mean=mean,
            key=key,
            n_blocks=n_blocks,
            n_threads=n_threads,
        ) as training,
    ):
        training.draw_start(key, init_scale)
        run = _Run(training, training.by_row(*held_out) if held_out is not None else None, patience)
        for epoch in range(1, n_epochs + 1):
            rate = learning_rate * factor_of(epoch)
            run.epoch(rate, regularization, bias_regularization)
            log_done("fit_factors", epoch, n_epochs, unit="epoch")
            if run.stopped:
                break
        run.settle()
    if run.stopped == "diverged":
        warn(
            f"training diverged in epoch {len(run.train_losses)} at learning_rate={learning_rate:g}; the model is from "
            f"after epoch {run.model_epoch}. Lower learning_rate, or scale ratings or weights down",
            RuntimeWarning,
        )
    state = training.state
    return FactorModel(
        mean,
        *training.biases(),
        state.user_rows[training.user_row, :n_factors],
        state.item_rows[training.item_row, :n_factors],
        np.array(run.train_losses),
        np.array(run.validation_losses) if held_out is not None else None,
        run.model_epoch,
        run.stopped or "epochs",
    )


class _Run:
    """Loop of epochs that detects divergence and stores the best state."""

    # An epoch's loss is taken before each step, so divergence by the epoch's last steps appears only in the next
    # epoch's loss.  The run therefore stores three states and returns the latest good one.

    def __init__(self, training: "Training", held_out: "Ratings | None", patience: int):
        self.training, self.held_out, self.patience = training, held_out, patience
        self.train_losses: list[float] = []
        self.validation_losses: list[float] = []
        self.stopped: str | None = None
        self.recent: deque[tuple[int, State]] = deque()  # (epoch, state after it), newest first
        self.spare = training.new_state()  # buffer for the state after the next epoch
        self.spare.copy_from(training.state)
        self._store_spare(0)
        self.best_loss = training.mean_loss(held_out) if held_out is not None else np.inf
        # A start that fits exactly has a loss of 0, and rounding errors must not count as divergence.
        data = training.data
        rounding = float(np.finfo(data.records["rating"].dtype).eps) * (1 + data.largest**2)
        self.bound = _DIVERGENCE_FACTOR * (abs(training.mean_loss(data)) + rounding)

    @property
    def model_epoch(self) -> int:
        return self.recent[0][0]

    def epoch(self, rate: float, regularization: float, bias_regularization: float) -> None:
        """Run an epoch, check it for divergence and store its state if it is the best."""
        loss, usable = self.training.run_epoch(rate, regularization, bias_regularization, self.spare)
        self.train_losses.append(loss)
        good = loss <= self.bound and usable  # false for NaN
        if self.held_out is not None:
            self.validation_losses.append(self.training.mean_loss(self.held_out))
            good = good and bool(np.isfinite(self.validation_losses[-1]))
        epoch = len(self.train_losses)
        if not good:
            self.stopped = "diverged"
        elif self.held_out is None or self.validation_losses[-1] < self.best_loss:
            self.best_loss = self.validation_losses[-1] if self.validation_losses else np.inf
            self._store_spare(epoch)
        elif epoch - self.model_epoch >= self.patience:
            self.stopped = "patience"

    def _store_spare(self, epoch: int) -> None:
        self.recent.appendleft((epoch, self.spare))
        self.spare = self.recent.pop()[1] if len(self.recent) > 3 else self.training.new_state()

    def settle(self) -> None:
        """Restore the latest state with a loss within the bound."""
        while True:
            self.training.state.copy_from(self.recent[0][1])
            if len(self.recent) == 1 or self.training.mean_loss(self.training.data) <= self.bound:
                return
            self.recent.popleft()
            self.stopped = "diverged"


def _check_size(name: str, size: Any) -> int:
    if size is None:
        raise TypeError(
            f"{name} must be an integer if users, items and ratings are columns, got None; pass it, or pass one "
            "matrix of users x items or Interactions, which have sizes"
        )
    return check_integer(name, size, low=1, high=_MAX_ROWS)


def _check_ids(name: str, ids: Any, n: int, length: int | None = None) -> np.ndarray:
    ids = plain_array(name, ids)
    if ids.size == 0 and ids.dtype.kind == "f":  # an empty list
        ids = ids.astype(np.int64)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got {ids.dtype}; number them from 0, as Interactions does")
    if ids.ndim != 1 or length not in (None, len(ids)):
        expected = "1 dimension" if length is None else f"shape ({length},), one entry for each rating"
        raise ValueError(f"{name} must have {expected}, got shape {ids.shape}")
    checked = np.ascontiguousarray(ids, dtype=np.int64)
    # As an unsigned number a negative id exceeds every valid one, so one comparison finds both kinds of error.
    if checked.size and checked.view(np.uint64).max() >= n:
        raise ValueError(f"{name} must be from 0 to {n - 1}, got {ids.min()} to {ids.max()}")
    return checked


def _rating_list(name, table, n_users, n_items, weights=None):
    """Convert a table of users x items to (users, items, ratings, n_users, n_items)."""
    data = borrow_rows(name, table, aligned=None if weights is None else "weights")
    for size, stated, actual in (("n_users", n_users, data.n_users), ("n_items", n_items, data.n_items)):
        if stated not in (None, actual):
            raise ValueError(f"{size} must be the size of {name}, {actual}, got {stated}; leave it out")
    users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    values = data.values_or_ones(np.float32 if data.values is None else data.values.dtype)
    return users, data.indices, values, *data.shape


def _check_ratings(
    names: Sequence[str], users: Any, items: Any, ratings: Any, weights: Any, shape: Any, dtype: Any, loss: Any
) -> tuple[np.ndarray, ...]:
    """Return users and items as int64, ratings and weights as `dtype`; an empty array stands for weights of 1."""
    users = _check_ids(names[0], users, shape[0])
    items = _check_ids(names[1], items, shape[1], len(users))
    ratings = _check_dtype(names[2], ratings, len(users), dtype)
    if not ratings.size:
        raise ValueError(f"{names[2]} must hold at least one rating, got none")
    if loss == "logistic" and not (ratings.min() >= 0 and ratings.max() <= 1):
        raise ValueError(
            f"{names[2]} must be from 0 to 1 under the logistic loss, got {ratings.min():g} to {ratings.max():g}; "
            "scale them"
        )
    if weights is None:
        return users, items, ratings, np.empty(0, dtype=dtype)
    weights = _check_dtype("weights", weights, len(users), dtype)
    if weights.min() < 0 or weights.max() == 0:
        raise ValueError(f"weights must be at least 0 and not all 0, got {weights.min():g} to {weights.max():g}")
    return users, items, ratings, weights


def _check_dtype(name: str, values: Any, length: int, dtype: DTypeLike) -> np.ndarray:
    values = check_array(name, values, ndim=1, shape=(length,))
    with np.errstate(over="ignore"):
        cast = values.astype(dtype, copy=False)
    if not np.isfinite(cast).all():
        raise ValueError(f"{name} must fit {np.dtype(dtype)}, got {np.abs(values).max():g}; scale them, or use float64")
    return cast


def _split(data, validation, shape, dtype, loss, key, n_threads):
    """Return the training ratings, and the held-out ratings or None."""
    if validation is None:
        return data, None
    if is_table(validation):
        validation = _rating_list("validation", validation, *shape)[:3]
    if isinstance(validation, tuple):
        if len(validation) != 3:
            raise ValueError(f"validation must be (users, items, ratings), got {len(validation)} arrays")
        names = [f"validation {name}" for name in ("users", "items", "ratings")]
        return data, _check_ratings(names, *validation, None, shape, dtype, loss)
    share = check_real("validation", validation, low=0.0, high=1.0, exclusive=True)
    n_ratings = len(data[0])
    n_held_out = round(share * n_ratings)
    if not 0 < n_held_out < n_ratings:
        raise ValueError(
            f"validation={share:g} must leave ratings on both sides, got {n_ratings}; pass ratings or None"
        )
    order = key.permutation("sgd.validation", size=n_ratings, n_threads=n_threads)
    parts = split_permutation(order, n_held_out)
    held_out, train = (tuple(x[part] if x.size else x for x in data) for part in parts)
    if any(part[3].size and not part[3].any() for part in (train, held_out)):
        raise ValueError("validation must leave a weight above 0 on both sides; pass ratings, or another key")
    return train, held_out


def _start_mean(ratings: np.ndarray, weights: np.ndarray, loss: Any) -> float:
    mean = float(np.average(ratings, weights=weights.astype(np.float64)) if weights.size else ratings.mean(dtype=float))
    if loss != "logistic":
        return mean
    # The bias of the logistic model is the log-odds of the mean rating, clipped away from 0 and 1.
    share = min(max(mean, _MEAN_MARGIN), 1 - _MEAN_MARGIN)
    return float(np.log(share / (1 - share)))


def _resolve_schedule(schedule: Any) -> Callable[[int], float]:
    if callable(schedule):
        return lambda epoch: check_real(f"schedule({epoch})", schedule(epoch), low=0.0)
    return _SCHEDULES[check_choice("schedule", schedule, _SCHEDULES)]
