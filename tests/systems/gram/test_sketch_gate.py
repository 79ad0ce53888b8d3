"""The gates of ShuffledSketchGram, by public numbers and by what was estimated; and what it takes for popularity."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.systems.gram import shuffled_sketch as naive

from fastfedrec import Key, ShuffledSketchGram, datasets
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.systems.gram.shuffled_sketch import N_CANDIDATES, mean_largest, mean_length
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchRound

KEY = Key.from_seed(3)
LONG = datasets.generate_implicit(4_000, 100, key=Key.from_seed(1), mean_interactions=30)
SHORT = LONG.keep_interactions(Key.from_seed(2).uniform("test", size=LONG.n_interactions) < 0.07)


def generated(n_users=4000, n_items=60, seed=1):
    return datasets.generate_implicit(n_users, n_items, key=Key.from_seed(seed))


def fitted(epsilon, data, **arguments):
    return ShuffledSketchGram(epsilon, **arguments).fit(data, key=KEY)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_pairs_tell_how_long_rows_are(lengths, seed):
    rng = np.random.default_rng(seed)
    rows = np.zeros((len(lengths), 9))
    for row, length in zip(rows, lengths, strict=True):
        row[rng.choice(9, length, replace=False)] = length**-0.5
    pairs = rows.T @ rows
    np.fill_diagonal(pairs, 77.0)  # nothing of which is known
    assert mean_length(pairs, len(rows)) == pytest.approx(np.mean(lengths))
    assert mean_length(-pairs, len(rows)) == 1.0


def test_popularity_of_the_open_model_is_about_the_share_of_users():
    data = generated(5000)
    model = fitted(8.0, data)
    shares = data.interactions_per_item() / data.n_users
    assert np.corrcoef(model.item_means_, shares)[0, 1] > 0.97


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_an_estimate_of_short_rows_is_used_for_popularity_alone_at_no_cost():
    for rows, is_open in ((LONG, True), (SHORT, False)):
        gated, opened = (fitted(2.0, rows, gate=gate) for gate in (True, False))
        assert gated.signal_ > 30
        assert (gated.item_factors_.shape[1] > 0) is is_open
        assert opened.item_factors_.shape[1] > 0
        assert ("so only popularity is taken from it" in gated.ledger_.summary()) is not is_open
        assert gated.ledger_.events == opened.ledger_.events
        np.testing.assert_array_equal(gated.item_means_, opened.item_means_)


@pytest.mark.parametrize("says_short", [True, False])
def test_gate_and_ridge_look_at_nothing_but_what_was_estimated(says_short, monkeypatch):
    """With the answers of other people, it does as with those people."""
    mine, others = (LONG, SHORT) if says_short else (SHORT, LONG)
    expected, answer = fitted(2.0, others), SketchRound.local_round
    assert (expected.item_factors_.shape[1] == 0) is says_short

    def misled(self, state, shard, *rest, **options):
        return answer(self, state, others, *rest, **options)

    monkeypatch.setattr(SketchRound, "local_round", misled)
    found = fitted(2.0, mine)
    for name in found._saved:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.ledger_.notes == expected.ledger_.notes


def test_the_gate_asks_for_popularity_and_says_so():
    data = generated(300)
    model = fitted(4.0, data)
    assert model.signal_ < 30
    assert model.item_factors_.shape == (60, 0)
    assert "so all of epsilon went to popularity" in model.ledger_.summary()
    ids, _ = model.recommend(data.user_ids, n=60, filter_seen=False)
    assert (ids == ids[0]).all()
    shares = data.to_scipy() / np.sqrt(data.interactions_per_user())[:, None]
    # Weighed by what the largest entries of rows of their lengths are, over what they are in long rows.
    lengths = data.interactions_per_user()
    weigh = {n: naive.mean_largest(n, N_CANDIDATES, 1) / math.sqrt(n) for n in set(lengths.tolist())}
    weights = np.array([weigh[n] for n in lengths.tolist()]) / mean_largest(N_CANDIDATES, has_pairs=False)
    noise = LargestResponse(2.5).decoder / mean_largest(N_CANDIDATES, False) / math.sqrt(300 * model.n_reports_)
    assert np.abs(model.item_means_ - (shares.T @ weights) / 300).max() < 6 * noise
    assert 0.8 < weights.mean() < 1
    assert fitted(4.0, data, gate=False).ledger_.events != model.ledger_.events


def test_the_gate_sees_public_numbers_only():
    found = {fitted(1.0, generated(500, seed=seed)).signal_ for seed in (1, 2)}
    n_reports = fitted(1.0, generated(500)).n_reports_
    assert len(found) == 1
    weight = mean_largest(N_CANDIDATES, has_pairs=True) / LargestResponse(2.5).decoder
    assert found.pop() == pytest.approx(weight * math.sqrt(500 * n_reports / 60))
