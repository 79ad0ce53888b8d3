"""A round of DMF, one thread, against a loop of NumPy over users and examples, as in a Python simulation."""

import numpy as np
import scipy.sparse

from benches.floors import floor_seconds
from benches.generated import thousand_items
from benches.ratios import with_ratios
from fastfedrec import DMF, Key
from fastfedrec._kernels.systems.dmf import model as kernel
from fastfedrec.systems.dmf._graph import draw_graph, walk_weights

N_USERS, N_FACTORS, N_NEGATIVES, RATE = 400, 10, 3, 0.02


def _floor(case):
    # Each example reads both factors of its item.  Each received message reads the global factors and the gradient.
    n_received = np.diff(case.starts) @ np.diff(case.walks.indptr)
    n_bytes = 4 * N_FACTORS * (2 * len(case.examples) + 2 * n_received)
    return floor_seconds("plain", bytes_read=n_bytes, working_set=case.items.nbytes)


@with_ratios("time_round", floor=_floor)
class Round:
    """400 users with 93 of 1,000 items each, and 14 receivers of each user's messages."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.data, self.key = thousand_items(N_USERS), Key.from_seed(0)
        self.model = DMF(N_FACTORS, n_negatives=N_NEGATIVES, learning_rate=RATE)
        self.walks = walk_weights(draw_graph(self.data.global_user_ids, 2, self.key), 3)
        self.heard = scipy.sparse.csr_array(self.walks.T)
        self.heard.sort_indices()
        lengths = self.data.interactions_per_user() * (1 + N_NEGATIVES)
        self.starts = np.append(0, np.cumsum(lengths))
        self.examples = np.empty(self.starts[-1], dtype=np.uint32)
        self.sent = np.empty((self.starts[-1], N_FACTORS), dtype=np.float32)
        self._fastfedrec()
        self.run = self._numpy if impl == "numpy" else self._fastfedrec
        if impl == "numpy":
            self._check_numpy()

    def time_round(self, impl):
        self.run()

    def _start(self):
        self.model._initialize(self.data, self.key)
        self.users, self.items = self.model._user_factors, self.model._item_factors

    def _fastfedrec(self):
        self._start()
        who = (
            self.heard.indptr.astype(np.int64),
            self.heard.indices.astype(np.int32),
            self.heard.data.astype(np.float32),
        )
        kernel.learn(
            self.data.indptr, self.data.indices, self.data.global_user_ids, self.key.subkey("dmf.examples"), 0,
            self.starts, self.examples, self.sent, self.users, self.items, N_NEGATIVES, RATE, 0.01, 0.01, 0.01, 1,
        )  # fmt: skip
        kernel.apply_messages(self.starts, self.examples, self.sent, *who, self.items, RATE, 1)
        return self.users, self.items

    def _numpy(self):
        """Run the round in NumPy with the kernel's examples, so that the results are comparable."""
        self._start()
        sent = np.empty_like(self.sent)
        columns, labels = self.examples >> 1, self.examples & 1
        for u in range(N_USERS):
            x, rows = self.users[u], self.items[u]
            for k in range(self.starts[u], self.starts[u + 1]):
                p, q = rows[columns[k]]
                error = x @ (p + q) - 1 if labels[k] else x @ (p + q) / N_NEGATIVES
                sent[k] = error * x + 0.01 * p
                old_x = x.copy()
                x -= RATE * (error * (p + q) + 0.01 * x)
                q -= RATE * (error * old_x + 0.01 * q)
                p -= RATE * sent[k]
        # Receivers subtract the weighted gradients of their senders.
        for u in range(N_USERS):
            for k in range(self.heard.indptr[u], self.heard.indptr[u + 1]):
                sender = self.heard.indices[k]
                part = slice(self.starts[sender], self.starts[sender + 1])
                np.subtract.at(self.items[u, :, 0], columns[part], RATE * self.heard.data[k] * sent[part])
        return self.users, self.items

    def _check_numpy(self):
        ours = [array.copy() for array in self._fastfedrec()]
        for mine, other in zip(ours, self._numpy(), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)
