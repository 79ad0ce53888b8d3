"""The client app of a node, which is a group of users."""

from fastfedrec.engines.flower import client_app
from fmf_ldp_flower.task import MIN_CROWD, SEED, SYSTEM, load

app = client_app(SYSTEM, load, seed=SEED, min_crowd=MIN_CROWD)
