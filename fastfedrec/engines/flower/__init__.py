"""Flower apps of a deployment, for its server and its nodes.

A node's messages are in `_node`, and their encoding is in `wire`.  The server and node sides of each system are in
`engines.deployment`; the shuffler between them is in `engines.shuffling`.  `private` is for apps of other models.
"""

from fastfedrec.engines.flower.app import client_app, server_app
from fastfedrec.engines.flower.private import PrivateRounds, private, private_mod
from fastfedrec.engines.flower.server import FlowerEngine

__all__ = ["FlowerEngine", "PrivateRounds", "client_app", "private", "private_mod", "server_app"]
