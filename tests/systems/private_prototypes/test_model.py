"""Private prototypes: messages against a twin, and values that must not depend on the data."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.private_prototypes import model as naive
from support.prototypes_case import KEY, rated, start
from support.significance import ALPHA

from fastfedrec import Key, PrivatePrototypes
from fastfedrec.mechanisms import DiscreteLaplace
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.rounds.system import Update
from fastfedrec.systems.private_prototypes.budget import choose_n_prototypes
from fastfedrec.systems.private_prototypes.prototypes import recover_prototypes
from fastfedrec.systems.private_prototypes.server import Sums, make_prototypes

KINDS = ["masked", "zero_filled"]


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.integers(1, 4), st.booleans())
@settings(max_examples=40)
def test_exact_messages_equal_the_twin(seed, kind, k, small):
    data = rated(12, 6, seed)
    value_range = (1.0, 3.5) if small else (0.0, 5.0)
    model = PrivatePrototypes(k, 2, None, prototypes=kind, value_range=value_range)
    rounds, state = start(model, data)
    sent = rounds.local_round(state, data, KEY, 0, sender="a").arrays
    words = KEY.words_by_user("private_prototypes.groups", data.global_user_ids, size=1)[:, 0]
    labels = [0 if k == 1 else int(word) % k for word in words]
    counts, sums = naive.sums(data.to_scipy().toarray(), labels, k, value_range, kind == "masked", 2**16)
    assert sent["count"].tolist() == counts
    assert sent["sum"].tolist() == sums
    assert sent["item"].tolist() == [list(range(6))] * k


@pytest.mark.parametrize("kind", KINDS)
def test_sensitivity_is_never_exceeded_and_is_reached(kind):
    """Check one user's contribution to the message, for users with any values, in L1 and in squared L2."""
    for value_range in ((1.0, 5.0), (0.3, 0.8), (0.0, 7.3)):
        model = PrivatePrototypes(3, 2, 1.0, max_entries=4, prototypes=kind, value_range=value_range)
        rule, rounds, largest = model._sums(9), model._rounds(9), [0, 0]
        for value in (*value_range, 100.0, 0.0, sum(value_range) / 2):
            user = rated(1, 9, density=1.0)
            limited = rounds._limit(user._replace(values=np.full(user.n_interactions, value)), KEY)
            sent = recover_prototypes(limited, np.zeros(1, dtype=np.int64), 3, rule, key=KEY)
            moved = np.concatenate([sent.counts.ravel(), sent.sums.ravel()])
            largest[0] = max(largest[0], int(np.abs(moved).sum()))
            largest[1] = max(largest[1], int((moved**2).sum()))
        assert largest[0] == rule.sensitivity
        assert largest[1] == rule.squared_norm_sensitivity


def test_prototypes_without_noise_are_means():
    data, labels = rated(30, 8), np.arange(30) % 3
    dense = data.to_scipy().toarray()
    for masked in (True, False):
        counts, sums = np.zeros((3, 8)), np.zeros((3, 8))
        for row, label in zip(dense, labels, strict=True):
            counts[label] += (row > 0) if masked else 1
            sums[label] += np.where(row > 0, row - 3, 0) if masked else row
        made = Sums(counts, sums, np.ones((3, 8), bool), 0.0, 1.0 * masked, 5.0, 3.0 * masked, 2.0, masked)
        prototypes, weights = make_prototypes(made)
        means = [[row[row > 0].mean() if masked else row.mean() for row in dense[labels == g].T] for g in range(3)]
        np.testing.assert_allclose(prototypes, means)
        np.testing.assert_array_equal(weights, counts if masked else 1.0)


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"grouping": "random"}, {"grouping": "kmeans"}])
@pytest.mark.parametrize("epsilon", [1.0, None])
def test_an_entity_without_users_answers(options, epsilon):
    model, data = PrivatePrototypes(3, epsilon=epsilon, **options), rated()
    rounds, state = start(model, data, ("a", "b"))
    update = rounds.local_round(state, data.select_users([]), KEY, 0, sender="b")
    full = rounds.local_round(state, data, KEY, 0, sender="b")
    shapes, those = ({name: array.shape for name, array in sent.arrays.items()} for sent in (update, full))
    assert shapes == those
    assert update.arrays["sum"].any() == (epsilon is not None)


