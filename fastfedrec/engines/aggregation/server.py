"""The server of one secure sum: a state machine that learns the sum of the vectors, and no vector."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_choice, check_instance
from fastfedrec.engines.aggregation._messages import (
    ENTRY_BYTES,
    KeyList,
    join_numbered,
    open_answer,
    pack_nodes,
    read_key_list,
    split_numbered,
)
from fastfedrec.engines.aggregation._sealing import KEY_BYTES, Exchange, derive_key, is_signed
from fastfedrec.engines.aggregation.masks import add_masks
from fastfedrec.engines.aggregation.plan import STAGES, WITNESS_SHARE, AggregationError, AggregationPlan
from fastfedrec.engines.aggregation.secret_sharing import SEALED_BYTES, SEED_BYTES, combine_shares

__all__ = ["AggregationServer"]


class AggregationServer:
    """The server of one secure sum.

    `receive` takes the answer of a node in the current stage, from a transport that knows the sender.  `advance` ends
    the stage and returns the next message of each node.  After the last stage, `total` has the sum.  The memory does
    not depend on the number of nodes beyond their keys and sealed shares, because vectors are added when they arrive.

    Parameters
    ----------
    plan : AggregationPlan
        Public parameters of the round.
    roster : collection of bytes
        Names of all nodes that may take part.

    Attributes
    ----------
    stage : str
        Stage of the next answers, or "end".
    total : ndarray of shape (n_values,), int64, or None
        Sum of the vectors of all nodes that answered; None before the end.
    n_answers : int
        Number of vectors in the sum.
    """

    def __init__(self, plan: AggregationPlan, roster: Collection[bytes]):
        self.plan = check_instance("plan", plan, AggregationPlan, "make an AggregationPlan")
        self._roster = frozenset(roster)
        self.stage = "keys"
        self.total: NDArray[np.int64] | None = None
        self._received: dict[str, dict[bytes, bytes]] = {stage: {} for stage in STAGES}
        self._sum = np.zeros(plan.n_values, dtype=plan.dtype)
        # Sealed shares for each node, and revealed shares of each node, after the number of the node that sent them.
        self._sealed: defaultdict[int, bytearray] = defaultdict(bytearray)
        self._revealed: defaultdict[int, bytearray] = defaultdict(bytearray)

    @property
    def n_answers(self) -> int:
        """Number of vectors in the sum."""
        return len(self._received["mask"])

    def receive(self, name: bytes, message: bytes) -> None:
        """Take the answer of a node in the current stage.

        Parameters
        ----------
        name : bytes
            Name of the node, as the transport knows it.
        message : bytes
            Answer of the node.

        Raises
        ------
        AggregationError
            The message is not valid, or differs from an earlier one of this node and stage.  The round goes on.
        """
        if self.stage == "end":
            raise AggregationError("the round has ended; start a new round")
        # Vectors and shares are kept once, in their sums and by their recipients; a hash recognises a repeated message.
        record = message if self.stage in ("keys", "confirm") else hashlib.sha256(message).digest()
        earlier = self._received[self.stage].get(name)
        if earlier is not None and earlier != record:
            raise AggregationError(
                f"node {name.hex()[:8]} answered twice in stage {self.stage!r}; the first one counts"
            )
        if earlier is None:
            getattr(self, f"_check_{self.stage}")(name, message)
            self._received[self.stage][name] = record

    def receive_signed(self, stage: str, message: bytes) -> bytes:
        """Take a signed answer of `StoredNode`, from a transport that does not know the sender.

        Parameters
        ----------
        stage : str
            Stage of the message that is answered.  An answer of an earlier stage shows the sender only.
        message : bytes
            Name, signature and answer.

        Returns
        -------
        bytes
            Name of the node.

        Raises
        ------
        AggregationError
            The signature or the answer is not valid.  The round goes on.
        """
        name, answer = open_answer(self.plan, stage, message)
        if stage == self.stage:
            self.receive(name, answer)
        return name

    def advance(self) -> dict[bytes, bytes]:
        """End the current stage, and return the next message of each node.

        Returns
        -------
        dict of bytes to bytes
            Messages by the names of nodes; empty after the last stage.

        Raises
        ------
        AggregationError
            Too few nodes answered: the round ends without a result.
        """
        stage, answers = self.stage, self._received.get(self.stage, {})
        self.stage = "end"  # also if too few answered
        if stage in ("keys", "share", "mask") and len(answers) < self.plan.min_answers:
            raise AggregationError(
                f"{len(answers)} nodes answered in stage {stage!r}, and min_answers is {self.plan.min_answers}: the "
                "round ends without a result"
            )
        messages: dict[bytes, bytes] = getattr(self, f"_end_{stage}")()
        if stage in STAGES[:-1]:
            self.stage = STAGES[STAGES.index(stage) + 1]
        return messages

    # ---- restarts ----------------------------------------------------------------------------------------------------

    def state(self, messages: Mapping[bytes, bytes]) -> tuple[str, dict[str, NDArray[Any]]]:
        """Return the state at the start of a stage, from which `restored` continues with another process.

        Parameters
        ----------
        messages : mapping of bytes to bytes
            Messages of the stage, as `advance` returned them.

        Returns
        -------
        stage : str
            Stage of the next answers.
        arrays : dict of str to ndarray
            State and messages.  Answers of the stage are not in it: nodes repeat them.
        """
        distinct = list(dict.fromkeys(messages.values()))  # most stages have one message for all nodes
        numbers = {message: number for number, message in enumerate(distinct)}
        arrays = {
            "key_list": np.frombuffer(self._list.message, dtype=np.uint8),
            "shared": self._shared,
            "answered": self._answered,
            "sum": self._sum,
            "recipients": np.array([self._list.number_of(name) for name in messages], dtype=np.int64),
            "message_numbers": np.array([numbers[message] for message in messages.values()], dtype=np.int64),
            "lengths": np.array([len(message) for message in distinct], dtype=np.int64),
            "messages": np.frombuffer(b"".join(distinct), dtype=np.uint8),
        }
        return self.stage, arrays

    @classmethod
    def restored(
        cls, plan: AggregationPlan, roster: Collection[bytes], stage: str, arrays: Mapping[str, NDArray[Any]]
    ) -> tuple[Self, dict[bytes, bytes]]:
        """Return the server of an earlier process and the messages of its stage.

        Parameters
        ----------
        plan : AggregationPlan
            Public parameters of the round.
        roster : collection of bytes
            Names of all nodes that may take part.
        stage : str
            Stage, from `state`.
        arrays : mapping of str to ndarray
            State and messages, from `state`.

        Returns
        -------
        server : AggregationServer
            Server at the start of the stage.
        messages : dict of bytes to bytes
            Messages by the names of nodes, equal to those that were sent before, so that nodes repeat their answers.
        """
        server = cls(plan, roster)
        server.stage = check_choice("stage", stage, STAGES[1:])
        server._list = read_key_list(plan, arrays["key_list"].tobytes())
        for field in ("shared", "answered"):
            setattr(server, f"_{field}", arrays[field].astype(bool))
        server._statement = server._list.statement(pack_nodes(server._shared, server._answered))
        server._sum = arrays["sum"].astype(plan.dtype)
        for earlier, names in (("share", server._shared), ("mask", server._answered)):
            if stage != earlier:
                server._received[earlier] = {server._list.names[number]: b"" for number in np.flatnonzero(names)}
        ends = np.cumsum(arrays["lengths"]).tolist()
        text, starts = arrays["messages"].tobytes(), [0, *ends[:-1]]
        distinct = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        pairs = zip(arrays["recipients"].tolist(), arrays["message_numbers"].tolist(), strict=True)
        return server, {server._list.names[recipient]: distinct[number] for recipient, number in pairs}

    # ---- checks of answers -------------------------------------------------------------------------------------------

    def _check_keys(self, name, message):
        if len(message) != ENTRY_BYTES or message[:KEY_BYTES] != name or name not in self._roster:
            raise AggregationError(f"the keys of node {name.hex()[:8]} are not of a node of the roster")
        KeyList(self.plan, message).check_signature(0)

    def _check_share(self, name, message):
        number = self._list.number_of(name)
        sealed = split_numbered(message, SEALED_BYTES)
        if sorted(sealed) != self._list.neighbors(number):
            raise AggregationError(f"node {name.hex()[:8]} must share with each of its neighbours")
        for other, share in sealed.items():
            self._sealed[other] += join_numbered([(number, share)])

    def _check_mask(self, name, message):
        if name not in self._received["share"]:
            raise AggregationError(f"node {name.hex()[:8]} has not shared its seeds")
        vector = np.frombuffer(message, dtype=np.uint8)
        if len(vector) != self._sum.nbytes:
            raise AggregationError(f"the vector of node {name.hex()[:8]} must have {self._sum.nbytes} bytes")
        self._sum += vector.view(self.plan.dtype)  # modulo 2^n_bits

    def _check_confirm(self, name, message):
        if name not in self._received["mask"] or not is_signed(name, message, self._statement):
            raise AggregationError(f"node {name.hex()[:8]} has not signed the list of answers")

    def _check_reveal(self, name, message):
        number = self._list.number_of(name)
        shares = split_numbered(message, SEED_BYTES)
        expected = [other for other in self._list.neighbors(number) if self._shared[other]]
        if not self._answered[number] or sorted(shares) != expected:
            raise AggregationError(f"node {name.hex()[:8]} must reveal one share of each neighbour that shared")
        for other, share in shares.items():
            self._revealed[other] += join_numbered([(number, share)])

    # ---- ends of stages ----------------------------------------------------------------------------------------------

    def _end_keys(self):
        entries = self._received["keys"]
        key_list = b"".join(entries[name] for name in sorted(entries))
        self._list = read_key_list(self.plan, key_list)
        self._shared = self._answered = self._listed([])
        return dict.fromkeys(self._list.names, key_list)

    def _end_share(self):
        self._shared = self._listed(self._received["share"])
        sealed, self._sealed = self._sealed, defaultdict(bytearray)
        # In the order of numbers, whatever the order of arrival: nodes answer a restarted server only if it sends the
        # same bytes.
        return {
            self._list.names[number]: join_numbered(sorted(split_numbered(sealed[number], SEALED_BYTES).items()))
            for number in np.flatnonzero(self._shared).tolist()
        }

    def _end_mask(self):
        self._answered = self._listed(self._received["mask"])
        lists = pack_nodes(self._shared, self._answered)
        self._statement = self._list.statement(lists)
        return dict.fromkeys(self._received["mask"], lists)

    def _end_confirm(self):
        witnesses = self._list.witnesses
        signed = self._received["confirm"]
        entries = [(number, signed[name]) for number in witnesses if (name := self._list.names[number]) in signed]
        if len(entries) < WITNESS_SHARE * len(witnesses):
            raise AggregationError(
                f"{len(entries)} of {len(witnesses)} witnesses signed the list of answers: the round has no result"
            )
        return dict.fromkeys(signed, join_numbered(entries))

    def _end_reveal(self):
        masks = [mask for number in np.flatnonzero(self._shared).tolist() for mask in self._masks_left_by(number)]
        keys, signs = zip(*masks, strict=True)
        add_masks(self._sum, keys, signs, round=self.plan.round, n_threads=0)
        total = self._sum.view(f"<i{self.plan.n_bits // 8}").astype(np.int64)
        if max(int(total.max()), -int(total.min())) > self.plan.max_sum:
            raise AggregationError(
                "the sum is beyond max_sum, so a node sent a false vector or false shares: the round has no result"
            )
        self.total = total
        return {}

    def _recover(self, number: int) -> bytes:
        neighbors, shares = self._list.neighbors(number), split_numbered(self._revealed[number], SEED_BYTES)
        threshold = self.plan.threshold_among(len(neighbors))
        if len(shares) < threshold:
            raise AggregationError(
                f"{len(shares)} shares of node {self._list.names[number].hex()[:8]} came, and {threshold} are needed: "
                "the round ends without a result"
            )
        # A share's number is the position of its owner among the neighbours, from 1.
        numbered = [(neighbors.index(other) + 1, share) for other, share in shares.items()]
        return combine_shares(numbered[:threshold])

    def _masks_left_by(self, number: int) -> Iterable[tuple[bytes, int]]:
        """Yield the masks of a node in the sum: its own one, or those for it of its neighbours if it did not answer."""
        context, name, seed = self.plan.context("mask"), self._list.names[number], self._recover(number)
        if self._answered[number]:
            yield derive_key(seed, self.plan.context("self")), -1
            return
        exchange = Exchange(name, seed, context)
        if exchange.public != self._list.mask_keys[number]:
            raise AggregationError(f"the shares of node {name.hex()[:8]} are not those of its key")
        for other in self._list.neighbors(number):
            if self._answered[other]:
                key = exchange.common(self._list.names[other], self._list.mask_keys[other], context)
                yield key, -1 if other < number else 1

    def _listed(self, names: Collection[Any]) -> NDArray[np.bool_]:
        listed = np.zeros(len(self._list), dtype=bool)
        listed[[self._list.number_of(name) for name in names]] = True
        return listed
