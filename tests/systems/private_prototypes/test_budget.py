"""The budget of private prototypes: the total cost equals the stated epsilon for all data."""

import math

import numpy as np
import pytest
from support.prototypes_case import KEY, rated, start

from fastfedrec import Key, PrivatePrototypes
from fastfedrec.accounting import PureAccountant, ZCDPAccountant
from fastfedrec.systems.private_prototypes.budget import plan

CHOICES = [
    {},
    {"support": "gumbel", "n_support_items": 5},
    {"n_prototypes": 3, "grouping": "kmeans"},
    {"n_prototypes": 3, "grouping": "kmeans", "candidates": "grid", "support": "gumbel", "n_support_items": 5},
    {"max_rows_per_user": 3, "n_prototypes": 3, "grouping": "kmeans", "prototypes": "zero_filled"},
]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, None), (5.0, None), (0.5, 1e-5), (5.0, 1e-6)])
def test_the_ledgers_sum_is_the_stated_epsilon(choices, epsilon, delta):
    model = PrivatePrototypes(**({"n_prototypes": 1, "epsilon": epsilon, "delta": delta, "max_entries": 5} | choices))
    data = rated()
    model.fit(data, entities=np.arange(60) % 2, key=KEY)
    rows = model.max_rows_per_user
    accountant = PureAccountant() if delta is None else ZCDPAccountant()
    for event, times in model.ledger_.events.items():
        accountant.compose(event, times)
        assert event.trust == "entity"
        assert event.neighboring == "add_remove"
    total = accountant.get_epsilon() if delta is None else accountant.get_epsilon(delta)
    assert total == pytest.approx(epsilon, rel=1e-4)
    assert total <= epsilon * (1 + 1e-9)
    assert model.ledger_.epsilon("server") == model.ledger_.epsilon("public") > epsilon
    if delta is None:
        assert model.ledger_.epsilon("server", 0) == pytest.approx(2 * epsilon)
    one_row = plan(epsilon, delta, model._sums(25), 25, 1, 1, False, False).recovery.stddev
    assert model._rounds(25).recovery.stddev >= rows * one_row * 0.999 * (model.support == "all")
    assert any("for adding or removing a user" in note for note in model.ledger_.notes)


@pytest.mark.parametrize("delta", [1e-5, 1e-25, 1e-27, 1e-28, 1e-30, 1e-33])
def test_noise_from_tables_takes_a_millionth_of_delta_or_there_is_none(delta):
    budget = plan(1.0, delta, PrivatePrototypes(3, 2, 1.0, delta, max_entries=5)._sums(25), 25, 3, 4, False, False)
    distance = sum(event.distance for event in budget.events)
    assert (1 + math.e) * distance <= 1e-6 * delta
    assert (distance > 0) == (budget.recovery.sampler == "table") == (delta > 1e-27)
    accountant = ZCDPAccountant()
    for event in budget.events:
        accountant.compose(event)
    assert accountant.get_epsilon(delta) <= 1.0


def test_without_epsilon_there_is_no_guarantee():
    model = PrivatePrototypes(2, 2, None).fit(rated(), key=KEY)
    assert model.ledger_.epsilon("public") == np.inf


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_removing_a_user_changes_no_shape_and_no_noise(choices, monkeypatch):
    """Check that noise, shapes, words of randomness and traffic are equal with and without a user."""
    parameters = {"n_prototypes": 1, "epsilon": 1.0, "max_entries": 5} | choices
    messages, words = [], []
    for data in (rated(40), rated(40).select_users(np.arange(39))):
        model = PrivatePrototypes(**parameters)
        drawn = []
        original = Key.words

        def count(key, purpose, *, original=original, drawn=drawn, **options):
            drawn.append((purpose, options.get("round", 0), options["size"]))
            return original(key, purpose, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Key, "words", count)
            rounds, state = start(model, data)
            messages.append(rounds.local_round(state, data, KEY, 0, sender="a"))
        words.append(drawn)
        assert rounds.budget.events == PrivatePrototypes(**parameters)._budget(data.n_items).events
        assert rounds.count_clients(data) == 1
    assert words[0] == words[1]
    assert messages[0].n_clients == messages[1].n_clients == 1
    for name, array in messages[0].arrays.items():
        assert array.shape == messages[1].arrays[name].shape
    if choices == {}:
        moved = [messages[0].arrays[name] - messages[1].arrays[name] for name in ("count", "sum")]
        assert sum(np.abs(part).sum() for part in moved) <= rounds.recovery.sensitivity
