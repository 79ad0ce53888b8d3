"""FedRec: its ledger, the coverage of central privacy, and the absence of exact figures in private runs."""

import math

import numpy as np
import pytest
from support.data import random_ratings
from support.fedrec_case import RESPONSES, start

from fastfedrec import FedRec, Key, load
from fastfedrec.accounting import Gaussian, LocalReports, Unprotected
from fastfedrec.rounds.system import Update
from fastfedrec.systems.gradient_rounds import devices as devices
from fastfedrec.systems.gradient_rounds.rounds import FedRecRounds


def test_ledger_of_central_privacy():
    data, key = random_ratings(40, 9, 2), Key.from_seed(1)
    model = FedRec(0, n_rounds=3, n_factors=2, clip_norm=0.5, noise_multiplier=3.0, max_items=4).fit(data, key=key)
    rounds, state = start(model, data, key)
    counts, sums = model.ledger_.events.items()
    assert isinstance(counts[0], Gaussian)
    assert (counts[1], sums[1]) == (1, 3)
    # Counts of two users are not negative.
    assert counts[0].noise_multiplier == pytest.approx(3 / math.sqrt(2))
    assert counts[0].noise_multiplier <= 3 / math.sqrt(2)
    assert sums[0].noise_multiplier == 1.5
    assert sums[0].neighboring == counts[0].neighboring == "replace"
    assert sums[0].distance == rounds.central.noise.total_variation_of(9 * 2) > 0
    assert counts[0].distance == rounds.central.count_noise.total_variation_of(9) > 0
    assert model.ledger_.epsilon("server") == math.inf
    assert 0 < model.ledger_.epsilon("public") < math.inf
    assert "Central privacy covers the released item factors." in model.ledger_.summary()
    assert (state.divisors >= 1).all()
    exact = devices.count_raters(data, 4, key, 1)
    assert exact.sum() == np.minimum(data.interactions_per_user(), 4).sum()
    assert (state.divisors != exact).any()


def test_a_users_messages_are_in_no_figure_of_a_private_run(tmp_path):
    data, key = random_ratings(40, 30, 2, density=0.2), Key.from_seed(1)
    # The second data set has one rating less.
    more = data.keep_interactions(np.arange(data.n_interactions) > 0)
    options = {"n_rounds": 3, "n_factors": 2, "clip_norm": 0.5, "noise_multiplier": 3.0, "divisor": 7.0}
    releases = []
    for rows in (data, more):
        model = FedRec(1, **options).fit(rows, key=key)
        model.save(tmp_path / "m", include_users=False)
        releases.append((model.communication_, repr(model.vectors_), repr(load(tmp_path / "m").vectors_)))
    assert releases[0] == releases[1]
    exact = [FedRec(1, n_rounds=1, n_factors=2).fit(rows, key=key).vectors_ for rows in (data, more)]
    # Runs without a claimed guarantee do show the difference.
    assert exact[0] != exact[1]


def test_with_cohorts_central_privacy_is_for_replacing_a_user_at_twice_the_sensitivity():
    data, key = random_ratings(40, 9, 2), Key.from_seed(1)
    options = {"n_rounds": 3, "n_factors": 2, "clip_norm": 0.5, "noise_multiplier": 3.0, "divisor": 7.0}
    all_asked, some_asked = (FedRec(0, client_share=share, **options).fit(data, key=key) for share in (1.0, 0.5))
    (event,) = some_asked.ledger_.events
    assert (event.neighboring, event.noise_multiplier) == ("replace", 1.5)
    assert some_asked.ledger_.epsilon("public") == pytest.approx(all_asked.ledger_.epsilon("public"))


