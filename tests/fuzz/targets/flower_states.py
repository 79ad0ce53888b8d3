"""States that a hostile server sends to nodes: the codec, the node's checks, and the node's work on a valid state."""

import functools
import warnings

import numpy as np

from fastfedrec import DPALS, DPFMF, FMFLDP, DPGram, DPSubspace, Interactions, Key
from fastfedrec.engines.deployment.deployment_of import deployment_of
from fastfedrec.engines.flower.wire.state_codec import decode_state, encode_state
from fuzz.folders import folder_changed
from fuzz.target import Target
from fuzz.wire import message_of, read_message

KEY = Key.from_seed(4)
N_ITEMS, N_USERS = 7, 5
SHARD = Interactions.from_arrays(["u"] * 4, [0, 2, 3, 6], item_ids=np.arange(N_ITEMS))
CASES = (
    (DPFMF(1.0, n_factors=3, n_rounds=1), 0), (DPALS(1.0, n_factors=3, max_items=3), 2), (DPGram(1.0), 1),
    (DPSubspace(1.0, n_columns=3), 2), (FMFLDP(n_factors=3), 0),
)  # fmt: skip


@functools.cache
def rounds_of(case):
    """Return the deployment, the rounds, and the valid state of a case."""
    system, phase = CASES[case]
    deployment = deployment_of(system)
    rounds = deployment.rounds_of(phase, N_USERS, np.arange(N_ITEMS))
    state = rounds.system.initial_state(N_ITEMS, KEY) if isinstance(rounds.state, type) else rounds.state
    return deployment, rounds, state


def seeds():
    """Return the valid state of each case."""
    inputs = []
    for case in range(len(CASES)):
        arrays, values = encode_state(rounds_of(case)[2])
        inputs.append(message_of(arrays, values | {"case": case}))
    return inputs


def read(content, _folder):
    """Decode a state, and return it with the node's objection."""
    arrays, values = read_message(content)
    case = values.pop("case", None)
    if type(case) is not int or not 0 <= case < len(CASES):
        raise ValueError("the input names no case")
    deployment, rounds, valid = rounds_of(case)
    state = decode_state(type(valid), arrays, values)
    return case, state, deployment.objection(rounds, state, SHARD, "a")


def use(accepted):
    """Compute a node's message if it does not object; only a failure of the equations may stop it."""
    case, state, objection = accepted
    if objection is not None:
        assert isinstance(objection, str)
        return
    deployment, rounds, _ = rounds_of(case)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            update, _ = deployment.work(rounds, state, SHARD, KEY, 0, "a", 1, None)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            return
    assert set(update.arrays) == set(rounds.system.rules(state, update.n_clients))


TARGET = Target(read=read, use=use, errors=(ValueError,), seeds=seeds, mutate=folder_changed, max_bytes=2**13)
