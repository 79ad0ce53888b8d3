"""Tests of models with a trusted server: they contain released values only, and users without data leave no trace."""

import math

import numpy as np
import pytest
import scipy.sparse
from support.dp_noise_case import (
    CASES,
    CENTRAL,
    FINER,
    N_ITEMS,
    N_USERS,
    PUBLIC,
    SUMS,
    SYSTEMS,
    UNIT,
    deciding,
    record_model,
    small_data,
)

from fastfedrec import Interactions, Key, load
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._alternatives import exit_number
from fastfedrec.systems._public_mean import floored, to_grid
from fastfedrec.systems.gram.columns import next_encoder
from fastfedrec.systems.gram.dp_gram_rounds import SCALE
from fastfedrec.systems.gram.pairs import PairForm, public_mean
from fastfedrec.systems.gram.pooled import PooledPairs
from fastfedrec.systems.measurement import HitSum, NoisyMean, measurement_state
from fastfedrec.systems.projection_rounds import public_signs
from fastfedrec.systems.subspace.model import Projections

ALONE = [name for name in CENTRAL if "," not in name]


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_models_contain_released_values_only(name):
    model, rounds = record_model(name, Key.from_seed(3))
    after, first = rounds[-1].after, rounds[0].after
    if name == "DPGram":
        np.testing.assert_allclose(model.item_means_, first.noisy / UNIT / PUBLIC, rtol=1e-12)
        (of_mean, of_pairs, *later), form = rounds, PairForm.of(model.item_means_, PUBLIC)
        # Users receive this value too.
        np.testing.assert_array_equal(of_pairs.before.mean, form.centre)
        pairs = form.matrix(of_pairs.after.noisy / UNIT, of_pairs.system.width)
        estimate, precision = PooledPairs(pairs, form, PUBLIC, None, 1), pairs.noise**-2
        mean = NoisyMean(model.item_means_, of_mean.system.width / PUBLIC, of_mean.system.width**-2)
        for number, recorded in enumerate(later):
            before = recorded.before
            assert estimate.noise == pytest.approx(precision**-0.5, rel=1e-12)
            if "hits" in recorded.update.arrays:
                expected_state = measurement_state(before, estimate.leading, form, mean, estimate.noise)
                for array in ("factors", "popularity", "noisier", "diagonal", "noise"):
                    np.testing.assert_array_equal(getattr(before, array), getattr(expected_state, array))
                later_precision = math.fsum(one.system.width**-2 for one in later[number + 1 :])
                hit_decision = HitSum.decide(
                    recorded.system, recorded.after.noisy, PUBLIC, mean.spared(later_precision)
                )
                continue
            np.testing.assert_array_equal(before.mean, to_grid(floored(model.item_means_)))
            expected = next_encoder(estimate.directions, before.encoder.shape[1], pairs.noise)
            np.testing.assert_array_equal(before.encoder, expected)
            estimate.add(recorded.after.noisy / FINER, before.encoder, recorded.system.width)
            precision += recorded.system.width**-2
        assert model.decision_.scores == pytest.approx(hit_decision.scores)
        pairs = form.about(public_mean(model.item_means_) / SCALE)
        chosen, factors = model.decision_.chosen, estimate.factors
        expected = [pairs.join(factors, chosen.personal_weight), *pairs.score(factors, chosen, precision**-0.5)]
        for name, solved in zip(("item_factors_", "scoring_factors_", "item_scales_"), expected, strict=True):
            np.testing.assert_allclose(np.abs(getattr(model, name)), np.abs(solved), rtol=1e-5, atol=1e-6)
    elif name == "DPSubspace":
        np.testing.assert_allclose(model.item_means_, first.noisy / FINER / PUBLIC, rtol=1e-12)
        projections = Projections(PUBLIC, floored(model.item_means_))
        mean = NoisyMean(model.item_means_, rounds[0].system.width / PUBLIC, rounds[0].system.width ** -2)
        for number, recorded in enumerate(rounds[1:], 1):
            before = recorded.before
            if "hits" in recorded.update.arrays:
                expected_state = measurement_state(
                    before, projections.factors, projections.form, mean, projections.noise
                )
                for array in ("factors", "popularity", "noisier", "diagonal", "noise"):
                    np.testing.assert_array_equal(getattr(before, array), getattr(expected_state, array))
                later_precision = math.fsum(one.system.width**-2 for one in rounds[number + 1 :])
                decision = HitSum.decide(recorded.system, recorded.after.noisy, PUBLIC, mean.spared(later_precision))
                continue
            sums = recorded.after.noisy / FINER
            # Users receive this value too.
            np.testing.assert_array_equal(before.mean, to_grid(projections.mean))
            if len(before.encoder):
                np.testing.assert_array_equal(before.encoder, projections.next_encoder())
            noise = float(recorded.system.noise.stddev) / FINER
            assert noise == pytest.approx(recorded.event.noise_multiplier, rel=1e-9)
            projections.add(sums, before.encoder if len(before.encoder) else public_signs(*sums.shape), noise)
        assert model.decision_.scores == pytest.approx(decision.scores)
        chosen, pairs = model.decision_.chosen, projections.form.about(floored(model.item_means_))
        expected = [
            pairs.join(projections.factors, chosen.personal_weight),
            *pairs.score(projections.factors, chosen, projections.noise),
        ]
        for name, solved in zip(("item_factors_", "scoring_factors_", "item_scales_"), expected, strict=True):
            np.testing.assert_allclose(np.abs(getattr(model, name)), np.abs(solved), rtol=1e-5, atol=1e-6)
    elif name.endswith(", popularity") and name in SUMS:
        *_, last = rounds
        assert len(rounds) == 1 + exit_number([Phase(recorded.system, None) for recorded in rounds])
        first_unit = CASES[name].sensitivities["item_shares"]
        precisions = np.array([recorded.system.width**-2 for recorded in (rounds[0], last)])
        mean = (precisions / precisions.sum()) @ [first.noisy, last.after.noisy]
        np.testing.assert_allclose(model.item_means_, mean / first_unit / PUBLIC, rtol=1e-9)
        assert model.item_factors_.shape[1] == 0
    elif name.startswith("PrivRec"):
        learnt = [model.parameters_, *([] if model.learning_rates_ is None else [model.learning_rates_])]
        np.testing.assert_array_equal(np.sort(np.concatenate(learnt)), np.sort(after.parameters))
    else:
        np.testing.assert_array_equal(model.item_factors_, after.item_factors)
    if name.startswith("DPALS"):
        assert first.item_counts.any()
        np.testing.assert_array_equal(model.item_counts_, first.item_counts)
        assert (rounds[-1].after.item_counts == first.item_counts).all()


