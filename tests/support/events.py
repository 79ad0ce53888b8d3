"""Events of every kind: together they give each field of a kind a value that differs from its default."""

from dataclasses import fields

from fastfedrec.accounting import (
    ZCDP,
    CentralRelease,
    ChosenMessages,
    DiscreteGaussianRelease,
    Gaussian,
    GaussianShares,
    Laplace,
    LocalReports,
    ShuffledCounts,
    ShuffledReports,
    SkellamRelease,
    SkellamShares,
    Unprotected,
)

# All numbers are exact in half precision (`test_numbers`).
POISSON = {"neighboring": "add_remove", "sampling": "poisson", "sampling_probability": 0.25}
REPLACED = POISSON | {"neighboring": "replace", "contribution": 0.5}
FIXED = {"neighboring": "replace", "sampling": "without_replacement", "n_users": 100, "cohort_size": 5}
PLAIN = {"neighboring": "zero_out", "sampling": "none"}
OF_ENTITY = {"count": 3, "trust": "entity", "distance": 2.0**-24}

EVENTS = [
    LocalReports("m", 1.5, 3, 40, separable=True),
    ShuffledReports("m", 1.5, 3, 40, 0.5, neighboring="zero_out", n_candidates=2),
    ShuffledCounts("m", 1.5, 3, 40, 0.5, neighboring="zero_out", distance=2.0**-24),
    ChosenMessages("m", 1.5, 3, 1.5, 3, 40, 0.5, neighboring="zero_out", n_candidates=2, distance=2.0**-24),
    Gaussian(1.5, "m", **POISSON, **OF_ENTITY),
    Gaussian(1.5, "m", **FIXED),
    Gaussian(1.5, "m", **REPLACED),
    Gaussian(1.5, "m", **PLAIN, replace_sensitivity=1.5),
    GaussianShares(
        1.5,
        "m",
        **PLAIN,
        n_nodes=40,
        n_answers=30,
        honest_fraction=0.75,
        adding_fraction=1.0,
        replace_sensitivity=1.5,
        count=3,
        distance=2.0**-24,
    ),
    Laplace(1.5, "m", **POISSON, **OF_ENTITY),
    Laplace(1.5, "m", **FIXED),
    Laplace(1.5, "m", **REPLACED),
    CentralRelease("m", 0.5, delta=2.0**-24, **POISSON, **OF_ENTITY),
    CentralRelease("m", 0.5, n_choices=3),
    CentralRelease("m", 0.5, **FIXED),
    ZCDP("m", 0.125, **PLAIN, **OF_ENTITY),
    DiscreteGaussianRelease(14.0, 10, "m", **PLAIN, **OF_ENTITY),
    SkellamRelease(14.0, 10.0, 5, "m", l1_sensitivity=12.0, replace_sensitivity=1.5, **PLAIN, **OF_ENTITY),
    SkellamShares(
        14.0,
        10.0,
        5,
        "m",
        **PLAIN,
        n_nodes=40,
        n_answers=30,
        honest_fraction=0.75,
        adding_fraction=1.0,
        l1_sensitivity=12.0,
        replace_sensitivity=1.5,
        count=3,
        distance=2.0**-24,
    ),
    Unprotected("m"),
]


def changed_fields(event):
    """Return the fields of an event that differ from their default."""
    values = {field.name: (getattr(event, field.name), field.default) for field in fields(event)}
    return {name: value for name, (value, default) in values.items() if value != default}
