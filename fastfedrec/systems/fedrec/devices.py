"""The users' side of FedRec: what a shard keeps between rounds, and which items each user speaks of."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.fedrec import model as _kernel
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.splits import choose_entries
from fastfedrec.mechanisms import Channel
from fastfedrec.mechanisms.channels.channel import TOTAL
from fastfedrec.rounds.system import ArrayRule

__all__ = [
    "RATED",
    "VIRTUAL",
    "WITHHELD",
    "Devices",
    "Spoken",
    "centred",
    "check_memory",
    "count_raters",
    "fill_by_response",
    "fill_hybrid",
    "first_factors",
    "pack_devices",
    "response_channel",
    "unpack_devices",
]

RATED, VIRTUAL, WITHHELD = 0, 1, 2  # as in the kernel; withheld: rated, trained on, and not spoken of

_VIRTUAL = "fedrec.virtual_items"
_RESPONSES = "fedrec.item_responses"
_REPORTS = "sdcf.item_reports"
_COUNTED = "fedrec.counted_items"
_FIRST = "fedrec.user_factors"
_DEVIATIONS = 8.0  # of unrated items that a user may speak of beyond what is expected: more than that one in 10^10 does
_INIT_WIDTH = 0.01  # of the uniform first factors


@dataclass(frozen=True)
class Spoken:
    """The items that each user of a shard speaks of, rated ones and others in one ascending list.

    Parameters
    ----------
    indptr : ndarray of shape (n_users + 1,), int64
        Where each user's list begins.
    items : ndarray of shape (n_spoken,), int32
        Columns.
    kinds : ndarray of shape (n_spoken,), uint8
        RATED, VIRTUAL or WITHHELD: known to the user alone.  All but the virtual ones are the user's rated items, in
        the order of the data.
    """

    indptr: NDArray[np.int64]
    items: NDArray[np.int32]
    kinds: NDArray[np.uint8]


@dataclass
class Devices:
    """What the devices of one shard keep between rounds; it never leaves them.

    Parameters
    ----------
    users : ndarray of shape (n_users,), uint64
        Global ids.
    user_factors : ndarray of shape (n_users, n_factors), float64
        Moved in place.
    next_round : int
        The only round they can answer.
    spoken : Spoken or None
        As last drawn.
    """

    users: NDArray[np.uint64]
    user_factors: NDArray[np.float64]
    next_round: int = 0
    spoken: Spoken | None = None


def pack_devices(devices: Devices) -> dict[str, np.ndarray]:
    """What a shard keeps, as arrays for a file of its own; which round comes next is the file's to know."""
    spoken = devices.spoken or _empty_lists(np.zeros(len(devices.users), dtype=np.int64))
    return {"users": devices.users, "user_factors": devices.user_factors} | vars(spoken)


def unpack_devices(arrays: Mapping[str, np.ndarray], next_round: int, shard: Interactions, n_factors: int) -> Devices:
    """And back, for this shard; a ValueError where they cannot be its devices'."""
    n = shard.n_users
    kinds: dict[str, tuple[type, tuple[int | None, ...]]] = {
        "users": (np.uint64, (n,)), "user_factors": (np.float64, (n, n_factors)), "indptr": (np.int64, (n + 1,)),
        "items": (np.int32, (None,)), "kinds": (np.uint8, (None,)),
    }  # fmt: skip
    if set(arrays) != set(kinds):
        raise ValueError(f"devices must have the fields {sorted(kinds)}, got {sorted(arrays)}")
    for name, (dtype, shape) in kinds.items():
        if violation := ArrayRule(dtype, shape).violation(arrays[name]):
            raise ValueError(f"devices' {name} {violation}")
    own = {name: np.array(array) for name, array in arrays.items()}
    spoken = Spoken(own["indptr"], own["items"], own["kinds"])
    ends = spoken.indptr[[0, -1]].tolist()
    if ends != [0, len(spoken.items)] or len(spoken.kinds) != len(spoken.items) or (np.diff(spoken.indptr) < 0).any():
        raise ValueError("devices' lists of items do not fit each other")
    if len(spoken.items) and not 0 <= spoken.items.min() <= spoken.items.max() < shard.n_items:
        raise ValueError(f"devices' items must be from 0 to {shard.n_items - 1}")
    if (spoken.kinds > WITHHELD).any() or not np.array_equal(own["users"], shard.global_user_ids):
        raise ValueError("devices must be those of this shard's users")
    return Devices(own["users"], own["user_factors"], next_round, spoken)


def first_factors(key: Key, users: np.ndarray, n_factors: int) -> np.ndarray:
    """(uniform(0, 1) - 0.5) * 0.01, each user from its own stream."""
    words = key.words_by_user(_FIRST, users, size=n_factors)
    return centred((words >> np.uint64(12)).astype(np.float64) * 2.0**-52)


