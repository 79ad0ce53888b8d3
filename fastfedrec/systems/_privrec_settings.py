"""The numbers of a PrivRec run: what "auto" stands for, and what the noise must be for a target epsilon."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastfedrec._check import check_choice, check_epsilon, check_integer, check_real
from fastfedrec.accounting import (
    CentralRelease,
    Gaussian,
    calibrate_epsilon_per_report,
    calibrate_noise_multiplier,
)

#: Chosen on MovieLens 1M; the paper's own are those of its section 4.1 (docs/explanation/systems/privrec.md).
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "n_rounds": 80, "cohort_size": 20, "local_epochs": 100, "learning_rate": 0.05, "server_learning_rate": 1.0,
        "negatives": 4,
    },
    "recommended": {
        "n_rounds": 50, "cohort_size": 200, "local_epochs": 5, "learning_rate": 0.05, "server_learning_rate": 1.0,
        "negatives": 4,
    },
}  # fmt: skip


@dataclass(frozen=True)
class PrivRecSettings:
    """Every number of a run, as it is used."""

    n_rounds: int
    cohort_size: int
    local_epochs: int
    learning_rate: float
    server_learning_rate: float
    negatives: int
    clip_norm: float | None
    noise_multiplier: float | None

    @classmethod
    def resolve(cls, parameters: Mapping[str, Any], n_users: int) -> "PrivRecSettings":
        """Put numbers for "auto" and "all", and calibrate the noise, for a run over `n_users` users."""
        preset = PRESETS[parameters["preset"]]
        given = {name: parameters[name] for name in preset}
        numbers = {name: preset[name] if value == "auto" else value for name, value in given.items()}
        if numbers["cohort_size"] == "all":
            numbers["cohort_size"] = n_users
        if numbers["cohort_size"] > n_users:
            if given["cohort_size"] != "auto":
                raise ValueError(
                    f"cohort_size must be at most the number of users ({n_users}), got {numbers['cohort_size']}"
                )
            numbers["cohort_size"] = n_users
        multiplier = parameters["noise_multiplier"]
        if parameters["target_epsilon"] is not None:
            multiplier = _calibrate(parameters, n_users, numbers["cohort_size"], numbers["n_rounds"])
        return cls(**numbers, clip_norm=parameters["clip_norm"], noise_multiplier=multiplier)


def check_settings(parameters: Mapping[str, Any]) -> None:
    """Raise for a constructor argument of PrivRec that makes no sense, alone or beside the others."""
    check_choice("preset", parameters["preset"], tuple(PRESETS))
    check_choice("noise", parameters["noise"], ("gaussian", "laplace"))
    least = {"n_rounds": 0, "cohort_size": 1, "local_epochs": 1, "negatives": 0}
    for name, low in least.items():
        value = parameters[name]
        if isinstance(value, str):
            check_choice(name, value, ("auto", "all") if name == "cohort_size" else ("auto",))
        else:
            check_integer(name, value, low=low, high=2**32 - 1)
    for name in ("learning_rate", "server_learning_rate"):
        if isinstance(parameters[name], str):
            check_choice(name, parameters[name], ("auto",))
        else:
            check_real(name, parameters[name], low=0.0, exclusive=True)
    for name in ("clip_norm", "noise_multiplier"):
        if parameters[name] is not None:
            check_real(name, parameters[name], low=1e-6, high=1e6)
    if parameters["popularity_epsilon"] is not None:
        check_epsilon("popularity_epsilon", parameters["popularity_epsilon"])
    if parameters["target_epsilon"] is not None:
        target = check_epsilon("target_epsilon", parameters["target_epsilon"])
        if parameters["noise_multiplier"] is not None:
            raise ValueError("give noise_multiplier or target_epsilon, not both: one follows from the other")
        if parameters["popularity_epsilon"] is not None and parameters["popularity_epsilon"] >= target:
            raise ValueError(
                f"popularity_epsilon must be below target_epsilon ({target}), which holds the rounds as well, got "
                f"{parameters['popularity_epsilon']}"
            )
    private = parameters["noise_multiplier"] is not None or parameters["target_epsilon"] is not None
    if private and parameters["clip_norm"] is None:
        raise ValueError("clip_norm must be given where there is noise: without a bound, no noise hides a user")
    if parameters["n_rounds"] == 0 and (private or parameters["popularity_epsilon"] is None):
        raise ValueError(
            "n_rounds may be 0 only with popularity_epsilon alone: without rounds nothing else is learnt or hidden"
        )
    check_real("delta", parameters["delta"], low=0.0, high=1.0, exclusive=True)
    check_real("threshold", parameters["threshold"], low=0.0)
    check_integer("batch_size", parameters["batch_size"], low=1)


def _calibrate(parameters: Mapping[str, Any], n_users: int, cohort_size: int, n_rounds: int) -> float:
    """The least noise multiplier that keeps a run of so many rounds within the target."""
    sampled: dict[str, Any] = {
        "neighboring": "replace", "sampling": "without_replacement", "n_users": n_users, "cohort_size": cohort_size
    }  # fmt: skip
    # A part in a million less: room for the rounding of the grid and for the delta of the table.
    for_rounds = parameters["target_epsilon"] - (parameters["popularity_epsilon"] or 0.0)
    target = {"epsilon": for_rounds * (1 - 1e-6), "delta": parameters["delta"] * (1 - 1e-6)}
    if parameters["noise"] == "gaussian":
        return calibrate_noise_multiplier(Gaussian(1.0, **sampled), **target, count=n_rounds)
    release = CentralRelease("discrete Laplace", 1.0, **sampled)
    return 1 / calibrate_epsilon_per_report(release, **target, count=n_rounds)