def test_the_published_variant_takes_an_entity_without_users_too():
    model, data = PrivatePrototypes(2, prototypes="zero_filled", grouping="kmeans", variant="published"), rated()
    rounds, state = start(model, data, n_prototypes=(2,))
    update = rounds.local_round(state, data.select_users([]), KEY, 0, sender="a")
    assert all(np.isfinite(array).all() for array in update.arrays.values())


def test_only_noisy_integers_leave_an_entity(monkeypatch):
    seen = []

    def no_noise(self, values, *, purpose, round, **_):
        seen.append((purpose, round, values.copy()))
        return values

    monkeypatch.setattr(DiscreteLaplace, "add_noise", no_noise)
    model, data = PrivatePrototypes(2, 2, 1.0, max_entries=5), rated()
    rounds, state = start(model, data, ("a", "b"))
    sent = rounds.local_round(state, data, KEY, 0, sender="b").arrays
    assert [(purpose, round) for purpose, round, _ in seen] == [("prototypes.sums", 1), ("prototypes.counts", 1)]
    np.testing.assert_array_equal(seen[0][2], sent["sum"])
    np.testing.assert_array_equal(seen[1][2], sent["count"])
    assert sent["count"].shape == sent["sum"].shape == (2, 25)


def test_entities_draw_different_noise():
    data = rated()
    model = PrivatePrototypes(1, 2, 0.01)
    rounds, state = start(model, data, ("a", "b"))
    a, b = (rounds.local_round(state, data, KEY, 0, sender=name).arrays["sum"] for name in ("a", "b"))
    assert (a != b).mean() > 0.9


def test_rows_of_one_user_are_limited():
    data, owner = rated(40), np.arange(40) % 10
    model = PrivatePrototypes(max_rows_per_user=3)
    chosen_rows = model._choose_rows(owner, data, KEY)
    assert np.bincount(owner[chosen_rows]).tolist() == [3] * 10
    assert model._choose_rows(None, data, KEY).all()
    assert PrivatePrototypes(max_rows_per_user=4)._choose_rows(owner, data, KEY).all()


def test_the_kind_of_prototypes_is_chosen_from_public_numbers():
    sizes = [None, 100, 600, 10_000, 100_000, 10**6, 10**8]
    chosen = [choose_n_prototypes(size, 3706, 150, 111.0) for size in sizes]
    assert chosen[:3] == [1, 1, 1]
    assert chosen == sorted(chosen)
    assert chosen[4] > 1
    assert chosen[-1] == 300
    data = rated()
    public = {"x": 10**6, "y": 10}
    model = PrivatePrototypes("auto", 2, 1.0, 1e-5, max_entries=5)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        model.fit(data, entities=np.where(np.arange(60) < 30, "x", "y"), public_sizes=public, key=KEY)
    assert model.n_prototypes_.tolist() == [300, 1]
    fewer = PrivatePrototypes("auto", 2, 1.0, 1e-5, max_entries=5)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        fewer.fit(data.select_users(np.arange(31)), entities=["x"] * 30 + ["y"], public_sizes=public, key=KEY)
    assert fewer.n_prototypes_.tolist() == [300, 1]


@pytest.mark.parametrize("candidates", ["public", "grid"])
def test_more_clusters_than_the_usual_candidates(candidates):
    data = rated(40, 6)
    model = PrivatePrototypes(230, 2, 1.0, 1e-5, grouping="kmeans", candidates=candidates).fit(data, key=KEY)
    assert model.n_prototypes_.tolist() == [230]


def test_drowned_prototypes_are_warned_of():
    with pytest.warns(UserWarning, match=r"1 of 2 entities send noise: twice its standard deviation \(\d+ users\)"):
        PrivatePrototypes(1, 2, 0.1).fit(rated(), entities=np.arange(60) % 2, public_sizes={0: 10**7, 1: 50}, key=KEY)


