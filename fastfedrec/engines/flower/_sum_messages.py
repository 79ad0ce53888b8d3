"""A node's answer to a Flower message of a secure sum."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from fastfedrec.engines.aggregation.agreement import SumAgreement
from fastfedrec.engines.aggregation.plan import AggregationError
from fastfedrec.engines.aggregation.stored_node import StoredNode
from fastfedrec.engines.deployment.node_memory import RefusalError
from fastfedrec.engines.flower.wire.records import config_record, read_values

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict

#: Name of the record with a message of the protocol.
RECORD = "secure-sum"


def answer_sum(
    sums: SumAgreement, message: "Message", context: "Context", contribute: Callable[[int], ArrayLike]
) -> "RecordDict":
    """Return the signed answer of the node in the configured folder; `contribute` gets the number of the sum."""
    from flwr.app import RecordDict

    values = read_values(message.content[RECORD])
    if values.get("sums") != sums.digest:
        raise RefusalError("the server has another agreement on secure sums than this node")
    folder = context.node_config.get("folder")
    if not isinstance(folder, str) or not folder:
        raise RefusalError("this node has no folder for its keys: start it with --node-config 'folder=\"...\"'")
    node, round = StoredNode(sums, os.path.expanduser(folder)), values["round"]
    try:
        answer = node.answer(round, values["stage"], values["message"], lambda: contribute(round))
    except AggregationError as error:
        raise RefusalError(str(error)) from error
    return RecordDict({RECORD: config_record({"answer": answer})})
