"""Base class and options of all models that clients train by local steps of SGD."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from fastfedrec._kernels.mechanisms import clipping as _clipping
from fastfedrec.compute.networks.client_examples import MAX_DRAWS
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.tiles import worth_threads
from fastfedrec.core.check import check_array, check_instance, check_integer, check_real
from fastfedrec.core.docstrings import complete_docstring, shares_docstring
from fastfedrec.core.immutable import Immutable
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads

_EMBEDDING_STDDEV = 0.05  # standard deviation of initial embeddings


#: Parameters of every `train_clients`, unless the method's docstring describes them differently.
_STEPS = """\
parameters : ndarray of shape (n_parameters,), float32 or float64
    Finite parameters from which every client starts.
learning_rate : float
    Learning rate of the local steps, above 0.
n_epochs : int
    Number of passes over a client's examples, each in a new random order; at least 0.
batch_size : int
    Number of examples of a step, at least 1; the last step of an epoch may have fewer.
clip_norm : float or None
    Bound on the norm of a client's update, over dense weights and embeddings combined, after all its epochs.  The
    norm never exceeds the bound.  None for no bound.
clip_order : int
    Order of the norm: 2 for the Euclidean norm, 1 for the sum of absolute values.
key : Key
    Key of the order of examples; the call does not claim it.
purpose : str
    Purpose of the draws.  A client's stream is (purpose, round, global user id), so its update does not depend on the
    other clients.
round : int
    Number of the round, below 2**32.
n_threads : int
    Number of threads; 0 for all processors.  The result does not depend on it."""

_START = """\
key : Key
    Key of the random draws; the call does not claim it.
purpose : str
    Purpose of the draws, which names the stream.
dtype : dtype
    float32 or float64; both types have the same draws up to rounding."""

C = TypeVar("C", bound=Callable[..., Any])


def trains_clients(method: C) -> C:
    """Complete the docstring of a `train_clients` with the shared parameters and the section "Returns"."""
    returned = "ClientUpdates\n    One update for each client; zeros if the client has no examples or diverged."
    has_returns = "\nReturns\n" in inspect.cleandoc(method.__doc__ or "")
    method.__doc__ = complete_docstring(method, _STEPS, "" if has_returns else returned)
    return method


#: Decorator of every `initial_parameters`.
draws_parameters = shares_docstring(_START)


@dataclass(frozen=True)
class Steps:
    """Checked options of the clients' local steps, with the bound on their updates."""

    learning_rate: float
    n_epochs: int
    batch_size: int
    clip_norm: float
    clip_order: int
    n_threads: int

    @classmethod
    def checked(
        cls, learning_rate: Any, n_epochs: Any, batch_size: Any, clip_norm: Any, clip_order: Any, n_threads: Any
    ) -> "Steps":
        """Check the common arguments of `train_clients`."""
        return cls(
            check_real("learning_rate", learning_rate, low=0.0, exclusive=True),
            check_integer("n_epochs", n_epochs, low=0, high=2**31 - 1),
            check_integer("batch_size", batch_size, low=1),
            np.inf if clip_norm is None else check_real("clip_norm", clip_norm, low=1e-100, high=1e100),
            check_integer("clip_order", clip_order, low=1, high=2),
            resolve_n_threads(n_threads),
        )

    def order(
        self, key: Key, purpose: str, users: np.ndarray, times: int | np.ndarray, lengths: np.ndarray, round: int
    ) -> list[np.ndarray]:
        """Return random words that order each client's examples `times` times, and the start of each client's words."""
        check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
        # A Fisher-Yates shuffle of n examples takes n - 1 draws of 32 bits.
        n_draws = np.maximum(lengths - 1, 0)
        # An int64 product could overflow and pass the check, and the kernels would read beyond the end of the words.
        if (max_draws := np.max(np.multiply(times, n_draws, dtype=np.float64), initial=0)) > MAX_DRAWS:
            raise ValueError(
                f"n_epochs must need at most {MAX_DRAWS} random draws of a client, got {self.n_epochs}, which needs "
                f"{max_draws:g}; use fewer epochs"
            )
        n_words = (times * n_draws + 1) // 2  # two draws of 32 bits in a word
        n_threads = worth_threads(self.n_threads, n_words.sum())
        return list(key.ragged_words(purpose, users, n_words, round=round, n_threads=n_threads))


def largest_batch(batch_size: int, lengths: np.ndarray) -> int:
    """Return the size of the largest batch that occurs, at least 1."""
    return int(min(batch_size, max(lengths.max(initial=0), 1)))


class ClientModel(Immutable):
    """Model with all parameters in one array: `n_dense` dense ones, then embeddings of `n_factors` numbers each."""

    n_dense: int
    n_factors: int
    n_parameters: int

    def _check_parameters(self, parameters: Any) -> np.ndarray:
        return check_array("parameters", parameters, ndim=1, shape=(self.n_parameters,))

    def _empty_start(self, key: Key, purpose: str, dtype: DTypeLike) -> np.ndarray:
        """Make initial parameters with dense ones of 0 and normal embeddings of standard deviation 0.05."""
        check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise TypeError(f"dtype must be float32 or float64, got {np.dtype(dtype)}")
        out = np.zeros(self.n_parameters)
        n_embedded = self.n_parameters - self.n_dense
        out[self.n_dense :] = _EMBEDDING_STDDEV * key.normal(f"{purpose}.embeddings", size=n_embedded)
        return out

    def _train(
        self,
        steps: Steps,
        dtype: np.dtype,
        lengths: np.ndarray,
        touched: tuple[np.ndarray, np.ndarray],
        train: Callable[..., None],
    ) -> ClientUpdates:
        """Train all clients by `train`, which writes their updates, and clip the updates."""
        # `train` takes the starts of the clients' embeddings, the embeddings' rows, the clients in descending order of
        # their numbers of examples, the starts of their updates, an array for the updates, and the number of threads.
        row_starts, rows = touched
        n_clients = len(lengths)
        starts = self.n_dense * np.arange(n_clients + 1) + self.n_factors * row_starts
        values = np.empty(starts[-1], dtype=dtype)
        order = np.argsort(-lengths, kind="stable")
        train(row_starts, rows, order, starts, values, min(steps.n_threads, max(n_clients, 1)))
        rejected = np.zeros(n_clients, dtype=np.uint8)
        n_threads = worth_threads(steps.n_threads, len(values))
        _clipping.clip_ragged(values, starts, rejected, steps.clip_norm, steps.clip_order, n_threads)
        sizes = self.n_dense, self.n_factors, self.n_parameters
        return ClientUpdates(values, starts, rows, row_starts, rejected.view(np.bool_), *sizes)
