"""Events that state the distance of the contributions of two units, and the cost of a replaced user."""

import copy
import itertools
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.ledger_case import ledger_of
from support.noise_case import gaussian_delta

from fastfedrec.accounting import (
    Gaussian,
    Ledger,
    PLDAccountant,
    RDPAccountant,
    ZCDPAccountant,
    calibrate_n_rounds,
    calibrate_noise_multiplier,
    composed_epsilon,
    seen_event,
)
from fastfedrec.accounting._ledger_format import SCHEMA, violation

ROOT = math.sqrt(2)
PLAIN = {"neighboring": "zero_out", "sampling": "none"}
NOISES = st.floats(-6, 6).map(lambda x: 10**x)


# --- oracle ---


@pytest.mark.parametrize("relation", ["zero_out", "add_remove"])
@pytest.mark.parametrize("sensitivity", [1.0, 1.2, ROOT, 1.9, 2.0, None])
def test_a_ledger_states_the_closed_form_of_two_gaussians_that_far_apart(relation, sensitivity):
    event = Gaussian(3.0, neighboring=relation, sampling="none", replace_sensitivity=sensitivity)
    ledger = Ledger(delta=1e-5)
    for _ in range(4):
        ledger.record(event)
    mu = math.sqrt(4) * (sensitivity or 2) / 3
    assert gaussian_delta(ledger.epsilon("public"), mu) == pytest.approx(1e-5, rel=1e-6)
    # Control: contributions that are 1% further apart would cost more than the stated figure.
    assert gaussian_delta(ledger.epsilon("public"), 1.01 * mu) > 1.02e-5


def test_vectors_at_right_angles_cost_root_2_by_the_accountants_of_all_events():
    """Any two of four basis vectors are ROOT apart, so the releases differ by a Gaussian of that mean."""
    vectors = [[float(i == j) for j in range(4)] for i in range(4)]
    apart = max(math.dist(a, b) for a, b in itertools.product(vectors, repeat=2))
    event = Gaussian(1.5, **PLAIN, replace_sensitivity=ROOT)
    direct = Gaussian(1.5 / apart, neighboring="replace", sampling="none")
    for accountant in (PLDAccountant, RDPAccountant, ZCDPAccountant):
        result = accountant().compose(seen_event(event, "public"), 5).get_epsilon(1e-6)
        assert result == pytest.approx(accountant().compose(direct, 5).get_epsilon(1e-6), rel=1e-9)
        assert result < 0.75 * accountant().compose(seen_event(replace(event, replace_sensitivity=None), "public"), 5
                                                   ).get_epsilon(1e-6)  # fmt: skip
        # The field has no effect for zero_out.
        event_result = accountant().compose(event, 5).get_epsilon(1e-6)
        assert event_result == accountant().compose(replace(event, replace_sensitivity=None), 5).get_epsilon(1e-6)


# --- invariants ---


@settings(max_examples=200)
@given(noise=NOISES, sensitivity=st.floats(1, 2))
@example(noise=1e-150, sensitivity=ROOT)
def test_a_replacement_is_rounded_against_the_claim(noise, sensitivity):
    event = Gaussian(noise, **PLAIN, replace_sensitivity=sensitivity, count=3, distance=1e-12, trust="entity")
    seen = seen_event(event, "public")
    exact = Fraction(noise) / Fraction(sensitivity)
    assert exact * (1 - Fraction(1, 2**52)) <= Fraction(seen.noise_multiplier) <= exact
    assert (seen.neighboring, seen.replace_sensitivity) == ("replace", None)
    assert (seen.count, seen.distance, seen.trust, seen.mechanism) == (3, 1e-12, "entity", event.mechanism)
    assert seen.contribution is None
    assert seen_event(seen, "public") == seen


@settings(max_examples=30, deadline=None)
@given(noise=st.floats(0.6, 30), sensitivity=st.floats(1, 2))
def test_a_smaller_distance_never_costs_more_and_never_less_than_no_data(noise, sensitivity):
    stated, unstated = (Gaussian(noise, **PLAIN, replace_sensitivity=bound) for bound in (sensitivity, None))
    cost = composed_epsilon({stated: 3}, "public", 1e-6)
    assert cost <= composed_epsilon({unstated: 3}, "public", 1e-6) * (1 + 1e-9)
    assert cost >= PLDAccountant().compose(unstated, 3).get_epsilon(1e-6) * (1 - 1e-4)
    assert composed_epsilon({stated: 3}, "server", 1e-6) == math.inf


