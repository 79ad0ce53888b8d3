"""Messages of a secure sum: vectors, lists of keys, numbered entries, and lists of nodes, as plain bytes."""

import functools
import hashlib
import struct
from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.engines.aggregation._sealing import KEY_BYTES, SIGNATURE_BYTES, Identity, is_signed
from fastfedrec.engines.aggregation.plan import N_WITNESSES, AggregationError, AggregationPlan
from fastfedrec.mechanisms.report_checks import check_integers

#: Number of bytes of a node's entry: its name, its two keys of the round, and a signature.
ENTRY_BYTES = 3 * KEY_BYTES + SIGNATURE_BYTES


def join_numbered(entries: Iterable[tuple[int, bytes]]) -> bytes:
    """Return entries of one size as bytes, each after its number."""
    return b"".join(struct.pack("<I", number) + entry for number, entry in entries)


def split_numbered(message: bytes | bytearray, size: int) -> dict[int, bytes]:
    """Return untrusted entries by their numbers."""
    if len(message) % (size + 4):
        raise AggregationError(f"a message must hold entries of {size + 4} bytes, got {len(message)} bytes")
    starts = range(0, len(message), size + 4)
    entries = {struct.unpack_from("<I", message, at)[0]: bytes(message[at + 4 : at + 4 + size]) for at in starts}
    if len(entries) != len(starts):
        raise AggregationError("a message must not repeat a node")
    return entries


def pack_nodes(*lists: np.ndarray) -> bytes:
    """Return lists of nodes, each with a bit for each node."""
    return b"".join(np.packbits(nodes).tobytes() for nodes in lists)


