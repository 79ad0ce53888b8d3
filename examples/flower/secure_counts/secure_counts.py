"""Counts of items over Flower, without a party that sees them exactly: nodes add noise in shares and mask vectors."""

import os
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from fastfedrec.accounting import Ledger
from fastfedrec.engines.aggregation import SecureSums
from fastfedrec.engines.flower import secure_client_app, secure_sum

# Each owner has the names of all nodes in a file of its own, so that the server cannot add nodes.
ROSTER = Path(os.environ["FASTFEDREC_ROSTER"]).read_text().split()
# A node is one user with at most 25 items: a change by norm 5.
SUMS = SecureSums(
    "counts of items", ROSTER, n_values=300, max_value=1, l2_sensitivity=5.0, l1_sensitivity=25.0,
    variance=250, honest_fraction=0.9, min_answers=len(ROSTER) - 5, neighboring="zero_out",
)  # fmt: skip


def count(message: Message, context: Context) -> np.ndarray:
    """Return a one for each item of this node's user; the items are generated here."""
    counts = np.zeros(SUMS.n_values, dtype=np.int64)
    items = np.random.default_rng(int(context.node_config["partition-id"])).choice(SUMS.n_values, 25, replace=False)
    counts[items] = 1
    return counts


client_app = secure_client_app(SUMS, count)
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Print the noisy counts, and their cost against the server."""
    ledger, folder = Ledger(1e-6), os.environ.get("FASTFEDREC_FOLDER", "server")
    result = secure_sum(grid, SUMS, ledger=ledger, folder=folder, stage_timeout=600.0, join_timeout=600.0)
    print(f"{result.n_answers} nodes; most frequent items: {np.argsort(-result.total)[:10].tolist()}")
    print(ledger.summary())
