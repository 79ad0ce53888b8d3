"""What DPGram releases third with item features: by the pairs that were released, and at one cost."""

import dataclasses
import math

import numpy as np
import pytest
from support.feature_case import grouped
from support.noise_case import RecordingEngine

from fastfedrec import DPGram, Interactions, Key
from fastfedrec.accounting import gaussian_mu
from fastfedrec.systems.gram import dp_gram_rounds as rounds
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features, tell
from fastfedrec.systems.gram.dp_gram import symmetric

KEY = Key.from_seed(3)
N_USERS, N_ITEMS = 2_500, 120
SHARES, PAIRS, PROJECTIONS = (f"Gaussian noise on item {what}" for what in ("shares", "pairs", "projections"))


@pytest.fixture(scope="module")
def people():
    """Their rows, and what is true of the items."""
    rows, _, groups = grouped(N_USERS, N_ITEMS, 1)
    return rows, groups


def tables(groups):
    rng = np.random.default_rng(4)
    noise = {"label": rng.permutation(groups), "vector": rng.normal(size=(len(groups), 5))}
    return {"group": groups}, noise


def mechanisms(model):
    return [event.mechanism for event in model.ledger_.events]


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_pairs_that_were_asked_for_twice_are_pooled_by_what_they_tell(people):
    rows, groups = people
    told, _ = tables(groups)
    engine = RecordingEngine()
    model = DPGram(8.0, item_features=told).fit(rows, key=KEY, engine=engine)
    _, *both = engine.rounds
    assert [type(one.system) for one in both] == [rounds.PairSum, rounds.PairSumAgain]
    np.testing.assert_array_equal(*(one.update.arrays["item_pairs"] for one in both))
    weights = np.array([one.event.noise_multiplier**-2 for one in both])
    pairs = symmetric(weights @ [one.after.noisy / rounds.UNIT for one in both] / weights.sum())
    mean = both[0].before.mean / rounds.SCALE
    factors = denoise_with_features(pairs, weights.sum() ** -0.5, model._features_of(rows), mean)
    ours, theirs = (of @ of.T for of in (model.item_factors_[:, :-1], factors))
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_features_of_noise_change_no_bit(people):
    rows, groups = people
    _, noise = tables(groups)
    for epsilon in (1.0, 8.0):  # two releases, and three
        without, useless = (DPGram(epsilon, item_features=f, gate=False).fit(rows, key=KEY) for f in (None, noise))
        assert mechanisms(useless) == mechanisms(without)
        assert len(mechanisms(without)) == (2 if epsilon == 1.0 else 3)
        for name in without._saved:
            np.testing.assert_array_equal(getattr(useless, name), getattr(without, name))


def test_features_that_tell_have_the_pairs_released_twice_at_the_same_cost(people):
    rows, groups = people
    told, noise = tables(groups)
    models = [DPGram(8.0, item_features=features).fit(rows, key=KEY) for features in (told, noise)]
    assert [mechanisms(model) for model in models] == [[SHARES, PAIRS, PAIRS], [SHARES, PAIRS, PROJECTIONS]]
    for model in models:
        spent = sum(event.noise_multiplier**-2 for event in model.ledger_.events)
        assert 0.999 * gaussian_mu(8.0, 1e-6) < math.sqrt(spent) <= gaussian_mu(8.0, 1e-6)
    assert models[0].ledger_.epsilon("public") == pytest.approx(models[1].ledger_.epsilon("public"), rel=1e-3)
    assert mechanisms(DPGram(8.0, item_features=told, refine=True).fit(rows, key=KEY))[-1] == PROJECTIONS
    assert mechanisms(DPGram(8.0, item_features=told, refine=False).fit(rows, key=KEY)) == [SHARES, PAIRS]