def test_new_users_of_known_and_new_entities_are_served():
    data = rated(80)
    old, new = data.select_users(np.arange(60)), data.select_users(np.arange(60, 80))
    for refine in (False, True):
        model = PrivatePrototypes(1, 3, 5.0, refine=refine).fit(old, entities=np.arange(60) % 2, key=KEY)
        served = model.serve(new, entities=[0] * 10 + ["new"] * 10)
        assert served.user_entities_.tolist() == [0] * 10 + [-1] * 10
        assert served.predict(new.user_ids[[0, 15]], new.item_ids[[3, 4]]).shape == (2,)
        served_new = model.serve(old, entities=np.arange(60) % 2)
        np.testing.assert_allclose(served_new.user_factors_, model.user_factors_)
        np.testing.assert_array_equal(served.item_factors_, model.item_factors_)
        assert served.ledger_ is model.ledger_


def test_refined_models_differ_by_entity_and_are_not_saved_without_users(tmp_path):
    model = PrivatePrototypes(1, 3, 5.0, refine=True).fit(rated(), entities=np.arange(60) % 3, key=KEY)
    assert model.user_side_item_factors_.shape == (3, 25, 3)
    assert (model.user_side_item_factors_[0] != model.user_side_item_factors_[1]).any()
    users = model.interactions_.user_ids
    _, scores = model.recommend(users[:6], n=25, filter_seen=False)
    items, _ = model.recommend(users[:6], n=25, filter_seen=False)
    for row in range(6):
        np.testing.assert_allclose(model.score(users[[row] * 25], items[row]), scores[row])
    model.save(tmp_path / "m", include_users=False)
    with np.load(tmp_path / "m") as file:
        assert file["model.user_side_item_factors_"].size == file["model.user_factors_"].size == 0


def test_labels_that_look_alike_are_different_entities():
    data, labels = rated(40), np.array([1, "1"] * 20, dtype=object)
    labels[::2] = 1
    model = PrivatePrototypes(2, 2, 1.0).fit(data, entities=labels, public_sizes={1: 10**4, "1": 10**4}, key=KEY)
    assert set(model.entity_ids_.tolist()) == {1, "1"}
    assert np.bincount(model.user_entities_).tolist() == [20, 20]
    assert model.communication_.rounds[0].n_clients == 2


