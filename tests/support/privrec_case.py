"""Small runs of PrivRec."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from fastfedrec import Key, load
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.data.features import Features
from fastfedrec.data.log import InteractionLog
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.systems.privrec.rounds import LocalTraining, PrivRecRounds
from support.data import rated

KEY = Key.from_seed(3)
SMALL = {"n_factors": 16, "hidden": (16,), "n_rounds": 3, "cohort_size": 5, "local_epochs": 2, "learning_rate": 0.1}
FEATURES = {"user": ["age"], "item": ["genres"]}


def small_data(n_users=30, n_items=40):
    return rated(n_users, n_items, 3).with_features(
        user_features={"age": np.arange(n_users) % 3},
        item_features={"genres": [("drama",) * (i % 2) + ("war",) * (i % 3 == 0) for i in range(n_items)]},
    )


def small_log(n_entries=400):
    words = KEY.words("test.log", size=3 * n_entries).reshape(3, -1)
    return InteractionLog.from_arrays(words[0] % 20, words[1] % 35, {"hour": (words[2] % 4).astype(np.int64)})


def rounds(data, *, noise=None, clip_norm=None, cohort_size=5):
    features = Features.from_interactions(data, user=["age"], item=["genres"])
    network = TwoTower(features, n_factors=16, hidden=(16,))
    local = LocalTraining(epochs=2, learning_rate=0.1, batch_size=32, negatives=4, threshold=3.0)
    return PrivRecRounds(features, network, data.global_user_ids, cohort_size, local, 0.5, clip_norm, noise, KEY, 1)


@contextmanager
def power_cut(kind, round_number):
    """Make a round of this kind fail before its release is stored; yield the releases of rounds."""
    apply, released = kind.apply, []

    def broken(self, state, update):
        moved = apply(self, state, update)
        released.append(moved.parameters)
        if update.round == round_number:
            raise RuntimeError("power cut")
        return moved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "apply", broken)
        with pytest.raises(RuntimeError, match="power cut"):
            yield released


def assert_hostile_messages_are_refused(system, data, *, private):
    state = system.initial_state()
    honest = system.local_round(state, data, KEY, 0)
    total = honest.arrays["total"]
    broken = total.astype(np.float64)
    broken[0] = np.nan
    server = RoundReceiver(system, state, 0, {"shard-0": data.n_users})
    for bad in (total[:-1], broken, total.astype(np.float32), np.full_like(total, 10**9) if private else broken):
        assert not server.receive(replace(honest, arrays={"total": bad}))
    assert server.receive(honest)
    np.testing.assert_array_equal(server.close().arrays["total"], total)


def assert_same_on_threads_and_shards(fit, *, private):
    """Check that `fit` makes one model for 1 and 4 threads, and for 4 shards; float sums of shards are rounded."""
    one, four, sharded = fit(n_threads=1), fit(n_threads=4), fit(engine=LocalEngine(4))
    np.testing.assert_array_equal(one.parameters_, four.parameters_)
    if private:
        np.testing.assert_array_equal(one.parameters_, sharded.parameters_)
    np.testing.assert_allclose(one.parameters_, sharded.parameters_, rtol=1e-4, atol=1e-5)


def assert_noise_is_on_every_number(system, data):
    state = system.initial_state()
    update = system.local_round(state, data, KEY, 0)
    untouched = update.arrays["total"] == 0
    assert untouched.mean() > 0.01
    assert (system.apply(state, update).parameters != state.parameters)[untouched].mean() > 0.99


def saved_and_fine_tuned(model, new_users, path):
    """Return a model from a file without users, and its scores after fine-tuning, which must equal the model's."""
    model.save(path, include_users=False)
    loaded = load(path)
    scores = [one.personalize(new_users, key=KEY).score_items(new_users.user_ids) for one in (model, loaded)]
    np.testing.assert_array_equal(*scores)
    return loaded, scores[0]
