"""The choice between popularity and a personal model: scores, independent noise, and dependence on the release only."""

import dataclasses
import functools
import itertools
import json
import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.gram import decision as naive
from scipy import stats
from support.data import of_dense
from support.feature_case import grouped
from support.noise_case import RecordingEngine

from fastfedrec import DPGram, Key, datasets
from fastfedrec.core.memory import total_bytes
from fastfedrec.systems._linear_scores import popularity_shares
from fastfedrec.systems._pair_matrix import Candidate, PairMatrix
from fastfedrec.systems.gram import decision as module
from fastfedrec.systems.gram import dp_gram
from fastfedrec.systems.gram import dp_gram_rounds as rounds
from fastfedrec.systems.gram.decision import RIDGES, choose_candidate, decision_memory, named_estimators
from fastfedrec.systems.gram.pairs import PairForm
from fastfedrec.systems.gram.shrinkage import denoise_pairs
from fastfedrec.systems.measurement import HitSum
from fastfedrec.testing import ALPHA

KEY = Key.from_seed(3)


def symmetric_noise(rng, n_items):
    upper = np.triu(rng.normal(size=(n_items, n_items)), 1)
    return upper + upper.T


def pair_matrix(n_items, *, noise, strength, seed=1, noise_seed=1, rank=3, has_popularity=True, weight=1e4):
    """Return a release of a matrix of low rank, with this share of each item's square in the personal part."""
    rng = np.random.default_rng(seed)
    mean = 0.7 * popularity_shares(rng.lognormal(sigma=0.8, size=n_items)) ** 0.5
    squares = weight * popularity_shares(mean)
    taste = rng.normal(size=(n_items, rank)) * np.sqrt(strength * squares / rank)[:, None]
    popularity = math.sqrt(weight) * mean
    clean = taste @ taste.T + (0 if has_popularity else np.outer(popularity, popularity))
    values = clean + noise * symmetric_noise(np.random.default_rng(noise_seed), n_items)
    np.fill_diagonal(values, 0)
    return PairMatrix(values.astype(np.float32), noise, squares, popularity if has_popularity else None)


def leading(n_columns, matrix, noise):
    """Return factors of the largest eigenvalues, not shrunk."""
    values, vectors = np.linalg.eigh(matrix.astype(np.float64))
    return vectors[:, ::-1][:, :n_columns] * np.sqrt(np.maximum(values[::-1][:n_columns], 0))


def decide(pairs, estimator=denoise_pairs, ridges=RIDGES):
    return choose_candidate(pairs, {"pairs": estimator}, ridges)


def is_centred(values, stddev):
    """Return whether the mean of independent values with this standard deviation is consistent with 0."""
    return abs(np.mean(values)) <= stats.norm.isf(ALPHA / 2) * stddev / math.sqrt(len(values))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    n_items=st.integers(2, 12), rank=st.integers(1, 4), noise=st.sampled_from([1.0, 30.0, 1e3]),
    has_popularity=st.booleans(), ridges=st.lists(st.sampled_from([0.1, 1.0, 8.0]), min_size=1, unique=True),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_scores_equal_dense_algebra(n_items, rank, noise, has_popularity, ridges, seed):
    pairs = pair_matrix(
        n_items, noise=noise, strength=0.4, seed=seed, noise_seed=seed + 1, has_popularity=has_popularity
    )
    estimator = functools.partial(leading, min(rank, n_items))
    decision = decide(pairs, estimator, ridges)
    expected = dict.fromkeys(decision.scores, 0.0)
    wide = noise * math.sqrt(1 + module._SPLIT)
    for training in module._training_matrices(pairs):
        matrix, factors = naive.test_matrix(pairs, training, module._SPLIT), estimator(training, wide)
        for candidate in expected:
            ridge = candidate.ridge * wide * math.sqrt(n_items)
            weights = naive.weights_of(pairs, factors, candidate.personal_weight, ridge)
            expected[candidate] += naive.score(matrix, weights) / 2
    scale = max(1.0, max(map(abs, expected.values())))
    assert decision.scores == pytest.approx(expected, abs=2e-3 * scale)
    assert len(expected) == 1 + len(ridges) * len(module._PERSONAL_WEIGHTS)


@pytest.mark.parametrize("has_popularity", [True, False])
def test_the_error_is_that_of_two_explicit_matrices(has_popularity):
    pairs = pair_matrix(30, noise=5.0, strength=0.4, has_popularity=has_popularity)
    decision = decide(pairs, ridges=(1.0,))
    best, popularity = (max((c for c in decision.scores if bool(c.personal_weight) == p), key=decision.scores.get)
                        for p in (True, False))  # fmt: skip
    *_, training = (matrix.copy() for matrix in module._training_matrices(pairs))
    wide = pairs.noise * math.sqrt(1 + module._SPLIT)
    matrix, factors = naive.test_matrix(pairs, training, module._SPLIT), denoise_pairs(training.copy(), wide)
    scaled = []
    for candidate in (best, popularity):
        weights = naive.weights_of(pairs, factors, candidate.personal_weight, wide * math.sqrt(30))
        scaled.append(weights / math.sqrt(np.trace(weights.T @ matrix @ weights)))
    # The noise is symmetric, so each pair has the sum of two weights.
    both = (scaled[0] - scaled[1]) + (scaled[0] - scaled[1]).T
    expected = pairs.noise * np.linalg.norm(np.triu(both, 1)) / abs(decision.scores[popularity])
    assert decision.error == pytest.approx(expected, rel=1e-3)
    assert decision.gain == pytest.approx(decision.scores[best] / decision.scores[popularity] - 1)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_both_training_matrices_are_symmetric_and_their_mean_is_the_release():
    pairs = pair_matrix(40, noise=2.0, strength=0.3)
    one, other = (matrix.copy() for matrix in module._training_matrices(pairs))
    for matrix in (one, other):
        np.testing.assert_array_equal(matrix, matrix.T)
        assert not matrix.diagonal().any()
        assert (matrix != pairs.values).sum() == 40 * 39
    np.testing.assert_allclose((one + other) / 2, pairs.values, atol=1e-4)


def test_blocks_of_rows_have_independent_noise(monkeypatch):
    monkeypatch.setattr(module, "_ROWS", 16)
    pairs = PairMatrix(np.zeros((48, 48), np.float32), 1.0, np.ones(48))
    first, _ = (matrix.copy() for matrix in module._training_matrices(pairs))
    np.testing.assert_array_equal(first, first.T)
    values = first[np.triu_indices(48, 1)]
    assert len(np.unique(values)) == len(values)
    assert stats.kstest(values / math.sqrt(module._SPLIT), "norm").pvalue > ALPHA


def test_noise_alone_gains_no_more_than_its_error_and_a_strong_signal_is_answered_by_a_personal_model():
    for seed in range(6):
        noise_only = decide(pair_matrix(60, noise=20.0, strength=0.0, seed=seed, noise_seed=seed))
        strong = decide(pair_matrix(60, noise=20.0, strength=0.4, seed=seed, noise_seed=seed))
        assert noise_only.gain < 4 * noise_only.error
        assert strong.is_personal
        assert strong.gain > 10 * strong.error > 0
        for decision in (noise_only, strong):
            assert decision.is_personal == (decision.gain > 0)
            if decision.is_personal:
                assert decision.scores[decision.chosen] == max(decision.scores.values())
            else:
                assert decision.chosen == Candidate(0.0, min(RIDGES))


def test_only_the_given_ridge_is_tried():
    decision = decide(pair_matrix(30, noise=1.0, strength=0.5), ridges=(3.5,))
    assert {candidate.ridge for candidate in decision.scores} == {3.5}
    model = DPGram(4.0, ridge=3.5).fit(datasets.generate_implicit(500, 40, key=KEY), key=KEY)
    assert {candidate.ridge for candidate in model.decision_.scores if candidate.personal_weight} == {3.5}


@pytest.mark.parametrize("has_popularity", [True, False])
def test_no_noise_makes_a_decision_fail(has_popularity):
    """If all estimates are empty, all candidates are equal, and popularity is chosen."""
    pairs = pair_matrix(7, noise=1e6, strength=0.1, has_popularity=has_popularity)
    decision = decide(pairs, lambda matrix, noise: np.zeros((7, 0)), ridges=(1.0,))
    assert not decision.is_personal
    assert np.isfinite([decision.gain, decision.error, *decision.scores.values()]).all()
    assert len(set(decision.scores.values())) == 1


def test_a_decision_does_not_depend_on_threads():
    pairs = pair_matrix(600, noise=1.0, strength=0.5)
    threads: dict[int, set[int]] = {}

    def decided(n_threads):
        def estimate(matrix, noise):
            threads.setdefault(n_threads, set()).add(threading.get_ident())
            return denoise_pairs(matrix, noise)

        return choose_candidate(pairs, {"pairs": estimate}, RIDGES, n_threads)

    assert decided(1) == decided(2) == decided(5)
    assert [len(idents) for idents in threads.values()] == [1, 2, 2]


def test_large_matrices_are_evaluated_one_after_another(monkeypatch):
    """Their estimates use all threads, and two of them would take twice the memory."""
    monkeypatch.setattr("fastfedrec.systems.gram.shrinkage._MAX_FULL", 0)
    one, two = (decision_memory(5_000, n) for n in (1, 2))
    assert total_bytes(one) == total_bytes(two)
    small, both = (total_bytes(decision_memory(1_500, n)) for n in (1, 2))
    assert small == both
    monkeypatch.undo()
    assert total_bytes(decision_memory(1_500, 2)) == 2 * total_bytes(decision_memory(1_500, 1))


def test_a_decision_is_written_as_plain_values():
    decision = decide(pair_matrix(30, noise=1.0, strength=0.5))
    plain = json.loads(json.dumps(decision.to_dict()))
    assert (plain["is_personal"], plain["gain"], plain["error"]) == (True, decision.gain, decision.error)
    rows = {Candidate(r["personal_weight"], r["ridge"], r["estimator"]): r for r in plain["candidates"]}
    assert {candidate: row["score"] for candidate, row in rows.items()} == decision.scores
    assert [candidate for candidate, row in rows.items() if row["chosen"]] == [decision.chosen]


def released(recorded, monkeypatch):
    """Let every round return the releases of a recorded run, independently of its sums."""
    noisy = [one.after.noisy for one in recorded]

    def scripted(self, state, update):
        return dataclasses.replace(state, noisy=noisy.pop(0))

    for kind in (rounds.ShareSum, rounds.PairSum, rounds.CrossSum, HitSum):
        monkeypatch.setattr(kind, "apply", scripted)
    return noisy


@pytest.mark.parametrize("has_features", [False, True])
def test_the_decision_follows_from_the_releases_and_not_from_the_data(monkeypatch, has_features):
    """Other data behind the same releases change nothing; other releases for the same data change the decision.

    Features explain the pairs of the first data only.
    """
    (data, _, groups), (other_data, *_) = grouped(1_500, 60, 1), grouped(1_500, 60, 2)
    options, engine = {"item_features": {"group": groups} if has_features else None}, RecordingEngine()
    mine, theirs = (
        DPGram(4.0, **options).fit(rows, key=KEY, engine=engine_of_fit)
        for rows, engine_of_fit in ((data, engine), (other_data, None))
    )
    assert mine.decision_.scores != theirs.decision_.scores
    remaining = released(engine.rounds, monkeypatch)
    refitted = DPGram(4.0, **options).fit(other_data, key=KEY)
    assert not remaining
    assert refitted.decision_ == mine.decision_
    for name in refitted._saved:
        np.testing.assert_array_equal(getattr(refitted, name), getattr(mine, name))


def independent(rows):
    """Return rows of the same lengths and about the same popularity, with independent items."""
    rng, shares = np.random.default_rng(7), rows.interactions_per_item() / rows.n_interactions
    scores = np.log(shares + 1e-3) + rng.gumbel(size=rows.shape)
    dense = np.argsort(np.argsort(-scores)) < rows.interactions_per_user()[:, None]
    return of_dense(dense.astype(np.float32))


def test_pairs_and_the_users_who_measure_them_decide_together(monkeypatch):
    """A signal must be in the released pairs and columns and in the rows of the users who rank an item."""
    with_signal = grouped(1_500, 60, 1)[0]
    rows = {True: with_signal, False: independent(with_signal)}
    # If users' rows are also in the pairs, their own contribution to the pairs adds a few hundredths to the gain.
    for in_pairs, in_measurement in itertools.product(rows, rows):
        with monkeypatch.context() as patch:
            for kind, has_signal in ((rounds.PairSum, in_pairs), (rounds.CrossSum, in_pairs), (HitSum, in_measurement)):
                patch.setattr(kind, "_sums", sums_over(rows[has_signal], kind._sums))
            gain = DPGram(4.0).fit(with_signal, key=KEY).decision_.gain
        assert gain > 0.3 if in_pairs and in_measurement else gain < 0.1


def sums_over(rows, sums):
    return lambda self, state, shard, key, n_threads: sums(self, state, rows, key, n_threads)


# ---- features -------------------------------------------------------------------------------------------------------


