"""Flower apps of a deployment, for its server and its nodes.

A node's answers, and all that it sends, are in `_node`; their form on the wire is in `wire`.  What each system does at
the ends of a run is in `engines.deployment`; the shuffler between them is in `engines.shuffling`.
"""

from fastfedrec.engines.flower.app import client_app, server_app
from fastfedrec.engines.flower.server import FlowerEngine

__all__ = ["FlowerEngine", "client_app", "server_app"]
