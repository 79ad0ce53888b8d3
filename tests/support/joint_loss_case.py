"""A network and an encoder on the same items, with examples, and their results in the twin."""

import itertools
from dataclasses import replace

import numpy as np
from naive.compute.networks import gru as naive_gru
from naive.compute.networks import joint_loss as naive
from naive.compute.networks import two_tower as naive_network

from fastfedrec import Key
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.joint_loss import JointNetwork
from fastfedrec.compute.networks.sequences import draw_contrastive_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.data.features import Features
from fastfedrec.datasets import generate_sequences
from support.network_case import KEY, Fields, spread


class Case(Fields):
    """Small network with its encoder, and examples of a few users; one has a single item, so no masked example."""

    def __init__(
        self, seed=0, n_users=4, n_items=24, length=7, contexts=0, dtype=np.float64, n_factors=16, item_ids=True,
        negatives=2, **options,
    ):  # fmt: skip
        rng, key = np.random.default_rng(seed), Key.from_seed(seed)
        whole = generate_sequences(n_users, n_items, n_topics=2, length=length, key=key)
        rows = np.repeat(np.arange(n_users), whole.interactions_per_user())
        first_of = whole.indptr[rows]
        data = whole.keep_interactions((rows != 1) | (np.arange(len(rows)) == first_of))
        self.data = data.with_features(
            user_features={"u": rng.integers(0, 3, n_users)},
            item_features={"tags": [tuple(rng.permutation(5)[: rng.integers(0, 4)].tolist()) for _ in range(n_items)]},
        )
        users = np.repeat(np.arange(n_users), self.data.interactions_per_user())
        log = {f"c{k}": rng.integers(0, 4, len(users)) for k in range(contexts)}
        self.features = Features.from_interactions(
            self.data, user=["u"], item=["tags"], item_ids=item_ids, contexts=log
        )
        events = Events.from_interactions(self.data)
        if contexts:
            events = replace(events, contexts=np.arange(len(users)))
        everybody = np.arange(n_users)
        self.examples = draw_examples(self.data, events, everybody, negatives, key=key)
        self.masked = draw_contrastive_examples(self.data, everybody, length=4, n_negatives=2, key=key)
        self.network = TwoTower(self.features, n_factors=n_factors, hidden=(16,))
        self.joint = JointNetwork(self.network)
        self.parameters = self.joint.initial_parameters(key, dtype=dtype)
        # Otherwise only the biases of layers would matter.
        self.parameters[self.joint.n_dense :] *= 10
        self.options = {
            "contrastive_weight": 0.7, "learning_rate": 0.2, "n_epochs": 3, "batch_size": 4, "masked_batch_size": 2
        } | options  # fmt: skip

    def train(self, **changes):
        arguments = {
            "parameters": self.parameters, "examples": self.examples, "masked": self.masked, "key": KEY, "n_threads": 1
        }  # fmt: skip
        return self.joint.train_clients(**(arguments | self.options | changes))

    def unpacked(self):
        """Return (layers, encoder's dense arrays, embeddings), copied in double."""
        at, table = self.network.n_dense, self.features
        sizes = table.user.n_features + table.context.n_features, table.item.n_features
        layers, embeddings = naive_network.unpack(
            self.joint.network_part(self.parameters), *sizes, self.network.n_factors, self.network.hidden
        )
        return layers, naive_gru.unpack(self.parameters[at : self.joint.n_dense], self.network.n_factors)[0], embeddings

    def packed(self, layers, dense, embeddings):
        parts = [part.ravel() for layer in layers for part in layer]
        return np.concatenate([*parts, *(part.ravel() for part in dense.values()), embeddings.ravel()])

    @property
    def first_item(self):
        return self.features.user.n_values + self.features.context.n_values

    def client(self, k):
        """Return the network's examples, and (sequences, candidates) of each masked example."""
        m = self.masked
        sequences = [m.items[a:b].tolist() for a, b in itertools.pairwise(m.starts)]
        n_per_example = len(sequences) // len(m.candidates)
        masked = [
            (sequences[n_per_example * x : n_per_example * (x + 1)], m.candidates[x])
            for x in range(*m.indptr[k : k + 2])
        ]
        return super().client(k), masked

    def words(self, k, part=""):
        user = int(self.examples.global_user_ids[k])
        return KEY.words(f"joint_loss.order{part}", user=user, size=self.options["n_epochs"] * len(self.examples.items))

    def expected(self, k):
        """Return a client's update computed by the twin."""
        parameters = self.unpacked()
        both = self.words(k), self.words(k, ".masked")
        naive.train_client(*parameters, self.first_item, self.data.n_items, *self.client(k), *both, **self.options)
        return self.packed(*parameters) - self.parameters

    def spread(self, updates, k):
        """Return a client's update, with zeros for the entries that it does not change."""
        return spread(self.joint, updates, k)
