"""Data in which one user has values of each kind, and the contributions of the other users to rounds."""

import copy

import numpy as np

from fastfedrec import Interactions, Key
from fastfedrec.data.pairs import compact_values
from fastfedrec.rounds.local import LocalEngine

N_USERS, N_ITEMS, ONE = 40, 18, 5
SEED = 3

#: Values of the one user: integers, float32 numbers or not, outside float32 at either end, and zeros.
KINDS = {
    "one": 1.0,
    "whole": 4.0,
    "float32": 0.5,
    "float32 of a decimal": float(np.float32(0.1)),
    "decimal": 0.1,
    "beyond float32": 3.5e38,
    "huge": 1e300,
    "subnormal in float32": 1e-40,
    "subnormal": 5e-324,
    "zero": 0.0,
    "negative zero": -0.0,
}
#: Values of all other users, used cyclically; together with the one user's they determine the stored type.
OTHERS = {
    "only ones": [1.0],
    "float32 numbers": [float(np.float32(0.1)), 1.0, 2.5, float(np.float32(5.3)), 4.0],
    "decimals": [0.1, 1.0, 5.3, 2.7, 0.2],
}


def data_of(kind, other_values):
    """Return data in which each user has the same items for all kinds of values."""
    mask = np.random.default_rng(1).random((N_USERS, N_ITEMS)) < 0.4
    # Every user has item 0, so no row is empty.
    mask[:, 0] = True
    users, items = np.nonzero(mask)
    values = np.resize(OTHERS[other_values], len(users))
    values[users == ONE] = KINDS[kind]
    return Interactions.from_arrays(
        users.tolist(), items.tolist(), values.tolist(), np.arange(len(users)), user_ids=range(N_USERS),
        item_ids=range(N_ITEMS),
    )  # fmt: skip


def row_of_one(shard):
    """Return the one user's row as a separate shard; its type depends on its values alone."""
    row = shard.select_users(np.flatnonzero(shard.global_user_ids == ONE))
    return row._replace(values=compact_values(row.values))


class Stop(Exception):
    """End of a fit once its first shards are recorded."""


class Recorder(LocalEngine):
    """Engine that records shards and states of rounds, and a copy of each system before its first round."""

    def __init__(self, *, stops=False):
        super().__init__()
        self.stops, self.shards, self.runs = stops, None, {}

    def _answers(self, receiver, handles, key, n_threads):
        if self.shards is None:
            self.shards = dict(handles)
        if self.stops:
            raise Stop
        fresh = copy.deepcopy(receiver.system)
        _, rounds = self.runs.setdefault(id(receiver.system), (fresh, []))
        rounds.append((receiver.state, receiver.round))
        # The systems stay alive, so that no id is used twice.
        self.kept = [*getattr(self, "kept", []), receiver.system]
        yield from super()._answers(receiver, handles, key, n_threads)


def shards_of(model, data, engine):
    """Return the shards that a fit gives to its engine."""
    try:
        model.fit(data, key=Key.from_seed(SEED))
    except Stop:
        return engine.shards
    raise AssertionError("the fit had no round")


def answers(system, rounds, shards):
    """Return every update of a system's rounds, computed by a copy with new devices."""
    system = copy.deepcopy(system)
    return [
        system.local_round(state, shard, Key.from_seed(SEED), number, sender=name, n_threads=1).arrays
        for state, number in rounds
        for name, shard in shards.items()
    ]


def without(whole, part):
    """Subtract one user's contribution from sums, or remove it from lists of entries by user or coordinate."""
    if "coordinate" in whole:  # the sums are sparse
        sums = dict(zip(whole["coordinate"].tolist(), whole["total"].tolist(), strict=True))
        for coordinate, total in zip(part["coordinate"].tolist(), part["total"].tolist(), strict=True):
            sums[coordinate] = sums.get(coordinate, 0) - total
        return {coordinate: total for coordinate, total in sums.items() if total}
    if "user" in whole:
        is_other = whole["user"] != ONE
        return {name: array[is_other].tobytes() for name, array in whole.items()}
    assert all(array.dtype.kind in "iu" for array in whole.values()), "sums of floats have no exact parts"
    # A list of prototypes names its entity and items in addition to the sums.
    return {
        name: array.tobytes() if name in ("entity", "item") else (array - part[name]).tobytes()
        for name, array in whole.items()
    }
