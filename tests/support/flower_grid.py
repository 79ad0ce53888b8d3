"""A Flower grid in memory for tests: real apps, real messages in their wire form, and injected failures."""

import uuid
import warnings
from contextlib import contextmanager
from unittest import mock

import numpy as np

from fastfedrec import Key
from fastfedrec.engines.flower import client_app, server, server_app, shuffled_server
from support.patience import Clock

# Flower's dependencies warn when imported.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from flwr.app import Context, Message, RecordDict
    from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
    from flwr.proto.recorddict_pb2 import RecordDict as WireRecordDict
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity


def over_the_wire(content):
    """Return the receiver's copy of a message."""
    wire = recorddict_to_proto(content).SerializeToString()
    return recorddict_from_proto(WireRecordDict.FromString(wire))


def make_context(node, config):
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})


class MemoryGrid(Grid):
    """Grid with (ClientApp, node_config) by node id; `tamper` may change or drop a reply: (message) -> list."""

    def __init__(self, nodes, tamper=None):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.nodes, self.tamper, self.replies, self.asked = dict(nodes), tamper, {}, []

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            # Each message is serialized, so that no object is shared between the two sides.
            message = Message(over_the_wire(message.content), metadata=message.metadata)
            self.asked.append(message)
            app, config = self.nodes[node]
            reply = app(message, make_context(node, config))
            self.replies[message.metadata.message_id] = [reply] if self.tamper is None else self.tamper(reply)
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids):
        replies = [reply for name in message_ids for reply in self.replies.pop(name, [])]
        return [
            Message(over_the_wire(reply.content), metadata=reply.metadata) if reply.has_content() else reply
            for reply in replies
        ]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


# ---- two nodes with half of the users each, and their server ---------------------------------------------------------

KEY, SEED = Key.from_seed(7), 3
HALF = np.where(np.arange(300) % 2, "b", "a")


def of_node(data):
    """Return each node's users, by its name."""
    return lambda context: data.select_users(np.flatnonzero(context.node_config["name"] == HALF))


@contextmanager
def time_of_the_server():
    """Let time pass only when a server pauses: nodes in memory answer before, even on a slow machine."""
    clock = Clock()
    with mock.patch.object(server, "time", clock), mock.patch.object(shuffled_server, "time", clock):
        yield


def serve(system, data, grid, **options):
    """Run a server, and return its model and its engine."""
    engines = []
    options = {"n_nodes": 2, "seed": SEED, "join_timeout": 0.3, "round_timeout": 0.3} | options
    app = server_app(system, data.item_ids, lambda *result: engines.append(result), **options)
    with time_of_the_server():
        app(grid, make_context(1, {}))
    return engines[0]


def two_nodes(system, data, names="ab", folder=None, **options):
    """Return two nodes, of a simulation unless a seed of None is given, with folders if state is stored."""
    app = client_app(system, of_node(data), **({"seed": SEED} | options))
    folders = {name: {} if folder is None else {"folder": str(folder / name)} for name in names}
    return {11 + offset: (app, {"name": name} | folders[name]) for offset, name in enumerate(names)}


def in_folders(system, data, folder, **options):
    """Return two nodes of a deployment."""
    return two_nodes(system, data, folder=folder, seed=None, **options)


def requests_of(grid, kind="train"):
    return [message for message in grid.asked if message.metadata.message_type == kind]


def refusal_of(system, data, change):
    """Return a node's answer to the last request with the changed value, or to the last one, changed on its way."""
    nodes = two_nodes(system, data)
    grid = MemoryGrid(nodes)
    serve(system, data, grid)
    requests = requests_of(grid)
    record, name = getattr(change, "place", ("state", None))
    message = next((one for one in reversed(requests) if name in one.content[record]), requests[-1])
    change(message.content)
    node = message.metadata.dst_node_id
    app, config = nodes[node]
    return app(message, make_context(node, config)).content["config"]["refusal"]


def set_value(record, name, value):
    """Return a change of one value of a request."""

    def change(content):
        content[record][name] = value

    # `refusal_of` changes the last request that has this value.
    change.place = record, name
    return change


# ---- misfortunes ----------------------------------------------------------------------------------------------------


class KilledError(Exception):
    pass


def dies(after):
    """Return a `tamper` under which the server fails at its `after`-th answer in rounds."""
    count = []

    def tamper(reply):
        count.extend([1] * (reply.metadata.message_type == "train"))
        if len(count) > after:
            raise KilledError
        return [reply]

    return tamper


def spoil(change, node=12):
    """Change one node's answers in rounds; `change` gets the reply and returns the replacements."""

    def tamper(reply):
        is_victim = reply.metadata.src_node_id == node and reply.metadata.message_type == "train"
        return change(reply) if is_victim else [reply]

    return tamper
