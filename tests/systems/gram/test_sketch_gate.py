"""The gates of ShuffledSketchGram, by public numbers and by the first reports; and what it takes for popularity."""

import math

import numpy as np
import pytest
import scipy.sparse
from naive.systems.gram import shuffled_sketch as naive

from fastfedrec import Interactions, Key, ShuffledSketchGram, datasets
from fastfedrec.accounting import PLDAccountant
from fastfedrec.mechanisms import LargestResponse
from fastfedrec.systems.gram import shuffled_sketch
from fastfedrec.systems.gram.dp_gram import short_row_factor
from fastfedrec.systems.gram.shuffled_sketch import N_CANDIDATES, mean_largest
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchRound

KEY = Key.from_seed(3)
LONG = datasets.generate_implicit(4_000, 100, key=Key.from_seed(1), mean_interactions=30)
SHORT = LONG.keep_interactions(Key.from_seed(2).uniform("test", size=LONG.n_interactions) < 0.07)


def generated(n_users=4000, n_items=60, seed=1):
    return datasets.generate_implicit(n_users, n_items, key=Key.from_seed(seed))


def fitted(epsilon, data, **arguments):
    return ShuffledSketchGram(epsilon, **arguments).fit(data, key=KEY)


def mean_of_rows(data):
    """The exact mean of users' normalised rows."""
    rows = data.to_scipy().toarray()
    return (rows / np.sqrt(np.maximum(rows.sum(axis=1, keepdims=True), 1))).mean(axis=0)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def looked_at(monkeypatch):
    """What the gate is given: strength, means and noise, of each fit."""
    found, own = [], shuffled_sketch.reach_of
    monkeypatch.setattr(shuffled_sketch, "reach_of", lambda *given: found.append(given) or own(*given))
    return found


def test_the_gate_knows_the_noise_of_the_first_reports(looked_at):
    nobody = Interactions.from_scipy(scipy.sparse.csr_array((4_000, 64), dtype=np.float32))
    for seed in range(20):
        ShuffledSketchGram(2.0).fit(nobody, key=Key.from_seed(seed))
    deviates = [abs(np.square(means / noise).mean() - 1) for _, means, noise in looked_at]
    together = np.mean([np.square(means / noise).mean() for _, means, noise in looked_at])
    error = math.sqrt(2 / (20 * 64))
    assert max(deviates) < 6 * error * math.sqrt(20)
    assert abs(together - 1) < 5 * error
    assert abs(together / 0.8**2 - 1) > 5 * error  # noise taken for a fifth less


def test_the_gates_number_is_what_two_rows_have_in_common(looked_at):
    model = fitted(8.0, LONG)
    ((strength, means, noise),) = looked_at
    unit = mean_largest(N_CANDIDATES, has_pairs=True) / LargestResponse(2.5).decoder
    assert strength == pytest.approx(math.sqrt(2 * 4_000 * model.n_reports_) * unit)
    exact = mean_of_rows(LONG)
    found = float(means @ means) - len(means) * noise**2
    assert found == pytest.approx(exact @ exact, rel=0.1)
    assert means.sum() == pytest.approx(exact.sum(), rel=0.1)  # the mean root of rows' lengths


def test_popularity_of_the_open_model_is_about_the_share_of_users():
    data = generated(5000)
    model = fitted(8.0, data)
    shares = data.interactions_per_item() / data.n_users
    assert np.corrcoef(model.item_means_, shares)[0, 1] > 0.97


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_where_rows_are_short_all_that_is_left_goes_to_popularity_at_no_cost():
    for rows, is_open in ((LONG, True), (SHORT, False)):
        gated, opened = (fitted(2.0, rows, gate=gate) for gate in (True, False))
        assert gated.signal_ > 30
        assert (gated.item_factors_.shape[1] > 0) is is_open
        assert opened.item_factors_.shape[1] > 0
        assert ("all that was left of epsilon went to popularity" in gated.ledger_.summary()) is not is_open
        assert ("the spectrum, the factors" in gated.ledger_.summary()) is is_open
        of_gated, of_opened = ([event.n_reports for event in model.ledger_.events] for model in (gated, opened))
        assert of_gated == of_opened
        assert sum(of_gated) == gated.n_reports_
        for view in ("server", "shuffled_server", "public"):
            assert gated.ledger_.epsilon(view) == opened.ledger_.epsilon(view)


