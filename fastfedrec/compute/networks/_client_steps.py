"""What all models have in common that clients train by steps of their own: one array of parameters, and the steps."""

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

_EMBEDDING_STDDEV = 0.05


#: What every `train_clients` takes, where its docstring does not describe it otherwise.
_STEPS = """\
parameters : ndarray of shape (n_parameters,), float32 or float64
    Finite; where every client starts.
learning_rate : float
    Above 0.
n_epochs : int
    Passes over a client's examples, each in a new order; at least 0.
batch_size : int
    Examples of a step, at least 1; the last step of an epoch may have fewer.
clip_norm : float or None
    A bound on the norm of a client's update, over dense weights and embeddings together, after all its epochs;
    it is never exceeded.  None for no bound.
clip_order : int
    2 for the Euclidean norm, 1 for the sum of absolute values.
key : Key
    For the order of examples; it is not used up.
purpose : str
    A client's stream is (purpose, round, global user id): its update does not depend on the other clients.
round : int
    Below 2**32.
n_threads : int
    0 for all processors; the result does not depend on it."""

_START = """\
key : Key
    Source of the randomness; it is not used up.
purpose : str
    Name of the stream.
dtype : dtype
    float32 or float64; the same draws, rounded."""

C = TypeVar("C", bound=Callable[..., Any])


def trains_clients(method: C) -> C:
    """Add to a docstring what all such methods have in common."""
    returned = "ClientUpdates\n    One for each client; zeros where it has no examples, or diverged."
    has_own = "\nReturns\n" in inspect.cleandoc(method.__doc__ or "")
    method.__doc__ = complete_docstring(method, _STEPS, "" if has_own else returned)
    return method


#: Of an `initial_parameters`.
draws_parameters = shares_docstring(_START)


@dataclass(frozen=True)
class Steps:
    """How clients take their steps, and the bound on how far they come; made by `checked`."""

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
        """The arguments of `train_clients`, or raise."""
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
        """Words to put each client's examples in order so many times, two draws a word, and where each's begin."""
        check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
        n_draws = np.maximum(lengths - 1, 0)
        # As floats, which do not wrap: kernels read as many words as they need, whatever there are.
        if (most := np.max(np.multiply(times, n_draws, dtype=np.float64), initial=0)) > MAX_DRAWS:
            raise ValueError(
                f"n_epochs must be few enough for {MAX_DRAWS} random draws of a client, got {self.n_epochs}, which "
                f"take {most:g}"
            )
        n_words = (times * n_draws + 1) // 2
        n_threads = worth_threads(self.n_threads, n_words.sum())
        return list(key.ragged_words(purpose, users, n_words, round=round, n_threads=n_threads))


def largest_batch(batch_size: int, lengths: np.ndarray) -> int:
    """Room for no more examples than a client has."""
    return int(min(batch_size, max(lengths.max(initial=0), 1)))


class ClientModel(Immutable):
    """All parameters are one array: `n_dense` dense ones, then rows of `n_factors` for what has an embedding."""

    n_dense: int
    n_factors: int
    n_parameters: int

    def _check_parameters(self, parameters: Any) -> np.ndarray:
        return check_array("parameters", parameters, ndim=1, shape=(self.n_parameters,))

    def _empty_start(self, key: Key, purpose: str, dtype: DTypeLike) -> np.ndarray:
        """Zeros, but for embeddings: normal with standard deviation 0.05."""
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
        """Let `train` work on clients, and clip what it leaves.

        It gets where each client's embeddings begin, these, clients from long to short, where their updates begin, room
        for these, and how many threads to use.
        """
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
