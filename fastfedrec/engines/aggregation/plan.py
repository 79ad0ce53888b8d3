"""The public parameters of one secure sum, and the graph of its nodes."""

import functools
import hashlib
import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fastfedrec.core.check import check_choice, check_instance, check_integer, check_real

__all__ = [
    "N_WITNESSES",
    "STAGES",
    "WITNESS_SHARE",
    "AggregationError",
    "AggregationPlan",
    "choose_degree",
]

#: Stages of a sum in their order.
STAGES = "keys", "share", "mask", "confirm", "reveal"
# Largest probability of each failure of secrecy, and that a secret of an honest round cannot be recovered.
_INSECURE, _STUCK = 2.0**-40, 2.0**-10
_MAX_DEGREE = 512
#: Share of the witnesses that must sign one list of answers.
WITNESS_SHARE = 0.75
#: Largest number of witnesses.
N_WITNESSES = 448


class AggregationError(Exception):
    """A message that the protocol does not allow, or a round that ends without a result."""


@dataclass(frozen=True)
class AggregationPlan:
    """Public parameters of one secure sum, which all nodes and the server know before it.

    Parameters
    ----------
    run : str
        Name of the run.
    round : int
        Number of the round, below 2^32; each round of a run has a new number.
    n_values : int
        Length of the vectors.
    max_sum : int
        Public bound on the absolute value of each sum, with noise.  It selects 32 or 64 bits for a number.
    degree : int
        Number of neighbours of a node, even; in a round of fewer nodes all are neighbours.
    threshold : int
        Number of neighbours whose shares recover a secret of a node, above half of `degree`.
    min_answers : int
        Smallest number of vectors with which a round has a result.

    Examples
    --------
    >>> from fastfedrec.engines.aggregation import AggregationPlan
    >>> AggregationPlan("demo", 0, n_values=100, max_sum=10**6, degree=4, threshold=3, min_answers=4).n_bits
    32
    """

    run: str
    round: int
    n_values: int
    max_sum: int
    degree: int
    threshold: int
    min_answers: int

    def __post_init__(self) -> None:
        check_instance("run", self.run, str, "pass the name of the run")
        degree = check_integer("degree", self.degree, low=2, high=_MAX_DEGREE)
        numbers = {
            "round": check_integer("round", self.round, low=0, high=2**32 - 1),
            "n_values": check_integer("n_values", self.n_values, low=1, high=2**34),
            "max_sum": check_integer("max_sum", self.max_sum, low=1, high=2**63 - 1),
            "degree": degree,
            "threshold": check_integer("threshold", self.threshold, low=degree // 2 + 1, high=degree),
            "min_answers": check_integer("min_answers", self.min_answers, low=2),
        }
        # Each is a plain int then, because `context` is a digest of the text of all fields.
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
        if self.degree % 2:
            raise ValueError(f"degree must be even, got {self.degree}; use {self.degree + 1}")

    @property
    def n_bits(self) -> int:
        """Number of bits of a masked number: 32 if each sum fits, else 64."""
        return 32 if self.max_sum < 2**31 else 64

    @property
    def dtype(self) -> np.dtype:
        """Type of a masked vector: unsigned integers of `n_bits`, little-endian."""
        return np.dtype(f"<u{self.n_bits // 8}")

    def threshold_among(self, n_neighbors: int) -> int:
        """Return the number of shares that recover a secret of a node with this number of neighbours.

        Parameters
        ----------
        n_neighbors : int
            Number of neighbours; below `degree` in a small round.

        Returns
        -------
        int
            `threshold`, or its share of the neighbours, rounded up.
        """
        return math.ceil(check_integer("n_neighbors", n_neighbors, low=0) * self.threshold / self.degree)

    def context(self, stage: str) -> bytes:
        """Return the bytes that separate the signatures and keys of a stage from all others.

        Parameters
        ----------
        stage : str
            Name of the stage.

        Returns
        -------
        bytes
            SHA-256 of the plan and the stage.
        """
        check_choice("stage", stage, ("keys", "channel", "mask", "self", "graph", "answers", "signed"))
        return hashlib.sha256(f"fastfedrec aggregation {stage} {self!r}".encode()).digest()


def choose_degree(n_nodes: int, *, honest_fraction: float, min_answers: int) -> tuple[int, int]:
    """Return the smallest degree of the graph, and the threshold, for a number of nodes.

    Parameters
    ----------
    n_nodes : int
        Number of nodes that are asked.
    honest_fraction : float
        Share of honest nodes.
    min_answers : int
        Smallest number of vectors with which a round has a result, as in the plan; all other nodes may drop out.

    Returns
    -------
    degree : int
        Number of neighbours.
    threshold : int
        Number of shares that recover a seed.  A server that chooses the nodes that drop out recovers both seeds of a
        node, splits the sum of the honest nodes, or has two lists of answers signed, each with probability at most
        2^-40.
        With probability 1 - 2^-10 each secret of a round with random dropouts can be recovered.

    Raises
    ------
    ValueError
        No degree up to 512 is enough, or too few witnesses are honest.

    Examples
    --------
    >>> from fastfedrec.engines.aggregation import choose_degree
    >>> choose_degree(1000, honest_fraction=0.7, min_answers=950)
    (118, 100)
    """
    n_nodes = check_integer("n_nodes", n_nodes, low=3)
    honest = check_real("honest_fraction", honest_fraction, low=0.0, high=1.0)
    n_left = check_integer("min_answers", min_answers, low=2, high=n_nodes)
    graph = _smallest_graph(n_nodes, n_nodes - int(honest * n_nodes), n_left)
    if graph is None:
        raise ValueError(
            f"honest_fraction and min_answers must leave a threshold for {n_nodes} nodes, got {honest:g} and {n_left}; "
            "ask more nodes, or expect more honest nodes or more answers"
        )
    return graph


# Each message of a sum needs its plan.
@functools.lru_cache(maxsize=16)
def _smallest_graph(n_nodes: int, n_dishonest: int, n_left: int) -> tuple[int, int] | None:
    """Return the smallest degree and its threshold, or None; all nodes but `n_left` may leave before the graph."""
    n_dropped = n_nodes - n_left

    def tail(low, n_marked, n_others, n_drawn):
        """Return the probability that any node has at least `low` marked nodes among those drawn."""
        return n_nodes * stats.hypergeom.sf(np.asarray(low) - 1, n_others, min(n_marked, n_others), n_drawn)

    # Two lists of answers with enough signatures need nodes that sign both.  With few nodes all are witnesses, and
    # rounding may demand more of an odd number than of the next even one.
    n_witnesses = min(N_WITNESSES, n_left)
    n_double = min(2 * math.ceil(WITNESS_SHARE * n) - n for n in (n_witnesses, min(N_WITNESSES, n_left + 1)))
    if n_left < 3 or n_dishonest >= n_left:
        return None
    if tail(n_double, n_dishonest, n_left, n_witnesses) > n_nodes * _INSECURE:
        return None
    for degree in range(2, min(_MAX_DEGREE, n_left - 1) + 1, 2):
        thresholds, half = np.arange(degree // 2 + 1, degree + 1), degree // 2
        # An honest neighbour gives a share of one seed, a dishonest one of both; each seed needs `threshold`.
        is_fit = tail(2 * thresholds - degree, n_dishonest, n_left - 1, degree) <= _INSECURE
        # A server splits the honest nodes into two parts by nodes that it declares absent, and by shares that it holds
        # back between the parts.  At most half of the neighbours of a node at an end of a part reveal shares of its
        # own mask, so dishonest ones must give `threshold - half` shares.  The two ends need different dishonest nodes.
        is_fit &= (2 * (thresholds - half) > n_dishonest) | (
            tail(thresholds - half, n_dishonest, n_left - 1, half) <= math.sqrt(_INSECURE)
        )
        is_fit &= tail(degree - thresholds + 1, n_dropped, n_nodes - 1, degree) <= _STUCK
        if is_fit.any():
            return degree, int(thresholds[is_fit.argmax()])
    return None