@pytest.mark.parametrize("number", ["signal", "reach"])
def test_a_gate_that_is_open_for_features_alone_closes_where_they_tell_nothing(people, number, monkeypatch):
    rows, groups = people
    told, noise = tables(groups)
    if number == "signal":
        monkeypatch.setattr("fastfedrec.systems.gram.dp_gram.LEAST_SIGNAL", 1e9)
        monkeypatch.setattr("fastfedrec.systems.gram.dp_gram._LEAST_WITH_FEATURES", 0.0)
    else:
        monkeypatch.setattr("fastfedrec.systems.gram.dp_gram.LEAST_REACH", 1e9)
    found = [DPGram(2.0, item_features=features).fit(rows, key=KEY) for features in (told, noise, None)]
    assert [mechanisms(model) for model in found[:2]] == [[SHARES, PAIRS, PAIRS], [SHARES, PAIRS, SHARES]]
    assert [model.item_factors_.shape[1] > 0 for model in found] == [True, False, False]
    assert ["features tell nothing" in model.ledger_.summary() for model in found] == [False, True, False]
    # The mean of both releases is nearer to the truth than the first, and what is offered is popular.
    lengths = rows.interactions_per_user()
    exact = np.bincount(rows.indices, np.repeat(lengths**-0.5, lengths), minlength=N_ITEMS) / N_USERS
    assert np.abs(found[1].item_means_ - exact).mean() < np.abs(found[0].item_means_ - exact).mean()
    ids, _ = found[1].recommend(rows.user_ids[:5], n=N_ITEMS, filter_seen=False)
    assert (ids == ids[0]).all()
    opened = DPGram(2.0, item_features=noise, gate=False).fit(rows, key=KEY)
    assert opened.item_factors_.shape[1] > 0


def test_what_decides_is_what_was_released(people, monkeypatch):
    """Pairs of which the noise says something else decide otherwise."""
    rows, groups = people
    told, _ = tables(groups)
    apply, order = rounds.PairSum.apply, np.random.default_rng(1).permutation(N_ITEMS * (N_ITEMS - 1) // 2)

    def misled(self, state, update):
        sums = update.arrays["item_pairs"]
        return apply(self, state, dataclasses.replace(update, arrays={"item_pairs": sums[order]}))

    monkeypatch.setattr(rounds.PairSum, "apply", misled)
    assert mechanisms(DPGram(8.0, item_features=told).fit(rows, key=KEY)) == [SHARES, PAIRS, PROJECTIONS]


@pytest.mark.parametrize("gate", [True, False])
def test_a_node_finds_the_rounds_that_a_run_asks_for(people, gate):
    rows, groups = people
    model = DPGram(3.0, gate=gate, item_features=tables(groups)[0])
    phases, courses = model._all_phases(rows, KEY), model._courses(model._plan(rows, KEY))
    assert len(courses) == 4 + gate
    for course in courses:
        number = -1
        for system, *_ in course:
            number += 1 + system.n_skipped
            assert phases[number].system.width == system.width
            assert type(phases[number].system) is type(system)


def test_noise_that_leaves_no_popularity_is_no_error():
    """Then features weigh nothing."""
    rows = Interactions.from_arrays([0, 1, 2], [0, 1, 0])
    model = DPGram(0.01, gate=False, item_features={"group": ["a", "b"]})
    found = [model.fit(rows, key=Key.from_seed(seed)).item_means_.max() for seed in range(12)]
    assert min(found) < 0 < max(found)


def test_no_two_releases_of_pairs_have_noise_in_common():
    plan = DPGram(4.0)._plan(grouped(300, 40, 1)[0], KEY)
    noise, state = plan[1].system.noise, rounds.GramState(np.ones(200, dtype=np.int64))
    kinds = [kind(noise, KEY, 0.0) for kind in (rounds.PairSum, rounds.PairSumAgain)]
    a, b = (one.apply(state, one.zero_update(state, 0)).noisy / float(noise.stddev) for one in kinds)
    assert abs(float(a @ b)) < 6 * math.sqrt(len(a))
    assert abs(float(a @ a)) > 6 * math.sqrt(len(a))


# ---- statistics ------------------------------------------------------------------------------------------------------


def test_features_of_noise_are_hardly_ever_believed_and_those_that_tell_always():
    rng = np.random.default_rng(7)
    for _ in range(3):
        groups = rng.integers(0, 6, 150)
        of_groups = (groups[:, None] == groups).astype(float)
        upper = np.triu(rng.normal(size=(150, 150)), 1)
        matrix = (0.5 * of_groups + upper + upper.T).astype(np.float32)
        people = grouped(50, 150, 1)[0]
        for _ in range(40):
            useless = DPGram(item_features={"label": rng.permutation(groups).astype(str)})._features_of(people)
            assert not tell(useless, matrix, np.ones(150))
        true = DPGram(item_features={"label": groups.astype(str)})._features_of(people)
        assert tell(true, matrix, np.ones(150))
