"""PrivRec with Adam on the server: against a twin, resumed, with noise, and as the choice of "auto"."""

from dataclasses import replace

import numpy as np
import pytest
from naive.systems.privrec import model as naive
from support.privrec_case import FEATURES, KEY, SMALL, power_cut, rounds, small_data

from fastfedrec import PrivRec
from fastfedrec.systems.grid_noise import GridNoise
from fastfedrec.systems.privrec._settings import PrivRecSettings
from fastfedrec.systems.privrec.rounds import PrivRecRounds

pytestmark = pytest.mark.ignores_values
ADAM = SMALL | {"server_optimizer": "adam", "server_learning_rate": 0.01, "threshold": 3.0, "n_rounds": 4}


# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [None, GridNoise.calibrated("gaussian", 0.01, 0.3)])
def test_adam_steps_by_released_values(noise):
    data = small_data()
    system = replace(
        rounds(data, noise=noise, clip_norm=0.01 if noise else None), server_optimizer="adam", server_learning_rate=0.01
    )
    plain = replace(system, server_optimizer="sgd", server_learning_rate=1.0)
    state, means = system.initial_state(), []
    start = state.parameters
    for number in range(4):
        update = system.local_round(state, data, KEY, number)
        if noise is None:
            means.append(update.arrays["total"] / 5)
        # The sum with noise in the server's view equals the release of any other server.
        else:
            total = noise.release(update.arrays["total"], KEY, "privrec.noise", number, 1)
            means.append(total / 5)
        state = system.apply(state, update)
    np.testing.assert_allclose(state.parameters, naive.adam(start, means, learning_rate=0.01), rtol=1e-5, atol=1e-7)
    assert not np.allclose(plain.apply(plain.initial_state(), update).parameters, state.parameters, atol=1e-3)
    if noise is None:
        model = PrivRec(FEATURES, **ADAM).fit(data, key=KEY)
        np.testing.assert_array_equal(model.parameters_, state.parameters)


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("private", [{}, {"clip_norm": 0.01, "noise_multiplier": 0.5}])
def test_a_resumed_run_goes_on_with_its_moments(tmp_path, monkeypatch, private):
    data = small_data()
    model = PrivRec(FEATURES, **ADAM, **private)
    with power_cut(PrivRecRounds, 2):
        model.fit(data, key=KEY, checkpoint=tmp_path)
    resumed = PrivRec(**model.get_params()).fit(data, checkpoint=tmp_path)
    whole = PrivRec(**model.get_params()).fit(data, key=KEY)
    np.testing.assert_array_equal(resumed.parameters_, whole.parameters_)
    other = PrivRec(**model.get_params() | {"server_optimizer": "sgd"}).fit(data, key=KEY)
    # Adam is computed from released values.
    assert other.ledger_.to_dict()["events"] == whole.ledger_.to_dict()["events"]
    assert not np.array_equal(other.parameters_, whole.parameters_)


@pytest.mark.parametrize(
    ("given", "optimizer", "rate"),
    [
        ({}, "adam", 0.005),
        ({"preset": "paper"}, "sgd", 1.0),
        ({"server_learning_rate": 2.0}, "sgd", 2.0),
        ({"noise_multiplier": 1.0, "clip_norm": 1.0}, "sgd", 1.0),
        ({"popularity_epsilon": 1.0}, "sgd", 1.0),
        ({"server_optimizer": "sgd"}, "sgd", 1.0),
        ({"server_optimizer": "adam", "noise_multiplier": 1.0, "clip_norm": 1.0}, "adam", 0.005),
    ],
)
def test_auto_is_adam_unless_a_setting_excludes_it(given, optimizer, rate):
    parameters = PrivRec(**given).get_params()
    settings = PrivRecSettings.resolve(parameters, 1000)
    assert (settings.server_optimizer, settings.server_learning_rate) == (optimizer, rate)
    # Devices use the same optimizer as clients in training.
    device = PrivRecSettings.on_device(parameters)
    assert (device.local_epochs, device.learning_rate) == (settings.local_epochs, settings.learning_rate)
