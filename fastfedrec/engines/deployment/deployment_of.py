"""Systems that run with data on nodes, and their deployments."""

from fastfedrec.core import names
from fastfedrec.engines.deployment.fit_as_server import FitDeployment
from fastfedrec.engines.deployment.own_server import FMFDeployment, OwnDeployment, PrototypesDeployment
from fastfedrec.rounds.system import FederatedSystem
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP
from fastfedrec.systems.private_prototypes.model import PrivatePrototypes
from fastfedrec.systems.recommender import Recommender
from fastfedrec.systems.registry import SYSTEMS

__all__ = ["deployment_of"]

#: Systems with a server that is separate from `fit`.
_OWN: dict[type, type[OwnDeployment]] = {FMFLDP: FMFDeployment, PrivatePrototypes: PrototypesDeployment}


def deployment_of(system: FederatedSystem | Recommender) -> FitDeployment | OwnDeployment:
    """Return the deployment of a system; raise TypeError if it has none."""
    for kind, deployment in _OWN.items():
        if isinstance(system, kind):
            return deployment(system)
    if getattr(system, "_deployment", None) is not None:
        return FitDeployment(system)
    kinds = [names.find(name) for name in SYSTEMS.values()]
    known = [kind.__name__ for kind in (*_OWN, *kinds) if kind in _OWN or kind._deployment is not None]
    raise TypeError(
        f"system must be one of {', '.join(dict.fromkeys(known))}, got {type(system).__name__}, which has no rounds "
        "and needs all data in one place; fit it without Flower"
    )
