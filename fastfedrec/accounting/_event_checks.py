"""Checks of the fields of events."""

from collections.abc import Collection
from typing import Any

from fastfedrec.core.check import check_choice, check_epsilon, check_flag, check_instance, check_integer, check_real

# The fields that each kind of sampling requires; all other sampling fields must be None.
SAMPLING_FIELDS = {
    "none": (),
    "poisson": ("sampling_probability",),
    "without_replacement": ("n_users", "cohort_size"),
}


def store(event: Any, **fields: Any) -> None:
    """Set fields of a frozen event."""
    # Checks return plain Python numbers, so a NumPy number does not reach a saved ledger.
    for name, value in fields.items():
        object.__setattr__(event, name, value)


def check_name(event: Any) -> None:
    """Check that the name of the mechanism is text."""
    check_instance("mechanism", event.mechanism, str, "describe the mechanism in words")


def check_release_delta(delta: float) -> float:
    """Return the delta of one release, which must be in [0, 1)."""
    delta = check_real("delta", delta, low=0.0, high=1.0)
    if delta == 1:
        raise ValueError("delta must be less than 1, got 1.0; a release with delta 1 has no guarantee")
    return delta


def check_contribution(event: Any) -> None:
    """Check that `contribution` is None or in [0.5, 1] under "replace"."""
    if event.contribution is None:
        return
    if event.neighboring != "replace":
        raise ValueError(
            f"`contribution` must be None with neighboring={event.neighboring!r}, got {event.contribution!r}; "
            "the sensitivity itself bounds one unit's contribution there"
        )
    contribution = check_real("contribution", event.contribution, low=0.0)
    # Two contributions differ by the sensitivity at most, and by the triangle inequality by twice the contribution.
    if not 0.5 <= contribution <= 1:
        raise ValueError(
            f"`contribution` must be from 0.5 to 1, got {contribution!r}; it is the bound of one unit's contribution "
            "over the sensitivity, and two contributions differ by at most twice that bound"
        )
    store(event, contribution=contribution)


def check_replace_sensitivity(event: Any) -> None:
    """Check that `replace_sensitivity` is None or in [1, 2], without sampling and not under "replace"."""
    if event.replace_sensitivity is None:
        return
    if event.neighboring == "replace":
        raise ValueError(
            f"`replace_sensitivity` must be None with neighboring='replace', got {event.replace_sensitivity!r}; "
            "divide noise_multiplier by it instead"
        )
    if event.sampling != "none":
        raise ValueError(
            f"`replace_sensitivity` must be None with sampling={event.sampling!r}, got {event.replace_sensitivity!r}; "
            "two opposite contributions state the cost there"
        )
    sensitivity = check_real("replace_sensitivity", event.replace_sensitivity, low=0.0)
    if not 1 <= sensitivity <= 2:
        raise ValueError(
            f"`replace_sensitivity` must be from 1 to 2, got {sensitivity!r}; it is the largest distance between two "
            "contributions over the sensitivity, and the triangle inequality bounds it by 2"
        )
    store(event, replace_sensitivity=sensitivity)


def check_reports(event: Any, trust: str) -> None:
    """Check all fields of local or shuffled reports."""
    check_name(event)
    if trust == "local":
        store(event, separable=check_flag("separable", event.separable))
    relations = ("replace",) if trust == "local" else ("replace", "zero_out")
    for name, choices in (("neighboring", relations), ("privacy_unit", ("user",)), ("trust", (trust,))):
        check_choice(name, getattr(event, name), choices)
    store(
        event,
        epsilon=check_epsilon("epsilon", event.epsilon),
        n_reports=check_integer("n_reports", event.n_reports, low=0),
        n_users=check_integer("n_users", event.n_users, low=0),
    )
    if trust == "shuffle":
        store(event, n_candidates=check_integer("n_candidates", event.n_candidates, low=1))
        store(event, honest_fraction=check_real("honest_fraction", event.honest_fraction, low=0.0, high=1.0))
        if not event.n_honest_users:
            raise ValueError(
                f"honest_fraction times n_users must be at least 1 user, got {event.honest_fraction} of {event.n_users}"
            )


def check_sampling_fields(event: Any) -> None:
    """Check that an event has exactly the fields of its sampling, each in its range."""
    required_fields: Collection[str] = SAMPLING_FIELDS[event.sampling]
    for name in ("sampling_probability", "n_users", "cohort_size"):
        if (getattr(event, name) is not None) != (name in required_fields):
            takes = " and ".join(required_fields) or "no further argument"
            raise ValueError(f"sampling={event.sampling!r} takes {takes}, got {name}={getattr(event, name)!r}")
    if event.sampling == "poisson":
        probability = check_real("sampling_probability", event.sampling_probability, low=0.0, high=1.0)
        if not probability:
            raise ValueError("sampling_probability must be greater than 0, got 0.0")
        store(event, sampling_probability=probability)
    if event.sampling == "without_replacement":
        n_users = check_integer("n_users", event.n_users, low=1)
        store(event, n_users=n_users, cohort_size=check_integer("cohort_size", event.cohort_size, low=1, high=n_users))
