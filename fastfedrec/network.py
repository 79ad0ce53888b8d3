"""The two-tower network on side features: its parameters, the updates that clients compute, scores of all items."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fastfedrec._check import check_array, check_instance, check_integer, check_real
from fastfedrec._kernels import clipping as _clipping
from fastfedrec._rows import check_rows, frozen
from fastfedrec._threads import resolve_n_threads
from fastfedrec._tiles import check_width, run_tasks, tile_of, worth_threads
from fastfedrec.client_examples import ClientExamples
from fastfedrec.features import Features
from fastfedrec.randomness import Key

_EMBEDDING_STDDEV = 0.05


@dataclass(frozen=True)
class ClientUpdates:
    """What clients found: the difference between each one's own parameters and those it started from.

    Only dense weights and the embeddings that a client's examples use are stored; all others did not change.

    Parameters
    ----------
    values : ndarray of shape (starts[-1],)
        Client i's update is ``values[starts[i]:starts[i + 1]]``: dense weights, then its rows of embeddings.
    starts : ndarray of shape (n_clients + 1,), int64
        Where each client's update begins.
    rows : ndarray of shape (row_starts[-1],), int32
        Embeddings that client i uses, ascending: ``rows[row_starts[i]:row_starts[i + 1]]``.
    row_starts : ndarray of shape (n_clients + 1,), int64
        Where each client's rows begin.
    rejected : ndarray of shape (n_clients,), bool
        Updates that were not finite, and were replaced by zeros.  They depend on the data and are not covered by any
        guarantee: do not release them.
    n_dense, n_factors, n_parameters : int
        Sizes of the network.
    """

    values: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    row_starts: np.ndarray
    rejected: np.ndarray
    n_dense: int
    n_factors: int
    n_parameters: int

    def total(self) -> np.ndarray:
        """The sum of all updates, added up in double, client by client.

        Returns
        -------
        ndarray of shape (n_parameters,), float64
            Zeros where no client has an entry.
        """
        from fastfedrec._kernels import network as _kernel

        out = np.zeros(self.n_parameters)
        _kernel.add_updates(*self._stored(), out, self.n_dense, self.n_factors, 0, len(self.rejected))
        return out

    def _stored(self) -> tuple[np.ndarray, ...]:
        return frozen(self.values), frozen(self.starts), frozen(self.row_starts), frozen(self.rows)


class TwoTower:
    """A network that scores pairs of users and items from their features.

    The user's embeddings side by side go through a dense layer of `n_factors` rectified units, the item's through
    another; both outputs side by side go through the hidden layers to one logit.  All parameters are one array: dense
    weights and biases first, layer by layer, then one row of `n_factors` for each value of a feature.

    Parameters
    ----------
    features : Features
        Of the users, items and contexts.
    n_factors : int
        Width of embeddings and of each tower's output; a multiple of 16.
    hidden : sequence of int
        Widths of hidden layers, at least one; multiples of 16.

    Attributes
    ----------
    n_parameters : int
        Dense weights and embeddings.
    n_dense : int
        Dense weights and biases.

    References
    ----------
    .. [1] Wang, Yin, Chen, Yu, Zhou, Zhang, "Fast-adapting and privacy-preserving federated recommender system", The
       VLDB Journal 31, 2022.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.client_examples import Events, draw_examples
    >>> from fastfedrec.features import Features
    >>> from fastfedrec.network import TwoTower
    >>> key = Key.from_seed(1)
    >>> data = Interactions.from_arrays(["ann", "ann", "bob"], ["a", "b", "c"])
    >>> network = TwoTower(Features.from_interactions(data), n_factors=16, hidden=(16,))
    >>> parameters = network.initial_parameters(key)
    >>> examples = draw_examples(data, Events.from_interactions(data), [0, 1], 1, key=key)
    >>> updates = network.train_clients(parameters, examples, learning_rate=0.1, n_epochs=20, key=key)
    >>> parameters += updates.total().astype(parameters.dtype) / 2
    >>> network.score(parameters, [0, 1]).shape
    (2, 3)
    """

    def __init__(self, features: Features, *, n_factors: int = 64, hidden: tuple[int, ...] = (128, 64, 32, 16)):
        self.features = check_instance("features", features, Features, "use Features.from_interactions")
        self.n_factors = check_width("n_factors", n_factors)
        self.hidden = tuple(check_width(f"hidden[{k}]", width) for k, width in enumerate(hidden))
        if not self.hidden:
            raise ValueError("hidden must hold at least one width, got none")
        n_user = features.user.n_features + features.context.n_features
        n_in = [n_user * n_factors, features.item.n_features * n_factors, 2 * n_factors, *self.hidden]
        n_out = [n_factors, n_factors, *self.hidden, 1]
        ends = np.cumsum([(i + 1) * o for i, o in zip(n_in, n_out, strict=True)])
        self._layers = np.column_stack([n_in, n_out, np.r_[0, ends[:-1]], ends - n_out])
        self.n_dense = int(ends[-1])
        self.n_parameters = self.n_dense + features.n_embeddings * n_factors

    def initial_parameters(
        self, key: Key, *, purpose: str = "network.start", dtype: DTypeLike = np.float32
    ) -> np.ndarray:
        """Draw parameters to start from.

        Parameters
        ----------
        key : Key
            Source of the randomness; it is not used up.
        purpose : str
            Name of the stream.
        dtype : dtype
            float32 or float64; the same draws, rounded.

        Returns
        -------
        ndarray of shape (n_parameters,)
            Weights uniform within sqrt(6 / inputs) of 0 (He et al. 2015), biases 0, embeddings normal with standard
            deviation 0.05.
        """
        check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise TypeError(f"dtype must be float32 or float64, got {np.dtype(dtype)}")
        out = np.zeros(self.n_parameters)
        uniform = key.uniform(f"{purpose}.weights", size=self.n_dense)
        for n_in, n_out, at, _ in self._layers.tolist():
            if n_in:
                out[at : at + n_in * n_out] = np.sqrt(6 / n_in) * (2 * uniform[at : at + n_in * n_out] - 1)
        n_embedded = self.n_parameters - self.n_dense
        out[self.n_dense :] = _EMBEDDING_STDDEV * key.normal(f"{purpose}.embeddings", size=n_embedded)
        return out.astype(dtype)

    def train_clients(
        self,
        parameters: np.ndarray,
        examples: ClientExamples,
        *,
        learning_rate: float,
        n_epochs: int,
        batch_size: int = 32,
        clip_norm: float | None = None,
        clip_order: int = 2,
        key: Key,
        purpose: str = "network.order",
        round: int = 0,
        n_threads: int = 0,
    ) -> ClientUpdates:
        """Let each client take its own steps of SGD from the same parameters.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,), float32 or float64
            Finite; where every client starts.
        examples : ClientExamples
            One client a row; minimised is the mean binary cross-entropy of a batch.
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
            0 for all processors; the result does not depend on it.

        Returns
        -------
        ClientUpdates
            One for each client; zeros where it has no examples, or diverged.

        Raises
        ------
        ValueError
            Parameters of another shape or not finite, or examples of users, items or contexts that the features do
            not have.
        """
        from fastfedrec._kernels import network as _kernel

        parameters = self._check_parameters(parameters)
        check_instance("examples", examples, ClientExamples, "use draw_examples")
        learning_rate = check_real("learning_rate", learning_rate, low=0.0, exclusive=True)
        n_epochs = check_integer("n_epochs", n_epochs, low=0)
        batch_size = check_integer("batch_size", batch_size, low=1)
        bound = np.inf if clip_norm is None else check_real("clip_norm", clip_norm, low=1e-100, high=1e100)
        clip_order = check_integer("clip_order", clip_order, low=1, high=2)
        n_threads = resolve_n_threads(n_threads)
        users, indptr, items, contexts = self._check_examples(examples)
        lengths = np.diff(indptr)
        n_clients = len(users)
        data = self._tables(), users, indptr, items
        row_starts, rows = self._touched(*data, contexts)
        starts = self.n_dense * np.arange(n_clients + 1) + self.n_factors * row_starts
        values = np.empty(starts[-1], dtype=parameters.dtype)
        n_words = (n_epochs * np.maximum(lengths - 1, 0) + 1) // 2
        words, word_starts = key.ragged_words(
            purpose, examples.global_user_ids, n_words, round=round, n_threads=worth_threads(n_threads, n_words.sum())
        )
        order = np.argsort(-lengths, kind="stable")
        counter = np.zeros(1, dtype=np.int64)
        lanes, tile_rows = tile_of(parameters)
        batch_size = min(batch_size, max(lengths.max(initial=0), 1))

        def work(_: int) -> None:
            _kernel.train_clients(
                frozen(parameters), self._layers, *data, frozen(examples.labels), contexts, words, word_starts,
                row_starts, rows, order, counter, starts, values, learning_rate, n_epochs, batch_size, lanes, tile_rows,
            )  # fmt: skip

        with np.errstate(all="ignore"):  # what is not finite is rejected below
            run_tasks(work, min(n_threads, max(n_clients, 1)))
        rejected = np.zeros(n_clients, dtype=np.uint8)
        _clipping.clip_ragged(values, starts, rejected, bound, clip_order, worth_threads(n_threads, len(values)))
        sizes = self.n_dense, self.n_factors, self.n_parameters
        return ClientUpdates(values, starts, rows, row_starts, rejected.view(np.bool_), *sizes)

    def score(
        self,
        parameters: np.ndarray,
        users: Any,
        *,
        contexts: Any = None,
        updates: ClientUpdates | None = None,
        clients: Any = None,
        n_threads: int = 0,
    ) -> np.ndarray:
        """Score all items for users, or for users in contexts.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,), float32 or float64
            Finite.
        users : array_like of shape (n_queries,), int
            Rows of the features' users.
        contexts : array_like of shape (n_queries,), int, or None
            Rows of the features' contexts; needed where there are any.
        updates : ClientUpdates or None
            Added to the parameters: each query is answered by the network of one client.
        clients : array_like of shape (n_queries,), int, or None
            Whose update; needed with `updates`.
        n_threads : int
            0 for all processors; the result does not depend on it.

        Returns
        -------
        ndarray of shape (n_queries, n_items)
            Logits, of the type of `parameters`.

        Raises
        ------
        ValueError
            Scores that are not finite; the user is named.
        """
        from fastfedrec._kernels import network as _kernel

        parameters = self._check_parameters(parameters)
        users = check_rows("users", users, self.features.user.n_entries)
        contexts = self._check_contexts("contexts", contexts, len(users))
        if (updates is None) != (clients is None):
            raise ValueError("updates and clients must be given together: which client answers each query")
        if updates is None:
            clients = np.full(len(users), -1)
            none = np.zeros(1, dtype=np.int64)
            stored: tuple[np.ndarray, ...] = parameters[:0], none, none, np.empty(0, dtype=np.int32)
        else:
            check_instance("updates", updates, ClientUpdates, "use TwoTower.train_clients")
            if updates.n_parameters != self.n_parameters or updates.values.dtype != parameters.dtype:
                raise ValueError(f"updates must be of this network and of {parameters.dtype}, like the parameters")
            clients = check_rows("clients", clients, len(updates.rejected))
            stored = updates._stored()
        if len(clients) != len(users):
            raise ValueError(f"clients must have one entry a query ({len(users)}), got {len(clients)}")
        out = np.empty((len(users), self.features.item.n_entries), dtype=parameters.dtype)
        order = np.argsort(clients, kind="stable")
        n_threads = min(resolve_n_threads(n_threads), max(len(users), 1))

        def work(task: int) -> None:
            first, last = (len(users) * t // n_threads for t in (task, task + 1))
            _kernel.score_items(
                frozen(parameters), self._layers, self._tables(), users, contexts, clients, order,
                *map(frozen, stored), out, first, last, *tile_of(parameters),
            )  # fmt: skip

        with np.errstate(all="ignore"):
            run_tasks(work, n_threads)
        if not np.isfinite(out).all():
            bad = users[int(np.argmin(np.isfinite(out).all(axis=1)))]
            raise ValueError(f"scores of user row {bad} are not finite; has the network diverged?")
        return out

    def _check_parameters(self, parameters: Any) -> np.ndarray:
        return check_array("parameters", parameters, ndim=1, shape=(self.n_parameters,))

    def _check_contexts(self, name: str, contexts: Any, length: int) -> np.ndarray:
        n = self.features.context.n_entries
        if contexts is None and n:
            raise ValueError(f"{name} must be given: the features have contexts")
        contexts = check_rows(name, contexts, n) if n else np.zeros(length, dtype=np.int64)
        if len(contexts) != length:
            raise ValueError(f"{name} must have {length} entries, got {len(contexts)}")
        return contexts

    def _check_examples(self, examples: ClientExamples) -> tuple[np.ndarray, ...]:
        users = check_rows("examples.users", examples.users, self.features.user.n_entries)
        items = check_rows("examples.items", examples.items, self.features.item.n_entries)
        contexts = self._check_contexts("examples.contexts", examples.contexts, len(items))
        labels = check_array("examples.labels", examples.labels, ndim=1, shape=items.shape, dtypes=(np.float32,))
        if labels.size and not (labels.min() >= 0 and labels.max() <= 1):
            raise ValueError(f"examples.labels must be from 0 to 1, got {labels.min():g} to {labels.max():g}")
        indptr = np.asarray(examples.indptr)
        if indptr.shape != (len(users) + 1,) or indptr[0] or indptr[-1] != len(items) or (np.diff(indptr) < 0).any():
            raise ValueError(f"examples.indptr must ascend from 0 to {len(items)} in {len(users)} steps")
        return users, np.ascontiguousarray(indptr, dtype=np.int64), items, contexts

    def _touched(
        self, tables: Any, users: np.ndarray, indptr: np.ndarray, items: np.ndarray, contexts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where each client's embeddings begin, and these, ascending."""
        from fastfedrec._kernels import _examples

        row_starts, rows = np.zeros(len(users) + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
        for _ in range(2):
            _examples.touched_rows(tables, users, indptr, items, contexts, row_starts, rows, self.features.n_embeddings)
            rows = np.empty(row_starts[-1], dtype=np.int32) if not rows.size else rows
        return row_starts, rows

    def _tables(self) -> Any:
        from fastfedrec._kernels import network as _kernel

        parts: list[np.ndarray] = []
        tables = self.features.user, self.features.context, self.features.item
        offset = 0
        for table in tables:
            parts += [table.indptr, table.indices + np.int32(offset)]
            offset += table.n_values
        return _kernel.Tables(*map(frozen, parts), *(table.n_features for table in tables))
