"""Releases of counts, clusters and prototypes minus exact values: their noise against the ledger, during fits."""

import functools
import math

import numpy as np
import pytest
from support.data import of_dense
from support.fedrec_case import start
from support.noise_case import RecordingEngine, relations, spread_is
from support.significance import mean_is

from fastfedrec import FedRec, Key, PrivatePrototypes, PrivRec
from fastfedrec.accounting import ZCDP, CentralRelease, Gaussian, Ledger, ZCDPAccountant
from fastfedrec.systems.baselines.popularity import DPPopularity
from fastfedrec.systems.private_prototypes import private_kmeans as kmeans_module
from fastfedrec.systems.private_prototypes import private_lloyd as lloyd_module
from fastfedrec.systems.private_prototypes import prototypes as prototypes_module
from fastfedrec.systems.private_prototypes.prototypes import Recovery, recover_prototypes
from fastfedrec.systems.privrec import start as privrec_start
from fastfedrec.systems.privrec.start import release_popularity

KEY = Key.from_seed(46)


def sparse_rows(n_users, n_items, per_user=3):
    columns = KEY.words("test.count_noise", size=n_users * per_user).reshape(n_users, per_user) % n_items
    rows = np.zeros((n_users, n_items), dtype=np.float32)
    np.put_along_axis(rows, columns.astype(np.int64), 1.0, axis=1)
    return of_dense(rows)


def laplace_is(draws, scale):
    """Check that the mean absolute value of `draws` is consistent with Laplace noise of this scale."""
    assert len(draws) >= 5000
    return mean_is(np.abs(draws) / scale, 1.0, 1.0)


# ---- counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DPPopularity", "PrivRec"])
def test_counts_have_the_noise_of_their_ledger(name):
    """Check counts to which a user adds at most 10 items, and removes 10 if replaced; a 10% error is detected."""
    data, epsilon = sparse_rows(20, 12_000), 0.5
    exact = np.bincount(data.indices, minlength=data.n_items)
    ledger = Ledger()
    if name == "DPPopularity":
        model = DPPopularity(epsilon, max_items_per_user=10).fit(data, key=KEY, ledger=ledger)
        released, sensitivity = model.item_counts_, 10
    else:
        released, sensitivity = release_popularity(data, epsilon, KEY, ledger), 20
    assert len(ledger.events) == 1
    (event,) = ledger.events
    assert type(event) is CentralRelease
    assert ledger.events[event] == 1
    assert ledger.is_simulation
    assert epsilon <= event.epsilon <= epsilon * (1 + 1e-9)
    assert event.neighboring == ("replace" if name == "PrivRec" else event.neighboring)
    noise = released - exact
    assert laplace_is(noise, sensitivity / event.epsilon)
    assert not laplace_is(0.9 * noise, sensitivity / event.epsilon)
    assert not laplace_is(1.1 * noise, sensitivity / event.epsilon)


@pytest.mark.parametrize("name", ["DPPopularity", "PrivRec"])
def test_a_user_with_all_items_moves_counts_within_the_bound(name):
    rows = np.zeros((5, 300), dtype=np.float32)
    rows[:4, :5] = 1
    with_all = rows.copy()
    with_all[4] = 1

    def counts(rows):
        data = of_dense(rows)
        if name == "DPPopularity":
            return DPPopularity(1.0, max_items_per_user=10).fit(data, key=KEY).item_counts_
        return release_popularity(data, 1.0, KEY, Ledger())

    moved = np.abs(counts(with_all) - counts(rows)).sum()
    assert 0 < moved <= 10


def test_privrec_starts_from_recorded_counts_only(monkeypatch):
    counted = []
    start = privrec_start.popularity_start
    record = lambda *arguments: counted.append(arguments[2]) or start(*arguments)  # noqa: E731
    monkeypatch.setattr(privrec_start, "popularity_start", record)
    data = sparse_rows(20, 60)
    options = {"n_factors": 16, "hidden": (16,), "n_rounds": 0}
    model = PrivRec(popularity_epsilon=0.5, **options).fit(data, key=KEY)
    assert sum(model.ledger_.events.values()) == 1
    np.testing.assert_array_equal(counted[0], release_popularity(data, 0.5, KEY, Ledger()))
    assert (counted[0] != np.bincount(data.indices, minlength=60)).mean() > 0.5


