"""The parties that add the noise to the sums of a round: the server alone, or each node by a share."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Gaussian, GaussianShares, RoundTraffic
from fastfedrec.accounting.events import Event
from fastfedrec.accounting.shares import count_honest_shares
from fastfedrec.mechanisms import LayeredGaussian

__all__ = ["NodeNoise", "NoiseSource", "ServerNoise"]

# Bytes of a node's signed keys, of sealed and revealed shares with their numbers, and of a signature; and limits of the
# graph (`engines.aggregation`).
_ENTRY_BYTES, _SEALED_BYTES, _SHARE_BYTES, _SIGNATURE_BYTES = 160, 52, 20, 64
_MAX_DEGREE, _N_WITNESSES = 512, 448
_MAX_SUM = 2.0**62  # far above all sums
_BELOW_ONE = 1 - 2.0**-40  # lowers a root by more than its rounding error


class NoiseSource(Protocol):
    """The number of draws on each sum, the claim of a round, and the noise of its result."""

    @property
    def width(self) -> float:
        """Standard deviation of the noise of a result, by the planned number of answers, over the one of a draw."""

    def mu_of_draw(self, mu: float) -> float:
        """Return the cost mu of a single draw as noise, if all draws that count cost `mu`."""

    def total_variation(self, draw: LayeredGaussian, n_sums: int) -> float:
        """Return the distance of the noise on all sums of a round from rounded normal noise."""

    def noise_of(self, draw: LayeredGaussian, n_clients: int, what: str) -> LayeredGaussian | None:
        """Return the noise to add to the sums of this number of clients, None if it is in them, or raise."""

    def scale(self, noisy: NDArray[np.int64], n_clients: int) -> NDArray[np.int64]:
        """Return noisy sums of this number of clients as estimates of the sums of all."""

    def traffic(self, vectors: RoundTraffic) -> RoundTraffic:
        """Return the traffic of a round, from the traffic of its state and its sums."""

    def event(self, noise_multiplier: float, what: str, fields: Mapping[str, Any]) -> Event:
        """Return the event of a round with draws of this noise multiplier."""


@dataclass(frozen=True)
class ServerNoise:
    """A trusted server adds one draw to each exact sum."""

    width: float = 1.0

    def mu_of_draw(self, mu: float) -> float:
        """Return `mu`."""
        return mu

    def total_variation(self, draw: LayeredGaussian, n_sums: int) -> float:
        """Return the distance of `n_sums` draws."""
        return draw.total_variation_of(n_sums)

    def noise_of(self, draw: LayeredGaussian, n_clients: int, what: str) -> LayeredGaussian:
        """Return the noise of one draw, whatever the number of clients."""
        return draw

    def scale(self, noisy: NDArray[np.int64], n_clients: int) -> NDArray[np.int64]:
        """Return the sums as they are: a client that does not answer counts as one without data."""
        return noisy

    def traffic(self, vectors: RoundTraffic) -> RoundTraffic:
        """Return the traffic as it is."""
        return vectors

    def event(self, noise_multiplier: float, what: str, fields: Mapping[str, Any]) -> Gaussian:
        """Return Gaussian noise of a trusted server."""
        return Gaussian(noise_multiplier, f"Gaussian noise on {what}", **fields)


@dataclass(frozen=True)
class NodeNoise:
    """Each node adds a draw of its own, its share, and a secure aggregation gives the server the sums alone.

    `n_answers` is the smallest number of answers with which a round has a result.  With `is_in_sums` real nodes add
    their draws; else the process of the fit draws their sum.
    """

    n_nodes: int
    n_answers: int
    honest_fraction: float
    is_in_sums: bool = False

    @classmethod
    def planned(
        cls, n_nodes: int, honest_fraction: float, dropout_fraction: float, is_in_sums: bool = False
    ) -> "NodeNoise":
        """Return the noise of nodes of which a share may drop out, or raise if no share of the noise would count."""
        source = cls(n_nodes, n_nodes - math.ceil(dropout_fraction * n_nodes), honest_fraction, is_in_sums)
        if not source.n_counted:
            # The number of honest nodes is rounded down, and one of them must remain.
            max_dropout = math.floor((int(honest_fraction * n_nodes) - 1) / n_nodes * 10_000) / 10_000
            remedy = f"lower dropout_fraction to {max_dropout:g}, or raise" if max_dropout >= 0 else "raise"
            raise ValueError(
                f"honest_fraction must leave honest nodes after all dropouts, got {honest_fraction:g} with "
                f"dropout_fraction {dropout_fraction:g} of {n_nodes} nodes; {remedy} honest_fraction"
            )
        return source

    @property
    def width(self) -> float:
        """Root of the planned number of shares, as `scale` multiplies it."""
        return self.n_nodes / math.sqrt(self.n_answers)

    @property
    def n_counted(self) -> int:
        """Number of shares that are certainly honest."""
        return count_honest_shares(self.n_nodes, self.n_answers, self.honest_fraction)

    def mu_of_draw(self, mu: float) -> float:
        """Return the cost of one share: costs fall with the root of the number of shares that count."""
        return mu * math.sqrt(self.n_counted) * _BELOW_ONE

    def total_variation(self, draw: LayeredGaussian, n_sums: int) -> float:
        """Return the distance of the sums of shares, for every number of answers."""
        return draw.total_variation_of_shares(n_sums, self.n_nodes)

    def noise_of(self, draw: LayeredGaussian, n_clients: int, what: str) -> LayeredGaussian | None:
        """Return the sum of the shares of all nodes that answered, as one draw, or raise if there are too few."""
        if self.is_in_sums:  # the protocol has no sum of too few nodes
            return None
        if n_clients < self.n_answers:
            raise RuntimeError(
                f"{n_clients:,} of {self.n_nodes:,} nodes answered the round of {what}, and its noise needs "
                f"{self.n_answers:,}, so the fit ends without a result; fit again with a larger dropout_fraction"
            )
        return draw.sum_of(n_clients)

    def scale(self, noisy: NDArray[np.int64], n_clients: int) -> NDArray[np.int64]:
        """Multiply the sums by the inverse share of the nodes that answered, which does not depend on their data."""
        if n_clients == self.n_nodes:
            return noisy
        return np.clip(np.rint(noisy * (self.n_nodes / n_clients)), -_MAX_SUM, _MAX_SUM).astype(np.int64)

    def traffic(self, vectors: RoundTraffic) -> RoundTraffic:
        """Add the other messages of a secure sum, with the largest number of neighbours that a plan may have."""
        degree, n_witnesses = min(_MAX_DEGREE, self.n_nodes - 1), min(_N_WITNESSES, self.n_nodes)
        sealed, lists = _SEALED_BYTES * degree, 2 * -(-self.n_nodes // 8)
        down = _ENTRY_BYTES * self.n_nodes + sealed + lists + (4 + _SIGNATURE_BYTES) * n_witnesses
        up = _ENTRY_BYTES + sealed + _SIGNATURE_BYTES + _SHARE_BYTES * degree
        return RoundTraffic(vectors.download + down, vectors.upload + up, vectors.n_clients)

    def event(self, noise_multiplier: float, what: str, fields: Mapping[str, Any]) -> GaussianShares:
        """Return Gaussian noise in shares; against the public, who colludes with no node, all shares count."""
        return GaussianShares(
            noise_multiplier, f"Gaussian noise in shares on {what}", n_nodes=self.n_nodes, n_answers=self.n_answers,
            honest_fraction=self.honest_fraction, adding_fraction=1.0, **fields,
        )  # fmt: skip
