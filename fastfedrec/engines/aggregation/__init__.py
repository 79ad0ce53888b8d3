"""Secure aggregation: a server learns the sum of the nodes' vectors of whole numbers, and no single vector.

Nodes mask their vectors by keystreams that cancel in the sum.  `node` and `server` are state machines with messages of
plain bytes, which any transport can carry; `simulate` runs both in one process.  `sums` is the agreement of a run, and
`stored_node` is a node with its state in a folder.
"""

from fastfedrec.engines.aggregation._sealing import Identity
from fastfedrec.engines.aggregation.node import AggregationNode
from fastfedrec.engines.aggregation.plan import AggregationError, AggregationPlan, choose_degree
from fastfedrec.engines.aggregation.server import AggregationServer
from fastfedrec.engines.aggregation.simulate import simulate_secure_sum
from fastfedrec.engines.aggregation.stored_node import StoredNode, node_name
from fastfedrec.engines.aggregation.sums import SecureSums

__all__ = [
    "AggregationError",
    "AggregationNode",
    "AggregationPlan",
    "AggregationServer",
    "Identity",
    "SecureSums",
    "StoredNode",
    "choose_degree",
    "node_name",
    "simulate_secure_sum",
]

__dir__ = __all__.copy  # dir() lists only the public names
