"""Draws that order a client's examples are bounded by public numbers, so that no client's data fail a round."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.privrec_case import KEY, small_log

from fastfedrec import Interactions, Key, PrivRec
from fastfedrec.compute.networks.client_examples import MAX_DRAWS, Events
from fastfedrec.data.features import Features
from fastfedrec.systems.privrec import rounds as rounds_module
from fastfedrec.systems.privrec._settings import PrivRecSettings
from fastfedrec.systems.privrec.rounds import ClientData, LocalTraining

PRIVATE = {"n_rounds": 1, "cohort_size": "all", "clip_norm": 0.1, "noise_multiplier": 1.0}


# ---- oracle ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 6), st.booleans())
def test_first_keeps_the_first_events_of_each_user(lengths, n, has_contexts):
    items = np.arange(sum(lengths), dtype=np.int32)
    events = Events(np.cumsum([0, *lengths]), items, items.astype(np.int64) if has_contexts else None)
    first_events = events.first(n)
    starts = events.indptr[:-1].tolist()
    expected = [list(range(start, start + min(length, n))) for start, length in zip(starts, lengths, strict=True)]
    assert [part.tolist() for part in np.split(first_events.items, first_events.indptr[1:-1])] == expected
    assert first_events.contexts is None or first_events.contexts.tolist() == first_events.items.tolist()


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_a_client_with_too_long_a_log_trains_on_its_first_events(monkeypatch):
    log, local = small_log(), LocalTraining(epochs=4, learning_rate=0.1, batch_size=8, negatives=1, threshold=0.0)
    features = Features.from_interactions(log.interactions)
    network = rounds_module.TwoTower(features, n_factors=16, hidden=(16,))
    users, n_items = np.arange(log.interactions.n_users), log.interactions.n_items

    def draw():
        return ClientData(log, features, network, 0.0).draw(users, local, "x", key=KEY, round=0, n_threads=1)

    whole = draw()
    n_events = 5
    monkeypatch.setattr(rounds_module, "MAX_DRAWS", local.epochs * (n_items + n_events))
    short = draw()
    for u in users:
        one, other = (examples.items[examples.indptr[u] : examples.indptr[u + 1]] for examples in (whole, short))
        labels = (examples.labels[examples.indptr[u] : examples.indptr[u + 1]] > 0 for examples in (whole, short))
        first, second = (items[positive] for items, positive in zip((one, other), labels, strict=True))
        assert second.tolist() == first[:n_events].tolist()
    assert len(short.items) < len(whole.items)


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[], [3.0], [3.0] * 40])
def test_too_many_epochs_are_refused_by_public_numbers(values):
    """Check that the refusal does not depend on a client's examples."""
    users = [1] * len(values)
    data = Interactions.from_arrays(users, range(len(values)), values or None, user_ids=range(5), item_ids=range(40))
    model = PrivRec(local_epochs=2**31 - 1, n_factors=16, hidden=(16,), **PRIVATE)
    with pytest.raises(ValueError, match=f"local_epochs must be at most {MAX_DRAWS // 80} with 40 items, got"):
        model.fit(data, key=Key.from_seed(1))


def test_epochs_at_the_bound_are_accepted():
    model = PrivRec(stage1="dp", stage1_options={"contrastive_weight": 1.0, "batch_size": 4}, **PRIVATE)
    settings = PrivRecSettings.resolve(model.get_params(), 200)
    # This is the number of draws for an epoch's batches of masked sequences.
    masked = -(-2 * 40 // 32) * 4 + 40
    for bound, changed in (
        (MAX_DRAWS // 80, replace(settings, stage1=None)),
        (MAX_DRAWS // max(80, masked), settings),
    ):
        replace(changed, local_epochs=bound).check_draws(40, 32)
        with pytest.raises(ValueError, match="local_epochs must be at most"):
            replace(changed, local_epochs=bound + 1).check_draws(40, 32)
    first = replace(settings.stage1, local_epochs=MAX_DRAWS // 40)
    replace(settings, stage1=first).check_draws(40, 32)
    with pytest.raises(ValueError, match=r"stage1_options\['local_epochs'\] must be at most"):
        replace(settings, stage1=replace(first, local_epochs=MAX_DRAWS // 40 + 1)).check_draws(40, 32)
