import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import numpy as np
import pytest
from support.events import EVENTS

from fastfedrec.accounting import (
    ZCDP,
    CentralRelease,
    Composed,
    Gaussian,
    Laplace,
    LocalReports,
    ShuffledReports,
    Unprotected,
)

NOISE = Gaussian(1.0, neighboring="add_remove", sampling="none")


def nested(event, depth, parts=1):
    for _ in range(depth):
        event = Composed((event,) * parts)
    return event


def test_events_are_frozen_and_comparable():
    event = LocalReports("m", 1.0, 2, 3)
    with pytest.raises(FrozenInstanceError):
        event.epsilon = 0.1
    assert event == LocalReports("m", 1.0, 2, 3)
    assert len({event, LocalReports("m", 1.0, 2, 3), LocalReports("m", 1.0, 2, 4)}) == 2
    assert Gaussian(np.float32(1.0), neighboring="add_remove", sampling="none", count=np.int64(1)) == NOISE


def test_events_say_relation_unit_and_trust():
    local, central, shuffled = LocalReports("m", 1.0, 2, 3), CentralRelease("c", 1.0), ShuffledReports("s", 1.0, 2, 3)
    assert (local.neighboring, local.privacy_unit, local.trust) == ("replace", "user", "local")
    assert (central.neighboring, central.privacy_unit, central.trust) == ("add_remove", "user", "central")
    assert (shuffled.neighboring, shuffled.privacy_unit, shuffled.trust) == ("replace", "user", "shuffle")
    assert Unprotected("raw").privacy_unit == "user"


@pytest.mark.parametrize("make", [lambda **kw: Gaussian(1.0, **kw), lambda **kw: Laplace(1.0, **kw)])
def test_relation_and_sampling_are_required(make):
    with pytest.raises(TypeError, match="neighboring"):
        make(sampling="none")
    with pytest.raises(TypeError, match="sampling"):
        make(neighboring="replace")
    with pytest.raises(TypeError, match="sampling"):
        ZCDP("z", 0.1, neighboring="replace")


def test_sampling_rates():
    assert NOISE.sampling_rate == 1
    assert replace(NOISE, sampling="poisson", sampling_probability=0.25).sampling_rate == 0.25
    assert replace(NOISE, sampling="without_replacement", n_users=8, cohort_size=2).sampling_rate == 0.25
    assert ShuffledReports("s", 1.0, 1, 100, honest_fraction=0.29).n_honest_users <= 29


def test_events_survive_a_dict():
    event = Gaussian(2.0, neighboring="replace", sampling="without_replacement", n_users=9, cohort_size=3, count=4)
    assert Gaussian(**asdict(event)) == event


def test_pickles_name_the_module_that_all_versions_have():
    for event in EVENTS:
        assert type(event).__module__ == "fastfedrec.accounting.events"
        assert pickle.loads(pickle.dumps(event)) == event


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be greater than 0"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier must be finite"),
        ({"count": 0}, "count must be at least 1"),
        ({"neighboring": "substitute"}, "neighboring must be one of 'replace', 'add_remove', 'zero_out'"),
        ({"sampling": "uniform"}, "sampling must be one of"),
        ({"privacy_unit": "row"}, "privacy_unit must be one of"),
        ({"trust": "local"}, "trust must be one of 'central'"),
        ({"sampling": "poisson"}, "sampling='poisson' takes sampling_probability, got sampling_probability=None"),
        ({"sampling": "poisson", "sampling_probability": 1.5}, "sampling_probability must be at most 1.0, got 1.5"),
        ({"sampling": "poisson", "sampling_probability": 0}, "sampling_probability must be greater than 0"),
        ({"sampling_probability": 0.1}, "sampling='none' takes no further argument, got sampling_probability=0.1"),
        ({"sampling": "without_replacement", "n_users": 5}, "takes n_users and cohort_size, got cohort_size=None"),
        ({"sampling": "without_replacement", "n_users": 5, "cohort_size": 6}, "cohort_size must be at most 5, got 6"),
        ({"sampling": "without_replacement", "n_users": 5.5, "cohort_size": 1}, "n_users must be an integer"),
    ],
)
def test_bad_gaussian_fields_are_named(fields, message):
    with pytest.raises((ValueError, TypeError), match=message):
        replace(NOISE, **fields)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocalReports("m", -1.0, 1, 1), "epsilon must be greater than 0"),
        (lambda: LocalReports("m", 1.0, -1, 1), "n_reports must be at least 0"),
        (lambda: LocalReports("m", 1.0, 1, 1, neighboring="add_remove"), "neighboring must be one of 'replace'"),
        (lambda: LocalReports("m", 1.0, 1, 1, neighboring="zero_out"), "neighboring must be one of 'replace'"),
        (lambda: ShuffledReports("m", 1.0, 1, 10, neighboring="add_remove"), "neighboring must be one of"),
        (lambda: ShuffledReports("m", 1.0, 1, 10, honest_fraction=0.05), "must be at least 1 user"),
        (lambda: ShuffledReports("m", 1.0, 1, 10, honest_fraction=1.5), "honest_fraction must be at most 1.0"),
        (lambda: CentralRelease("m", 0.0), "epsilon must be greater than 0"),
        (lambda: ZCDP("m", -0.1, neighboring="replace", sampling="none"), "rho must be greater than 0"),
        (
            lambda: ZCDP("m", 0.1, neighboring="add_remove", sampling="poisson", sampling_probability=0.1),
            "sampling must be one of 'none'",
        ),
        (lambda: Laplace(0.0, neighboring="replace", sampling="none"), "noise_multiplier must be greater than 0"),
        (lambda: Composed([NOISE]), "events must be tuple"),
        (lambda: Composed(("noise",)), "events must hold events of fastfedrec.accounting, got 'noise'"),
        (lambda: Composed((NOISE,), count=0), "count must be at least 1"),
        (lambda: nested(NOISE, 101), "nested at most 100 deep, got 1 and 101; use count for repeated events"),
        (lambda: nested(NOISE, 40, parts=2), "events must hold at most 100,000 events, .*, got 131,072 and 17"),
    ],
)
def test_bad_events_are_refused_by_name(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
