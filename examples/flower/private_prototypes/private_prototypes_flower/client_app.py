"""The client app of a node, which is an entity."""

from fastfedrec.engines.flower import client_app
from private_prototypes_flower.task import SEED, SYSTEM, load

app = client_app(SYSTEM, load, seed=SEED)
