"""A secure sum of many nodes in one process, with dropouts at each stage."""

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.randomness import Key
from fastfedrec.engines.aggregation._sealing import Identity
from fastfedrec.engines.aggregation.node import AggregationNode
from fastfedrec.engines.aggregation.plan import AggregationPlan
from fastfedrec.engines.aggregation.server import AggregationServer

__all__ = ["simulate_secure_sum"]


def simulate_secure_sum(
    plan: AggregationPlan, vectors: np.ndarray, *, key: Key, dropouts: Mapping[str, set[int]] | None = None
) -> tuple[NDArray[np.int64], int]:
    """Run all stages of a secure sum with a node for each row, and return the sum and the number of its rows.

    Parameters
    ----------
    plan : AggregationPlan
        Public parameters of the round.
    vectors : ndarray of shape (n_nodes, n_values), int64
        Vectors of the nodes.
    key : Key
        Seed of all nodes' secrets, for a simulation.
    dropouts : mapping of str to set of int, or None
        Rows that leave before they answer in a stage: "keys", "share", "mask", "confirm" or "reveal".

    Returns
    -------
    total : ndarray of shape (n_values,), int64
        Sum of the rows that did not leave before their vector arrived.
    n_answers : int
        Number of these rows.

    Raises
    ------
    AggregationError
        Too few nodes answered in a stage.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Key
    >>> from fastfedrec.engines.aggregation import AggregationPlan, simulate_secure_sum
    >>> plan = AggregationPlan("demo", 0, n_values=2, max_sum=1000, degree=4, threshold=3, min_answers=4)
    >>> vectors = np.arange(12).reshape(6, 2)
    >>> simulate_secure_sum(plan, vectors, key=Key.from_seed(1))
    (array([30, 36]), 6)
    """
    key.claim("simulate_secure_sum")
    identities = [Identity(key.subkey(f"aggregation.identity.{row}").tobytes()) for row in range(len(vectors))]
    rows = {identity.name: row for row, identity in enumerate(identities)}
    roster = frozenset(rows)  # all nodes hold this one
    nodes = {identity.name: AggregationNode(plan, identity, roster, key) for identity in identities}
    server = AggregationServer(plan, roster)
    absent: set[int] = set()
    messages = dict.fromkeys(nodes, b"")
    while server.stage != "end":
        stage = server.stage
        absent |= (dropouts or {}).get(stage, set())
        for name, message in messages.items():
            if rows[name] not in absent:
                server.receive(name, nodes[name].answer(stage, message, partial(np.take, vectors, rows[name], 0)))
        messages = server.advance()
    assert server.total is not None
    return server.total, server.n_answers
