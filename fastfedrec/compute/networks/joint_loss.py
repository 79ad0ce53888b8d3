"""A two-tower network and a sequence encoder with shared item embeddings, trained on the sum of both losses."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fastfedrec.compute.networks._client_steps import (
    ClientModel,
    Steps,
    draws_parameters,
    largest_batch,
    trains_clients,
)
from fastfedrec.compute.networks.client_examples import ClientExamples
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.gru import ContrastiveExamples, GRUEncoder
from fastfedrec.compute.networks.tiles import run_in_threads, tile_of
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.arrays import FloatArray, distinct, frozen
from fastfedrec.core.check import check_array, check_instance, check_integer, check_real, plain_array
from fastfedrec.core.randomness import Key

__all__ = ["JointNetwork"]

__dir__ = __all__.copy  # dir() lists only the public names


class JointNetwork(ClientModel):
    """A two-tower network and a recurrent encoder that share the embeddings of item ids.

    All parameters are in one array: the network's dense ones, the encoder's dense ones, then the network's embeddings.

    Parameters
    ----------
    network : TwoTower
        Network on features that include the item ids.

    Attributes
    ----------
    encoder : GRUEncoder
        Encoder with the same items and width.
    n_parameters : int
        Number of dense parameters and embeddings.
    n_dense : int
        Number of dense weights and biases of the network and the encoder.

    References
    ----------
    .. [1] Wang, Yin, Chen, Yu, Zhou, Zhang, "Fast-adapting and privacy-preserving federated recommender system", The
       VLDB Journal 31, 2022.  Equation 11.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.compute.networks.client_examples import Events, draw_examples
    >>> from fastfedrec.data.features import Features
    >>> from fastfedrec.compute.networks.joint_loss import JointNetwork
    >>> from fastfedrec.compute.networks.two_tower import TwoTower
    >>> from fastfedrec.compute.networks.sequences import draw_contrastive_examples
    >>> key = Key.from_seed(1)
    >>> data = Interactions.from_arrays(["ann", "ann", "bob", "bob"], ["a", "b", "b", "c"], timestamps=[1, 2, 3, 4])
    >>> joint = JointNetwork(TwoTower(Features.from_interactions(data), n_factors=16, hidden=(16,)))
    >>> parameters = joint.initial_parameters(key)
    >>> examples = draw_examples(data, Events.from_interactions(data), [0, 1], 1, key=key)
    >>> masked = draw_contrastive_examples(data, [0, 1], key=key)
    >>> updates = joint.train_clients(
    ...     parameters, examples, masked, contrastive_weight=0.5, learning_rate=0.1, n_epochs=2, key=key
    ... )
    >>> parameters += updates.total().astype(parameters.dtype) / 2
    >>> joint.network.score(joint.network_part(parameters), [0, 1]).shape
    (2, 3)
    """

    def __init__(self, network: TwoTower):
        self.network = check_instance("network", network, TwoTower, "use TwoTower(features)")
        items = network.features.item
        # The users' and the contexts' embeddings precede the embeddings of item ids.
        self._first_item = network.features.user.n_values + network.features.context.n_values
        if items.names[:1] != ("item id",):
            raise ValueError(
                f"network must have 'item id' as its first item feature, got {items.names[:1]}; its embeddings are "
                "shared with the encoder"
            )
        self.encoder = GRUEncoder(items.n_entries, n_factors=network.n_factors)
        self.n_factors = network.n_factors
        self.n_dense = network.n_dense + self.encoder.n_dense
        self.n_parameters = network.n_parameters + self.encoder.n_dense

    @draws_parameters
    def initial_parameters(
        self, key: Key, *, purpose: str = "network.start", dtype: DTypeLike = np.float32
    ) -> FloatArray:
        """Draw initial parameters of the network and of the encoder.

        Returns
        -------
        ndarray of shape (n_parameters,)
            Initial parameters; the network's part equals `TwoTower.initial_parameters` with the same key.
        """
        network = self.network.initial_parameters(key, purpose=purpose, dtype=dtype)
        return self.join(network, self.encoder.initial_parameters(key, purpose=f"{purpose}.encoder", dtype=dtype))

    def join(self, network: np.ndarray, encoder: np.ndarray) -> FloatArray:
        """Combine the network's parameters and the encoder's dense ones.

        Parameters
        ----------
        network : ndarray of shape (network.n_parameters,), float32 or float64
            All parameters of the network.
        encoder : ndarray of shape (at least encoder.n_dense,)
            Parameters of an encoder of this width; its embeddings are ignored.

        Returns
        -------
        ndarray of shape (n_parameters,)
            Parameters of the type of `network`.
        """
        network = check_array("network", network, ndim=1, shape=(self.network.n_parameters,))
        dense = plain_array("encoder", encoder)[: self.encoder.n_dense]
        if dense.shape != (self.encoder.n_dense,):
            raise ValueError(f"encoder must begin with {self.encoder.n_dense} dense parameters, got {dense.shape}")
        # All dense parameters precede the embeddings, so the encoder's are inserted between.
        at = self.network.n_dense
        return np.concatenate([network[:at], dense.astype(network.dtype), network[at:]])

    def network_part(self, parameters: np.ndarray) -> FloatArray:
        """Return the network's parameters, which suffice for recommendations.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,), float32 or float64
            All parameters.

        Returns
        -------
        ndarray of shape (network.n_parameters,)
            Copy of the network's parameters.
        """
        parameters = self._check_parameters(parameters)
        return np.concatenate([parameters[: self.network.n_dense], parameters[self.n_dense :]])

    @trains_clients
    def train_clients(
        self,
        parameters: np.ndarray,
        examples: ClientExamples,
        masked: ContrastiveExamples,
        *,
        contrastive_weight: float,
        learning_rate: float,
        n_epochs: int,
        batch_size: int = 32,
        masked_batch_size: int = 16,
        clip_norm: float | None = None,
        clip_order: int = 2,
        key: Key,
        purpose: str = "joint_loss.order",
        round: int = 0,
        n_threads: int = 0,
    ) -> ClientUpdates:
        """Train each client by local steps of SGD on the sum of both losses.

        A step takes the next batch of examples and the next batch of masked examples.  Its loss is the mean
        cross-entropy of the first plus `contrastive_weight` times the mean loss of the second
        (`GRUEncoder.train_clients`).  After a pass over all masked examples they start again in a new random order.  A
        client without masked examples trains only the network.

        Parameters
        ----------
        examples : ClientExamples
            Examples of each client.
        masked : ContrastiveExamples
            Masked examples of the same clients.
        contrastive_weight : float
            Weight of the contrastive loss, at least 0.
        batch_size, masked_batch_size : int
            Number of examples of a step, at least 1; the last batch of a pass may have fewer.
        purpose : str
            Purpose of the draws.  A client's streams are (purpose, round, global user id), and the same with ".masked"
            after the purpose.

        Raises
        ------
        ValueError
            The parameters have another shape or are not finite, the features do not have the examples, or the masked
            examples have other clients.
        """
        from fastfedrec._kernels.compute.networks import joint_loss as _kernel

        parameters = self._check_parameters(parameters)
        check_instance("examples", examples, ClientExamples, "use draw_examples")
        check_instance("masked", masked, ContrastiveExamples, "use draw_contrastive_examples")
        if not np.array_equal(examples.global_user_ids, masked.global_user_ids):
            raise ValueError(
                "masked must have the same clients as examples, in the same order; pass both the same users"
            )
        weight = check_real("contrastive_weight", contrastive_weight, low=0.0)
        steps = Steps.checked(learning_rate, n_epochs, batch_size, clip_norm, clip_order, n_threads)
        masked_batch_size = check_integer("masked_batch_size", masked_batch_size, low=1)
        users, indptr, items, contexts = self.network._check_examples(examples)
        sequences = self.encoder._check_examples(masked)
        lengths, n_masked = np.diff(indptr), np.diff(sequences[0])
        # A pass over a client's masked examples takes n_pass_steps steps, and each pass has a new random order.
        n_pass_steps = np.maximum(-(-n_masked // masked_batch_size), 1)
        n_passes = -(-(steps.n_epochs * -(-lengths // steps.batch_size)) // n_pass_steps)
        ids = examples.global_user_ids
        draws = steps.order(key, purpose, ids, steps.n_epochs, lengths, round)
        # A separate stream for masked examples keeps the order of the other examples independent of them.
        draws += steps.order(key, f"{purpose}.masked", ids, n_passes, n_masked, round)
        batches = largest_batch(steps.batch_size, lengths), largest_batch(masked_batch_size, n_masked)

        data = self.network._on_examples(items, examples.labels, contexts, steps.learning_rate, batches[0])

        def train(*arguments: Any) -> None:
            *arrays, n_threads = arguments
            shape, memory = self.encoder._make_buffers(parameters, sequences, batches[1], n_threads)

            def work(counter: np.ndarray, thread: int) -> None:
                _kernel.train_clients(
                    frozen(parameters), data.address, data.scratch_size, self.network.n_dense, users, indptr,
                    *sequences, *draws, *arrays, counter, memory[thread], shape, self.n_factors, self._first_item,
                    steps.learning_rate * weight, steps.n_epochs, *batches, *tile_of(parameters),
                )  # fmt: skip

            run_in_threads(work, n_threads)

        of_network = self.network._touched(users, indptr, items, contexts)
        touched = self._touched(of_network, self.encoder._touched(*sequences))
        return self._train(steps, parameters.dtype, lengths, touched, train)

    def _touched(
        self, of_network: tuple[np.ndarray, np.ndarray], of_encoder: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the start of each client's embeddings, and the rows that either part uses, in ascending order."""
        n = self.network.features.n_embeddings
        # One number encodes a client and a row, so that one sort finds the distinct rows of all clients.
        pairs = []
        for (starts, rows), first in ((of_network, 0), (of_encoder, self._first_item)):
            clients = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            pairs.append(clients * n + first + rows)
        owners, touched = np.divmod(distinct(np.concatenate(pairs)), n)
        return np.searchsorted(owners, np.arange(len(of_network[0]))), touched.astype(np.int32)
