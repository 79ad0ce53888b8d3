"""A node."""

from fastfedrec.engines.flower import client_app
from fmf_ldp_flower.task import SEED, SYSTEM, load

app = client_app(SYSTEM, load, seed=SEED)
