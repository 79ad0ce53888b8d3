"""Systems that run with data on nodes, and their deployments."""

from fastfedrec.engines.deployment.fit_as_server import TERMS, FitDeployment
from fastfedrec.engines.deployment.own_server import FMFDeployment, OwnDeployment, PrototypesDeployment
from fastfedrec.rounds.system import FederatedSystem
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP
from fastfedrec.systems.private_prototypes.model import PrivatePrototypes
from fastfedrec.systems.recommender import Recommender

__all__ = ["deployment_of"]

_KINDS: dict[type, type] = {
    FMFLDP: FMFDeployment,
    PrivatePrototypes: PrototypesDeployment,
    **dict.fromkeys(TERMS, FitDeployment),
}


def deployment_of(system: FederatedSystem | Recommender) -> FitDeployment | OwnDeployment:
    """Return the deployment of a system; raise TypeError if it has none."""
    for kind, deployment in _KINDS.items():
        if isinstance(system, kind):
            return deployment(system)
    known = ", ".join(kind.__name__ for kind in _KINDS)
    raise TypeError(
        f"system must be one of {known}, got {type(system).__name__}, which has no rounds and needs all data in one "
        "place; fit it without Flower"
    )
