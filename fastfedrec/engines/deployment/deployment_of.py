"""The deployment of a system, by the declaration of its model."""

from fastfedrec.core import names
from fastfedrec.engines.deployment.fit_as_server import FitDeployment
from fastfedrec.rounds.deployment import OwnDeployment
from fastfedrec.rounds.system import DeploymentTerms, FederatedSystem
from fastfedrec.systems.recommender import Recommender
from fastfedrec.systems.registry import SYSTEMS

__all__ = ["deployment_of"]


def deployment_of(system: FederatedSystem | Recommender, n_nodes: int | None = None) -> FitDeployment | OwnDeployment:
    """Return the deployment of a system, with secure sums of `n_nodes` nodes; raise TypeError if it has none."""
    declared = getattr(system, "_deployment", None)
    if isinstance(declared, DeploymentTerms):
        return FitDeployment(system, n_nodes)
    if n_nodes is not None:
        raise ValueError(f"roster must be None with {type(system).__name__}, which has no secure sums; omit it")
    if declared is not None:
        return declared(system)
    known = [name for name in SYSTEMS.values() if names.find(name)._deployment is not None]
    raise TypeError(
        f"system must be one of {', '.join(known)}, got {type(system).__name__}, which has no rounds "
        "and needs all data in one place; fit it without Flower"
    )
