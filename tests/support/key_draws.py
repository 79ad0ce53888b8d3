"""Every public way to draw from a key, and a forked child that tries all of them with a parent's key."""

import json
import os
import tempfile

import numpy as np

from fastfedrec import Interactions, Key, PrivRec, clustering, datasets, nmf
from fastfedrec import mechanisms as m
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.compute.ranking import sample_unseen
from fastfedrec.data.features import Features
from fastfedrec.evaluation import KFold, LeaveOneOut, RandomHoldout, UserHoldout
from fastfedrec.evaluation.new_users import personalization_split
from fastfedrec.evaluation.splits import hold_out
from fastfedrec.mechanisms.bounded_rows import grid_candidates, limit_contributions, project_rows, public_candidates
from fastfedrec.systems.private_prototypes.private_kmeans import private_kmeans
from fastfedrec.systems.private_prototypes.private_lloyd import private_lloyd
from fastfedrec.systems.private_prototypes.prototypes import Recovery, recover_prototypes
from support.data import rated
from support.mechanism_table import PARTS, WAYS
from support.models import MODELS, new

DATA = Interactions.from_arrays(np.repeat(np.arange(12), 4), np.arange(48) % 7, np.arange(48) % 5 + 1.0)
RATED = rated(12, 40, 1)
POINTS = np.linspace(-0.5, 0.5, 24).reshape(12, 2)
ONES = np.ones(3, dtype=np.int64)


def claimed_before(key):
    """Draw from a key that a process claimed before it forked its workers."""
    key._used_by = "the parent's fit"
    return m.DiscreteLaplace(2).add_noise(ONES, key=key, purpose="test")


def fit_with_checkpoint(key):
    with tempfile.TemporaryDirectory() as folder:
        try:
            PrivRec(n_rounds=1, n_factors=16, hidden=(16,)).fit(DATA, key=key, checkpoint=folder)
        except ValueError:
            # The next fit would take the key from this file.
            assert not os.path.exists(f"{folder}/key.json")
            raise


def trained(key):
    network = TwoTower(Features.from_interactions(DATA), n_factors=16, hidden=(16,))
    examples = draw_examples(DATA, Events.from_interactions(DATA), np.arange(3), 1, key=Key.from_seed(1))
    start = network.initial_parameters(Key.from_seed(1))
    return network.train_clients(start, examples, learning_rate=0.1, n_epochs=1, key=key)


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
    "add_noise after claim": claimed_before,
    **WAYS,
    **PARTS,
    "fixed size": lambda key: m.FixedSizeSampling(2).sample(9, key=key),
    "poisson": lambda key: m.PoissonSampling(0.5).sample(9, key=key),
    "limit_contributions": lambda key: limit_contributions(DATA, 2, value_range=(0.0, 5.0), key=key),
    "project_rows": lambda key: project_rows(DATA, 2, 1.0, key=key),
    "public_candidates": lambda key: public_candidates(4, 2, 1.0, key=key),
    "grid_candidates": lambda key: grid_candidates(POINTS, 4, radius=1.0, depth=2, n_shifts=1, epsilon=1.0, key=key),
    "private_kmeans": lambda key: private_kmeans(POINTS, POINTS, 2, radius=1.0, n_swaps=2, epsilon=1.0, key=key),
    "private_lloyd": lambda key: private_lloyd(POINTS, 2, radius=1.0, n_rounds=2, epsilon=1.0, key=key),
    "recover_prototypes": lambda key: recover_prototypes(
        limit_contributions(DATA, 2, value_range=(0.0, 5.0), key=Key.from_seed(1)), np.zeros(12, dtype=np.int64), 1,
        Recovery("zero_filled", 2, (0.0, 5.0), epsilon=1.0), key=key,
    ),
    "kmeans": lambda key: clustering.kmeans(POINTS, 2, key=key),
    "nmf": lambda key: nmf.fit_nmf(DATA, 2, regularization=1.0, key=key),
    "draw_examples": lambda key: draw_examples(DATA, Events.from_interactions(DATA), np.arange(3), 1, key=key),
    "train_clients": trained,
    "gru": lambda key: GRUEncoder(9, n_factors=16).initial_parameters(key),
    **{
        type(split).__name__: lambda key, split=split: list(split.split(DATA, key=key))
        for split in (KFold(2), LeaveOneOut(), RandomHoldout(share=0.5), UserHoldout())
    },
    "hold_out": lambda key: hold_out(DATA.indptr, DATA.global_user_ids, 0.5, key=key),
    "personalization_split": lambda key: personalization_split(DATA, key=key),
    "sample_unseen": lambda key: sample_unseen(DATA, np.arange(12), 1, key=key, purpose="test"),
    "generate": lambda key: datasets.generate_implicit(20, 60, key=key),
    **{name: lambda key, model=model: new(model).fit(RATED, key=key) for name, model in MODELS.items()},
    "PrivRec with a checkpoint": fit_with_checkpoint,
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
