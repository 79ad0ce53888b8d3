"""A system that adds up integers, which tests of rounds and engines run."""

import numpy as np

from fastfedrec.accounting import LocalReports, RoundTraffic
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update


class Adder(FederatedSystem):
    """Sum of one integer vector, the smallest instance of the contract."""

    def local_round(self, state, shard, key, round, *, sender="shard-0", n_threads=0):
        return Update(round, sender, shard.n_users, {"sum": shard.interactions_per_item()})

    def merge(self, a, b):
        return Update(a.round, "merged", a.n_clients + b.n_clients, {"sum": a.arrays["sum"] + b.arrays["sum"]})

    def apply(self, state, update):
        return state + update.arrays["sum"]

    def zero_update(self, state, round):
        return Update(round, "nobody", 0, {"sum": np.zeros(len(state), dtype=np.int64)})

    def rules(self, state, n_clients):
        return {"sum": ArrayRule(np.int64, (len(state),), 0, n_clients)}

    def round_event(self, n_clients):
        return LocalReports("sums", 1.0, 1, n_clients, separable=True)

    def traffic(self, state, n_clients):
        return RoundTraffic(0, 8 * len(state), n_clients)