@pytest.mark.parametrize("name", ALONE)
def test_users_without_data_leave_no_trace_if_the_number_of_users_is_public(name, tmp_path):
    """Check bit equality of a model's attributes and of its shared file: users without data are in no divisor."""

    def released(n_more):
        rows = scipy.sparse.vstack([small_data().to_scipy(), scipy.sparse.csr_array((n_more, N_ITEMS))])
        options = CASES[name].model.get_params() | {"n_users": PUBLIC}
        with deciding(name):
            model = type(CASES[name].model)(**options).fit(Interactions.from_scipy(rows), key=Key.from_seed(3))
        model.save(tmp_path / "model", include_users=False)
        shown = {attribute: value for attribute, value in vars(model).items() if attribute.endswith("_")}
        arrays = {attribute: value.tolist() for attribute, value in shown.items() if isinstance(value, np.ndarray)}
        numbers = {attribute: value for attribute, value in shown.items() if isinstance(value, int | float)}
        return arrays, numbers, model.communication_, model.ledger_.to_json(), (tmp_path / "model").read_bytes()

    few, more = released(0), released(7)
    assert "item_factors_" in few[0]
    assert few == more


@pytest.mark.parametrize("name", ALONE)
def test_only_a_public_number_of_users_is_released(name, tmp_path):
    releases = []
    for n in (N_USERS, N_USERS - 1):
        model = type(CASES[name].model)(**CASES[name].model.get_params() | {"n_users": PUBLIC})
        model.fit(small_data().select_users(np.arange(n)), key=Key.from_seed(2))
        model.save(tmp_path / "model", include_users=False)
        loaded = load(tmp_path / "model")
        signal = getattr(model, "signal_", None)
        releases.append((signal, model.communication_, loaded.communication_.rounds, loaded.ledger_.to_json()))
        assert f"assumes that its number of users ({PUBLIC}) is public" in model.ledger_.summary()
        assert {r.n_clients for r in loaded.communication_.rounds} == {PUBLIC}
    assert releases[0] == releases[1]
    without = model.set_params(n_users=None).fit(small_data(), key=Key.from_seed(2)).ledger_.summary()
    assert f"The number of users ({N_USERS}) was taken from the data" in without
    assert "adding or removing" not in without
