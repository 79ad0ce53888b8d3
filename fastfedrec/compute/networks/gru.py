"""A gated recurrent unit over sequences of items, which clients train by contrastive learning on items and segments."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastfedrec.compute.networks._client_steps import (
    ClientModel,
    Steps,
    draws_parameters,
    largest_batch,
    trains_clients,
)
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.tiles import check_width, run_in_threads, tile_of
from fastfedrec.core.arrays import FloatArray, check_out, check_rows, distinct, frozen
from fastfedrec.core.check import check_instance, check_integer, check_real, plain_array
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.csr import check_indptr

__all__ = ["ContrastiveExamples", "GRUEncoder"]

__dir__ = __all__.copy  # dir() lists only the public names


@dataclass(frozen=True)
class ContrastiveExamples:
    """Masked sequences of clients, with the true items and segments and negatives of both.

    An example has `n_each` sequences: one with a replaced item, one with a replaced segment, the true segment, and
    negative segments.

    Parameters
    ----------
    global_user_ids : ndarray of shape (n_clients,), uint64
        Global user ids, which name the clients' random streams.
    indptr : ndarray of shape (n_clients + 1,), int64
        Start of each client's examples: client i has ``indptr[i]:indptr[i + 1]``.
    items : ndarray of shape (starts[-1],), int64
        Items of all sequences: sequence s is ``items[starts[s]:starts[s + 1]]``.
    starts : ndarray of shape (n_examples * n_each + 1,), int64
        Start of each sequence, strictly ascending, so that no sequence is empty.
    candidates : ndarray of shape (n_examples, n_candidates), int64
        True item of each example, then negative items; at least two columns.
    """

    global_user_ids: NDArray[np.uint64]
    indptr: NDArray[np.int64]
    items: NDArray[np.int64]
    starts: NDArray[np.int64]
    candidates: NDArray[np.int64]


class GRUEncoder(ClientModel):
    """Encoder of sequences by a gated recurrent unit and of items by a dense layer; a score is their inner product.

    The encoding of a sequence is the state after its last item.  The encoding of an item is the output of a layer of
    rectified units on its embedding.  Embeddings, states and encodings have the same width.  All parameters are in one
    array: dense ones first, then one row of `n_factors` for each item.

    The dense parameters have inputs as rows and outputs as columns.  Their order is: the inputs' weights (r, z, n side
    by side), the states' weights (n, r, z), the inputs' and the states' biases in the same orders, weights and biases
    of the items' layer.

    Parameters
    ----------
    n_items : int
        Number of items, at least 1.
    n_factors : int
        Width of embeddings, states and items' encodings; a multiple of 16.

    Attributes
    ----------
    n_parameters : int
        Number of dense parameters and embeddings.
    n_dense : int
        Number of dense weights and biases.

    References
    ----------
    .. [1] Cho, van Merrienboer, Gulcehre, Bahdanau, Bougares, Schwenk, Bengio, "Learning phrase representations using
       RNN encoder-decoder for statistical machine translation", EMNLP 2014.
    .. [2] van den Oord, Li, Vinyals, "Representation learning with contrastive predictive coding", 2018.
    .. [3] Wang, Yin, Chen, Yu, Zhou, Zhang, "Fast-adapting and privacy-preserving federated recommender system", The
       VLDB Journal 31, 2022.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.compute.networks.gru import GRUEncoder
    >>> encoder = GRUEncoder(5, n_factors=16)
    >>> parameters = encoder.initial_parameters(Key.from_seed(1))
    >>> encoder.encode_sequences(parameters, [0, 3, 4], [0, 2, 3]).shape
    (2, 16)
    """

    def __init__(self, n_items: int, *, n_factors: int = 64):
        self.n_items = check_integer("n_items", n_items, low=1)
        self.n_factors = check_width("n_factors", n_factors)
        self.n_dense = 7 * self.n_factors * (self.n_factors + 1)
        self.n_parameters = self.n_dense + self.n_items * self.n_factors

    @draws_parameters
    def initial_parameters(self, key: Key, *, purpose: str = "gru.start", dtype: DTypeLike = np.float32) -> FloatArray:
        """Draw initial parameters.

        Returns
        -------
        ndarray of shape (n_parameters,)
            Recurrent weights are uniform within 1 / sqrt(n_factors) of 0, and weights of the items' layer within
            sqrt(6 / n_factors) (He et al. 2015).  Biases are 0, and embeddings normal with standard deviation 0.05.
        """
        out, square = self._empty_start(key, purpose, dtype), self.n_factors**2
        # Uniform numbers on (-1, 1), which are scaled separately for the recurrent weights and the items' layer.
        weights = 2 * key.uniform(f"{purpose}.weights", size=7 * square) - 1
        out[: 6 * square] = weights[: 6 * square] / np.sqrt(self.n_factors)
        # Six squares of recurrent weights and six rows of biases precede the items' layer.
        at = 6 * square + 6 * self.n_factors
        out[at : at + square] = np.sqrt(6 / self.n_factors) * weights[6 * square :]
        return out.astype(dtype)

    def embeddings(self, parameters: np.ndarray) -> FloatArray:
        """Return the embeddings of all items.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,), float32 or float64
            All parameters.

        Returns
        -------
        ndarray of shape (n_items, n_factors)
            View of `parameters` if these are contiguous.
        """
        return self._check_parameters(parameters)[self.n_dense :].reshape(self.n_items, self.n_factors)

    def encode_sequences(
        self, parameters: np.ndarray, items: Any, starts: Any, *, out: Any = None, n_threads: int = 0
    ) -> FloatArray:
        """Encode sequences by their last states.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,), float32 or float64
            Finite parameters.
        items : array_like of shape (starts[-1],), int
            Items of all sequences: sequence s is ``items[starts[s]:starts[s + 1]]``.
        starts : array_like of shape (n_sequences + 1,), int
            Start of each sequence, strictly ascending from 0.
        out : ndarray of shape (n_sequences, n_factors) or None
            Output array of the type of `parameters`; None makes a new array.
        n_threads : int
            Number of threads; 0 for all processors.  The result does not depend on it.

        Returns
        -------
        ndarray of shape (n_sequences, n_factors)
            Encodings of the type of `parameters`: `out` or a new array.
        """
        from fastfedrec._kernels.compute.networks import gru as _kernel

        parameters = self._check_parameters(parameters)
        items = check_rows("items", items, self.n_items)
        starts = _check_starts("starts", starts, len(items))
        n_threads = resolve_n_threads(n_threads)
        shape = len(starts) - 1, self.n_factors
        array = check_out(out, shape, parameters.dtype.type, apart_from=(parameters, items, starts))
        # The kernel takes blocks of similar lengths, the longest first, so that threads end at nearly the same time.
        order = np.argsort(-np.diff(starts), kind="stable")

        def work(counter: np.ndarray, thread: int) -> None:
            _kernel.encode(frozen(parameters), items, starts, order, counter, array, *tile_of(parameters))

        run_in_threads(work, min(n_threads, max(len(array), 1)))
        return array if out is None else out

    def encode_items(self, parameters: np.ndarray, *, out: Any = None) -> FloatArray:
        """Encode all items; the score of an item after a sequence is the inner product of their encodings.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,), float32 or float64
            Finite parameters.
        out : ndarray of shape (n_items, n_factors) or None
            Output array of the type of `parameters`; None makes a new array.

        Returns
        -------
        ndarray of shape (n_items, n_factors)
            Encodings, at least 0: `out` or a new array.
        """
        parameters, width = self._check_parameters(parameters), self.n_factors
        # Weights and biases of the items' layer are the last dense parameters.
        dense = parameters[: self.n_dense]
        weights = dense[-width * (width + 1) : -width].reshape(width, width)
        array = check_out(out, (self.n_items, width), parameters.dtype.type, apart_from=parameters)
        np.maximum(self.embeddings(parameters) @ weights + dense[-width:], 0, out=array)
        return array if out is None else out

    @trains_clients
    def train_clients(
        self,
        parameters: np.ndarray,
        examples: ContrastiveExamples,
        *,
        learning_rate: float,
        n_epochs: int,
        batch_size: int = 16,
        item_weight: float = 1.0,
        segment_weight: float = 1.0,
        clip_norm: float | None = None,
        clip_order: int = 2,
        key: Key,
        purpose: str = "gru.order",
        round: int = 0,
        n_threads: int = 0,
    ) -> ClientUpdates:
        """Train each client by local steps of SGD from the same parameters.

        The loss of an example is ``item_weight L(a, v) + segment_weight L(b, s)`` with ``L(a, v) = -log(exp(a'v_0) /
        sum_k exp(a'v_k))``.  Here a and b encode the two masked sequences, v the candidate items and s the segments.

        Parameters
        ----------
        examples : ContrastiveExamples
            Examples of each client; a step minimises the mean loss of a batch.
        item_weight, segment_weight : float
            Weights of the two losses, at least 0.

        Raises
        ------
        ValueError
            The parameters have another shape or are not finite, or the examples have other items or empty sequences.
        """
        from fastfedrec._kernels.compute.networks import gru as _kernel

        parameters = self._check_parameters(parameters)
        check_instance("examples", examples, ContrastiveExamples, "use draw_contrastive_examples")
        steps = Steps.checked(learning_rate, n_epochs, batch_size, clip_norm, clip_order, n_threads)
        weights = check_real("item_weight", item_weight, low=0.0), check_real("segment_weight", segment_weight, low=0.0)
        data = self._check_examples(examples)
        lengths = np.diff(data[0])
        draws = steps.order(key, purpose, examples.global_user_ids, steps.n_epochs, lengths, round)
        sizes = steps.n_epochs, largest_batch(steps.batch_size, lengths)

        def train(*arguments: Any) -> None:
            *arrays, n_threads = arguments
            shape, memory = self._make_buffers(parameters, data, sizes[1], n_threads)

            def work(counter: np.ndarray, thread: int) -> None:
                _kernel.train_clients(
                    frozen(parameters), *data, *draws, *arrays, counter, memory[thread], shape, self.n_factors,
                    steps.learning_rate, *sizes, *weights, *tile_of(parameters),
                )  # fmt: skip

            run_in_threads(work, n_threads)

        return self._train(steps, parameters.dtype, lengths, self._touched(*data), train)

    def _check_examples(self, examples: ContrastiveExamples) -> tuple[np.ndarray, ...]:
        items = check_rows("examples.items", examples.items, self.n_items)
        starts = _check_starts("examples.starts", examples.starts, len(items))
        candidates = plain_array("examples.candidates", examples.candidates)
        if candidates.ndim != 2 or candidates.shape[1] < 2:
            raise ValueError(f"examples.candidates must have at least 2 columns, got shape {candidates.shape}")
        n, n_candidates = candidates.shape
        candidates = check_rows("examples.candidates", candidates.ravel(), self.n_items).reshape(n, n_candidates)
        n_each, remainder = divmod(len(starts) - 1, max(n, 1))
        if remainder or (n and n_each < 4):
            raise ValueError(
                f"examples.starts must describe at least 4 sequences for each of {n} examples, equally many for all, "
                f"got {len(starts) - 1}; see draw_contrastive_examples"
            )
        indptr = check_indptr("examples.indptr", examples.indptr, len(examples.global_user_ids))
        if indptr[-1] != n:
            raise ValueError(f"examples.indptr must end at the number of examples, {n}, got {indptr[-1]}")
        return indptr, items, starts, candidates

    def _make_buffers(
        self, parameters: np.ndarray, examples: tuple[np.ndarray, ...], batch_size: int, n_threads: int
    ) -> tuple[tuple[int, int, int], np.ndarray]:
        """Return the columns, sequences and items of the largest batch in whole vectors, and one buffer a thread."""
        # The calling thread allocates all buffers, and mostly reuses the memory of its last call.  A worker thread
        # would request memory from the system page by page, which takes as long as a client's step.
        from fastfedrec._kernels.compute.networks._recurrence import scratch_size

        _, _, starts, candidates = examples
        n, n_candidates = candidates.shape
        n_each, lanes = (len(starts) - 1) // max(n, 1), len(tile_of(parameters)[0])
        # The longest sequence, and the largest number of items in all sequences of one example.
        longest, max_items = np.diff(starts).max(initial=0), np.diff(starts[:: max(n_each, 1)]).max(initial=0)
        columns, sequences, items = (
            -(-int(number) // lanes) * lanes
            for number in (batch_size * max_items, batch_size * n_each, batch_size * n_candidates)
        )
        shape = columns + int(longest) * lanes, sequences, items
        length = scratch_size(parameters.itemsize, self.n_factors, *shape)
        return shape, np.empty((n_threads, length), dtype=parameters.dtype)

    def _touched(
        self, indptr: np.ndarray, items: np.ndarray, starts: np.ndarray, candidates: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the start of each client's embeddings, and the embeddings' rows in ascending order."""
        client = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))  # client of each example
        n_each = (len(starts) - 1) // max(len(client), 1)
        of_items = np.repeat(np.repeat(client, n_each), np.diff(starts))
        of_candidates = np.repeat(client, candidates.shape[1])
        # One number encodes a client and an item, so that one sort finds the distinct items of all clients.
        pairs = np.concatenate([of_items, of_candidates]) * self.n_items + np.concatenate([items, candidates.ravel()])
        owners, rows = np.divmod(distinct(pairs), self.n_items)
        return np.searchsorted(owners, np.arange(len(indptr))), rows.astype(np.int32)


def _check_starts(name: str, starts: Any, length: int) -> np.ndarray:
    """Return the checked starts of sequences, which must be strictly ascending from 0 to `length`."""
    starts = plain_array(name, starts)
    if starts.ndim != 1 or starts.dtype.kind not in "iu" or len(starts) < 1 or starts[0] or starts[-1] != length:
        raise ValueError(f"{name} must be integers from 0 to {length}, the number of items")
    starts = np.ascontiguousarray(starts, dtype=np.int64)
    empty = np.flatnonzero(np.diff(starts) < 1)
    if empty.size:
        raise ValueError(f"{name} must ascend strictly, got an empty sequence at {empty[0]}; leave it out")
    return starts
