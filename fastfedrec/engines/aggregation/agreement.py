"""The interface of an agreement on secure sums, which a stored node and a server need."""

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from fastfedrec.core.randomness import Key
from fastfedrec.engines.aggregation.plan import AggregationPlan

__all__ = ["SumAgreement"]


class SumAgreement(Protocol):
    """The sums of a run, which nodes and server agree on."""

    @property
    def roster(self) -> Sequence[str]:
        """Names of all nodes."""

    @property
    def digest(self) -> str:
        """Digest of all parameters."""

    @property
    def folder(self) -> str:
        """Name of the run's folder in a node's folder."""

    def plan(self, round: int) -> AggregationPlan:
        """Return the public parameters of one sum, or raise ValueError if it is no sum of the run."""

    def objection(self, rounds: Collection[int]) -> str | None:
        """Return why a node must not answer all these sums, or None."""

    def with_share(self, values: ArrayLike, *, key: Key, node: str, round: int) -> np.ndarray:
        """Return a node's vector with its share of the noise, or raise if it is out of the bounds."""
