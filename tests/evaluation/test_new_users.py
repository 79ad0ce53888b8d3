"""The protocol of new users: the split, and ranks among everything a user has never had."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.evaluation import new_users as naive
from support.data import rated

from fastfedrec import EASE, Interactions, ItemKNN, Key, OwnHistory, Popularity, datasets
from fastfedrec.data.log import InteractionLog
from fastfedrec.evaluation.new_users import METRICS, evaluate_personalized, personalization_split

REAL = Path(__file__).resolve().parents[3] / "shared/data"


class Coarse:
    """Scores with many ties, by pairs."""

    def score(self, user_ids, item_ids):
        return (np.asarray(user_ids) * 7 + np.asarray(item_ids) * 5) % 4


class InContext:
    """Scores all items, for a user in a context."""

    def score_items(self, user_ids, contexts):
        return (np.asarray(user_ids)[:, None] * 7 + np.arange(30) * 5 + np.asarray(contexts["hour"])[:, None]) % 6 / 2


def logged(n_entries=600, n_users=25, n_items=30, seed=1):
    words = Key.from_seed(seed).words("test.log", size=3 * n_entries).reshape(3, -1)
    users, items = np.r_[words[0] % n_users, np.arange(n_users)], np.r_[words[1] % n_items, np.arange(n_users)]
    items[-1] = n_items - 1
    log = InteractionLog.from_arrays(users, items, {"hour": np.r_[words[2] % 24, np.zeros(n_users, dtype=np.uint64)]})
    assert log.interactions.n_items == n_items
    return log


def pairs(data):
    return set(zip(np.repeat(np.arange(data.n_users), data.interactions_per_user()), data.indices, strict=True))


# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
def test_equals_the_twin(k):
    data = rated(40, 40, 3)
    split = personalization_split(data, threshold=3, test_fraction=0.3, key=Key.from_seed(0))
    actual = evaluate_personalized(Coarse(), split, metrics=[f"hr@{k}", f"ndcg@{k}"])
    held_out = [(u, i, None) for u, i in sorted(pairs(split.held_out))]
    expected = naive.metrics_by_user(
        lambda u, i, _: (u * 7 + i * 5) % 4, pairs(data), pairs(split.known), held_out, k
    )  # fmt: skip
    for kind in ("all", "new"):
        assert list(actual[kind].values()) == pytest.approx(expected[kind], rel=1e-12)


def test_a_log_equals_the_twin():
    log = logged()
    split = personalization_split(log, test_fraction=0.3, key=Key.from_seed(0))
    actual = evaluate_personalized(InContext(), split, metrics=["hr@4", "ndcg@4"])
    part = split.held_out
    held_out = list(zip(part.users, part.items, part.contexts["hour"], strict=True))
    expected = naive.metrics_by_user(
        lambda u, i, hour: (u * 7 + i * 5 + hour) % 6 / 2,
        pairs(log.interactions), pairs(split.known.interactions), held_out, 4,
    )  # fmt: skip
    assert actual["all"] != actual["new"]
    for kind in ("all", "new"):
        assert list(actual[kind].values()) == pytest.approx(expected[kind], rel=1e-12)


# ---- invariants ------------------------------------------------------------------------------------------------------


@given(st.integers(2, 30), st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_the_split_of_interactions(n_users, fraction, seed):
    data = rated(30, 35, seed % 7).select_users(np.arange(n_users))
    split = personalization_split(data, threshold=3, test_fraction=fraction, key=Key.from_seed(seed))
    np.testing.assert_array_equal(np.sort(np.r_[split.train_users, split.test_users]), np.arange(n_users))
    assert len(split.test_users) == min(max(round(fraction * n_users), 1), n_users - 1)
    full, known = data.interactions_per_user(), split.known.interactions_per_user()
    np.testing.assert_array_equal(full[split.train_users], known[split.train_users])
    half = full[split.test_users] / 2
    assert (np.abs(known[split.test_users] - half) < 1).all()
    values = dict(zip(sorted(pairs(data)), data.values_or_ones(), strict=True))
    missing = pairs(data) - pairs(split.known)
    assert pairs(split.held_out) == {pair for pair in missing if values[pair] > 3}
    assert split.train.n_users + split.personal.n_users == n_users
    assert split.known_positives.n_interactions == sum(values[pair] > 3 for pair in pairs(split.known))


def test_the_split_of_a_log():
    log = logged()
    split = personalization_split(log, key=Key.from_seed(5))
    assert split.known.n_entries + split.held_out.n_entries == log.n_entries
    assert set(split.held_out.users) <= set(split.test_users)
    uses = split.known.interactions.to_scipy() + split.held_out.interactions.to_scipy()
    assert (uses != log.interactions.to_scipy()).nnz == 0
    assert pairs(split.known.interactions) & pairs(split.held_out.interactions)  # a pair may be on both sides
    assert split.known_positives is split.known.interactions


def test_a_constant_model_ranks_in_the_middle():
    class Constant:
        def score(self, user_ids, item_ids):
            return np.zeros(len(user_ids))

    split = personalization_split(rated(40, 40, 3), threshold=3, key=Key.from_seed(0))
    unseen = 40 - split.visited.interactions_per_user()[split.test_users]
    middle = int(1 + unseen.max() / 2)
    assert evaluate_personalized(Constant(), split, metrics=[f"hr@{middle}"])["all"][f"hr@{middle}"] == 1
    assert evaluate_personalized(Constant(), split, metrics=["hr@1"])["all"]["hr@1"] == 0


def test_results_do_not_depend_on_blocks(monkeypatch):
    splits = [personalization_split(d, test_fraction=0.4, key=Key.from_seed(1)) for d in (rated(40, 40, 3), logged())]
    whole = [evaluate_personalized(m, s) for m, s in zip((Coarse(), InContext()), splits, strict=True)]
    monkeypatch.setattr("fastfedrec.evaluation.new_users._BLOCK_CELLS", 70)
    assert [evaluate_personalized(m, s) for m, s in zip((Coarse(), InContext()), splits, strict=True)] == whole


def test_without_new_items_there_is_no_figure():
    log = InteractionLog.from_arrays([0, 1, 1, 0, 0], ["a", "a", "a", "b", "b"])
    split = personalization_split(log, test_fraction=0.5, key=Key.from_seed(0))
    half = split.known.select_users(split.test_users).interactions
    actual = evaluate_personalized(OwnHistory().fit(split.known_positives), split, metrics=["hr@1"])
    if half.n_interactions < log.interactions.interactions_per_user()[split.test_users][0]:
        assert actual["new"]["hr@1"] <= 1
    else:
        assert math.isnan(actual["new"]["hr@1"])


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data": 3}, TypeError, "data must be Interactions, a SciPy .* got int"),
        ({"data": Interactions.from_arrays([1], [1])}, ValueError, "data must have at least 2 users, got 1"),
        ({"threshold": -1.0}, ValueError, "threshold must be at least 0"),
        ({"test_fraction": 1.0}, ValueError, "test_fraction must be less than 1"),
        ({"key": 3}, TypeError, "key must be Key"),
    ],
)
def test_bad_splits(arguments, error, message):
    with pytest.raises(error, match=message):
        personalization_split(**({"data": rated(40, 40, 3), "key": Key.from_seed(0)} | arguments))


def test_bad_models():
    split = personalization_split(rated(40, 40, 3), key=Key.from_seed(0))

    class Wrong:
        def __init__(self, shape, fill=0.0):
            self.shape, self.fill = shape, fill

        def score_items(self, user_ids):
            return np.full((len(user_ids), *self.shape), self.fill)

    class TooShort:
        def score(self, user_ids, item_ids):
            return np.zeros(3)

    for model, error, message in (
        (object(), TypeError, "model must have a method score or score_items"),
        (Wrong((3,)), ValueError, r"Wrong.score_items must return shape \(8, 40\), got \(8, 3\)"),
        (Wrong((40,), np.nan), ValueError, "not finite for user 1?[0-9]; has the model diverged"),
        (TooShort(), ValueError, "TooShort.score must return one score a pair"),
    ):
        with pytest.raises(error, match=message):
            evaluate_personalized(model, split)
    with pytest.raises(TypeError, match="split must be PersonalizationSplit"):
        evaluate_personalized(Coarse(), rated(40, 40, 3))
    with pytest.raises(ValueError, match="unknown metric"):
        evaluate_personalized(Coarse(), split, metrics=["hits@5"])
    nothing = personalization_split(rated(40, 40, 3), threshold=9, key=Key.from_seed(0))
    with pytest.raises(ValueError, match="split must hold out at least one positive, got none"):
        evaluate_personalized(Coarse(), nothing)


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_results_do_not_depend_on_threads():
    split = personalization_split(rated(40, 40, 3), threshold=3, key=Key.from_seed(0))
    assert evaluate_personalized(Coarse(), split, n_threads=1) == evaluate_personalized(Coarse(), split, n_threads=4)


# ---- statistics: the figures of docs/explanation/systems/privrec/privrec.md ------------------------------------------


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.exists(), reason="MovieLens 1M and Frappe are not here")
def test_baselines_on_real_data():
    movies = personalization_split(datasets.load_movielens(REAL / "ml-1m.zip"), threshold=3, key=Key.from_seed(0))
    apps = personalization_split(datasets.load_frappe(REAL / "frappe/frappe.csv"), key=Key.from_seed(0))
    for model, split, expected, off in (
        (Popularity(), movies, [0.068, 0.112, 0.172, 0.214], 0.015),
        (ItemKNN(), movies, [0.132, 0.184, 0.253, 0.303], 0.05),  # with other neighbours than the prototype's
        (EASE(250.0), movies, [0.168, 0.242, 0.331, 0.391], 0.015),
        (OwnHistory(), apps, [0.589, 0.638, 0.684, 0.709], 0.07),
    ):
        actual = evaluate_personalized(model.fit(split.known_positives, key=Key.from_seed(0)), split)["all"]
        assert [actual[name] for name in METRICS[:4]] == pytest.approx(expected, abs=off)
