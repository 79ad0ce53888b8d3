"""Flower apps of a deployment, for its server and its nodes.

A node's messages are in `_node`, and their encoding is in `wire`.  The server and node sides of each system are in
`engines.deployment`; the shuffler between them is in `engines.shuffling`.  `private` is for apps of other models, and
`secure_sums` for sums that no party sees without noise.
"""

from fastfedrec.engines.flower.app import client_app, server_app
from fastfedrec.engines.flower.private import PrivateRounds, private, private_mod
from fastfedrec.engines.flower.secure_sums import NoisySum, secure_client_app, secure_sum
from fastfedrec.engines.flower.server import FlowerEngine

__all__ = [
    "FlowerEngine",
    "NoisySum",
    "PrivateRounds",
    "client_app",
    "private",
    "private_mod",
    "secure_client_app",
    "secure_sum",
    "server_app",
]