# ---- FedRec ----------------------------------------------------------------------------------------------------------


def fedrec_rounds(seed):
    words = KEY.words("test.count_noise.fedrec", size=20 * 900).reshape(20, 900)
    ratings = ((words % 5 + 1) * (words % 11 == 0)).astype(np.float32)
    data = of_dense(ratings)
    engine = RecordingEngine(2)
    model = FedRec(0, n_factors=3, n_rounds=3, clip_norm=0.5, noise_multiplier=3.0, divisor=7.0)
    model.fit(data, key=Key.from_seed(seed), engine=engine)
    return model, engine.rounds


@pytest.mark.slow
def test_fedrecs_noise_has_the_width_of_its_ledger():
    """Check that replacing a user moves sums by twice the bound, and that noise is independent everywhere."""
    series = {}
    for seed in range(4):
        model, rounds = fedrec_rounds(seed)
        for recorded in rounds:
            event, sums = recorded.event, recorded.update.arrays["total"][:, :-1].view(np.int64)
            exact = sums / recorded.system.scale
            assert type(event) is Gaussian
            moved = (recorded.before.item_factors - recorded.after.item_factors) / recorded.before.learning_rate
            series.setdefault(recorded.update.round, []).append((moved * 7.0 - exact).ravel())
        events = [event for event in model.ledger_.events if isinstance(event, Gaussian)]
        assert sum(model.ledger_.events[event] for event in events) == len(rounds) >= 2
    for arrays in series.values():
        width = events[0].noise_multiplier * 2 * 0.5
        draws = np.concatenate(arrays)
        assert spread_is(draws, width)
        assert not spread_is(0.9 * draws, width)
        assert not spread_is(1.1 * draws, width)
    assert list(relations(series)) == []


def test_fedrecs_count_of_raters_is_noisy():
    words = KEY.words("test.count_noise.fedrec", size=20 * 900).reshape(20, 900)
    data = of_dense(((words % 11 == 0) * 3).astype(np.float32))
    model = FedRec(0, n_factors=2, clip_norm=0.5, noise_multiplier=3.0, max_items=900)
    divisors = [start(model, data, Key.from_seed(seed))[1].divisors for seed in (1, 2)]
    assert (divisors[0] != divisors[1]).mean() > 0.5
    # The noise is 3 root(900) users and clipped at 1 from below, so about half of all counts remain.
    assert 0.3 < (divisors[0] == 1.0).mean() < 0.7
    assert 60 < divisors[0][divisors[0] > 1].mean() < 90


# ---- clusters --------------------------------------------------------------------------------------------------------


def lloyd_points(n=400):
    points = 0.01 * KEY.normal("test.count_noise.lloyd", size=3 * n).reshape(n, 3)
    # Five points are far from all others.
    points[:5] = 0.57, -0.57, 0.57
    return points


@functools.lru_cache(maxsize=2)
def lloyd_releases(n_fits):
    """Return for each fit (exact, sensitivity, epsilon, noise) of each release, and steps and bound of rounds."""
    release, noisy_steps = lloyd_module._release, lloyd_module._noisy_steps
    releases, rounds = [], []

    def recorded(exact, sensitivity, epsilon, *arguments):
        noisy = release(exact, sensitivity, epsilon, *arguments)
        releases[-1].append((exact, sensitivity, epsilon, (noisy - exact).ravel().astype(np.float64)))
        return noisy

    def recorded_steps(steps, labels, n_clusters, farthest, *arguments):
        rounds.append((steps, farthest))
        return noisy_steps(steps, labels, n_clusters, farthest, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lloyd_module, "_release", recorded)
        patch.setattr(lloyd_module, "_noisy_steps", recorded_steps)
        for seed in range(n_fits):
            releases.append([])
            lloyd_module.private_lloyd(
                lloyd_points(), 40, radius=1.0, n_rounds=4, epsilon=1.0, key=Key.from_seed(seed), n_threads=1
            )
    return releases, rounds


