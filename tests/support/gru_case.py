"""A small encoder, examples of a few clients, and their results in the twin."""

import itertools

import numpy as np
from naive.compute.networks import gru as naive

from fastfedrec.compute.networks.gru import ContrastiveExamples, GRUEncoder
from support.network_case import KEY, spread


class Case:
    """Small encoder with examples of different lengths of a few clients."""

    def __init__(
        self, seed=0, n_clients=4, n_items=12, n_examples=4, longest=7, segment=3, n_segments=3, n_candidates=3,
        dtype=np.float64, n_factors=16, batch_size=3, scale=5.0, **options,
    ):  # fmt: skip
        rng = np.random.default_rng(seed)
        counts = rng.integers(0, n_examples + 1, n_clients)
        counts[0] = n_examples
        n = int(counts.sum())
        highest = np.array([longest, longest] + [segment] * n_segments)
        lengths = rng.integers(1, np.tile(highest, n) + 1)
        self.examples = ContrastiveExamples(
            np.arange(n_clients, dtype=np.uint64) + 7,
            np.r_[0, np.cumsum(counts)],
            rng.integers(0, n_items, lengths.sum()),
            np.r_[0, np.cumsum(lengths)],
            rng.integers(0, n_items, (n, n_candidates)),
        )
        self.encoder = GRUEncoder(n_items, n_factors=n_factors)
        self.parameters = self.encoder.initial_parameters(KEY, dtype=dtype)
        self.parameters[: self.encoder.n_dense] += 0.1 * rng.normal(size=self.encoder.n_dense).astype(dtype)
        # Otherwise only the biases would matter.
        self.parameters[self.encoder.n_dense :] *= scale
        self.options = {"learning_rate": 0.3, "n_epochs": 2, "batch_size": batch_size} | options

    def train(self, **changes):
        arguments = {"parameters": self.parameters, "examples": self.examples, "key": KEY, "n_threads": 1}
        return self.encoder.train_clients(**(arguments | self.options | changes))

    def client(self, k):
        """Return (sequences, candidates) of each example of a client."""
        e = self.examples
        sequences = [e.items[a:b].tolist() for a, b in itertools.pairwise(e.starts)]
        n_per_example = len(sequences) // max(len(e.candidates), 1)
        first, last = e.indptr[k : k + 2]
        return [(sequences[n_per_example * x : n_per_example * (x + 1)], e.candidates[x]) for x in range(first, last)]

    def words(self, k):
        user, size = int(self.examples.global_user_ids[k]), self.options["n_epochs"] * len(self.examples.candidates)
        return KEY.words("gru.order", user=user, size=size)

    def expected(self, k):
        """Return a client's update computed by the twin."""
        dense, embeddings = naive.unpack(self.parameters, self.encoder.n_factors)
        naive.train_client(dense, embeddings, self.client(k), self.words(k), **self.options)
        return naive.pack(dense, embeddings) - self.parameters

    def spread(self, updates, k):
        """Return a client's update, with zeros for the entries that it does not change."""
        return spread(self.encoder, updates, k)
