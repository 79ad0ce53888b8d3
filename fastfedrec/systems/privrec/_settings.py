"""The settings of a PrivRec run: values of "auto", and the noise for a target epsilon."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastfedrec.accounting import (
    CentralRelease,
    Gaussian,
    PLDAccountant,
    calibrate_epsilon_per_report,
    calibrate_noise_multiplier,
)
from fastfedrec.compute.networks.client_examples import MAX_DRAWS
from fastfedrec.systems.grid_noise import check_grid_sums
from fastfedrec.systems.privrec.stage1 import Stage1Settings, has_joint_loss, resolve_options

#: "paper" has the settings of its section 4.1; "recommended" was tuned on MovieLens 1M, and _ADAM on MovieLens 100K
#: (docs/explanation/systems/privrec/privrec.md).
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
_ADAM: dict[str, Any] = {
    "n_rounds": 300, "cohort_size": 200, "local_epochs": 2, "learning_rate": 0.1, "server_learning_rate": 0.005,
    "negatives": 4,
}  # fmt: skip


@dataclass(frozen=True)
class PrivRecSettings:
    """All settings of a run, with their final values."""

    n_rounds: int
    cohort_size: int
    local_epochs: int
    learning_rate: float
    server_learning_rate: float
    negatives: int
    clip_norm: float | None
    noise_multiplier: float | None
    server_optimizer: str
    stage1: Stage1Settings | None = None

    @classmethod
    def resolve(cls, parameters: Mapping[str, Any], n_users: int, n_public: int = 0) -> "PrivRecSettings":
        """Return the settings of a run over `n_users` users: values for "auto" and "all", and calibrated noise."""
        optimizer = choose_optimizer(parameters)
        preset = _ADAM if optimizer == "adam" else PRESETS[parameters["preset"]]
        given = {name: parameters[name] for name in preset}
        numbers = {name: preset[name] if value == "auto" else value for name, value in given.items()}
        if numbers["cohort_size"] == "all":
            numbers["cohort_size"] = n_users
        # A preset's cohort shrinks to the population; a given one must fit.
        if numbers["cohort_size"] > n_users:
            if given["cohort_size"] != "auto":
                raise ValueError(
                    f"cohort_size must be at most the number of users ({n_users}), got {numbers['cohort_size']}"
                )
            numbers["cohort_size"] = n_users
        options = stage1 = None
        if parameters["stage1"] != "none":
            options = resolve_options(parameters, n_public if parameters["stage1"] == "public" else n_users)
        multiplier = stage1_multiplier = parameters["noise_multiplier"]
        if parameters["target_epsilon"] is not None:
            multiplier, stage1_multiplier = _calibrate(parameters, n_users, numbers, options)
        if options is not None:
            private = parameters["stage1"] == "dp"
            bound = {"clip_norm": options["clip_norm"] if private else None}
            stage1 = Stage1Settings(**(options | bound), noise_multiplier=stage1_multiplier if private else None)
            _check_sums(parameters, stage1.clip_norm, stage1.noise_multiplier, stage1.cohort_size)
        _check_sums(parameters, parameters["clip_norm"], multiplier, numbers["cohort_size"])
        return cls(
            **numbers, clip_norm=parameters["clip_norm"], noise_multiplier=multiplier, server_optimizer=optimizer,
            stage1=stage1,
        )  # fmt: skip

    def check_draws(self, n_items: int, batch_size: int) -> None:
        """Raise, by public numbers, if more epochs are planned than a client's random stream holds draws for."""
        # A limit that depended on a client's number of examples would make an error depend on one client's data.
        # A client has at most one positive and one negative an item, and a sequence has at most all items.
        passes = [("local_epochs", self.local_epochs, 2 * n_items)]
        if (stage1 := self.stage1) is not None:
            passes.append(("stage1_options['local_epochs']", stage1.local_epochs, n_items))
            # Each batch of examples comes with a batch of masked sequences, and each pass has a new order of all.
            masked = -(-2 * n_items // batch_size) * min(stage1.batch_size, n_items) + n_items
            passes.append(("local_epochs", self.local_epochs, masked * bool(stage1.contrastive_weight)))
        for name, n_epochs, n_draws in passes:
            if n_epochs * n_draws > MAX_DRAWS:
                raise ValueError(
                    f"{name} must be at most {MAX_DRAWS // n_draws} with {n_items} items, got {n_epochs}; a client "
                    f"would need more than {MAX_DRAWS} draws for the order of its examples"
                )

    @classmethod
    def on_device(cls, parameters: Mapping[str, Any]) -> "PrivRecSettings":
        """Return the settings with which a user's device fine-tunes."""
        # They do not depend on the noise or the number of users, so no calibration is needed.
        overrides = {"noise_multiplier": 1.0, "target_epsilon": None, "stage1": "none"}
        overrides["server_optimizer"] = choose_optimizer(parameters)
        return cls.resolve({**parameters, **overrides}, 2**31)


def choose_optimizer(parameters: Mapping[str, Any]) -> str:
    """Return the server's optimizer, with "auto" resolved."""
    if parameters["server_optimizer"] != "auto":
        return str(parameters["server_optimizer"])
    # Adam normalises by the size of a parameter's updates, so parameters with a small signal would follow the noise.
    exact = all(parameters[name] is None for name in ("noise_multiplier", "target_epsilon", "popularity_epsilon"))
    is_free = parameters["server_learning_rate"] == "auto" and parameters["preset"] == "recommended"
    return "adam" if exact and is_free else "sgd"


def is_private(parameters: Mapping[str, Any]) -> bool:
    """Return whether the settings give users a guarantee."""
    budgets = (parameters[name] for name in ("noise_multiplier", "target_epsilon", "popularity_epsilon"))
    return any(value is not None for value in budgets) and parameters["stage1"] != "published"


def check_settings(parameters: Mapping[str, Any]) -> None:
    """Raise for combinations of PrivRec's arguments that are not valid."""
    if parameters["target_epsilon"] is not None:
        target = parameters["target_epsilon"]
        if parameters["noise_multiplier"] is not None:
            raise ValueError("give noise_multiplier or target_epsilon, not both: one determines the other")
        if parameters["popularity_epsilon"] is not None and parameters["popularity_epsilon"] >= target:
            raise ValueError(
                f"popularity_epsilon must be below target_epsilon ({target}), which includes the rounds, got "
                f"{parameters['popularity_epsilon']}"
            )
    private = parameters["noise_multiplier"] is not None or parameters["target_epsilon"] is not None
    stage1 = parameters["stage1"]
    if has_joint_loss(parameters) and (stage1 == "none" or parameters["n_rounds"] == 0):
        raise ValueError(
            "stage1_options['contrastive_weight'] needs a stage one and rounds after it, which use its losses, got "
            f"stage1={stage1!r} and n_rounds={parameters['n_rounds']!r}"
        )
    if has_joint_loss(parameters) and parameters["meta"] != "reptile":
        raise ValueError(
            "meta must be 'reptile' with stage1_options['contrastive_weight']: its losses have no gradient through "
            f"local steps, got {parameters['meta']!r}"
        )
    if stage1 == "dp" and not private:
        raise ValueError("stage1='dp' needs noise: give target_epsilon or noise_multiplier, and clip_norm")
    if private and isinstance(parameters["cohort_size"], int):  # before any data are read; `resolve` checks "auto"
        _check_sums(parameters, parameters["clip_norm"], parameters["noise_multiplier"], parameters["cohort_size"])
    if private and parameters["clip_norm"] is None:
        raise ValueError("clip_norm must be given if there is noise: without a bound, no noise protects a user")
    needs_rounds = private and stage1 != "dp"
    if parameters["n_rounds"] == 0 and (needs_rounds or parameters["popularity_epsilon"] is None):
        raise ValueError(
            "n_rounds may be 0 only with popularity_epsilon alone, or with stage1='dp': otherwise a run without rounds "
            "learns from no data"
        )


def _check_sums(
    parameters: Mapping[str, Any], clip_norm: float | None, noise_multiplier: float | None, cohort_size: int
) -> None:
    """Raise if the noise is too small for exact sums over a cohort."""
    if clip_norm is not None and noise_multiplier is not None:
        check_grid_sums(parameters["noise"], clip_norm, noise_multiplier, cohort_size)


def _calibrate(
    parameters: Mapping[str, Any], n_users: int, numbers: Mapping[str, Any], stage1: Mapping[str, Any] | None
) -> tuple[float | None, float | None]:
    """Return the smallest noise multipliers, of the rounds and of a private stage one, that satisfy the target."""
    # The reduction by a millionth covers the rounding of the grid and the delta of the noise table.
    budget = (parameters["target_epsilon"] - (parameters["popularity_epsilon"] or 0.0)) * (1 - 1e-6)
    delta = parameters["delta"] * (1 - 1e-6)
    is_gaussian = parameters["noise"] == "gaussian"

    def event(multiplier: float, cohort_size: int) -> Gaussian | CentralRelease:
        sampled: dict[str, Any] = {
            "neighboring": "replace", "sampling": "without_replacement", "n_users": n_users, "cohort_size": cohort_size
        }  # fmt: skip
        if is_gaussian:
            return Gaussian(multiplier, **sampled)
        return CentralRelease("discrete Laplace", 1 / multiplier, **sampled)

    # A discrete Laplace release with scale z * sensitivity has epsilon 1 / z.
    def smallest_multiplier(epsilon: float, cohort_size: int, count: int, accountant: Callable[[], Any]) -> float:
        target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "count": count, "accountant": accountant}
        release = event(1.0, cohort_size)
        if isinstance(release, Gaussian):
            return calibrate_noise_multiplier(release, **target)
        return 1 / calibrate_epsilon_per_report(release, **target)

    def after_stage1() -> PLDAccountant:
        accountant = PLDAccountant()
        if stage1 is not None and stage1_multiplier is not None:
            accountant.compose(event(stage1_multiplier, stage1["cohort_size"]), stage1["n_rounds"])
        return accountant

    stage1_multiplier = None
    if parameters["stage1"] == "dp" and stage1 is not None:
        # Without rounds stage one has the whole budget.
        share = parameters["stage1_share"] if numbers["n_rounds"] else 1.0
        stage1_multiplier = smallest_multiplier(
            share * budget, stage1["cohort_size"], stage1["n_rounds"], PLDAccountant
        )
    if not numbers["n_rounds"]:
        return None, stage1_multiplier
    # The accountant composes stage one with the rounds, which costs less than adding their epsilons.
    accountant = PLDAccountant if stage1_multiplier is None else after_stage1
    return smallest_multiplier(budget, numbers["cohort_size"], numbers["n_rounds"], accountant), stage1_multiplier
