"""The users' side of FedRec: the state of a shard's devices between rounds, and the items that users report."""

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
    "N_DEVIATIONS",
    "RATED",
    "VIRTUAL",
    "WITHHELD",
    "Devices",
    "ReportedItems",
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

RATED, VIRTUAL, WITHHELD = 0, 1, 2  # the kernel's codes; a withheld item is rated and trained on, but not reported

_VIRTUAL = "fedrec.virtual_items"
_RESPONSES = "fedrec.item_responses"
_REPORTS = "sdcf.item_reports"
_COUNTED = "fedrec.counted_items"
_FIRST = "fedrec.user_factors"
# Standard deviations of unrated reports above their mean that a buffer holds; one user in 10^10 exceeds it.
N_DEVIATIONS = 8.0
_INIT_WIDTH = 0.01  # width of the interval of the first factors


@dataclass(frozen=True)
class ReportedItems:
    """The items that each user of a shard reports, rated and unrated ones in one ascending list.

    `kinds`, which only the user knows, are RATED, VIRTUAL or WITHHELD.  All but the virtual items are the user's rated
    items, in the order of the data.
    """

    indptr: NDArray[np.int64]
    items: NDArray[np.int32]
    kinds: NDArray[np.uint8]


@dataclass
class Devices:
    """The state of a shard's devices between rounds, which never leaves them.

    `user_factors` change in place; `next_round` is the only round that the devices can answer.
    """

    users: NDArray[np.uint64]
    user_factors: NDArray[np.float64]
    next_round: int = 0
    reported: ReportedItems | None = None


def pack_devices(devices: Devices) -> dict[str, np.ndarray]:
    """Return the state of a shard's devices as arrays for a file; the file's name has the next round."""
    reported = devices.reported or _empty_lists(np.zeros(len(devices.users), dtype=np.int64))
    return {"users": devices.users, "user_factors": devices.user_factors} | vars(reported)


def unpack_devices(arrays: Mapping[str, np.ndarray], next_round: int, shard: Interactions, n_factors: int) -> Devices:
    """Return the devices of a shard from these arrays, or raise `ValueError` if they do not match the shard."""
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
    fields = {name: np.array(array) for name, array in arrays.items()}
    reported = ReportedItems(fields["indptr"], fields["items"], fields["kinds"])
    # The lists must be valid CSR rows over the catalogue.
    ends = reported.indptr[[0, -1]].tolist()
    if (
        ends != [0, len(reported.items)]
        or len(reported.kinds) != len(reported.items)
        or (np.diff(reported.indptr) < 0).any()
    ):
        raise ValueError("devices' lists of items do not fit each other")
    if len(reported.items) and not 0 <= reported.items.min() <= reported.items.max() < shard.n_items:
        raise ValueError(f"devices' items must be from 0 to {shard.n_items - 1}")
    if (reported.kinds > WITHHELD).any() or not np.array_equal(fields["users"], shard.global_user_ids):
        raise ValueError("devices must have the ids of this shard's users")
    return Devices(fields["users"], fields["user_factors"], next_round, reported)


def first_factors(key: Key, users: np.ndarray, n_factors: int) -> np.ndarray:
    """Return (uniform(0, 1) - 0.5) * 0.01, for each user from the user's random stream."""
    words = key.words_by_user(_FIRST, users, size=n_factors)
    return centred((words >> np.uint64(12)).astype(np.float64) * 2.0**-52)


def centred(uniform: np.ndarray) -> np.ndarray:
    """Scale uniform numbers to the paper's first factors."""
    return (uniform - 0.5) * _INIT_WIDTH


def fill_hybrid(
    shard: Interactions,
    rho: int,
    weights: np.ndarray,
    key: Key,
    round_number: int,
    n_threads: int,
    previous: ReportedItems | None = None,
) -> ReportedItems:
    """Draw rho unrated items for each rated one, limited by the number of items; `weights` may be empty.

    `previous` lists are overwritten, since the lists of a shard never change in length.
    """
    if not rho:
        return ReportedItems(shard.indptr, shard.indices, np.full(shard.n_interactions, RATED, dtype=np.uint8))
    if previous is None:
        lengths = shard.interactions_per_user()
        # A user without ratings reports no items.
        sizes = np.minimum((1 + rho) * lengths, np.where(lengths > 0, shard.n_items, 0))
        previous = _empty_lists(sizes)
    indptr, items, kinds = previous.indptr, previous.items, previous.kinds
    failed = np.zeros(n_threads, dtype=np.int64)
    _kernel.fill(
        shard.indptr, shard.indices, shard.global_user_ids, indptr, weights, items, kinds, failed,
        key.subkey(_VIRTUAL), shard.n_items, round_number, n_threads,
    )  # fmt: skip
    check_memory(failed)
    return previous