def unpack_nodes(message: bytes, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two lists of nodes of an untrusted message."""
    n_bytes = (n_nodes + 7) // 8
    if len(message) != 2 * n_bytes:
        raise AggregationError(f"lists of {n_nodes} nodes must have {2 * n_bytes} bytes, got {len(message)}")
    bits = np.unpackbits(np.frombuffer(message, dtype=np.uint8).reshape(2, n_bytes), axis=1)
    if bits[:, n_nodes:].any():
        raise AggregationError("lists of nodes must not have further nodes")
    return bits[0, :n_nodes].astype(bool), bits[1, :n_nodes].astype(bool)


def check_vector(values: ArrayLike, n_values: int, max_value: int) -> NDArray[np.int64]:
    """Return a node's vector of this length and these absolute values, or raise."""
    numbers = check_integers("values", values, "put them on an integer grid first")
    if numbers.shape != (n_values,):
        raise ValueError(f"values must have shape ({n_values},), got {numbers.shape}")
    if (largest := max(int(numbers.max()), -int(numbers.min()))) > max_value:
        raise ValueError(f"values must be from -{max_value} to {max_value}, got {largest}")
    return numbers.astype(np.int64)


def sign_answer(plan: AggregationPlan, identity: Identity, stage: str, answer: bytes) -> bytes:
    """Return an answer with the name and the signature of its node, for a transport that does not know the node."""
    return identity.name + identity.sign(_answer_statement(plan, stage, answer)) + answer


def open_answer(plan: AggregationPlan, stage: str, message: bytes) -> tuple[bytes, bytes]:
    """Return the name of the node that signed an untrusted message, and its answer, or raise."""
    name, answer = message[:KEY_BYTES], message[KEY_BYTES + SIGNATURE_BYTES :]
    signature = message[KEY_BYTES : KEY_BYTES + SIGNATURE_BYTES]
    if not is_signed(name, signature, _answer_statement(plan, stage, answer)):
        raise AggregationError(f"an answer of stage {stage!r} lacks the signature of node {name.hex()[:8]}")
    return name, answer


def _answer_statement(plan: AggregationPlan, stage: str, answer: bytes) -> bytes:
    return plan.context("signed") + stage.encode() + hashlib.sha256(answer).digest()


def shuffled_nodes(plan: AggregationPlan, key_list: bytes, n_nodes: int) -> np.ndarray:
    """Return the nodes in the order of the graph's ring, which the signed keys of all nodes determine."""
    # The server cannot choose the order; a hash decides it only after all keys are fixed.
    seed = hashlib.sha256(plan.context("graph") + key_list).digest()
    numbers = np.frombuffer(hashlib.shake_256(seed).digest(16 * n_nodes), dtype="<u8").reshape(-1, 2)
    return np.lexsort((numbers[:, 1], numbers[:, 0]))


def neighbors_of(order: np.ndarray, position: int, degree: int) -> list[int]:
    """Return the neighbours of the node at a position of the ring, sorted: `degree` nearest nodes, or all others."""
    n_nodes = len(order)
    if n_nodes <= degree + 1:
        return [other for other in range(n_nodes) if other != order[position]]
    steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    return sorted(int(order[(position + step) % n_nodes]) for step in steps)


def witnesses_of(order: np.ndarray) -> list[int]:
    """Return the nodes with the signatures that make a list of answers the one list of the round."""
    # The order is a random permutation, so every n-th node is a random sample that no node chose.
    n_witnesses = min(N_WITNESSES, len(order))
    return sorted(int(order[i * len(order) // n_witnesses]) for i in range(n_witnesses))


class KeyList:
    """The signed keys of all nodes of a round, sorted by name; a node's position is its number."""

    def __init__(self, plan: AggregationPlan, key_list: bytes):
        if not key_list or len(key_list) % ENTRY_BYTES:
            raise AggregationError(
                f"a list of keys must hold entries of {ENTRY_BYTES} bytes, got {len(key_list)} bytes"
            )
        self._plan, self.message, self.digest = plan, key_list, hashlib.sha256(key_list).digest()
        self._entries = [key_list[at : at + ENTRY_BYTES] for at in range(0, len(key_list), ENTRY_BYTES)]
        self.names, self.mask_keys, self.channel_keys = (
            [entry[at : at + KEY_BYTES] for entry in self._entries] for at in range(0, 3 * KEY_BYTES, KEY_BYTES)
        )
        if any(first >= second for first, second in zip(self.names, self.names[1:], strict=False)):
            raise AggregationError("a list of keys must be sorted, with each node once")
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._order = shuffled_nodes(plan, key_list, len(self))
        self.witnesses = witnesses_of(self._order)
        self._positions = np.argsort(self._order)

    def __len__(self) -> int:
        return len(self._entries)

    def check_members(self, roster: Collection[bytes], own_entry: bytes) -> None:
        """Raise unless all nodes are of the roster, enough take part, and a node's entry is its own."""
        if not self._numbers.keys() <= set(roster):
            raise AggregationError("the list of keys has a node that is not in the roster")
        if own_entry not in self._entries:
            raise AggregationError("the list of keys lacks the keys of this node")
        if len(self) < self._plan.min_answers:
            raise AggregationError(f"{len(self)} nodes have keys, and min_answers is {self._plan.min_answers}")

    def check_signature(self, node: int) -> None:
        """Raise unless a node signed its keys for this round."""
        keys, signature = self._entries[node][:-SIGNATURE_BYTES], self._entries[node][-SIGNATURE_BYTES:]
        if not is_signed(self.names[node], signature, self._plan.context("keys") + keys):
            raise AggregationError(f"the keys of node {self.names[node].hex()[:8]} lack its signature")

    def number_of(self, name: bytes) -> int:
        """Return the number of a node, or raise."""
        if name not in self._numbers:
            raise AggregationError(f"node {name.hex()[:8]} has no keys in this round")
        return self._numbers[name]

    def neighbors(self, node: int) -> list[int]:
        """Return the neighbours of a node in the graph of these keys."""
        return neighbors_of(self._order, int(self._positions[node]), self._plan.degree)

    def statement(self, answers: bytes) -> bytes:
        """Return the bytes that nodes sign: the plan, these keys, and the lists of nodes that shared and answered."""
        return self._plan.context("answers") + self.digest + hashlib.sha256(answers).digest()


# In a simulation all nodes read one list; copies for each node would take memory of the square of their number.
@functools.lru_cache(maxsize=2)
def read_key_list(plan: AggregationPlan, key_list: bytes) -> KeyList:
    """Return the untrusted keys of a round, read once by all nodes of a process."""
    return KeyList(plan, key_list)