def test_the_end_of_a_private_run_depends_on_released_values_alone(monkeypatch):
    data, key = random_ratings(40, 9, 2), Key.from_seed(1)
    monkeypatch.setattr(FedRecRounds, "device_factors", lambda self, state: np.full((40, 2), np.nan))
    private = FedRec(0, n_rounds=3, n_factors=2, clip_norm=0.5, noise_multiplier=3.0, divisor=7.0).fit(data, key=key)
    assert private.n_rounds_ == 3
    assert not private.user_factors_.any()
    with pytest.warns(RuntimeWarning, match="diverged in round 0"):
        assert FedRec(0, n_rounds=3, n_factors=2).fit(data, key=key).n_rounds_ == 0


def test_rounds_that_a_release_cancels_are_counted():
    data, key = random_ratings(40, 9, 2), Key.from_seed(1)
    # The noise diverges.
    options = {"n_factors": 2, "clip_norm": 0.5, "noise_multiplier": 3.0, "divisor": 1e-250}
    with pytest.warns(RuntimeWarning, match="diverged in round 0"):
        stopped = FedRec(0, n_rounds=5, **options).fit(data, key=key)
    assert stopped.n_rounds_ == 0
    whole = FedRec(0, n_rounds=5, **options | {"divisor": 7.0}).fit(data, key=key)
    assert stopped.ledger_.events == whole.ledger_.events
    assert stopped.ledger_.events.total() == 5
    assert any("ended the run of FedRec after 1 of 5 rounds" in note for note in stopped.ledger_.notes)


def test_noise_is_added_to_the_sums_and_the_private_count_is_not_used():
    data, key = random_ratings(40, 9, 2), Key.from_seed(1)
    model = FedRec(0, n_factors=2, clip_norm=0.5, noise_multiplier=3.0, divisor=7.0)
    rounds, state = start(model, data, key)
    update = rounds.local_round(state, data, key, 0)
    arrays = {"total": update.arrays["total"].copy()}
    arrays["total"][:, -1] = 0
    moved = rounds.apply(state, update).item_factors
    np.testing.assert_array_equal(moved, rounds.apply(state, Update(0, "x", 40, arrays)).item_factors)
    noise = (state.item_factors - moved) / 0.8 * 7 - update.arrays["total"][:, :-1].view(np.int64) / rounds.scale
    assert 0.5 < noise.std() / 1.5 < 1.6


def test_ledger_states_none_and_the_unprotected_values():
    data = random_ratings(30, 9, 4)
    model = FedRec(rho=1, n_rounds=2).fit(data, key=Key.from_seed(1))
    assert model.ledger_.events == {Unprotected("each user's gradients, and which items they are of"): 2}
    assert model.ledger_.epsilon("public") == math.inf
    assert "Virtual items are drawn anew in each round" in model.ledger_.summary()
    bare = FedRec(rho=0, n_rounds=2).fit(data, key=Key.from_seed(1))
    assert "The server sees the items that each user has rated." in bare.ledger_.summary()


def test_ledger_of_randomized_response_is_exact():
    data = random_ratings(30, 9, 4)
    model = FedRec(n_rounds=2, **RESPONSES).fit(data, key=Key.from_seed(1))
    reports, gradients = model.ledger_.events
    assert isinstance(reports, LocalReports)
    assert (reports.n_reports, model.ledger_.events[reports]) == (9, 1)
    assert reports.epsilon == model.channel.epsilon == pytest.approx(math.log(3))
    assert isinstance(gradients, Unprotected)
    assert model.ledger_.epsilon() == math.inf


def test_traffic_and_rounds():
    data = random_ratings(30, 40, 4, density=0.2)
    model = FedRec(rho=1, n_rounds=2, n_factors=5).fit(data, key=Key.from_seed(1))
    mean = data.interactions_per_user().mean()
    assert (model.vectors_.ordinary, model.vectors_.denoiser, model.vectors_.client) == (2 * mean, 0, 2 * mean)
    totals = model.communication_.to_dict()
    assert totals["download_per_client"] == 2 * 8 * 40 * 5
    assert totals["upload_per_client_per_round"] == round(2 * mean * (8 * 6 + 4))
