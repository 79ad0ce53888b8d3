"""Data of many users, one of them with values of each kind, and the contributions of the others to rounds."""

import copy

import numpy as np

from fastfedrec import Interactions, Key
from fastfedrec.data.pairs import compact_values
from fastfedrec.rounds.local import LocalEngine

N_USERS, N_ITEMS, ONE = 40, 18, 5
SEED = 3

#: Values of the one user: whole, float32 numbers or not, beyond float32 at either end, and zeros.
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
#: Values of all other users, in turn; together with the one user's they decide the type that all are stored in.
OTHERS = {
    "only ones": [1.0],
    "float32 numbers": [float(np.float32(0.1)), 1.0, 2.5, float(np.float32(5.3)), 4.0],
    "decimals": [0.1, 1.0, 5.3, 2.7, 0.2],
}


def data_of(kind, others):
    """Make data in which each user has the same items for all kinds of values."""
    mask = np.random.default_rng(1).random((N_USERS, N_ITEMS)) < 0.4
    mask[:, 0] = True
    users, items = np.nonzero(mask)
    values = np.resize(OTHERS[others], len(users))
    values[users == ONE] = KINDS[kind]
    return Interactions.from_arrays(
        users.tolist(), items.tolist(), values.tolist(), np.arange(len(users)), user_ids=range(N_USERS),
        item_ids=range(N_ITEMS),
    )  # fmt: skip


def alone(shard):
    """The one user's row in a shard of its own, which is stored as its values alone allow."""
    own = shard.select_users(np.flatnonzero(shard.global_user_ids == ONE))
    return own._replace(values=compact_values(own.values))


class Stop(Exception):
    """Ends a fit as soon as its first shards are recorded."""


class Recorder(LocalEngine):
    """Keeps shards and states of rounds, and each system as it was before its first one."""

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
        self.kept = [*getattr(self, "kept", []), receiver.system]  # so that no id is used twice
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


def without(whole, own):
    """Take one user's part out of sums, or out of lists of entries by user or coordinate."""
    if "coordinate" in whole:  # of sparse sums
        sums = dict(zip(whole["coordinate"].tolist(), whole["total"].tolist(), strict=True))
        for place, total in zip(own["coordinate"].tolist(), own["total"].tolist(), strict=True):
            sums[place] = sums.get(place, 0) - total
        return {place: total for place, total in sums.items() if total}
    if "user" in whole:
        others = whole["user"] != ONE
        return {name: array[others].tobytes() for name, array in whole.items()}
    assert all(array.dtype.kind in "iu" for array in whole.values()), "sums of floats have no exact parts"
    # A list of prototypes names its entity and items beside the sums.
    return {
        name: array.tobytes() if name in ("entity", "item") else (array - own[name]).tobytes()
        for name, array in whole.items()
    }