def response_channel(keep: float, add: float) -> Channel:
    """Return randomized response as the kernel runs it, from "rated" (input 1) to "reported" (output 1)."""
    # Probabilities in units of 1 / TOTAL, neither 0 nor 1, so that epsilon is finite.
    kept, added = (min(max(int(Fraction(p) * TOTAL), 1), TOTAL - 1) for p in (keep, add))
    return Channel([[TOTAL - added, added], [TOTAL - kept, kept]], inputs=[0, 1], outputs=[0, 1])


def fill_by_response(
    shard: Interactions,
    channel: Channel,
    key: Key,
    n_threads: int,
    later: Channel | None = None,
    round_number: int = 0,
) -> ReportedItems:
    """Report each item with the channel's probabilities, so that the reported set has the channel's exact epsilon.

    A second channel `later` is applied anew in each round to the first one's output, which is drawn once.
    """
    add, keep = (row[1] for row in channel.counts)
    second = np.zeros(0, dtype=np.uint32) if later is None else key.subkey(_REPORTS)
    show_other, show = (0, 0) if later is None else (row[1] for row in later.counts)
    options = key.subkey(_RESPONSES), keep, add, second, round_number, show, show_other, shard.n_items, n_threads
    n_added, failed = np.zeros(shard.n_users, dtype=np.int64), np.zeros(n_threads, dtype=np.int64)
    data = shard.indptr, shard.indices, shard.global_user_ids, n_added
    rated = shard.interactions_per_user()
    # One pass draws and writes, so each buffer holds more items than a user is likely to report.
    # A reported item passes both channels.
    chance = add / TOTAL if later is None else (add * show + (TOTAL - add) * show_other) / TOTAL**2
    unrated = shard.n_items - rated
    expected = unrated * chance
    max_added = np.clip(np.ceil(expected + N_DEVIATIONS * np.sqrt(expected + 1)), 0, unrated).astype(np.int64)
    buffer = _empty_lists(rated + max_added)
    _kernel.respond(*data, buffer.indptr, buffer.items, buffer.kinds, failed, *options)
    if (n_added > max_added).any():  # repeat with sufficient buffers; the draws are the same
        buffer = _empty_lists(rated + n_added)
        _kernel.respond(*data, buffer.indptr, buffer.items, buffer.kinds, failed, *options)
    check_memory(failed)
    indptr = np.concatenate([[0], np.cumsum(rated + n_added)])
    # Positions of the reported items in the buffers, which have unused entries at the end of each list.
    place = np.arange(indptr[-1]) + np.repeat(buffer.indptr[:-1] - indptr[:-1], rated + n_added)
    return ReportedItems(indptr, buffer.items[place], buffer.kinds[place])


def _empty_lists(sizes: np.ndarray) -> ReportedItems:
    """Return lists of these lengths with undefined items."""
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return ReportedItems(indptr, np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.uint8))


def count_raters(data: Interactions, max_items: int | None, key: Key, n_threads: int) -> np.ndarray:
    """Return the number of users who rated each item, each with at most `max_items` items, drawn uniformly."""
    lengths = data.interactions_per_user()
    if max_items is None or lengths.max() <= max_items:
        return np.bincount(data.indices, minlength=data.n_items)
    counts = np.minimum(lengths, max_items)
    chosen = choose_entries(data.indptr, data.global_user_ids, counts, key.subkey(_COUNTED), n_threads)
    return np.bincount(data.indices[chosen], minlength=data.n_items)


def check_memory(failed: np.ndarray) -> None:
    """Raise if a thread of a kernel had no memory."""
    if failed.any():
        raise MemoryError("no memory for a thread's scratch space; use fewer threads or factors")