@pytest.mark.slow
def test_every_release_of_lloyd_has_the_noise_of_its_sensitivity():
    releases, _ = lloyd_releases(12)
    assert all(sum(epsilon for _, _, epsilon, _ in fit) == 1 for fit in releases)
    draws = np.concatenate(
        [noise * float(epsilon / sensitivity) for fit in releases for _, sensitivity, epsilon, noise in fit]
    )
    assert laplace_is(draws, 1.0)
    assert not laplace_is(0.9 * draws, 1.0)
    assert not laplace_is(1.1 * draws, 1.0)


@pytest.mark.slow
def test_no_release_of_lloyd_has_noise_in_common():
    releases, _ = lloyd_releases(12)
    series = {number: [fit[number][3] for fit in releases] for number in range(1, 5)}
    assert list(relations(series)) == []


def test_every_release_of_lloyd_is_within_its_sensitivity():
    """Check that no user's steps exceed the bound of the noise, even with points far from every centre."""
    _, rounds = lloyd_releases(1)
    sizes = [np.abs(steps).sum(axis=1) for steps, _ in rounds]
    assert all(size.max() <= farthest for size, (_, farthest) in zip(sizes, rounds, strict=True))
    assert any(size.max() > 0.9 * farthest for size, (_, farthest) in zip(sizes, rounds, strict=True))


def test_every_swap_draws_independent_words(monkeypatch):
    draw, seen = kmeans_module.draw_loss, []
    monkeypatch.setattr(
        kmeans_module,
        "draw_loss",
        lambda losses, epsilon, words: seen.append(tuple(words)) or draw(losses, epsilon, words),
    )
    cluster_centers = np.linspace(-0.6, 0.6, 3 * 12).reshape(12, 3)
    kmeans_module.private_kmeans(
        lloyd_points(), cluster_centers, 3, radius=1.0, n_swaps=6, epsilon=0.5, key=KEY, n_threads=1
    )
    assert len(seen) == len(set(seen)) == 7


# ---- prototypes ------------------------------------------------------------------------------------------------------


ENTITIES, N_ITEMS, MAX_ITEMS = 3, 1800, 4


