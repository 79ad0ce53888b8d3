"""Meta-learning of a two-tower network's initial parameters from gradients through local steps (MAML, Meta-SGD)."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastfedrec._kernels.compute.networks import meta_learning as _kernel
from fastfedrec.compute.networks._client_steps import (
    ClientModel,
    Steps,
    draws_parameters,
    largest_batch,
    trains_clients,
)
from fastfedrec.compute.networks.client_examples import ClientExamples
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.arrays import FloatArray
from fastfedrec.core.check import check_array, check_choice, check_instance, check_real, plain_array
from fastfedrec.core.randomness import Key

__all__ = ["METHODS", "MetaNetwork", "split_examples"]

__dir__ = __all__.copy  # dir() lists only the public names

#: Methods of `MetaNetwork`.
METHODS = ("first-order-maml", "maml", "meta-sgd")
_ADAPTED, _FIRST_ORDER, _SECOND_ORDER = range(3)  # as in the kernel


def split_examples(
    examples: ClientExamples,
    *,
    key: Key,
    support_share: float = 0.5,
    purpose: str = "meta_learning.support",
    round: int = 0,
) -> tuple[ClientExamples, NDArray[np.int64]]:
    """Split each client's examples at random into a support set for the local steps and a query set.

    Parameters
    ----------
    examples : ClientExamples
        Examples of `draw_examples`, with a client's positives first.  A negative stays with its positive.
    key : Key
        Key of the random draws; the call does not claim it.
    support_share : float
        Share of a client's positives in the support set, above 0 and at most 1.  Their number is rounded up, so a
        client with one positive has an empty query set and an update of zeros.
    purpose : str
        Purpose of the draws.  A client's stream is (purpose, round, global user id), so its split does not depend on
        the other clients.
    round : int
        Number of the round, below 2**32.

    Returns
    -------
    examples : ClientExamples
        The same examples, with a client's support set before its query set.
    n_support : ndarray of shape (n_clients,), int64
        Number of examples in each support set.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.compute.networks.client_examples import Events, draw_examples
    >>> from fastfedrec.compute.networks.meta_learning import split_examples
    >>> key = Key.from_seed(1)
    >>> data = Interactions.from_arrays(["ann", "ann", "bob"], ["a", "b", "c"])
    >>> examples = draw_examples(data, Events.from_interactions(data), [0, 1], 1, key=key)
    >>> examples, n_support = split_examples(examples, key=key)
    >>> n_support, examples.labels
    (array([1, 2]), array([1., 1., 0., 1., 0.], dtype=float32))
    """
    check_instance("examples", examples, ClientExamples, "use draw_examples")
    check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
    share = check_real("support_share", support_share, low=0.0, high=1.0, exclusive=False)
    if share == 0:
        raise ValueError("support_share must be above 0, got 0; an empty support set allows no local step")
    lengths = np.diff(examples.indptr)
    clients = np.repeat(np.arange(len(lengths)), lengths)
    n_positives = np.bincount(clients[examples.labels > 0], minlength=len(lengths))
    n_chosen = np.ceil(share * n_positives).astype(np.int64)
    words, starts = key.ragged_words(purpose, examples.global_user_ids, n_positives, round=round, n_threads=1)
    # The words put each client's positives in a random order, and the first ones are the support set.
    owners = np.repeat(np.arange(len(lengths)), n_positives)
    rank = np.empty(len(words), dtype=np.int64)
    rank[np.lexsort((words, owners))] = np.arange(len(words)) - starts[owners]
    position = np.arange(len(clients)) - examples.indptr[clients]
    # Negative k of a client belongs to positive k modulo their number; a client without positives has no negatives.
    positive = starts[clients] + position % np.maximum(n_positives[clients], 1)
    in_query = rank[positive] >= n_chosen[clients] if len(rank) else np.zeros(len(clients), dtype=bool)
    # The sort is stable, so a client's positives precede its negatives in both sets.
    order = np.lexsort((in_query, clients))
    moved = examples.items[order], examples.labels[order], examples.contexts[order]
    n_support = np.bincount(clients[~in_query], minlength=len(lengths)).astype(np.int64)
    return ClientExamples(examples.users, examples.global_user_ids, examples.indptr, *moved), n_support


class MetaNetwork(ClientModel):
    """A two-tower network with clients that send gradients of the loss after their local steps of SGD.

    A client's steps on its support set lead from theta to theta'.  Its update is minus the gradient of the mean loss of
    its query set at theta'.  All parameters are in one array.  For Meta-SGD the order is: the network's dense
    parameters, their learning rates, its embeddings, their learning rates.

    Parameters
    ----------
    network : TwoTower
        Network to train.
    method : {"first-order-maml", "maml", "meta-sgd"}
        Variables of the gradient.  "first-order-maml" takes the gradient with respect to theta', as if it did not
        depend on theta.  "maml" takes it with respect to theta, through every step.  "meta-sgd" takes it with respect
        to theta and to a learning rate of each parameter, which is the same in all steps.
    learning_rate : float
        Learning rate of the local steps, and the initial learning rates of Meta-SGD; above 0.

    Attributes
    ----------
    n_parameters : int
        Number of dense parameters and embeddings, doubled if learning rates are learnt.
    n_dense : int
        Number of dense weights and biases, doubled if learning rates are learnt.

    References
    ----------
    .. [1] Finn, Abbeel, Levine, "Model-agnostic meta-learning for fast adaptation of deep networks", ICML 2017.
    .. [2] Li, Zhou, Chen, Li, "Meta-SGD: learning to learn quickly for few-shot learning", arXiv:1707.09835, 2017.
    .. [3] Chen, Luo, Dong, Li, He, "Federated meta-learning with fast convergence and efficient communication",
       arXiv:1802.07876, 2018.
    .. [4] Pearlmutter, "Fast exact multiplication by the Hessian", Neural Computation 6, 1994.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.compute.networks.client_examples import Events, draw_examples
    >>> from fastfedrec.compute.networks.meta_learning import MetaNetwork, split_examples
    >>> from fastfedrec.compute.networks.two_tower import TwoTower
    >>> from fastfedrec.data.features import Features
    >>> key = Key.from_seed(1)
    >>> data = Interactions.from_arrays(["ann", "ann", "bob", "bob"], ["a", "b", "b", "c"])
    >>> network = TwoTower(Features.from_interactions(data), n_factors=16, hidden=(16,))
    >>> meta = MetaNetwork(network, "meta-sgd", learning_rate=0.1)
    >>> parameters = meta.initial_parameters(key)
    >>> examples = draw_examples(data, Events.from_interactions(data), [0, 1], 1, key=key)
    >>> updates = meta.train_clients(parameters, *split_examples(examples, key=key), n_epochs=2, key=key)
    >>> parameters += updates.total().astype(parameters.dtype) / 2
    >>> network.score(meta.network_part(parameters), [0, 1]).shape
    (2, 3)
    """

    def __init__(self, network: TwoTower, method: str, *, learning_rate: float):
        self.network = check_instance("network", network, TwoTower, "use TwoTower(features)")
        self.method = check_choice("method", method, METHODS)
        self.learning_rate = check_real("learning_rate", learning_rate, low=0.0, exclusive=True)
        self.has_rates = self.method == "meta-sgd"
        self.n_factors = network.n_factors
        self.n_dense = network.n_dense * (1 + self.has_rates)
        self.n_parameters = network.n_parameters * (1 + self.has_rates)

    @draws_parameters
    def initial_parameters(
        self, key: Key, *, purpose: str = "network.start", dtype: DTypeLike = np.float32
    ) -> FloatArray:
        """Draw initial parameters of the network, with the same learning rate for all of them.

        Returns
        -------
        ndarray of shape (n_parameters,)
            Initial parameters; the network's part equals `TwoTower.initial_parameters` with the same key.
        """
        return self.join(self.network.initial_parameters(key, purpose=purpose, dtype=dtype))

    def join(self, network: np.ndarray, rates: np.ndarray | None = None) -> FloatArray:
        """Combine the network's parameters and their learning rates.

        Parameters
        ----------
        network : ndarray of shape (network.n_parameters,), float32 or float64
            Parameters of the network.
        rates : ndarray of shape (network.n_parameters,), or None
            Learning rate of each parameter, if these are learnt; None for `learning_rate`.

        Returns
        -------
        ndarray of shape (n_parameters,)
            Parameters of the type of `network`.
        """
        network = check_array("network", network, ndim=1, shape=(self.network.n_parameters,))
        if not self.has_rates:
            return network
        if rates is None:
            rates = np.full(len(network), self.learning_rate)
        rates = check_array("rates", plain_array("rates", rates).astype(network.dtype), ndim=1, shape=network.shape)
        at = self.network.n_dense
        return np.concatenate([network[:at], rates[:at], network[at:], rates[at:]])

    def network_part(self, parameters: np.ndarray) -> FloatArray:
        """Return the network's parameters, which suffice for recommendations.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,), float32 or float64
            All parameters.

        Returns
        -------
        ndarray of shape (network.n_parameters,)
            Parameters of the network; a copy if learning rates are learnt.
        """
        return self._parts(parameters)[0]

    def rates_part(self, parameters: np.ndarray) -> FloatArray | None:
        """Return the learning rate of each of the network's parameters.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,), float32 or float64
            All parameters.

        Returns
        -------
        ndarray of shape (network.n_parameters,), or None
            Learning rates; None if they are not learnt.
        """
        return self._parts(parameters)[1] if self.has_rates else None

    def _parts(self, parameters: np.ndarray) -> tuple[FloatArray, FloatArray]:
        parameters = self._check_parameters(parameters)
        if not self.has_rates:
            return parameters, parameters[:0]
        # The order is dense parameters, their rates, embeddings, their rates.
        n, embedded = self.network.n_dense, self.network.n_parameters - self.network.n_dense
        first, rates, second, last = np.split(parameters, [n, 2 * n, 2 * n + embedded])
        return np.concatenate([first, second]), np.concatenate([rates, last])

    @trains_clients
    def train_clients(
        self,
        parameters: np.ndarray,
        examples: ClientExamples,
        n_support: Any,
        *,
        n_epochs: int,
        batch_size: int = 32,
        clip_norm: float | None = None,
        clip_order: int = 2,
        key: Key,
        purpose: str = "meta_learning.order",
        round: int = 0,
        n_threads: int = 0,
    ) -> ClientUpdates:
        """Train each client on its support set, and compute the gradient of its query set's loss.

        Parameters
        ----------
        examples : ClientExamples
            Examples of each client, with its support set first.
        n_support : array_like of shape (n_clients,), int
            Number of examples in each support set.
        n_epochs : int
            Number of passes over the support set, each in a new random order; at least 0.
        clip_norm : float or None
            Bound on the norm of a client's update, over dense weights, embeddings and their learning rates combined.
            The norm never exceeds the bound.  None for no bound.

        Returns
        -------
        ClientUpdates
            Minus the gradient of each client; zeros if its query set is empty or it diverged.

        Raises
        ------
        ValueError
            The parameters have another shape or are not finite, or the features do not have the examples.
        """
        # MAML and Meta-SGD have the same second-order kernel, which also computes the gradient of learning rates.
        mode = _FIRST_ORDER if self.method == "first-order-maml" else _SECOND_ORDER
        options = n_epochs, batch_size, clip_norm, clip_order, key, purpose, round, n_threads
        return self._run(mode, parameters, examples, n_support, *options)

    @trains_clients
    def adapt_clients(
        self,
        parameters: np.ndarray,
        examples: ClientExamples,
        *,
        n_epochs: int,
        batch_size: int = 32,
        key: Key,
        purpose: str = "meta_learning.order",
        round: int = 0,
        n_threads: int = 0,
    ) -> ClientUpdates:
        """Personalise each client by local steps on all of its examples, after the network is trained.

        Parameters
        ----------
        examples : ClientExamples
            Examples of each client.

        Returns
        -------
        ClientUpdates
            Change of `network`'s parameters for each client; zeros if it has no examples or diverged.
        """
        options = n_epochs, batch_size, None, 2, key, purpose, round, n_threads
        return self._run(_ADAPTED, parameters, examples, None, *options)

    def _run(
        self,
        mode: int,
        parameters: np.ndarray,
        examples: ClientExamples,
        n_support: Any,
        n_epochs: int,
        batch_size: int,
        clip_norm: float | None,
        clip_order: int,
        key: Key,
        purpose: str,
        round: int,
        n_threads: int,
    ) -> ClientUpdates:
        parameters = self._check_parameters(parameters)
        check_instance("examples", examples, ClientExamples, "use draw_examples")
        steps = Steps.checked(self.learning_rate, n_epochs, batch_size, clip_norm, clip_order, n_threads)
        users, indptr, items, contexts = self.network._check_examples(examples)
        lengths = np.diff(indptr)
        n_support = lengths if n_support is None else self._check_support(n_support, lengths)
        draws = steps.order(key, purpose, examples.global_user_ids, steps.n_epochs, n_support, round)
        batch_size = largest_batch(steps.batch_size, lengths)
        data = self.network._on_examples(items, examples.labels, contexts, steps.learning_rate, batch_size)
        touched = row_starts, rows = self.network._touched(users, indptr, items, contexts)
        n_embeddings, has_rates = self.network.features.n_embeddings, self.has_rates

        def train(_row_starts: np.ndarray, _rows: np.ndarray, *arguments: Any) -> None:
            *arrays, n_threads = arguments
            _kernel.train_clients(
                data.address, parameters, users, indptr, n_support, *draws, *touched, *arrays, self.network.n_dense,
                n_embeddings, self.n_factors, has_rates, mode, steps.n_epochs, batch_size, n_threads,
            )  # fmt: skip

        # An update for Meta-SGD has the learning rates of its embeddings as well; adaptation does not change the rates.
        model: ClientModel = self.network if mode == _ADAPTED else self
        updated = touched if model is self.network or not has_rates else _with_rates(row_starts, rows, n_embeddings)
        return model._train(steps, parameters.dtype, lengths, updated, train)

    def _check_support(self, n_support: Any, lengths: np.ndarray) -> NDArray[np.int64]:
        given = plain_array("n_support", n_support)
        if given.dtype.kind not in "iu" or given.shape != lengths.shape:
            raise ValueError(
                f"n_support must have one integer for each client ({len(lengths)}), got {given.dtype} of shape "
                f"{given.shape}; see split_examples"
            )
        if (wrong := (given < 0) | (given > lengths)).any():
            at = int(np.argmax(wrong))
            raise ValueError(f"n_support[{at}] must be from 0 to the client's {lengths[at]} examples, got {given[at]}")
        return np.ascontiguousarray(given, dtype=np.int64)


def _with_rates(row_starts: np.ndarray, rows: np.ndarray, n_embeddings: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each client's rows of embeddings, followed by the rows of their learning rates."""
    lengths = np.diff(row_starts)
    # A client with n rows gets 2n, so its rows move by the number of rows of the clients before it.
    position = np.arange(len(rows)) + np.repeat(row_starts[:-1], lengths)
    out = np.empty(2 * len(rows), dtype=np.int32)
    out[position] = rows
    out[position + np.repeat(lengths, lengths)] = rows + np.int32(n_embeddings)
    return 2 * row_starts, out
