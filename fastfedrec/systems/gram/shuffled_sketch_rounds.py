"""The rounds of a shuffled sketch; `shuffled_sketch.ShuffledSketchGram` runs them.

The content of a report and the proof of its privacy: docs/explanation/systems/gram/shuffled-sketch-privacy.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.gram import shuffled_sketch as _kernel
from fastfedrec.accounting import ChosenMessages, RoundTraffic, ShuffledReports
from fastfedrec.compute.hadamard import hadamard_transform
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.memory import Array, Arrays, check_memory, total_bytes
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.rounds.system import ArrayRule, DeploymentTerms, FederatedSystem, Update
from fastfedrec.systems.claims import FEWER_ITEMS

__all__ = [
    "FEWER_ROTATIONS",
    "MAX_CELLS",
    "TERMS",
    "FirstSketchRound",
    "LastSketchRound",
    "SketchRound",
    "SketchState",
    "sketch_memory",
]

#: Conditions of a run with data on nodes.
TERMS = DeploymentTerms(
    only_simulated="its reports need a shuffler, and there is none between these nodes and the server",
    note="There was no shuffler between nodes and server. The figure behind a shuffler is for the deployment that this "
    "run simulates, and it holds for no message of this run.",
)
MAX_CELLS = 2**28  # number of cells of all rotations: 2 GiB of sums, and rows short enough for 16 bits
# Number of answers that are sorted together, 64 MiB, or half the cells if that is more, since all sums are read.
_MAX_ANSWERS = 2**24
_CHUNK_ANSWERS, _MAX_CHUNK_USERS = 2**18, 16  # approximate answers, and largest number of users, of a thread's chunk
#: Remedies if the sums do not fit into memory.
FEWER_ROTATIONS = f"lower n_rotations, or {FEWER_ITEMS}"
_CELLS = 2**16  # number of cells with magnitudes in memory at the same time
_BUCKET_BITS = 17  # a bucket of 2^17 cells is 1 MiB of sums


def sketch_memory(n_items: int, n_rotations: int, has_pairs: bool = True) -> list[Arrays]:
    """Return the arrays of a round while answers are added, and while their sums are decoded."""
    length = _length(n_items)
    if not has_pairs:
        return [{"sums": Array.of("int64", n_rotations, length)}]
    sums = {"sums": Array.of("int64", n_rotations, length, length)}
    return [
        {**sums, "answers": Array.of("uint32", n_rotations * length**2 // 2)},
        {**sums, "half decoded": Array.of("int64", length, n_items), "pairs": Array.of("int64", 2, n_items, n_items)},
    ]


def _length(n_items: int) -> int:
    """Return the smallest power of two that is at least the number of items."""
    return 1 << (n_items - 1).bit_length()


@dataclass(frozen=True)
class SketchState:
    """The state that the server broadcasts, and the round's result."""

    # Public random signs, +1 or -1, (n_rotations, n_sides, length): two sides for pairs of items, one for single items.
    signs: NDArray[np.int16]
    # The exact sums of answers, decoded to items, (n_items, n_items) or (n_items,); empty until the end of the round.
    decoded: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    n_answers: int = 0  # number of reports in `decoded`
    n_users: int = 0  # number of users who sent them


