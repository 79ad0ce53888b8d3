"""Tests of streams in a real fit of every system: each stream has one purpose, and no word is drawn twice."""

import itertools
import sys
from collections import defaultdict

import numpy as np
import pytest
import scipy.sparse

from fastfedrec import (
    DPALS,
    DPFMF,
    DPLCF,
    FMFLDP,
    SDCF,
    DPGram,
    DPPopularity,
    DPSubspace,
    FedGNN,
    FedRec,
    FedRecPlusPlus,
    Interactions,
    Key,
    LaplaceRRSVD,
    PrivatePrototypes,
    PrivRec,
    ShuffledSketchGram,
    choose_items,
)
from fastfedrec.engines import LocalEngine
from fastfedrec.mechanisms.bounded_rows import grid_candidates
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise
from fastfedrec.systems.private_prototypes.private_lloyd import private_lloyd

KEY = Key.from_seed(46)
STEPS = ("fastfedrec.core.randomness", "fastfedrec.mechanisms")  # they draw for their callers


def ratings(n_users=40, n_items=24):
    words = KEY.words("test.streams", size=n_users * n_items).reshape(n_users, n_items)
    return Interactions.from_scipy(scipy.sparse.csr_array(((words % 5 + 1) * (words % 3 > 0)).astype(np.float32)))


DATA = ratings()
NOTHING_TAKEN = Interactions.from_arrays(*DATA.to_scipy().nonzero())  # the list of items comes from the rows
SHORT_ROWS = Interactions.from_arrays(np.arange(3000), np.arange(3000) % 24)
POINTS = np.linspace(-0.5, 0.5, 80).reshape(40, 2)
CENTRAL = {"clip_norm": 0.5, "noise_multiplier": 3.0, "max_items": 4}
RESPONSES = {"filling": "randomized_response", "keep_probability": 0.9, "add_probability": 0.2}


def fitted(model, data=DATA, **options):
    return lambda key: model().fit(data, key=key, engine=LocalEngine(2), **options)


def alone(model, data=DATA, **options):
    return lambda key: model().fit(data, key=key, **options)


RUNS = {
    "FMFLDP": fitted(lambda: FMFLDP(2, n_rounds=3, n_reports=5)),
    "FMFLDP(rotate=True)": fitted(lambda: FMFLDP(2, n_rounds=3, n_reports=5, normalize="l2", rotate=True)),
    "ShuffledSketchGram": fitted(lambda: ShuffledSketchGram(8.0)),
    "ShuffledSketchGram of items": alone(lambda: ShuffledSketchGram(8.0), data=SHORT_ROWS),
    "DPLCF": alone(DPLCF),
    "DPPopularity": alone(lambda: DPPopularity(1.0)),
    "DPPopularity(trust='local')": alone(lambda: DPPopularity(1.0, trust="local")),
    "LaplaceRRSVD": fitted(lambda: LaplaceRRSVD(max_ratings=3, n_factors=2)),
    "LaplaceRRSVD('published')": fitted(lambda: LaplaceRRSVD("published", n_factors=2)),
    "LaplaceRRSVD(hide_items=True)": fitted(lambda: LaplaceRRSVD(hide_items=True, n_factors=2)),
    "FedRec": fitted(lambda: FedRec(1, n_rounds=3, n_factors=2, client_share=0.5, **CENTRAL)),
    "FedRec by response": fitted(lambda: FedRec(n_rounds=3, n_factors=2, **RESPONSES)),
    "FedRecPlusPlus": fitted(lambda: FedRecPlusPlus(2, n_rounds=3, n_factors=2, min_clients_per_denoiser=1, **CENTRAL)),
    "SDCF": fitted(lambda: SDCF(True, 2, min_clients_per_denoiser=1, prior="wishart", n_rounds=3, n_factors=2)),
    "FedGNN('published')": fitted(
        lambda: FedGNN(
            "published", n_rounds=3, n_factors=2, n_pseudo_items=3, n_neighbors=2, expansion_round=1, negatives=1
        )
    ),
    "FedGNN": fitted(lambda: FedGNN(n_rounds=3, n_factors=2, cohort_size=20)),
    "PrivatePrototypes": alone(lambda: PrivatePrototypes(2, 2, 4.0), entities=np.arange(40) % 3),
    "PrivatePrototypes of all parts": alone(
        lambda: PrivatePrototypes(
            2, 2, 4.0, 1e-5, grouping="kmeans", candidates="grid", support="gumbel", n_support_items=5
        ),
        entities=np.arange(40) % 3,
    ),
    "DPGram": fitted(lambda: DPGram(4.0)),
    "DPSubspace": fitted(lambda: DPSubspace(4.0, n_columns=2, n_rounds=3)),
    "DPALS": fitted(lambda: DPALS(n_factors=2, epsilon=4.0, n_rounds=3)),
    "DPFMF": fitted(lambda: DPFMF(n_factors=2, epsilon=4.0, n_rounds=3)),
    "PrivRec": fitted(lambda: PrivRec(n_rounds=3, n_factors=16, hidden=(16,), popularity_epsilon=0.5)),
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
    subkey, words, add = Key.subkey, Key.words_by_user, IntegerNoise._add

    def named(self, purpose):
        streams[self._secret, purpose].add(caller_outside(STEPS))
        return subkey(self, purpose)

    def drawn(self, purpose, users, *, round=0, **options):
        if self is run_key and "_exact_sampling" not in caller_outside(
            "fastfedrec.core.randomness"
        ):  # which is noise, and seen below
            draws.append((purpose, round, np.asarray(users).tolist()))
        return words(self, purpose, users, round=round, **options)

    def added(self, values, key, purpose, round_number, *remaining):
        draws.append((purpose, round_number, []))
        return add(self, values, key, purpose, round_number, *remaining)

    with monkeypatch.context() as patch:
        patch.setattr(Key, "subkey", named)
        patch.setattr(Key, "words_by_user", drawn)
        patch.setattr(IntegerNoise, "_add", added)
        run(run_key)
    return streams, draws


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RUNS)
def test_a_stream_serves_one_purpose_and_no_word_is_drawn_twice(monkeypatch, name):
    streams, draws = watched(monkeypatch, RUNS[name])
    assert streams
    shared = {purpose: sorted(callers) for (_, purpose), callers in streams.items() if len(callers) > 1}
    assert shared == {}
    repeated = [draw for draw, same in itertools.groupby(sorted(draws)) if len(list(same)) > 1]
    assert repeated == []