def test_both_rounds_about_items_make_the_popularity():
    shares = mean_of_rows(SHORT)

    def error(model):
        means = model.item_means_
        assert model.item_factors_.shape == (100, 0)
        return np.linalg.norm(means * (shares @ means) / (means @ means) - shares)

    half_and_half, nearly_all_later, fewer = (
        error(fitted(epsilon, SHORT, mean_share=share)) for epsilon, share in ((2.0, 0.5), (2.0, 0.01), (1.3, 0.01))
    )
    assert half_and_half < 1.2 * nearly_all_later
    assert fewer > 1.2 * nearly_all_later  # half the reports


@pytest.mark.parametrize("rows", ["long", "short"])
def test_no_two_rounds_draw_the_same_words(rows, monkeypatch):
    purposes, own = [], SketchRound._randomize

    def watched(self, *given, **options):
        with monkeypatch.context() as patch:
            subkey = Key.subkey
            patch.setattr(Key, "subkey", lambda key, purpose: purposes.append(purpose) or subkey(key, purpose))
            return own(self, *given, **options)

    monkeypatch.setattr(SketchRound, "_randomize", watched)
    model = fitted(2.0, LONG if rows == "long" else SHORT)
    assert (model.item_factors_.shape[1] > 0) is (rows == "long")
    assert len(purposes) == len(set(purposes)) == 2


@pytest.mark.parametrize("asked", [1.0, 1.5])
def test_two_rounds_cost_no_more_than_the_budget(asked, monkeypatch):
    """Whatever single reports are said to come to, together."""
    own = shuffled_sketch.calibrate_n_reports
    monkeypatch.setattr(
        shuffled_sketch,
        "calibrate_n_reports",
        lambda event, *, epsilon, delta: int(asked * own(event, epsilon=epsilon, delta=delta)),
    )
    model = fitted(2.0, LONG)
    account = PLDAccountant()
    for event in model.ledger_.events:
        account.compose(event)
    assert 1.98 < account.get_epsilon(1e-6) <= 2.0


@pytest.mark.parametrize("says_short", [True, False])
def test_gate_and_ridge_look_at_nothing_but_what_was_reported(says_short, monkeypatch):
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


@pytest.mark.parametrize(("number", "reach"), [(250.0, 250 / 300), (900.0, 3.0), (20.0, 200 / 300)])
def test_the_ridge_goes_by_the_number_that_the_gate_asks_for(number, reach, monkeypatch):
    asked = []

    def spy(signal, root_length, reach):
        asked.append(reach)
        return short_row_factor(signal, root_length, reach)

    monkeypatch.setattr(ShuffledSketchGram, "_reach", lambda self, *_: number)
    monkeypatch.setattr(shuffled_sketch, "short_row_factor", spy)
    assert fitted(2.0, LONG, gate=False).item_factors_.shape[1]
    assert asked == [pytest.approx(reach)]


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


@pytest.mark.parametrize("mean_share", [1e-9, 0.3, 1 - 1e-9])
@pytest.mark.parametrize("n_reports", [2, 40])
def test_each_round_has_a_report(mean_share, n_reports, monkeypatch):
    monkeypatch.setattr(shuffled_sketch, "calibrate_n_reports", lambda *given, **budget: n_reports)
    first, later = (event.n_reports for event in fitted(2.0, LONG, mean_share=mean_share, gate=False).ledger_.events)
    assert first + later == n_reports
    assert first == min(max(1, round(mean_share * n_reports)), n_reports - 1)


def test_pairs_take_two_reports_of_every_user(monkeypatch):
    monkeypatch.setattr(shuffled_sketch, "calibrate_n_reports", lambda *given, **budget: 1)
    monkeypatch.setattr("fastfedrec.systems.gram.gram_model.LEAST_SIGNAL", 0.1)
    for gate in (True, False):
        model = fitted(2.0, LONG, gate=gate)
        assert model.item_factors_.shape == (100, 0)
        assert "pairs take two items, and two reports of every user, so all of epsilon" in model.ledger_.summary()
        assert [event.n_reports for event in model.ledger_.events] == [1]
