"""A Flower grid in memory for tests: real apps, real messages in their wire form, and as many misfortunes as wanted."""

import uuid
import warnings

with warnings.catch_warnings():  # Flower's own dependencies warn when imported
    warnings.simplefilter("ignore")
    from flwr.app import Context, Message, RecordDict
    from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
    from flwr.proto.recorddict_pb2 import RecordDict as WireRecordDict
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity


def over_the_wire(content):
    """What the other side gets."""
    wire = recorddict_to_proto(content).SerializeToString()
    return recorddict_from_proto(WireRecordDict.FromString(wire))


def make_context(node, config):
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})


class MemoryGrid(Grid):
    """Nodes are (ClientApp, node_config) by node id; `tamper` may change or swallow a reply: (message) -> list."""

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
            message = Message(over_the_wire(message.content), metadata=message.metadata)
            self.asked.append(message)
            app, config = self.nodes[node]
            reply = app(message, make_context(node, config))
            self.replies[message.metadata.message_id] = [reply] if self.tamper is None else self.tamper(reply)
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids):
        found = [reply for name in message_ids for reply in self.replies.pop(name, [])]
        return [
            Message(over_the_wire(reply.content), metadata=reply.metadata) if reply.has_content() else reply
            for reply in found
        ]

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError
