"""FMF-LDP on two Flower nodes in this process: the engine's share of a round, without processes and network.

Messages take their wire form.  The slow tests measure the additional time of processes and polling in a deployment.
"""

import time
import uuid

from benches.engines.bench_dask import run_rounds
from benches.floors import few
from benches.ratios import peer
from fastfedrec import FMFLDP, Key
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines import LocalEngine

N_ROUNDS = 6


class Wire:
    """A grid that answers at once, with the methods of Flower's grid that the server uses."""

    def __init__(self, app, n_nodes):
        from flwr.app import Context, RecordDict

        self.app, self.answers = app, {}
        self.contexts = {
            11 + node: Context(1, 11 + node, {"partition-id": node}, RecordDict(), {}) for node in range(n_nodes)
        }

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            self._send(message)
            reply = self.app(message, self.contexts[message.metadata.dst_node_id])
            self._send(reply)
            self.answers[message.metadata.message_id] = reply
            yield message.metadata.message_id

    def pull_messages(self, message_ids):
        return [self.answers.pop(name) for name in message_ids if name in self.answers]

    @staticmethod
    def _send(message):
        from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
        from flwr.proto.recorddict_pb2 import RecordDict

        message.content = recorddict_from_proto(
            RecordDict.FromString(recorddict_to_proto(message.content).SerializeToString())
        )


class Rounds:
    """50,000 users x 5,000 items, two nodes."""

    def setup(self):
        with peer("Flower"):
            from flwr.supercore.task_identity import TaskIdentity
        from fastfedrec.engines.flower import client_app

        # Flower's messages need an identity, which a deployment assigns.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.data = generate_implicit(50_000, 5_000, key=Key.from_seed(0))
        shards = self.data.shard(2)
        self.app = client_app(self._system(), lambda context: shards[context.node_config["partition-id"]], seed=1)
        if (self._there()[0] != self._here()[0]).any():
            raise AssertionError("the two engines give different factors")

    def _system(self):
        return FMFLDP(n_rounds=N_ROUNDS)

    def _there(self):
        """Return the factors, and the seconds of a complete run through Flower."""
        from fastfedrec.engines.flower import server_app

        results = []
        server = server_app(self._system(), self.data.item_ids, lambda *end: results.append(end), n_nodes=2, seed=1)
        start = time.perf_counter()
        server(Wire(self.app, 2), None)
        return results[0][0].item_factors_, time.perf_counter() - start

    def _here(self):
        """Return the factors, and the seconds of the same rounds in the local engine."""
        start = time.perf_counter()
        factors, _ = run_rounds(LocalEngine(2), self.data.binarize(), N_ROUNDS)
        return factors, time.perf_counter() - start

    def track_seconds_a_round(self):
        return min(self._there()[1] for _ in range(few(3))) / N_ROUNDS

    track_seconds_a_round.unit = "s"

    def track_share_of_the_engine(self):
        """Return the share of a run's time beyond the time of the same rounds without messages."""
        # The figure is a small difference, so the turns take about four seconds.
        pairs = [(self._there()[1], self._here()[1]) for _ in range(few(12))]
        return max(0.0, 1 - min(here for _, here in pairs) / min(there for there, _ in pairs))

    track_share_of_the_engine.unit = "of 1"
