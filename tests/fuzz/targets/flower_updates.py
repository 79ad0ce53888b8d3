"""Messages of hostile nodes to the server: records, compact updates, and the rules of each system."""

import numpy as np

from fastfedrec.engines.flower.wire.updates import pack_update, read_update, split_update
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update
from fuzz.folders import folder_changed
from fuzz.target import Target
from fuzz.targets.flower_states import CASES, KEY, N_USERS, SHARD, rounds_of
from fuzz.wire import message_of, read_message

LARGEST = 2**16


def seeds():
    """Return the honest message of each case."""
    inputs = []
    for case in range(len(CASES)):
        deployment, rounds, state = rounds_of(case)
        update, _ = deployment.work(rounds, state, SHARD, KEY, 0, "a", 1, None)
        arrays, values = split_update(pack_update(update.arrays, rounds.system.rules(state, update.n_clients)))
        inputs.append(message_of(arrays, values | {"case": case, "round": 0, "num_examples": update.n_clients}))
    return inputs


def read(content, _folder):
    """Decode a message as the server does."""
    arrays, values = read_message(content)
    case = values.get("case")
    if type(case) is not int or not 0 <= case < len(CASES):
        raise ValueError("the input names no case")
    _, rounds, state = rounds_of(case)
    decoded = read_update(arrays, values, rounds.system.rules(state, 1), LARGEST)
    return case, Update(values.get("round"), "a", values.get("num_examples"), decoded)


def use(accepted):
    """Receive the message: it is added or rejected, and the sums keep their fields, shapes and types."""
    case, update = accepted
    _, rounds, state = rounds_of(case)
    receiver = RoundReceiver(rounds.system, state, 0, {"a": 1, "b": N_USERS})
    assert receiver.receive(update) == (not receiver.rejections)
    assert set(receiver.total.arrays) == set(rounds.system.zero_update(state, 0).arrays)
    assert all(np.isfinite(array).all() for array in receiver.total.arrays.values() if array.dtype.kind == "f")


TARGET = Target(read=read, use=use, errors=(ValueError,), seeds=seeds, mutate=folder_changed, max_bytes=2**13)
