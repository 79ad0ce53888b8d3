"""The contract of every federated system, and the server's rules for what arrives.

    local_round(state, shard, key, round) -> Update     all users of a shard, in compiled code
    merge(a, b) -> Update                               associative
    apply(state, update) -> state                       the server

An engine only decides where `local_round` runs.  Nothing here knows which system it is.
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

__all__ = ["ArrayRule", "DivergenceError", "FederatedSystem", "Update", "find_violation"]


class DivergenceError(ArithmeticError):
    """Training left the numbers in which the model means anything; the message says when, and what to change."""


@dataclass(frozen=True)
class Update:
    """What a shard sends to the server in one round.

    Parameters
    ----------
    round : int
        The round it answers.
    sender : str
        Who sent it.
    n_clients : int
        Users it stands for.
    arrays : mapping of str to ndarray
        The system's own fields.
    """

    round: int
    sender: str
    n_clients: int
    arrays: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ArrayRule:
    """What a server accepts as one field of an update.

    Parameters
    ----------
    dtype : type
        Exactly this NumPy type.
    shape : tuple of (int or None)
        None leaves an axis free.
    low, high : int, float or None
        Inclusive range of every entry.
    """

    dtype: type
    shape: tuple[int | None, ...]
    low: float | None = None
    high: float | None = None

    def violation(self, array: Any) -> str | None:
        """Why an array is refused.

        Parameters
        ----------
        array : object
            Anything a stranger sent.

        Returns
        -------
        str or None
            None where nothing is wrong.
        """
        if type(array) is not np.ndarray:
            return f"must be an array, got {type(array).__name__}"
        if array.dtype != np.dtype(self.dtype):
            return f"must have dtype {np.dtype(self.dtype)}, got {array.dtype}"
        if len(array.shape) != len(self.shape) or any(
            want is not None and want != got for want, got in zip(self.shape, array.shape, strict=True)
        ):
            return f"must have shape {self.shape}, got {array.shape}"
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return "holds NaN or infinite entries"
        if array.size and self.low is not None and array.min() < self.low:
            return f"must be at least {self.low}, got {array.min()}"
        if array.size and self.high is not None and array.max() > self.high:
            return f"must be at most {self.high}, got {array.max()}"
        return None


def find_violation(rules: Mapping[str, ArrayRule], arrays: Any) -> str | None:
    """Why the fields of a message are refused.

    Parameters
    ----------
    rules : mapping of str to ArrayRule
        The fields that there must be, and no others.
    arrays : object
        Anything a stranger sent.

    Returns
    -------
    str or None
        None where nothing is wrong.
    """
    if type(arrays) is not dict or set(arrays) != set(rules):
        return f"it must have the fields {sorted(rules)}, got {sorted(map(str, arrays))}"
    for name, rule in rules.items():
        if violation := rule.violation(arrays[name]):
            return f"field {name!r} {violation}"
    return None


class FederatedSystem(ABC):
    """What an engine and a server need of a system."""

    #: Phases of the plan that a run leaves out just before it makes these rounds in their place.
    n_skipped: int = 0

    @property
    def _what(self) -> str:
        """What its rounds ask for, in words; empty where a model asks for one thing only."""
        return ""

    def count_clients(self, shard: Interactions) -> int:
        """How many clients a shard counts as in messages, for the rules and for traffic.

        Parameters
        ----------
        shard : Interactions
            The data of some users.

        Returns
        -------
        int
            Its users; 1 in a system whose clients are entities, which do not tell how many users they have.
        """
        return shard.n_users

    # What devices remember between rounds stays on them; an engine whose rounds run elsewhere carries it to and fro.
    def take_devices(self, sender: str) -> Any:
        """What a shard's devices remember from the last round.

        Parameters
        ----------
        sender : str
            The shard's name.

        Returns
        -------
        object
            None where they remember nothing.
        """
        return None

    def put_devices(self, sender: str, devices: Any) -> None:  # noqa: B027 -- most systems' devices remember nothing
        """Give a shard's devices back what `take_devices` took.

        Parameters
        ----------
        sender : str
            The shard's name.
        devices : object
            None where they remember nothing.
        """

    def forget_devices(self) -> None:  # noqa: B027
        """Drop what the devices of all shards remember, as in a copy of the system that is sent elsewhere."""

    def _objection(self, state: Any) -> str | None:
        """Why devices do not answer a state that a server sent, beyond shapes, types and NaN."""
        return None

    @abstractmethod
    def local_round(
        self, state: Any, shard: Interactions, key: Key, round: int, *, sender: str = "shard-0", n_threads: int = 0
    ) -> Update:
        """Run one round for all users of a shard, on the shard's own machine.

        Parameters
        ----------
        state : object
            What the server broadcast.
        shard : Interactions
            The users' data, which do not leave the shard.
        key : Key
            Source of every draw.
        round : int
            Names the draws.
        sender : str
            The name under which the server expects this shard.
        n_threads : int
            0 for all.

        Returns
        -------
        Update
            What the shard sends.
        """

    def merge(self, a: Update, b: Update) -> Update:
        """Add two updates of one round: field by field, unless a system's are no sums.

        Parameters
        ----------
        a, b : Update
            Of the same round.

        Returns
        -------
        Update
            Associative; exactly so where the fields are integers.
        """
        sums = {name: array + b.arrays[name] for name, array in a.arrays.items()}
        return Update(a.round, "merged", a.n_clients + b.n_clients, sums)

    @abstractmethod
    def apply(self, state: Any, update: Update) -> Any:
        """Move the server's state by a merged update.

        Parameters
        ----------
        state : object
            Of the update's round.
        update : Update
            Merged over all senders.

        Returns
        -------
        object
            The next round's state.
        """

    @abstractmethod
    def zero_update(self, state: Any, round: int) -> Update:
        """The identity of `merge`, which a rejected or missing message counts as.

        Parameters
        ----------
        state : object
            Gives the shapes.
        round : int
            Of the update.

        Returns
        -------
        Update
            From nobody.
        """

    @abstractmethod
    def rules(self, state: Any, n_clients: int) -> Mapping[str, ArrayRule]:
        """What a well-formed update looks like.

        Parameters
        ----------
        state : object
            Gives the shapes.
        n_clients : int
            Users the sender stands for.

        Returns
        -------
        mapping of str to ArrayRule
            Exactly the fields an update must have.
        """

    def inconsistency(self, state: Any, update: Update) -> str | None:
        """Why the fields of a well-formed update contradict each other.

        Parameters
        ----------
        state : object
            Of the update's round.
        update : Update
            Each field has passed its rule.

        Returns
        -------
        str or None
            None where nothing is wrong.
        """
        return None

    @abstractmethod
    def round_event(self, n_clients: int) -> Event:
        """What one round is about to do to people's data, for the ledger.

        Parameters
        ----------
        n_clients : int
            Users who will be asked.

        Returns
        -------
        event
            Of `fastfedrec.accounting`.
        """

    @abstractmethod
    def traffic(self, state: Any, n_clients: int) -> RoundTraffic:
        """What one round moves.

        Parameters
        ----------
        state : object
            Gives the shapes.
        n_clients : int
            Users who are asked.

        Returns
        -------
        RoundTraffic
            Bytes.
        """