def test_the_engines_order_of_entities_has_no_effect():
    data, names = rated(), ("a", "b")
    model = PrivatePrototypes(2, 2, 1.0)
    rounds, state = start(model, data, names)
    halves = [rounds.local_round(state, data.shard(2)[h], KEY, 0, sender=name) for h, name in enumerate(names)]
    one, other = (rounds.apply(state, rounds.merge(*pair)) for pair in (halves, halves[::-1]))
    for name in ("entities", "items", "counts", "sums"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_the_published_variant_states_that_it_has_no_guarantee():
    choices = {"prototypes": "zero_filled", "value_range": (0.0, 5.0), "grouping": "kmeans", "variant": "published"}
    data = rated(200, 20, density=1.0)
    model = PrivatePrototypes(2, 2, 1e4, **choices).fit(data, entities=np.arange(200) % 2, key=KEY)
    assert model.ledger_.epsilon("server") == model.ledger_.epsilon("public") == np.inf
    assert "nominal, not a guarantee" in model.ledger_.to_json()
    # With almost no noise, its prototypes are means of clusters and count all users of them.
    rounds, state = start(model, data)
    sent = rounds.local_round(state, data, KEY, 0, sender="a").arrays
    steps = rounds.recovery.steps_per_unit
    assert 200 <= sent["count"].sum() / steps <= 201
    np.testing.assert_allclose(sent["sum"].sum(axis=0) / steps, data.to_scipy().toarray().sum(axis=0), rtol=1e-3)
    noisy, state = start(PrivatePrototypes(2, 2, 0.1, **choices), data)
    other = noisy.local_round(state, data, KEY, 0, sender="a").arrays["sum"]
    assert np.abs(other - sent["sum"]).max() > 100 * steps


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_the_shortest_range_of_values_fits():
    """Check also that without a guarantee, which needs a grid, any range is valid."""
    for value_range, epsilon in (((0.0, 2.0**-16), 1.0), ((0.0, 1e-300), None)):
        model = PrivatePrototypes(1, 2, epsilon, value_range=value_range, grouping="one")
        model.fit(rated(), key=Key.from_seed(1))
        assert np.isfinite(model.item_factors_).all()
        assert np.isfinite(model.user_factors_).all()


def test_bad_arguments_of_fit_and_serve():
    data, model = rated(), PrivatePrototypes(1, 2, 1.0)
    with pytest.raises(ValueError, match=r"entities must have one label per user \(60\), got 3"):
        model.fit(data, entities=[1, 2, 3])
    with pytest.raises(ValueError, match=r"users must have one label per user \(60\), got 3"):
        model.fit(data, users=[1, 2, 3])
    with pytest.raises(ValueError, match="public_sizes must have all entities, got none for 'b'"):
        model.fit(data, entities=["a", "b"] * 30, public_sizes={"a": 5})
    with pytest.raises(TypeError, match=r"public_sizes\['b'\] must be an integer, got None"):
        model.fit(data, entities=["a", "b"] * 30, public_sizes={"a": 5, "b": None})
    model.fit(data, key=KEY)
    with pytest.raises(ValueError, match="must have the items that the model was fitted on"):
        model.serve(rated(5, 24))
    with pytest.raises(ValueError, match="interactions must not be empty"):
        PrivatePrototypes(1, 2, None).fit(data.select_users(np.empty(0, dtype=np.int64)))


class AlteringEngine(LocalEngine):
    """Engine that replaces one entity's message by the result of `change`."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def _answers(self, *arguments):
        for update in super()._answers(*arguments):
            yield self.change(update) if update.sender.endswith(" 1") else update


def altered(name, change):
    def alter(update):
        arrays = dict(update.arrays)
        arrays[name] = change(arrays[name].copy())
        return Update(update.round, update.sender, update.n_clients, arrays)

    return alter


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda update: None, "must be an Update"),
        (altered("sum", lambda a: a.astype(float)), "'sum' must have dtype int64"),
        (altered("sum", lambda a: a[:, :-1].copy()), "'sum' must have shape"),
        (altered("entity", lambda a: 0 * a), "has prototypes of another entity"),
        (altered("entity", lambda a: a + 7), "'entity' must be at most 1"),
        (altered("item", lambda a: 0 * a), "has an item twice"),
        (altered("count", lambda a: a[:1]), r"has \[1, 2\] prototypes, and must have 2"),
        (altered("count", lambda a: np.concatenate([a, a])), r"has \[2, 4\] prototypes, and must have 2"),
    ],
)
def test_bad_messages_are_named_and_the_round_goes_on(change, reason):
    engine = AlteringEngine(change)
    model = PrivatePrototypes(2, 2, 1.0).fit(rated(), entities=np.arange(60) % 2, key=KEY, engine=engine)
    (rejection,) = [r for r in engine.rejections if "no acceptable message" not in r.reason]
    assert re.search(reason, rejection.reason)
    assert np.isfinite(model.item_factors_).all()


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouping", ["random", "kmeans"])
@pytest.mark.parametrize("epsilon", [1.0, None])
def test_threads_do_not_change_the_model(grouping, epsilon):
    data = rated(300, 40)
    one, four = (
        PrivatePrototypes(3, 4, epsilon, grouping=grouping, refine=True).fit(
            data, entities=np.arange(300) % 3, key=KEY, n_threads=n
        )
        for n in (1, 4)
    )
    for name in ("item_factors_", "user_factors_", "user_side_item_factors_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(four, name))


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_the_noise_has_the_budgets_size(delta):
    from scipy.stats import norm

    data = rated(3, 2000)
    model = PrivatePrototypes(2, 2, 1.0, delta)
    rounds, state = start(model, data)
    noise = []
    for seed in range(10):
        key = Key.from_seed(seed)
        limited = rounds._limit(data, key)
        rule = model._sums(2000)
        added = recover_prototypes(limited, rounds._group(limited, 2, key, 0, 1), 2, rule, key=key)
        sent = rounds.local_round(state, data, key, 0, sender="a").arrays
        noise += [(sent["count"] - added.counts).ravel(), (sent["sum"] - added.sums).ravel()]
    draws = np.concatenate(noise) / rounds.recovery.steps_per_unit
    stddev = rounds.recovery.stddev
    # These are the kurtoses of Laplace and of Gaussian noise.
    fourth = 6.0 if delta is None else 3.0

    def p_value(factor):
        return 2 * norm.sf(abs((draws**2).mean() / (factor * stddev) ** 2 - 1) / np.sqrt((fourth - 1) / len(draws)))

    assert p_value(1.0) > ALPHA
    assert p_value(0.9) < ALPHA
    assert p_value(1.1) < ALPHA
