"""The interface of every federated system, and the server's rules for messages.

    local_round(state, shard, key, round) -> Update     all users of a shard, in compiled code
    merge(a, b) -> Update                               associative
    apply(state, update) -> state                       the server

An engine only decides where `local_round` runs.  This module does not depend on any particular system.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.accounting import RoundTraffic
from fastfedrec.accounting.events import Event
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions

__all__ = [
    "NO_SECRET_COHORT",
    "ArrayRule",
    "DeploymentTerms",
    "DivergenceError",
    "FederatedSystem",
    "Update",
    "find_violation",
]


class DivergenceError(ArithmeticError):
    """Training diverged; the message names the step and the setting to change."""


@dataclass(frozen=True)
class Update:
    """Message of a shard to the server in one round.

    Parameters
    ----------
    round : int
        Number of the round that the message answers.
    sender : str
        Name of the shard.
    n_clients : int
        Number of users with a contribution to the message.
    arrays : mapping of str to ndarray
        Fields that the system defines.
    """

    round: int
    sender: str
    n_clients: int
    arrays: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ArrayRule:
    """Rule that one field of an update must satisfy before a server accepts it.

    Parameters
    ----------
    dtype : type
        Required NumPy type; no other type is accepted.
    shape : tuple of (int or None)
        Required length of each axis; None accepts any length.
    low, high : int, float or None
        Inclusive range of every entry; None for no bound.
    """

    dtype: type
    shape: tuple[int | None, ...]
    low: float | None = None
    high: float | None = None

    def violation(self, array: Any) -> str | None:
        """Describe why an array is rejected.

        Parameters
        ----------
        array : object
            Untrusted input.

        Returns
        -------
        str or None
            Reason, or None for a valid array.
        """
        # A subclass of ndarray may override the methods below, so only the exact type is accepted.
        if type(array) is not np.ndarray:
            return f"must be an array, got {type(array).__name__}"
        if array.dtype != np.dtype(self.dtype):
            return f"must have dtype {np.dtype(self.dtype)}, got {array.dtype}"
        if len(array.shape) != len(self.shape) or any(
            want is not None and want != got for want, got in zip(self.shape, array.shape, strict=True)
        ):
            return f"must have shape {self.shape}, got {array.shape}"
        # One NaN would spoil the sum of all users, and a comparison with NaN below would never fail.
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return "holds NaN or infinite entries"
        if array.size and self.low is not None and array.min() < self.low:
            return f"must be at least {self.low}, got {array.min()}"
        if array.size and self.high is not None and array.max() > self.high:
            return f"must be at most {self.high}, got {array.max()}"
        return None


def find_violation(rules: Mapping[str, ArrayRule], arrays: Any) -> str | None:
    """Describe why the fields of a message are rejected.

    Parameters
    ----------
    rules : mapping of str to ArrayRule
        Rule of each required field; other fields are not allowed.
    arrays : object
        Untrusted input.

    Returns
    -------
    str or None
        Reason for the first invalid field, or None for a valid message.
    """
    # A missing or an additional field rejects the message: the merge adds exactly the fields of the rules.
    if type(arrays) is not dict or set(arrays) != set(rules):
        return f"it must have the fields {sorted(rules)}, got {sorted(map(str, arrays))}"
    for name, rule in rules.items():
        if violation := rule.violation(arrays[name]):
            return f"field {name!r} {violation}"
    return None


@dataclass(frozen=True)
class DeploymentTerms:
    """Conditions under which a system runs with data on nodes, and `fit` as its server.

    Parameters
    ----------
    only_simulated : str or None
        Reason why nodes cannot have keys of their own, or None.
    names_users : bool
        Whether the server distinguishes users by their global ids.
    has_devices : bool
        Whether devices keep state between rounds, which a node stores in its folder.
    keeps_users : bool
        Whether the server's user-side rows are computed from reports only, and so remain in its model.
    note : str or None
        Note for the ledger of such a run on data or parties that its guarantee does not cover.
    """

    only_simulated: str | None = None
    names_users: bool = False
    has_devices: bool = False
    keeps_users: bool = False
    note: str | None = None


#: Reason of a system with a cohort that only its server may know.
NO_SECRET_COHORT = "its guarantee needs a secret cohort, but every node receives the whole cohort"


class FederatedSystem(ABC):
    """Interface of a system to its engine and its server."""

    #: Number of planned phases that a run skips immediately before this phase replaces them.
    n_skipped: int = 0
    #: An axis along which a state's array may be shorter than planned, but not empty, by the array's name.
    shorter_axes: Mapping[str, int] = {}

    @property
    def _what(self) -> str:
        """Describe the statistic of this system's rounds; empty in a model with one kind of round."""
        return ""

    def count_clients(self, shard: Interactions) -> int:
        """Count the clients of a shard, for the rules of its messages and for traffic.

        Parameters
        ----------
        shard : Interactions
            The data of some users.

        Returns
        -------
        int
            Number of users; 1 in a system with entities as clients, which do not report their numbers of users.
        """
        return shard.n_users

    # Devices keep their state between rounds; an engine that runs rounds in other processes moves it back and forth.
    def take_devices(self, sender: str) -> Any:
        """Return the state that a shard's devices keep between rounds.

        Parameters
        ----------
        sender : str
            Name of the shard.

        Returns
        -------
        object
            None for devices without state.
        """
        return None

    def put_devices(self, sender: str, devices: Any) -> None:  # noqa: B027 -- devices of most systems have no state
        """Restore the state of a shard's devices.

        Parameters
        ----------
        sender : str
            Name of the shard.
        devices : object
            State as from `take_devices`; None for devices without state.
        """

    def forget_devices(self) -> None:  # noqa: B027
        """Drop the state of the devices of all shards, as in a copy of the system for another process."""

    def pack_devices(self, sender: str) -> dict[str, np.ndarray]:
        """Take the state of a shard's devices as arrays, for a node's file.

        Parameters
        ----------
        sender : str
            Name of the shard.

        Returns
        -------
        dict of str to ndarray
            Arrays that `unpack_devices` reads; none for devices without state.
        """
        return {}

    def unpack_devices(self, arrays: Mapping[str, np.ndarray], round: int, shard: Interactions) -> Any:
        """Read the state of a shard's devices from a node's file.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            Arrays of `pack_devices`.
        round : int
            Number of the next round.
        shard : Interactions
            Data of the shard's users.

        Returns
        -------
        object
            State for `put_devices`; None for devices without state.

        Raises
        ------
        ValueError
            The arrays are not the state of these users' devices.
        """
        return None

    def _objection(self, state: Any) -> str | None:
        """Describe why devices reject the server's state, after the checks of shapes, types and NaN."""
        return None

    @abstractmethod
    def local_round(
        self, state: Any, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0", n_threads: int = 0
    ) -> Update:
        """Run one round for all users of a shard, on the shard's own machine.

        Parameters
        ----------
        state : object
            State that the server broadcast.
        shard : Interactions
            Data of the shard's users, which do not leave the shard.
        key : Key
            Key of every random draw.
        round : int
            Number of the round, which is part of the names of the random streams.
        sender : str
            Name under which the server expects this shard.
        n_threads : int
            Number of threads; 0 for all.

        Returns
        -------
        Update
            Message of the shard.
        """

    def merge(self, a: Update, b: Update) -> Update:
        """Add two updates of one round field by field; a system with fields that are not sums overrides this.

        Parameters
        ----------
        a, b : Update
            Updates of the same round.

        Returns
        -------
        Update
            Sum of both.  The operation is associative, exactly so for integer fields.
        """
        sums = {name: array + b.arrays[name] for name, array in a.arrays.items()}
        return Update(a.round, "merged", a.n_clients + b.n_clients, sums)

    @abstractmethod
    def apply(self, state: Any, update: Update) -> Any:
        """Compute the server's next state from a merged update.

        Parameters
        ----------
        state : object
            State of the update's round.
        update : Update
            Update merged over all senders.

        Returns
        -------
        object
            State of the next round.
        """

    @abstractmethod
    def zero_update(self, state: Any, round: int) -> Update:
        """Make the identity of `merge`, which replaces a rejected or missing message.

        Parameters
        ----------
        state : object
            State that determines the shapes.
        round : int
            Number of the update's round.

        Returns
        -------
        Update
            Update without any client.
        """

    @abstractmethod
    def rules(self, state: Any, n_clients: int) -> Mapping[str, ArrayRule]:
        """Define the fields of a well-formed update.

        Parameters
        ----------
        state : object
            State that determines the shapes.
        n_clients : int
            Number of users with a contribution to the message.

        Returns
        -------
        mapping of str to ArrayRule
            Rule of each required field; other fields are not allowed.
        """

    def inconsistency(self, state: Any, update: Update) -> str | None:
        """Describe a contradiction between the fields of a well-formed update.

        Parameters
        ----------
        state : object
            State of the update's round.
        update : Update
            Update that satisfies `rules`.

        Returns
        -------
        str or None
            Reason, or None for a consistent update.
        """
        return None

    @abstractmethod
    def round_event(self, n_clients: int) -> Event:
        """Describe the privacy cost of one round for the ledger, before the round runs.

        Parameters
        ----------
        n_clients : int
            Number of users in the round's cohort.

        Returns
        -------
        event
            Event of `fastfedrec.accounting`.
        """

    @abstractmethod
    def traffic(self, state: Any, n_clients: int) -> RoundTraffic:
        """Compute the traffic of one round.

        Parameters
        ----------
        state : object
            State that determines the shapes.
        n_clients : int
            Number of users in the round's cohort.

        Returns
        -------
        RoundTraffic
            Sizes in bytes.
        """
