"""The rounds of a shuffled sketch; `shuffled_sketch.ShuffledSketchGram` is the model around them.

What a report tells, and why it hides: docs/explanation/systems/gram/shuffled-sketch-privacy.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.gram import shuffled_sketch as _kernel
from fastfedrec.accounting import RoundTraffic, ShuffledReports
from fastfedrec.compute.hadamard import hadamard_transform
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.memory import check_memory
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update
from fastfedrec.systems.claims import FEWER_ITEMS

__all__ = ["MAX_CELLS", "FirstSketchRound", "LastSketchRound", "SketchRound", "SketchState"]

MAX_CELLS = 2**28  # of all rotations: 2 GiB of sums, and rows short enough for 16 bits
_MOST_ANSWERS = 2**24  # put in order at a time, 64 MiB, or of that size a quarter of the sums, which each time are read
_CHUNK_ANSWERS, _MOST_CHUNKED = 2**18, 16  # answers, as near as may be, and users that a thread takes at a time
_CELLS = 2**16  # whose magnitudes are held at a time
_BUCKET_BITS = 17  # a bucket of 2^17 cells is 1 MiB of sums


@dataclass(frozen=True)
class SketchState:
    """What the server broadcasts, and what it has at the end of the round.

    Parameters
    ----------
    signs : ndarray of shape (n_rotations, n_sides, length), int16
        Public random signs, +1 or -1: two sides for pairs of items, one for single items.
    decoded : ndarray of shape (n_items, n_items) or (n_items,), int64
        The answers turned back to items, exactly; empty until the round is over.
    n_answers, n_users : int
        How many reports that rests on, and of how many users.
    """

    signs: NDArray[np.int16]
    decoded: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    n_answers: int = 0
    n_users: int = 0


class SketchRound(FederatedSystem):
    """One round in which every user sends short reports of its rotated row through a shuffler.

    Parameters
    ----------
    channel : LargestResponse
        The randomizer of one report.
    n_items, n_reports, n_rotations : int
        Items; reports of each user; public rotations that each report draws one of.
    has_pairs : bool
        Whether reports are of pairs of items; otherwise of single items.
    honest_fraction : float
        Of users, for the ledger.
    """

    _stream: ClassVar[str] = "shuffled_sketch"

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
        self.length = 1 << (n_items - 1).bit_length()  # the least power of two that has a place for every item
        self.shape = (n_rotations, self.length, self.length) if has_pairs else (n_rotations, self.length)
        if n_rotations * self.length**2 > MAX_CELLS:
            raise ValueError(
                f"n_rotations times {self.length}^2 must be at most {MAX_CELLS} for {n_items} items, got "
                f"n_rotations={n_rotations}; lower it, or keep fewer items"
            )

    @property
    def n_bytes(self) -> int:
        """What a fit on one machine holds at its peak of memory, but for the rows of users."""
        cells = math.prod(self.shape)
        if not self.has_pairs:
            return 8 * cells
        # Sums beside what is added to them, which is half as many numbers of half the size; or beside what they are
        # turned back into.
        return max(10 * cells, 8 * (cells + self.length * self.n_items + 2 * self.n_items**2))

    def _purpose(self, of: str) -> str:
        """Names the words that the round draws."""
        return f"{self._stream}.{of}"

    # ---- the three functions ------------------------------------------------------------------------------------

    def initial_state(self, key: Key) -> SketchState:
        """The public signs.

        Parameters
        ----------
        key : Key
            Source of the draws; the result is public.

        Returns
        -------
        SketchState
            Before the round.
        """
        check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
        shape = self._signs_shape
        words = key.words(self._purpose("signs"), size=-(-math.prod(shape) // 64))
        bits = np.unpackbits(words.astype("<u8").view(np.uint8))[: math.prod(shape)]
        return SketchState((2 * bits.astype(np.int16) - 1).reshape(shape))

    @property
    def _signs_shape(self) -> tuple[int, int, int]:
        return self.n_rotations, 2 if self.has_pairs else 1, self.length

    def _objection(self, state: SketchState) -> str | None:
        """Return an objection to signs of another shape, which the kernel would read beyond, or to other numbers."""
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
        """Randomize and add up one shard's reports."""
        n_threads = resolve_n_threads(n_threads)
        if objection := self._objection(state):
            raise ValueError(objection)
        # On a worker or node, of whose memory the fit knows nothing: sums, and the answers that are added at a time.
        n_bytes, remedy = 10 * math.prod(self.shape), f"lower n_rotations, or {FEWER_ITEMS}"
        check_memory("a shard of ShuffledSketchGram", self.n_items, n_bytes, remedy, speaks=False)
        key.claim_message(self._purpose("reports"), round, sender)
        sums = np.zeros(self.shape, dtype=np.int64)
        chunk = max(1, min(_MOST_CHUNKED, _CHUNK_ANSWERS // self.n_reports))
        step = chunk * max(1, max(_MOST_ANSWERS, sums.size // 2) // (chunk * self.n_reports))
        shift = _bucket_shift(sums.size)
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
        """The single reports of `local_round`, in random order: what a shuffler forwards.

        Parameters
        ----------
        state : SketchState
            What the server broadcast.
        shard : Interactions
            The users' data.
        key : Key
            Source of the reports' draws.
        round : int
            Names the draws.
        shuffle_key : Key or None
            Source of the order; None draws one from entropy, which is what a shuffler wants.
        sender : str
            The shard's name.
        n_threads : int
            0 for all.

        Returns
        -------
        place : ndarray of shape (n_users * n_reports,), uint32
            What the report is about: a rotation, and an entry of it or of each of its sides.
        bit : ndarray of shape (n_users * n_reports,), uint8
            1 for +, 0 for -.
        """
        key.claim_message(self._purpose("reports"), round, sender)
        place, bit = self._single_reports(state, shard, key, round, resolve_n_threads(n_threads))
        order = resolve_key(shuffle_key).permutation(
            self._purpose("shuffle"), round=round, size=len(place), n_threads=n_threads
        )
        return place[order], bit[order]

    def collect_reports(self, place: np.ndarray, bit: np.ndarray, round: int, *, sender: str, n_clients: int) -> Update:
        """Add up a stream of single reports, as the server does behind a shuffler; bad reports are left out.

        Parameters
        ----------
        place, bit : ndarray of shape (n_reports_received,), uint32 and uint8
            As from `report_stream`.
        round : int
            The round they answer.
        sender : str
            The shuffler's name.
        n_clients : int
            Users behind it.

        Returns
        -------
        Update
            Equal to that of `local_round` if every report arrives.
        """
        place, bit = np.asarray(place), np.asarray(bit)
        if place.dtype != np.uint32 or bit.dtype != np.uint8 or place.ndim != 1 or place.shape != bit.shape:
            raise ValueError(
                "place and bit must be arrays of uint32 and uint8 of one length, got "
                f"{place.dtype} {place.shape} and {bit.dtype} {bit.shape}"
            )
        sound = bit <= 1
        sums = np.zeros(self.shape, dtype=np.int64)
        _kernel.collect_reports(
            place[sound],
            bit[sound],
            sums.reshape(-1),
            self.n_rotations,
            2 if self.has_pairs else 1,
            self.length.bit_length() - 1,
        )
        return self._as_update(round, sender, n_clients, sums, int(sound.sum()))

    def merge(self, a: Update, b: Update) -> Update:
        """Add two updates of one round; integer sums are exact, so in any order."""
        if a.n_clients == 0:  # zeros, by the rules; and a copy of the others' sums may be gigabytes
            return Update(a.round, "merged", b.n_clients, b.arrays)
        return super().merge(a, b)

    def apply(self, state: SketchState, update: Update) -> SketchState:
        """Turn the answers back: D1 H C H D2 added up over rotations, and its transpose; exact in whole numbers."""
        sums = update.arrays["answers"]
        decoded = self._decode_pairs(state, sums, 0) if self.has_pairs else self._decode_items(state, sums)
        return SketchState(state.signs, decoded, int(update.arrays["n_answers"][0]), update.n_clients)

    # ---- what a server accepts ----------------------------------------------------------------------------------

    def zero_update(self, state: SketchState, round: int) -> Update:
        """The identity of `merge`."""
        return self._as_update(round, "nobody", 0, np.zeros(self.shape, dtype=np.int64), 0)

    def rules(self, state: SketchState, n_clients: int) -> Mapping[str, ArrayRule]:
        """What a well-formed update looks like."""
        most = n_clients * self.n_reports
        return {
            "answers": ArrayRule(np.int64, self.shape, -most, most),
            "n_answers": ArrayRule(np.int64, (1,), 0, most),
        }

    def inconsistency(self, state: SketchState, update: Update) -> str | None:
        """Why an update's fields contradict each other, each of which has passed its rule."""
        sums, n_answers = update.arrays["answers"].reshape(-1), int(update.arrays["n_answers"][0])
        parts = range(0, sums.size, _CELLS)  # no second array of gigabytes
        found = sum(int(np.abs(sums[start : start + _CELLS]).sum()) for start in parts)
        if found > n_answers or (n_answers - found) % 2:
            return f"its sums need {found} answers or an even number more, and it claims {n_answers}"
        return None

    def round_event(self, n_clients: int) -> ShuffledReports:
        """What the round is about to cost."""
        what = "pairs of items" if self.has_pairs else "items"
        return ShuffledReports(
            f"largest response on sketched {what}",
            self.channel.epsilon,
            self.n_reports,
            n_clients,
            self.honest_fraction,
            neighboring="zero_out",
            n_candidates=self.channel.n_candidates,
        )

    def traffic(self, state: SketchState, n_clients: int) -> RoundTraffic:
        """What the round moves: a bit a sign down; up, for each report its place and one bit."""
        return RoundTraffic(-(-state.signs.size // 8), 4 * self.n_reports + -(-self.n_reports // 8), n_clients)

    # ---- kernel -------------------------------------------------------------------------------------------------

    def _single_reports(self, state, shard, key, round_number, n_threads):
        """Places and bits in the users' order, which tells who sent them: not to leave a shuffler."""
        n = shard.n_users * self.n_reports
        place, bit = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint8)
        self._randomize(state, shard, key, round_number, n_threads, _MOST_CHUNKED, 0, place=place, bit=bit)
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
        """Of all pairs of items, (n_items, n_items)."""
        n_items, n_passes, n_threads = self.n_items, self.length.bit_length() - 1, resolve_n_threads(n_threads)
        half = np.empty((self.length, n_items), dtype=np.int64)
        scratch = np.empty((n_threads, _kernel.n_scratch(n_passes)), dtype=np.int64)
        decoded = np.zeros((n_items, n_items), dtype=np.int64)
        for total, sides in zip(np.ascontiguousarray(sums), state.signs, strict=True):
            _kernel.decode_pairs(total, sides, half, scratch, decoded, n_passes, n_threads)
        return decoded + decoded.T

    def _decode_items(self, state, sums):
        """Of single items, (n_items,)."""
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
    """The round about items before the pairs; no other round draws its words."""

    _stream = "shuffled_sketch.first"


class LastSketchRound(SketchRound):
    """The round after the decision, about pairs or items; no other round draws its words."""

    _stream = "shuffled_sketch.last"


def _bucket_shift(n_cells: int) -> int:
    """The binary logarithm of a bucket's size: of 64 to 1,024 buckets, where there are cells for so many."""
    bits = (n_cells - 1).bit_length()
    return max(min(_BUCKET_BITS, bits - 6), bits - 10, 0)