def test_a_document_holds_it_where_it_is_stated_and_older_documents_are_read():
    plain, stated = Gaussian(3.0, "m", **PLAIN), Gaussian(3.0, "m", **PLAIN, replace_sensitivity=ROOT)
    ledger = ledger_of(plain, stated, stated)
    document = ledger.to_dict()
    older, fields = (entry["fields"] for entry in document["events"])
    assert fields == {**older, "replace_sensitivity": ROOT}
    assert "replace_sensitivity" not in older
    assert violation(document, SCHEMA, "ledger") is None
    copy_of_ledger = Ledger.from_json(ledger.to_json())
    assert (copy_of_ledger.events, copy_of_ledger.digest(), copy_of_ledger.to_dict()) == (
        ledger.events,
        ledger.digest(),
        document,
    )
    assert ledger_of(plain).digest() == Ledger.from_dict(ledger_of(plain).to_dict()).digest()
    # A smaller number than the recorded one is an edit, which the digest and the figures show.
    for field, message in (
        (1.0, "ledger.digest must be the digest of the content"),
        (2.0, "states .*, and its events cost"),
    ):
        edited = copy.deepcopy(document)
        edited["events"][1]["fields"]["replace_sensitivity"] = field
        with pytest.raises(ValueError, match=message):
            Ledger.from_dict(edited)
    edited["events"][1]["fields"]["replace_sensitivity"] = 0.9
    with pytest.raises(ValueError, match=r"ledger.events\[1\].*must be from 1 to 2, got 0.9"):
        Ledger.from_dict(edited)


def test_reports_and_summaries_state_it(tmp_path):
    ledger = ledger_of(Gaussian(3.0, "noise on shares", **PLAIN, replace_sensitivity=ROOT), Gaussian(4.0, **PLAIN))
    sentence = "a replaced user changes the sums 1.414 times as much"
    assert ledger.summary().count(sentence) == 1
    for name in ("report.md", "report.html"):
        ledger.report(tmp_path / name)
        text = (tmp_path / name).read_text()
        assert text.count("replace sensitivity 1") == 1
        # Markdown has a backslash before the point.
        assert "41421" in text


SAMPLED = Gaussian(1.0, neighboring="zero_out", sampling="poisson", sampling_probability=0.05)


@pytest.mark.parametrize("event", [Gaussian(1.0, **PLAIN), Gaussian(1.0, **PLAIN, replace_sensitivity=ROOT), SAMPLED])
def test_calibrated_noise_meets_a_target_for_replaced_users_and_hardly_more(event):
    noise = calibrate_noise_multiplier(event, epsilon=1.5, delta=1e-6, count=2, for_replacement=True)

    def cost(noise):
        seen = seen_event(replace(event, noise_multiplier=noise), "public")
        return PLDAccountant().compose(seen, 2).get_epsilon(1e-6)

    assert cost(noise) <= 1.5 < cost(0.995 * noise)
    event_result = calibrate_noise_multiplier(event, epsilon=1.5, delta=1e-6, count=2)
    # The target there is the cost of no data.
    assert event_result < noise
    if event is not SAMPLED:
        assert noise == pytest.approx(event_result * (event.replace_sensitivity or 2), rel=2e-3)
    rounds = calibrate_n_rounds(replace(event, noise_multiplier=noise), epsilon=1.5, delta=1e-6, for_replacement=True)
    assert rounds == 2


# --- bad inputs ---


def test_bad_sensitivities_are_refused_by_name():
    for bad in (0.9, 2.1, 0.0):
        with pytest.raises(ValueError, match=f"`replace_sensitivity` must be from 1 to 2, got {bad}; it is the"):
            Gaussian(1.0, **PLAIN, replace_sensitivity=bad)
    for bad in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match="replace_sensitivity must be"):
            Gaussian(1.0, **PLAIN, replace_sensitivity=bad)
    with pytest.raises(TypeError, match="replace_sensitivity must be a real number, got '2'"):
        Gaussian(1.0, **PLAIN, replace_sensitivity="2")
    with pytest.raises(ValueError, match=r"`replace_sensitivity` must be None with neighboring='replace', got 1.5"):
        Gaussian(1.0, neighboring="replace", sampling="none", replace_sensitivity=1.5)
    with pytest.raises(ValueError, match=r"`replace_sensitivity` must be None with sampling='poisson', got 1.5"):
        replace(SAMPLED, replace_sensitivity=1.5)
    with pytest.raises(TypeError, match="for_replacement must be"):
        calibrate_noise_multiplier(Gaussian(1.0, **PLAIN), epsilon=1.0, delta=1e-6, for_replacement=1)