class SketchRound(FederatedSystem):
    """One round in which each user sends short reports of the rotated row through a shuffler.

    `channel` randomizes one report, which draws one of the public rotations.  Reports are about pairs of items if
    `has_pairs`, else about single items.  `honest_fraction` is a share of users, for the ledger.
    """

    _stream: ClassVar[str] = "shuffled_sketch"
    #: Round of counts that an earlier release may choose in place of this one, for the ledger.
    other: Any = None

    def __init__(
        self,
        channel: LargestResponse,
        n_items: int,
        n_reports: int,
        n_rotations: int,
        has_pairs: bool,
        honest_fraction: float = 1.0,
    ):
        self.channel = channel
        self.n_items = n_items
        self.n_reports = n_reports
        self.n_rotations = n_rotations
        self.has_pairs = has_pairs
        self.honest_fraction = honest_fraction
        self.length = _length(n_items)
        self.shape = (n_rotations, self.length, self.length) if has_pairs else (n_rotations, self.length)
        if n_rotations * self.length**2 > MAX_CELLS:
            raise ValueError(
                f"n_rotations times {self.length}^2 must be at most {MAX_CELLS} for {n_items} items, got "
                f"n_rotations={n_rotations}; lower it, or keep fewer items"
            )

    def _purpose(self, draws: str) -> str:
        """Return the purpose of the round's draws."""
        return f"{self._stream}.{draws}"

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self, key: Key) -> SketchState:
        """Draw the public signs by a key."""
        check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
        shape = self._signs_shape
        words = key.words(self._purpose("signs"), size=-(-math.prod(shape) // 64))
        bits = np.unpackbits(words.astype("<u8").view(np.uint8))[: math.prod(shape)]
        return SketchState((2 * bits.astype(np.int16) - 1).reshape(shape))

    @property
    def _signs_shape(self) -> tuple[int, int, int]:
        return self.n_rotations, 2 if self.has_pairs else 1, self.length

    def _objection(self, state: SketchState) -> str | None:
        """Return an error message for signs of another shape or other values, or None."""
        # The kernel would read beyond an array of another shape.
        if state.signs.shape != self._signs_shape:
            return f"signs must have shape {self._signs_shape}, got {state.signs.shape}"
        return None if (np.abs(state.signs) == 1).all() else "signs must be 1 or -1"

    def local_round(
        self,
        state: SketchState,
        shard: Interactions,
        key: Key,
        round: int,
        *,
        sender: str = "shard-0",
        n_threads: int = 0,
    ) -> Update:
        """Randomize and sum one shard's reports."""
        n_threads = resolve_n_threads(n_threads)
        if objection := self._objection(state):
            raise ValueError(objection)

        # A shard may run on a worker or node with less memory than the fit; it needs the sums and a chunk of answers.
        def needed(n_items: int) -> int:
            return total_bytes(sketch_memory(n_items, self.n_rotations, self.has_pairs)[0])

        check_memory("a shard of ShuffledSketchGram", self.n_items, needed, FEWER_ROTATIONS, speaks=False)
        key.claim_message(self._purpose("reports"), round, sender)
        sums = np.zeros(self.shape, dtype=np.int64)
        chunk = max(1, min(_MAX_CHUNK_USERS, _CHUNK_ANSWERS // self.n_reports))
        step = chunk * max(1, max(_MAX_ANSWERS, sums.size // 2) // (chunk * self.n_reports))
        shift = _bucket_shift(sums.size)
        # Each block's answers are sorted by bucket, so that threads add to different cells that stay in a cache.
        for start in range(0, shard.n_users, step):
            part = shard._user_range(start, min(start + step, shard.n_users)) if shard.n_users > step else shard
            answers = np.empty(part.n_users * self.n_reports, dtype=np.uint32)
            ends = np.empty((-(-part.n_users // chunk), -(-sums.size >> shift)), dtype=np.int32)
            self._randomize(state, part, key, round, n_threads, chunk, shift, answers=answers, ends=ends)
            _kernel.add_answers(answers, ends, sums.reshape(-1), chunk * self.n_reports, n_threads)
        return self._as_update(round, sender, shard.n_users, sums, shard.n_users * self.n_reports)

    def report_stream(
        self,
        state: SketchState,
        shard: Interactions,
        key: Key,
        round: int,
        *,
        shuffle_key: Key | None = None,
        sender: str = "shard-0",
        n_threads: int = 0,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        """Return the single reports of `local_round` in random order, as a shuffler forwards them.

        Each report has a place, uint32, which encodes a rotation and an entry of it or of each of its sides, and a bit,
        1 for + and 0 for -.  A shuffler uses the order of an entropy key, which is the default of `shuffle_key`.
        """
        key.claim_message(self._purpose("reports"), round, sender)
        place, bit = self._single_reports(state, shard, key, round, resolve_n_threads(n_threads))
        order = resolve_key(shuffle_key).permutation(
            self._purpose("shuffle"), round=round, size=len(place), n_threads=n_threads
        )
        return place[order], bit[order]

    def collect_reports(self, place: np.ndarray, bit: np.ndarray, round: int, *, sender: str, n_clients: int) -> Update:
        """Sum a stream of single reports from a shuffler of `n_clients` users, without invalid ones.

        If every report arrives, the update equals the one from `local_round`.
        """
        place, bit = np.asarray(place), np.asarray(bit)
        if place.dtype != np.uint32 or bit.dtype != np.uint8 or place.ndim != 1 or place.shape != bit.shape:
            raise ValueError(
                "place and bit must be arrays of uint32 and uint8 of one length, got "
                f"{place.dtype} {place.shape} and {bit.dtype} {bit.shape}"
            )
        is_valid = bit <= 1
        sums = np.zeros(self.shape, dtype=np.int64)
        _kernel.collect_reports(
            place[is_valid],
            bit[is_valid],
            sums.reshape(-1),
            self.n_rotations,
            2 if self.has_pairs else 1,
            self.length.bit_length() - 1,
        )
        return self._as_update(round, sender, n_clients, sums, int(is_valid.sum()))

    def merge(self, a: Update, b: Update) -> Update:
        """Add two updates of one round; integer sums are exact, so their order is arbitrary."""
        if a.n_clients == 0:  # its arrays are zeros by the rules, and a copy of the other sums may be gigabytes
            return Update(a.round, "merged", b.n_clients, b.arrays)
        return super().merge(a, b)

    def apply(self, state: SketchState, update: Update) -> SketchState:
        """Decode the answers exactly: D1 H C H D2 summed over rotations, plus its transpose, in whole numbers."""
        sums = update.arrays["answers"]
        decoded = self._decode_pairs(state, sums, 0) if self.has_pairs else self._decode_items(state, sums)
        return SketchState(state.signs, decoded, int(update.arrays["n_answers"][0]), update.n_clients)

    # ---- what a server accepts ----------------------------------------------------------------------------------

    def zero_update(self, state: SketchState, round: int) -> Update:
        """Return the identity of `merge`."""
        return self._as_update(round, "nobody", 0, np.zeros(self.shape, dtype=np.int64), 0)

    def rules(self, state: SketchState, n_clients: int) -> Mapping[str, ArrayRule]:
        """Return the rules of an update: sums and number of answers are at most the number of reports."""
        max_answers = n_clients * self.n_reports
        return {
            "answers": ArrayRule(np.int64, self.shape, -max_answers, max_answers),
            "n_answers": ArrayRule(np.int64, (1,), 0, max_answers),
        }

    def inconsistency(self, state: SketchState, update: Update) -> str | None:
        """Return how an update's fields contradict each other, although each has passed its rule, or None."""
        sums, n_answers = update.arrays["answers"].reshape(-1), int(update.arrays["n_answers"][0])
        parts = range(0, sums.size, _CELLS)  # blocks avoid a second array of gigabytes
        # Answers are +1 or -1, so a cell's sum has the parity of its number of answers and at most this magnitude.
        n_needed = sum(int(np.abs(sums[start : start + _CELLS]).sum()) for start in parts)
        if n_needed > n_answers or (n_answers - n_needed) % 2:
            return f"its sums need {n_needed} answers or an even number more, and it claims {n_answers}"
        return None

    def round_event(self, n_clients: int) -> ShuffledReports | ChosenMessages:
        """Return the event of the round's privacy cost."""
        reports = self.own_event(n_clients)
        if self.other is None:
            return reports
        subject = "pairs" if self.has_pairs else "items"
        return ChosenMessages.of(f"messages about {subject}", reports, self.other.own_event(n_clients))

    def own_event(self, n_clients: int) -> ShuffledReports:
        """Return the event of the reports, without another kind of messages that may take their place."""
        subject = "pairs of items" if self.has_pairs else "items"
        return ShuffledReports(
            f"largest response on sketched {subject}",
            self.channel.epsilon,
            self.n_reports,
            n_clients,
            self.honest_fraction,
            neighboring="zero_out",
            n_candidates=self.channel.n_candidates,
        )

    def traffic(self, state: SketchState, n_clients: int) -> RoundTraffic:
        """Return the traffic of the round: one bit for each sign down, and a 32-bit place and one bit per report up."""
        return RoundTraffic(-(-state.signs.size // 8), 4 * self.n_reports + -(-self.n_reports // 8), n_clients)

    # ---- kernel -------------------------------------------------------------------------------------------------

    def _single_reports(self, state, shard, key, round_number, n_threads):
        """Return places and bits in the users' order."""
        # The order links reports to users, so a shuffler must never forward it.
        n = shard.n_users * self.n_reports
        place, bit = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint8)
        self._randomize(state, shard, key, round_number, n_threads, _MAX_CHUNK_USERS, 0, place=place, bit=bit)
        return place, bit

    def _randomize(
        self, state, shard, key, round_number, n_threads, chunk, shift, *, answers=None, ends=None, place=None, bit=None
    ):
        """Write the reports' answers by chunk and bucket, or the single reports in the users' order."""
        failed = np.zeros(n_threads, dtype=np.int64)
        _kernel.private_round(
            shard.indptr,
            shard.indices,
            state.signs,
            shard.global_user_ids,
            key.subkey(self._purpose("reports")),
            np.empty(0, dtype=np.uint32) if answers is None else answers,
            np.empty((0, 0), dtype=np.int32) if ends is None else ends,
            np.empty(0, dtype=np.uint32) if place is None else place,
            np.empty(0, dtype=np.uint8) if bit is None else bit,
            failed,
            self.length.bit_length() - 1,
            self.channel.n_candidates,
            self.channel.clones,
            self.n_reports,
            chunk,
            shift,
            check_integer("round", round_number, low=0, high=2**32 - 1),
            n_threads,
        )
        if failed.any():
            raise MemoryError("no memory for a thread's scratch space; use fewer threads, rotations or reports")

    def _decode_pairs(self, state, sums, n_threads):
        """Return the decoded sums of all pairs of items, (n_items, n_items)."""
        n_items, n_passes, n_threads = self.n_items, self.length.bit_length() - 1, resolve_n_threads(n_threads)
        half = np.empty((self.length, n_items), dtype=np.int64)
        scratch = np.empty((n_threads, _kernel.n_scratch(n_passes)), dtype=np.int64)
        decoded = np.zeros((n_items, n_items), dtype=np.int64)
        for total, sides in zip(np.ascontiguousarray(sums), state.signs, strict=True):
            _kernel.decode_pairs(total, sides, half, scratch, decoded, n_passes, n_threads)
        return decoded + decoded.T

    def _decode_items(self, state, sums):
        """Return the decoded sums of single items, (n_items,)."""
        return (hadamard_transform(sums) * state.signs[:, 0])[:, : self.n_items].sum(axis=0)

    @staticmethod
    def _as_update(round_number, sender, n_clients, sums, n_answers):
        return Update(
            round_number,
            sender,
            n_clients,
            {"answers": sums, "n_answers": np.array([n_answers], dtype=np.int64)},
        )


class FirstSketchRound(SketchRound):
    """The round about items before the pairs; it has a random stream of its own."""

    _stream = "shuffled_sketch.first"


class LastSketchRound(SketchRound):
    """The round after the decision, about pairs or items; it has a random stream of its own."""

    _stream = "shuffled_sketch.last"


def _bucket_shift(n_cells: int) -> int:
    """Return the binary logarithm of a bucket's size, for 64 to 1,024 buckets if there are enough cells."""
    bits = (n_cells - 1).bit_length()
    return max(min(_BUCKET_BITS, bits - 6), bits - 10, 0)
