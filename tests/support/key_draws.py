"""Every public way to draw from a key, and a forked child that tries all of them with a parent's key."""

import json
import os
import tempfile

import numpy as np

from fastfedrec import ChaCha20, Interactions, Key, Popularity, PrivRec, capi
from fastfedrec import mechanisms as m
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.joint_loss import JointNetwork
from fastfedrec.compute.networks.meta_learning import MetaNetwork, split_examples
from fastfedrec.engines.aggregation import AggregationPlan, simulate_secure_sum
from fastfedrec.engines.shuffling.sealing import report_ids
from fastfedrec.evaluation import KFold, LeaveOneOut, RandomHoldout, Sampled, UserHoldout, evaluate
from support import numbers_case
from support.data import rated
from support.mechanism_table import PARTS, WAYS
from support.models import MODELS, new
from support.public_calls import CALLS, resolve

DATA = Interactions.from_arrays(np.repeat(np.arange(12), 4), np.arange(48) % 7, np.arange(48) % 5 + 1.0)
RATED = rated(12, 40, 1)
PRIVREC = PrivRec(n_rounds=1, n_factors=16, hidden=(16,))
ONES = np.ones(3, dtype=np.int64)


def claimed_before(key):
    """Draw from a key that a process claimed before it forked its workers."""
    key._used_by = "the parent's fit"
    return m.DiscreteLaplace(2).add_noise(ONES, key=key, purpose="test")


def fit_with_checkpoint(key):
    with tempfile.TemporaryDirectory() as folder:
        try:
            new(PRIVREC).fit(DATA, key=key, checkpoint=folder)
        except ValueError:
            # The next fit would take the key from this file.
            assert not os.path.exists(f"{folder}/key.json")
            raise


def with_key(name, case):
    """Return a function from a key to a call of `CALLS`."""
    bind, arguments = case
    return lambda key: bind(resolve(name))(**arguments | {"key": key})


#: Modules with whole experiments, which draw by the functions of others.
EXPERIMENTS = ("audit.", "studies.", "testing.")
DRAWS = {
    "subkey": lambda key: key.subkey("test"),
    "words": lambda key: key.words("test", size=2),
    "words_by_user": lambda key: key.words_by_user("test", [1, 2], size=2),
    "ragged_words": lambda key: key.ragged_words("test", np.arange(2), np.array([1, 2])),
    "uniform": lambda key: key.uniform("test", size=2),
    "normal": lambda key: key.normal("test", size=2),
    "permutation": lambda key: key.permutation("test", size=3),
    "claim": lambda key: key.claim("test"),
    "claim_message": lambda key: key.claim_message("test", 0, "shard-0"),
    "claim_stream": lambda key: key.claim_stream("test", "test"),
    "ChaCha20": lambda key: ChaCha20(key, "test").random_raw(),
    "capi.subkey": lambda key: capi.subkey(key, "test"),
    "add_noise after claim": claimed_before,
    **WAYS,
    **PARTS,
    **{
        f"{name}, {n}": with_key(name, case)
        for n, (name, case) in enumerate(CALLS)
        if "key" in case[1] and not name.startswith((*EXPERIMENTS, "evaluation.metrics.evaluate."))
    },
    **{
        type(split).__name__: lambda key, split=split: list(split.split(DATA, key=key))
        for split in (KFold(2), LeaveOneOut(), RandomHoldout(share=0.5), UserHoldout())
    },
    **{f"{name}.fit": lambda key, model=model: new(model).fit(RATED, key=key) for name, model in MODELS.items()},
    "PrivRec with a checkpoint": fit_with_checkpoint,
    "PrivRec.personalize": lambda key: new(PRIVREC).fit(RATED, key=Key.from_seed(1)).personalize(RATED, key=key),
    "evaluate among sampled items": lambda key: evaluate(
        Popularity().fit(numbers_case.split().train), *numbers_case.split(), candidates=Sampled(2), key=key
    ),
    "GRUEncoder.initial_parameters": lambda key: GRUEncoder(9, n_factors=16).initial_parameters(key),
    "JointNetwork.initial_parameters": lambda key: JointNetwork(numbers_case.network()).initial_parameters(key),
    "MetaNetwork.initial_parameters": lambda key: MetaNetwork(
        numbers_case.network(), "maml", learning_rate=0.5
    ).initial_parameters(key),
    "report_ids": lambda key: report_ids(key, "node", 0, 2),
    "simulate_secure_sum": lambda key: simulate_secure_sum(
        AggregationPlan("test", 0, n_values=1, max_sum=9, degree=2, threshold=2, min_answers=3), [[1]] * 3, key=key
    ),
    "split_examples": lambda key: split_examples(numbers_case.examples(), key=key),
}  # fmt: skip


def outcome(draw, key):
    """Return a draw's answer, or its error."""
    try:
        draw(key)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "drawn"


def outcomes_in_a_fork(key_of, generations=1):
    """Return the outcome of each draw in a forked child (or grandchild), with this process's keys by `key_of`."""
    keys = {name: key_of() for name in DRAWS}
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # bypasses pytest, so that the pipe is the only output
        try:
            for _ in range(generations - 1):
                grandchild = os.fork()
                if grandchild:
                    os.waitpid(grandchild, 0)
                    os._exit(0)
            outcomes = {name: outcome(draw, keys[name]) for name, draw in DRAWS.items()}
            with os.fdopen(writer, "w") as file:
                json.dump(outcomes, file)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        outcomes = json.load(file)
    os.waitpid(child, 0)
    return outcomes
