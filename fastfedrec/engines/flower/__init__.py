"""Flower apps of a deployment, for its server and its nodes.

A node's messages are in `_node`, and their encoding is in `wire`.  The server and node sides of each system are in
`engines.deployment`; the shuffler between them is in `engines.shuffling`.
"""

from fastfedrec.engines.flower.app import client_app, server_app
from fastfedrec.engines.flower.server import FlowerEngine

__all__ = ["FlowerEngine", "client_app", "server_app"]
