"""Tests of streams in a real fit of every system: each stream has one purpose, and no word is drawn twice."""

import inspect
import sys
from collections import Counter, defaultdict

import numpy as np
import pytest
from support.models import case_of, gather, new

from fastfedrec import IndividualNMF, Interactions, Key, PrivateRecommender, ShuffledSketchGram, choose_items
from fastfedrec.engines import LocalEngine
from fastfedrec.mechanisms.bounded_rows import grid_candidates
from fastfedrec.mechanisms.noise import exact_sampling
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise
from fastfedrec.systems.private_prototypes.private_lloyd import private_lloyd

KEY = Key.from_seed(46)
EXACT_SAMPLING = exact_sampling.__name__
STEPS = ("fastfedrec.core.randomness", "fastfedrec.mechanisms")  # they draw for their callers


def ratings(n_users=40, n_items=30):
    words = KEY.words("test.streams", size=n_users * n_items).reshape(n_users, n_items)
    users, items = np.nonzero(words % 3)
    ids = {"user_ids": range(n_users), "item_ids": range(n_items)}
    return Interactions.from_arrays(users, items, words[users, items] % 5 + 1.0, np.arange(len(users)), **ids)


DATA = ratings()
NOTHING_TAKEN = Interactions.from_arrays(*DATA.to_scipy().nonzero())  # the list of items comes from the rows
SHORT_ROWS = Interactions.from_arrays(np.arange(3000), np.arange(3000) % 24)
POINTS = np.linspace(-0.5, 0.5, 80).reshape(40, 2)


def fitted(model, data=DATA):
    """Return a function from a key to a fit, in two shards of users and with three entities where a system has them."""
    accepted = inspect.signature(model.fit).parameters
    options = {"engine": LocalEngine(2), "entities": np.arange(data.n_users) % 3}
    return lambda key: new(model).fit(data, key=key, **{name: options[name] for name in options.keys() & accepted})


#: Fits of every system, except of the recommender, which runs another one, and of the baseline that starts from equal
#: factors in every entity.
FITS = {
    f"{field}: {name}": model
    for field in ("small", "other_work", "private", "private_for_users", "central")
    for name, model in gather(field).items()
    if not isinstance(model, PrivateRecommender | IndividualNMF)
}
RUNS = {name: fitted(model) for name, model in FITS.items()} | {
    "ShuffledSketchGram of items": fitted(ShuffledSketchGram(8.0), SHORT_ROWS),
    "choose_items": lambda key: choose_items(NOTHING_TAKEN, 5, 4.0, delta=1e-3, max_items_per_user=3, key=key),
    "private_lloyd": lambda key: private_lloyd(POINTS, 2, radius=1.0, n_rounds=3, epsilon=1.0, key=key),
    "grid_candidates": lambda key: grid_candidates(
        POINTS, 4, radius=1.0, depth=3, n_shifts=3, epsilon=9.0, threshold=0.0, key=key
    ),
}


def caller_outside(parts):
    """Return the function that uses a stream: the first caller outside these parts of the package."""
    # Frame 2 is the caller of the patched method.
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(parts):
        frame = frame.f_back
    return f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"


def watched(monkeypatch, run):
    """Return the callers of each stream of a run, and the names of all words and noise drawn from the run's key."""
    streams, draws, run_key = defaultdict(set), [], Key.from_seed(7)
    subkey, words, ragged, add = Key.subkey, Key._words, Key.ragged_words, IntegerNoise._add

    def named(self, purpose):
        streams[self._secret, purpose].add(caller_outside(STEPS))
        return subkey(self, purpose)

    def note(key, purpose, users, round_number):
        # `exact_sampling` draws the noise that `added` records, and reads its first words twice.
        if key is run_key and not caller_outside((Key.__module__, __name__)).startswith(EXACT_SAMPLING):
            draws.extend((purpose, round_number, user) for user in np.asarray(users).tolist())

    def drawn(self, purpose, users, round_number, *remaining):
        note(self, purpose, users, round_number)
        return words(self, purpose, users, round_number, *remaining)

    def drawn_by_sizes(self, purpose, users, sizes, *, round=0, **options):
        note(self, purpose, users, round)
        return ragged(self, purpose, users, sizes, round=round, **options)

    def added(self, values, key, purpose, round_number, *remaining):
        draws.append((purpose, round_number, None))
        return add(self, values, key, purpose, round_number, *remaining)

    with monkeypatch.context() as patch:
        patch.setattr(Key, "subkey", named)
        patch.setattr(Key, "_words", drawn)
        patch.setattr(Key, "ragged_words", drawn_by_sizes)
        patch.setattr(IntegerNoise, "_add", added)
        run(run_key)
    return streams, draws


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RUNS)
def test_a_stream_serves_one_purpose_and_no_word_is_drawn_twice(monkeypatch, name):
    streams, draws = watched(monkeypatch, RUNS[name])
    assert streams or case_of(FITS[name]).trust == ("none",)  # of which some draw no number
    shared = {purpose: sorted(callers) for (_, purpose), callers in streams.items() if len(callers) > 1}
    assert shared == {}
    assert {draw: times for draw, times in Counter(draws).items() if times > 1} == {}
