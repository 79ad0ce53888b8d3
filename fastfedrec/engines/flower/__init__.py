"""Flower apps of a deployment, for its server and its nodes.

What each system does at the ends of a run is in `engines.deployment`; the shuffler between them is in
`engines.shuffling`.
"""

from fastfedrec.engines.flower.app import client_app, server_app
from fastfedrec.engines.flower.server import FlowerEngine

__all__ = ["FlowerEngine", "client_app", "server_app"]
