"""The two-tower network on side features, with its parameters, client updates and scores of all items."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fastfedrec._kernels.compute.networks import _examples
from fastfedrec._kernels.compute.networks import two_tower as _kernel
from fastfedrec.compute.networks._client_steps import (
    ClientModel,
    Steps,
    draws_parameters,
    largest_batch,
    trains_clients,
)
from fastfedrec.compute.networks.client_examples import ClientExamples
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.tiles import check_widths
from fastfedrec.core.arrays import FloatArray, check_out, check_rows, read_only
from fastfedrec.core.check import check_array, check_instance, plain_array
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.csr import check_indptr
from fastfedrec.data.features import Features

__all__ = ["TwoTower"]

__dir__ = __all__.copy  # dir() lists only the public names


class TwoTower(ClientModel):
    """A network that scores pairs of users and items from their features.

    The user's concatenated embeddings go through a dense layer of `n_factors` rectified units, and the item's through
    another one.  Both outputs, concatenated, go through the hidden layers to one logit.  All parameters are in one
    array: dense weights and biases first, layer by layer, then one row of `n_factors` for each value of a feature.

    Parameters
    ----------
    features : Features
        Features of the users, items and contexts.
    n_factors : int
        Width of embeddings and of each tower's output; a multiple of 16.
    hidden : sequence of int
        Widths of the hidden layers, at least one; multiples of 16.

    Attributes
    ----------
    n_parameters : int
        Number of dense parameters and embeddings.
    n_dense : int
        Number of dense weights and biases.

    References
    ----------
    .. [1] Wang, Yin, Chen, Yu, Zhou, Zhang, "Fast-adapting and privacy-preserving federated recommender system", The
       VLDB Journal 31, 2022.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.compute.networks.client_examples import Events, draw_examples
    >>> from fastfedrec.data.features import Features
    >>> from fastfedrec.compute.networks.two_tower import TwoTower
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
        self.n_factors, self.hidden = n_factors, hidden = check_widths(n_factors, hidden)
        # The user tower takes embeddings of user and context; the first hidden layer takes both towers' outputs.
        n_user = features.user.n_features + features.context.n_features
        n_in = [n_user * n_factors, features.item.n_features * n_factors, 2 * n_factors, *self.hidden]
        n_out = [n_factors, n_factors, *self.hidden, 1]
        # Python integers do not overflow, so a huge width from a file cannot wrap around to a small network.
        ends = np.array([*itertools.accumulate((i + 1) * o for i, o in zip(n_in, n_out, strict=True))], dtype=np.int64)
        offsets = np.r_[0, ends[:-1]], ends - n_out, np.cumsum(n_in) - n_in  # of weights, biases and inputs
        self._layers = read_only(np.column_stack([n_in, n_out, *offsets]).astype(np.int64))
        self.n_dense = int(ends[-1])
        self.n_parameters = self.n_dense + features.n_embeddings * n_factors

    @draws_parameters
    def initial_parameters(
        self, key: Key, *, purpose: str = "network.start", dtype: DTypeLike = np.float32
    ) -> FloatArray:
        """Draw initial parameters.

        Returns
        -------
        ndarray of shape (n_parameters,)
            Weights are uniform within sqrt(6 / inputs) of 0 (He et al. 2015), biases are 0, and embeddings are normal
            with standard deviation 0.05.
        """
        out = self._empty_start(key, purpose, dtype)
        uniform = key.uniform(f"{purpose}.weights", size=self.n_dense)
        for n_in, _, at, end, _ in self._layers.tolist():
            # A tower without features has only biases, which stay 0.
            if n_in:
                out[at:end] = np.sqrt(6 / n_in) * (2 * uniform[at:end] - 1)
        return out.astype(dtype)

    @trains_clients
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
        """Train each client by local steps of SGD from the same parameters.

        Parameters
        ----------
        examples : ClientExamples
            Examples of each client; a step minimises the mean binary cross-entropy of a batch.

        Raises
        ------
        ValueError
            The parameters have another shape or are not finite, or the features do not have a user, an item or a
            context of the examples.
        """
        parameters = self._check_parameters(parameters)
        check_instance("examples", examples, ClientExamples, "use draw_examples")
        steps = Steps.checked(learning_rate, n_epochs, batch_size, clip_norm, clip_order, n_threads)
        users, indptr, items, contexts = self._check_examples(examples)
        lengths = np.diff(indptr)
        draws = steps.order(key, purpose, examples.global_user_ids, steps.n_epochs, lengths, round)
        batch_size = largest_batch(steps.batch_size, lengths)
        data = self._on_examples(items, examples.labels, contexts, steps.learning_rate, batch_size)

        def train(*arguments: Any) -> None:
            *arrays, n_threads = arguments
            _kernel.train_clients(
                data, parameters, users, indptr, *draws, *arrays, self.features.n_embeddings, steps.n_epochs,
                batch_size, n_threads,
            )  # fmt: skip

        return self._train(steps, parameters.dtype, lengths, self._touched(users, indptr, items, contexts), train)

    def score(
        self,
        parameters: np.ndarray,
        users: Any,
        *,
        contexts: Any = None,
        updates: ClientUpdates | None = None,
        clients: Any = None,
        out: Any = None,
        n_threads: int = 0,
    ) -> FloatArray:
        """Score all items for users, or for users in contexts.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,), float32 or float64
            Finite parameters.
        users : array_like of shape (n_queries,), int
            User of each query, as a row of the features' users.
        contexts : array_like of shape (n_queries,), int, or None
            Context of each query, as a row of the features' contexts; required if there are contexts.
        updates : ClientUpdates or None
            Updates of personalised networks; one client's update is added to the parameters for each query.
        clients : array_like of shape (n_queries,), int, or None
            Client of each query, as a row of `updates`; required with `updates`.
        out : ndarray of shape (n_queries, n_items) or None
            Output array of the type of `parameters`; None makes a new array.
        n_threads : int
            Number of threads; 0 for all processors.  The result does not depend on it.

        Returns
        -------
        ndarray of shape (n_queries, n_items)
            Logits of the type of `parameters`: `out` or a new array.

        Raises
        ------
        ValueError
            Scores are not finite; the message names the user's row.
        """
        parameters = self._check_parameters(parameters)
        users = check_rows("users", users, self.features.user.n_entries)
        contexts = self._check_contexts("contexts", contexts, len(users))
        if (updates is None) != (clients is None):
            raise ValueError("updates and clients must be passed together; clients has the client of each query")
        if updates is None:
            # Client -1 has no update, and the kernel uses the parameters as they are.
            clients = np.full(len(users), -1)
            no_starts = np.zeros(1, dtype=np.int64)
            stored: tuple[np.ndarray, ...] = parameters[:0], no_starts, no_starts, np.empty(0, dtype=np.int32)
        else:
            check_instance("updates", updates, ClientUpdates, "use TwoTower.train_clients")
            if updates.n_parameters != self.n_parameters or updates.values.dtype != parameters.dtype:
                raise ValueError(f"updates must be of this network and of {parameters.dtype}, like the parameters")
            clients = check_rows("clients", clients, len(updates.rejected))
            stored = updates.stored()
        if len(clients) != len(users):
            raise ValueError(f"clients must have one entry for each query ({len(users)}), got {len(clients)}")
        shape = len(users), self.features.item.n_entries
        array = check_out(out, shape, parameters.dtype.type, apart_from=(parameters, users, contexts, clients, *stored))
        # Queries of one client are consecutive, so that a thread adds the update once for all of them.
        order = np.argsort(clients, kind="stable")
        n_threads = min(resolve_n_threads(n_threads), max(len(users), 1))
        _kernel.score_items(self._tables(), parameters, users, contexts, clients, order, *stored, array, n_threads)
        # Parameters may be finite and still large enough for products that overflow.
        if not np.isfinite(array).all():
            bad = users[int(np.argmin(np.isfinite(array).all(axis=1)))]
            raise ValueError(f"scores of user row {bad} are not finite; has the network diverged?")
        return array if out is None else out

    def _check_contexts(self, name: str, contexts: Any, length: int) -> np.ndarray:
        n = self.features.context.n_entries
        if contexts is None and n:
            raise ValueError(f"{name} must not be None, because the features have contexts; pass rows of contexts")
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
        indptr = check_indptr("examples.indptr", examples.indptr, len(users))
        if indptr[-1] != len(items):
            raise ValueError(f"examples.indptr must end at the number of examples, {len(items)}, got {indptr[-1]}")
        return users, indptr, items, contexts

    def _touched(
        self, users: np.ndarray, indptr: np.ndarray, items: np.ndarray, contexts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the start of each client's embeddings, and the embeddings' rows in ascending order."""
        # The first call counts each client's rows into `row_starts`, and the second call writes the rows.
        arrays, n_fields = self._fields()
        row_starts, rows = np.zeros(len(users) + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
        for _ in range(2):
            data = *arrays, users, indptr, items, contexts, row_starts, rows
            _examples.touched_rows(*data, *n_fields, self.features.n_embeddings)
            rows = np.empty(row_starts[-1], dtype=np.int32) if not rows.size else rows
        return row_starts, rows

    def _on_examples(
        self, items: np.ndarray, labels: np.ndarray, contexts: np.ndarray, learning_rate: float, batch_size: int
    ) -> Any:
        labels = np.ascontiguousarray(plain_array("examples.labels", labels), dtype=np.float32)
        return _kernel.Examples(self._tables(), items, labels, contexts, learning_rate, batch_size)

    def _tables(self) -> Any:
        arrays, n_fields = self._fields()
        return _kernel.Tables(self._layers, *arrays, *n_fields)

    def _fields(self) -> tuple[list[np.ndarray], list[int]]:
        """Return the starts and the embedding rows of the fields of users, contexts and items, and the field counts."""
        # All tables share one array of embeddings, in the order of the tables.
        arrays: list[np.ndarray] = []
        tables = self.features.user, self.features.context, self.features.item
        offset = 0
        for table in tables:
            arrays += [table.indptr, table.indices + np.int32(offset)]
            offset += table.n_values
        return arrays, [table.n_features for table in tables]
