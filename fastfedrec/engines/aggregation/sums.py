"""The agreement of nodes and server on the secure sums of one run, and the cost of these sums."""

import hashlib
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.accounting import SkellamShares
from fastfedrec.accounting.events import Neighboring
from fastfedrec.core.check import check_exact, check_instance, check_integer, check_real
from fastfedrec.core.numbers import float_up
from fastfedrec.core.randomness import Key
from fastfedrec.engines.aggregation._messages import check_vector
from fastfedrec.engines.aggregation.plan import AggregationPlan, choose_degree
from fastfedrec.mechanisms import Skellam

__all__ = ["SecureSums"]

# A draw of noise is beyond this number of standard deviations, plus as many units, with a negligible probability.
_STDDEVS = 40


@dataclass(frozen=True)
class SecureSums:
    """Public parameters of the secure sums of one run, which nodes and server agree on.

    **Guarantee.** Each node adds a share of Skellam noise before it masks its vector.  If a user changes the vector of
    one node by at most `l2_sensitivity`, each sum has the cost of `event` under the relation `neighboring` (privacy
    unit "user"), against all parties, the server included ("aggregator").  At least `honest_fraction` of the nodes must
    add their noise and not reveal it.  Each node is trusted with the users that it holds.

    Parameters
    ----------
    run : str
        Name of the run; a new run has a new name, new noise and new masks.
    roster : sequence of str
        Names of all nodes, by `node_name`, known before the run and not from the server.
    n_values : int
        Length of each node's vector.
    max_value : int
        Public bound on the absolute value of each number of a node's vector, without noise.
    l2_sensitivity : float
        Largest change of a node's vector by one user, in Euclidean norm.  The function that makes the vectors must
        ensure it, because a node cannot see it in a vector.
    variance : Fraction, int or float
        Variance of the noise that counts: of the shares that are from honest nodes for certain.
    honest_fraction : float
        Share of honest nodes, in [0, 1].
    min_answers : int
        Smallest number of vectors with which a sum has a result.
    n_rounds : int
        Number of sums; a node refuses further ones.
    l1_sensitivity : float or None
        Largest change in sum of absolute values; None derives it from `l2_sensitivity`.
    neighboring : {"add_remove", "zero_out", "replace"}
        Relation under which the sensitivities hold.

    Raises
    ------
    ValueError
        A number is out of range, no share of the noise counts, or too few nodes are honest for any graph.

    Examples
    --------
    >>> from fastfedrec.engines.aggregation import SecureSums
    >>> roster = [f"{node:064x}" for node in range(20)]
    >>> sums = SecureSums("demo", roster, n_values=1000, max_value=1, l2_sensitivity=10, variance=6600,
    ...                   honest_fraction=0.7, min_answers=17)
    >>> sums.share
    Skellam(variance=600)
    >>> sums.plan(0).n_bits
    32
    """

    run: str
    roster: Sequence[str]
    n_values: int
    max_value: int
    l2_sensitivity: float
    variance: Fraction | int | float
    honest_fraction: float
    min_answers: int
    n_rounds: int = 1
    l1_sensitivity: float | None = None
    neighboring: Neighboring = "add_remove"

    def __post_init__(self) -> None:
        check_instance("run", self.run, str, "pass the name of the run")
        names = tuple(sorted(self.roster))
        if len(set(names)) != len(names) or not all(
            isinstance(name, str) and re.fullmatch("[0-9a-f]{64}", name) for name in names
        ):
            raise ValueError(
                "roster must have different names of 64 hexadecimal digits; take the names that node_name returns"
            )
        fields = {
            "roster": names,
            "n_values": check_integer("n_values", self.n_values, low=1, high=2**34),
            "max_value": check_integer("max_value", self.max_value, low=1, high=2**63 - 1),
            "l2_sensitivity": check_real("l2_sensitivity", self.l2_sensitivity, low=0.0, exclusive=True),
            "variance": check_exact("variance", self.variance),
            "honest_fraction": check_real("honest_fraction", self.honest_fraction, low=0.0, high=1.0),
            "min_answers": check_integer("min_answers", self.min_answers, low=2, high=len(names)),
            "n_rounds": check_integer("n_rounds", self.n_rounds, low=1, high=2**32 - 1),
        }
        if self.l1_sensitivity is not None:
            fields["l1_sensitivity"] = check_real("l1_sensitivity", self.l1_sensitivity, low=0.0, exclusive=True)
        # Numbers are of Python's types then, so that equal agreements have equal digests.
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self.event(), self.plan(0)  # both check the other arguments

    @cached_property
    def share(self) -> Skellam:
        """Noise that each node adds to its vector."""
        return Skellam(self.variance).share(
            n_nodes=len(self.roster), n_answers=self.min_answers, honest_fraction=self.honest_fraction
        )

    @cached_property
    def digest(self) -> str:
        """Digest of all parameters, in 32 hexadecimal digits."""
        return hashlib.blake2b(repr(self).encode(), digest_size=16).hexdigest()

    def plan(self, round: int) -> AggregationPlan:
        """Return the public parameters of one sum.

        Parameters
        ----------
        round : int
            Number of the sum, from 0.

        Returns
        -------
        AggregationPlan
            Plan of the sum.
        """
        check_integer("round", round, low=0, high=self.n_rounds - 1)
        n_nodes = len(self.roster)
        graph = choose_degree(n_nodes, honest_fraction=self.honest_fraction, min_answers=self.min_answers)
        spread = math.sqrt(n_nodes * self.share.variance)
        max_sum = n_nodes * self.max_value + math.ceil(_STDDEVS * (spread + 1))
        # The name of the run in the plan includes all parameters, so signatures and masks depend on them.
        return AggregationPlan(f"{self.run} {self.digest}", round, self.n_values, max_sum, *graph, self.min_answers)

    def event(self) -> SkellamShares:
        """Return the event of one sum with the fewest answers that have a result.

        Returns
        -------
        SkellamShares
            Event for a ledger.
        """
        return SkellamShares(
            -float_up(-self.share.variance), self.l2_sensitivity, self.n_values, l1_sensitivity=self.l1_sensitivity,
            n_nodes=len(self.roster), n_answers=self.min_answers, honest_fraction=self.honest_fraction,
            neighboring=self.neighboring, sampling="none",
            distance=self.share.total_variation_of(self.n_values * len(self.roster)),
        )  # fmt: skip

    @property
    def folder(self) -> str:
        """Name of the run's folder in a node's folder."""
        return f"sums-{self.digest}"

    def objection(self, rounds: Collection[int]) -> str | None:
        """Return None: the ledger counts all `n_rounds` sums.

        Parameters
        ----------
        rounds : collection of int
            Numbers of sums.

        Returns
        -------
        None
            A node may answer all of them.
        """
        return None

    def with_share(self, values: ArrayLike, *, key: Key, node: str, round: int) -> NDArray[np.int64]:
        """Return the vector of a node with its share of the noise.

        Parameters
        ----------
        values : array_like of int, shape (n_values,)
            Vector of the node.
        key : Key
            Key of the node.
        node : str
            Name of the node.
        round : int
            Number of the sum.

        Returns
        -------
        ndarray of shape (n_values,), int64
            Vector with one draw of `share` on each number.

        Raises
        ------
        ValueError
            The vector has another shape, or a number above `max_value`.
        """
        numbers = check_vector(values, self.n_values, self.max_value)
        return self.share.add_noise(numbers, key=key, purpose=f"aggregation.noise.{node}", round=round, n_threads=1)