def centred(uniform: np.ndarray) -> np.ndarray:
    """The paper's first factors."""
    return (uniform - 0.5) * _INIT_WIDTH


def fill_hybrid(
    shard: Interactions,
    rho: int,
    weights: np.ndarray,
    key: Key,
    round_number: int,
    n_threads: int,
    last: Spoken | None = None,
) -> Spoken:
    """Beside the rated ones rho * |I_u| unrated items, or as many as there are; by weight where weights are given.

    They are written over those of the last round, where these are given: lists of one shard never change in length.
    """
    if not rho:
        return Spoken(shard.indptr, shard.indices, np.full(shard.n_interactions, RATED, dtype=np.uint8))
    if last is None:
        lengths = shard.interactions_per_user()
        sizes = np.minimum((1 + rho) * lengths, np.where(lengths > 0, shard.n_items, 0))
        last = _empty_lists(sizes)
    indptr, items, kinds = last.indptr, last.items, last.kinds
    failed = np.zeros(n_threads, dtype=np.int64)
    _kernel.fill(
        shard.indptr, shard.indices, shard.global_user_ids, indptr, weights, items, kinds, failed,
        key.subkey(_VIRTUAL), shard.n_items, round_number, n_threads,
    )  # fmt: skip
    check_memory(failed)
    return last


def response_channel(keep: float, add: float) -> Channel:
    """Randomized response on whether an item is rated, as it runs: input 1 is "rated", output 1 "spoken of"."""
    kept, added = (min(max(int(Fraction(p) * TOTAL), 1), TOTAL - 1) for p in (keep, add))
    return Channel([[TOTAL - added, added], [TOTAL - kept, kept]], inputs=[0, 1], outputs=[0, 1])


def fill_by_response(
    shard: Interactions,
    channel: Channel,
    key: Key,
    n_threads: int,
    later: Channel | None = None,
    round_number: int = 0,
) -> Spoken:
    """Each item is spoken of as the channel answers: which ones then depends on the item set by an exact epsilon.

    A second channel is asked about the first one's answers, which are the same in every round, anew in each.
    """
    add, keep = (row[1] for row in channel.counts)
    second = np.zeros(0, dtype=np.uint32) if later is None else key.subkey(_REPORTS)
    show_other, show = (0, 0) if later is None else (row[1] for row in later.counts)
    options = key.subkey(_RESPONSES), keep, add, second, round_number, show, show_other, shard.n_items, n_threads
    n_added, failed = np.zeros(shard.n_users, dtype=np.int64), np.zeros(n_threads, dtype=np.int64)
    data = shard.indptr, shard.indices, shard.global_user_ids, n_added
    rated = shard.interactions_per_user()
    # Drawn once: each user has room for more than it will speak of.
    chance = add / TOTAL if later is None else (add * show + (TOTAL - add) * show_other) / TOTAL**2
    unrated = shard.n_items - rated
    expected = unrated * chance
    most = np.clip(np.ceil(expected + _DEVIATIONS * np.sqrt(expected + 1)), 0, unrated).astype(np.int64)
    room = _empty_lists(rated + most)
    _kernel.respond(*data, room.indptr, room.items, room.kinds, failed, *options)
    if (n_added > most).any():  # then all are asked again, who answer the same
        room = _empty_lists(rated + n_added)
        _kernel.respond(*data, room.indptr, room.items, room.kinds, failed, *options)
    check_memory(failed)
    indptr = np.concatenate([[0], np.cumsum(rated + n_added)])
    place = np.arange(indptr[-1]) + np.repeat(room.indptr[:-1] - indptr[:-1], rated + n_added)
    return Spoken(indptr, room.items[place], room.kinds[place])


def _empty_lists(sizes: np.ndarray) -> Spoken:
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Spoken(indptr, np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.uint8))


def count_raters(data: Interactions, most: int | None, key: Key, n_threads: int) -> np.ndarray:
    """How many users rated each item, each user counted with at most so many of its items, drawn uniformly."""
    lengths = data.interactions_per_user()
    if most is None or lengths.max() <= most:
        return np.bincount(data.indices, minlength=data.n_items)
    counts = np.minimum(lengths, most)
    chosen = choose_entries(data.indptr, data.global_user_ids, counts, key.subkey(_COUNTED), n_threads)
    return np.bincount(data.indices[chosen], minlength=data.n_items)


def check_memory(failed: np.ndarray) -> None:
    """Raise where a thread of a kernel had no memory."""
    if failed.any():
        raise MemoryError("no memory for a thread's scratch space; use fewer threads or factors")