def test_features_that_explain_pairs_are_chosen_and_those_of_noise_are_not(monkeypatch):
    rows, _, groups = grouped(2_000, 100, 1)
    rng, used, best_estimator_of = np.random.default_rng(4), [], dp_gram.best_estimator
    monkeypatch.setattr(
        dp_gram, "best_estimator", lambda *arguments: used.append(best_estimator_of(*arguments)) or used[-1]
    )
    for seed in range(2):
        noise = {"label": rng.permutation(groups), "vector": rng.normal(size=(len(groups), 5))}
        models, chosen = [], []
        for features in ({"group": groups}, noise, None):
            models.append(DPGram(0.7, item_features=features).fit(rows, key=Key.from_seed(seed)))
            chosen.append(used[-1])
        true, useless, without = models
        assert chosen == ["pairs and item features", "pairs", "pairs"]
        assert true.decision_.scores != useless.decision_.scores
        assert useless.decision_ == without.decision_
        assert true.ledger_.events == useless.ledger_.events == without.ledger_.events
        for name in without._saved:
            np.testing.assert_array_equal(getattr(useless, name), getattr(without, name))


def test_estimators_have_the_features_that_their_names_state():
    given = named_estimators("features", lambda features, matrix, noise: (features, matrix, noise))
    assert {name: call(1, 2) for name, call in given.items()} == {
        "pairs": (None, 1, 2), "pairs and item features": ("features", 1, 2)
    }  # fmt: skip
    assert list(named_estimators(None, lambda *_: None)) == ["pairs"]


# ---- statistics -----------------------------------------------------------------------------------------------------


def test_training_and_test_noise_are_uncorrelated_and_as_wide_as_stated():
    n_items, n_draws, split = 60, 30, module._SPLIT
    upper, products, with_release, widths = np.triu_indices(n_items, 1), [], [], []
    for seed in range(n_draws):
        noise = symmetric_noise(np.random.default_rng(seed), n_items).astype(np.float32)
        pairs = PairMatrix(noise, 1.0, np.ones(n_items))
        for training in module._training_matrices(pairs):
            test = module._test_matrix(pairs, training)
            np.testing.assert_allclose(test[upper], naive.test_matrix(pairs, training, split)[upper], atol=1e-5)
            products.append(np.mean(training[upper] * test[upper]))
            with_release.append(np.mean(training[upper] * noise[upper]))
            widths.append((np.var(training[upper]), np.var(test[upper])))
    # E is one public draw, so its mean square differs from 1.
    public = np.mean(((training - noise) ** 2)[upper]) / split
    products = np.array(products).reshape(n_draws, 2).mean(axis=1) - (1 - public)
    per_draw = math.sqrt(2 / len(upper[0]))
    assert is_centred(products, per_draw)
    assert not is_centred(np.array(with_release), per_draw)  # the control: the release itself is not independent
    assert np.mean(widths, axis=0) == pytest.approx([1 + split, 1 + 1 / split], rel=0.05)


def test_a_matrix_that_scored_itself_would_choose_a_model_of_noise(monkeypatch):
    """The negative control of the split: with the training matrix in place of the test matrix, noise looks useful."""
    estimator = functools.partial(leading, 10)
    cases = [pair_matrix(60, noise=20.0, strength=0.0, seed=seed, noise_seed=seed) for seed in range(8)]
    split = [decide(pairs, estimator) for pairs in cases]
    assert all(decision.gain < 4 * decision.error for decision in split)
    assert not all(decision.is_personal for decision in split)
    monkeypatch.setattr(module, "_test_matrix", lambda pairs, training: training.copy())
    assert all(decision.gain > 6 * decision.error > 0 for decision in (decide(pairs, estimator) for pairs in cases))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_stated_error_is_the_spread_over_noise(epsilon, monkeypatch):
    """One candidate beside popularity, so that no maximum is taken; half and twice the error are excluded."""
    monkeypatch.setattr(module, "_PERSONAL_WEIGHTS", (1.0,))
    data, engine = datasets.generate_implicit(4_000, 80, key=Key.from_seed(1)), RecordingEngine()
    model = DPGram(epsilon).fit(data, key=KEY, engine=engine)
    form, recorded = PairForm.of(model.item_means_, data.n_users), engine.rounds[1]
    noise, decisions = recorded.system.width, []
    for seed in range(120):
        draws = np.random.default_rng(seed).normal(size=recorded.update.arrays["item_pairs"].size)
        pairs = form.matrix(recorded.update.arrays["item_pairs"] / rounds.UNIT + noise * draws, noise)
        decisions.append(decide(pairs, ridges=(1.0,)))
    spread, error = np.std([one.gain for one in decisions], ddof=1), np.mean([one.error for one in decisions])
    assert 0.7 < spread / error < 1.4
    assert not 0.7 < spread / (2 * error) < 1.4
    assert not 0.7 < spread / (error / 2) < 1.4