def rated(*, last_has=MAX_ITEMS):
    words = KEY.words("test.count_noise.prototypes", size=60 * MAX_ITEMS).reshape(60, MAX_ITEMS)
    rows = np.zeros((60, N_ITEMS), dtype=np.float32)
    np.put_along_axis(rows, (words % N_ITEMS).astype(np.int64), (words // 7 % 5 + 1).astype(np.float32), axis=1)
    rows[-1] = 0
    rows[-1, :last_has] = 5
    return of_dense(rows)


def prototypes(data, key, delta=None):
    """Return a fit's model and round: a prototype for each of three entities; Gaussian noise given a delta."""
    engine = RecordingEngine()
    model = PrivatePrototypes(1, 2, 2.0, delta, max_entries=MAX_ITEMS, n_epochs=1)
    model.fit(data, entities=np.arange(60) % ENTITIES, key=key, engine=engine)
    return model, engine.rounds[0]


@functools.lru_cache(maxsize=2)
def prototype_noise(delta=None):
    """Return {(entity, field): noise of several fits, in steps}, and the events."""
    data, series = rated(), {}
    values = data.to_scipy().toarray()
    for seed in range(3):
        model, recorded = prototypes(data, Key.from_seed(seed), delta)
        recovery = model.budget(N_ITEMS).recovery
        for entity in range(ENTITIES):
            entity_values = values[np.arange(60) % ENTITIES == entity]
            counts = (entity_values > 0).sum(axis=0) * recovery.steps_per_unit
            sums = np.rint(
                (entity_values - float(recovery.center)) * (entity_values > 0) * recovery.steps_per_unit
            ).sum(axis=0)
            for field, exact in (("count", counts), ("sum", sums)):
                noise = recorded.update.arrays[field][entity] - exact
                series.setdefault((entity, field), []).append(noise.astype(np.float64))
    return series, model, recovery


@pytest.mark.parametrize("kind", ["zero_filled", "masked"])
def test_every_choice_of_an_item_is_charged_and_draws_independent_words(monkeypatch, kind):
    """Check draws for several prototypes and entities; each draw receives the sensitivity of its scores to one user."""
    draw, seen = prototypes_module.draw_loss, []

    def recorded(losses, epsilon, words, sensitivity):
        seen.append((tuple(words.tolist()), losses, epsilon, sensitivity))
        return draw(losses, epsilon, words, sensitivity)

    monkeypatch.setattr(prototypes_module, "draw_loss", recorded)
    size, budget = 3, 2.0
    rule = Recovery(
        kind,
        MAX_ITEMS,
        (float(kind == "masked"), 5.0),
        4.0,
        support_size=size,
        support_epsilon=budget,
        steps_per_unit=2,
    )
    data, chosen = rated(), []
    # The neighbouring data lack the last user.
    neighboring = data.keep_interactions(np.repeat(np.arange(60) < 59, data.interactions_per_user()))
    for rows in (data, neighboring):
        for entity in (0, 1):
            labels = np.arange(60) % 2
            prototypes = recover_prototypes(rows, labels, 2, rule, key=KEY, round=entity)
            chosen.append(prototypes.items)
    assert all(len(np.unique(row)) == size for items in chosen for row in items)
    half = len(seen) // 2
    assert half == 2 * 2 * size
    assert len({words for words, *_ in seen[:half]}) == half
    assert [words for words, *_ in seen[:half]] == [words for words, *_ in seen[half:]]
    for (_, with_user, epsilon, sensitivity), (_, without, *_) in zip(seen[:half:size], seen[half::size], strict=True):
        assert np.abs(with_user - without).max() <= sensitivity
        assert epsilon * size <= budget
    moved = max(np.abs(a[1] - b[1]).max() for a, b in zip(seen[:half:size], seen[half::size], strict=True))
    assert moved == seen[0][3] == (5 * 2 if kind == "zero_filled" else 1)


@pytest.mark.slow
def test_prototypes_noise_has_the_width_of_their_ledger():
    """Check that one user adds to four counts and four sums, by at most two stars; a 10% error is detected."""
    series, model, recovery = prototype_noise()
    (event,) = model.ledger_.events
    assert type(event) is CentralRelease
    assert event.trust == "entity"
    scale = MAX_ITEMS * (2 + 1) * recovery.steps_per_unit / event.epsilon
    assert event.epsilon == pytest.approx(2.0)
    for arrays in series.values():
        draws = np.concatenate(arrays)
        assert laplace_is(draws, scale)
        assert not laplace_is(0.9 * draws, scale)
        assert not laplace_is(1.1 * draws, scale)


@pytest.mark.slow
def test_prototypes_noise_under_zcdp_has_the_width_of_their_ledger():
    series, model, recovery = prototype_noise(1e-5)
    (event,) = model.ledger_.events
    assert type(event) is ZCDP
    assert ZCDPAccountant().compose(event).get_epsilon(1e-5) <= 2.0
    width = math.sqrt(MAX_ITEMS * (2**2 + 1) / (2 * event.rho)) * recovery.steps_per_unit
    for arrays in series.values():
        draws = np.concatenate(arrays)
        assert spread_is(draws, width)
        assert not spread_is(0.9 * draws, width)
        assert not spread_is(1.1 * draws, width)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_no_entity_or_field_of_prototypes_has_noise_in_common(delta):
    assert list(relations(prototype_noise(delta)[0])) == []


def test_a_user_with_all_items_moves_prototypes_within_the_bound():
    (_, few), (_, everything) = (prototypes(rated(last_has=n), KEY) for n in (0, N_ITEMS))
    few, everything = few.update.arrays, everything.update.arrays
    steps = PrivatePrototypes(1, 2, 2.0, max_entries=MAX_ITEMS).budget(N_ITEMS).recovery.steps_per_unit
    counts, sums = (np.abs(few[field] - everything[field]).sum() / steps for field in ("count", "sum"))
    assert 0 < counts <= MAX_ITEMS
    assert 0 < sums <= 2 * MAX_ITEMS
    assert math.isfinite(sums)
