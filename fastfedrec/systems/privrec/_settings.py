"""The numbers of a PrivRec run: what "auto" stands for, and what the noise must be for a target epsilon."""

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
from fastfedrec.compute.networks.tiles import check_widths
from fastfedrec.core.check import check_choice, check_integer, check_noise_epsilon, check_real
from fastfedrec.systems.privrec._cohort import OPTIMIZERS
from fastfedrec.systems.privrec._meta import METAS
from fastfedrec.systems.privrec.grid_noise import check_grid_sums
from fastfedrec.systems.privrec.stage1 import STAGES, Stage1Settings, check_options, has_joint_loss, resolve_options

#: The paper's own are those of its section 4.1; others were chosen on MovieLens 100K (Adam) and on MovieLens 1M
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
    """Every number of a run, as it is used."""

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
        """Put numbers for "auto" and "all", and calibrate the noise, for a run over `n_users` users."""
        optimizer = choose_optimizer(parameters)
        preset = _ADAM if optimizer == "adam" else PRESETS[parameters["preset"]]
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
        options = stage1 = None
        if parameters["stage1"] != "none":
            options = resolve_options(parameters, n_public if parameters["stage1"] == "public" else n_users)
        multiplier = first = parameters["noise_multiplier"]
        if parameters["target_epsilon"] is not None:
            multiplier, first = _calibrate(parameters, n_users, numbers, options)
        if options is not None:
            private = parameters["stage1"] == "dp"
            bound = {"clip_norm": options["clip_norm"] if private else None}
            stage1 = Stage1Settings(**(options | bound), noise_multiplier=first if private else None)
            _check_sums(parameters, stage1.clip_norm, stage1.noise_multiplier, stage1.cohort_size)
        _check_sums(parameters, parameters["clip_norm"], multiplier, numbers["cohort_size"])
        return cls(
            **numbers, clip_norm=parameters["clip_norm"], noise_multiplier=multiplier, server_optimizer=optimizer,
            stage1=stage1,
        )  # fmt: skip

    def check_draws(self, n_items: int, batch_size: int) -> None:
        """Refuse, by public numbers, more epochs than a client's stream holds draws for.

        Were it left to the clients, one client's number of examples would decide whether a round fails.
        """
        # A client has at most one positive and one negative an item, and a sequence has at most all items.
        passes = [("local_epochs", self.local_epochs, 2 * n_items)]
        if (first := self.stage1) is not None:
            passes.append(("stage1_options['local_epochs']", first.local_epochs, n_items))
            # Beside each batch of examples a batch of masked sequences; all of them are put in a new order each turn.
            masked = -(-2 * n_items // batch_size) * min(first.batch_size, n_items) + n_items
            passes.append(("local_epochs", self.local_epochs, masked * bool(first.contrastive_weight)))
        for name, n_epochs, n_draws in passes:
            if n_epochs * n_draws > MAX_DRAWS:
                raise ValueError(
                    f"{name} must be at most {MAX_DRAWS // n_draws} with {n_items} items, got {n_epochs}; a client "
                    f"would need more than {MAX_DRAWS} draws for the order of its examples"
                )

    @classmethod
    def on_device(cls, parameters: Mapping[str, Any]) -> "PrivRecSettings":
        """What a user's device fine-tunes with."""
        # Nothing there depends on the noise or on the number of users, so there is nothing to calibrate.
        changed = {"noise_multiplier": 1.0, "target_epsilon": None, "stage1": "none"}
        changed["server_optimizer"] = choose_optimizer(parameters)
        return cls.resolve({**parameters, **changed}, 2**31)


def choose_optimizer(parameters: Mapping[str, Any]) -> str:
    """What "auto" stands for."""
    if parameters["server_optimizer"] != "auto":
        return str(parameters["server_optimizer"])
    # Adam divides by how much a parameter moves: what hardly moves but for noise would follow the noise.
    exact = all(parameters[name] is None for name in ("noise_multiplier", "target_epsilon", "popularity_epsilon"))
    is_free = parameters["server_learning_rate"] == "auto" and parameters["preset"] == "recommended"
    return "adam" if exact and is_free else "sgd"


def is_private(parameters: Mapping[str, Any]) -> bool:
    """Whether anything is promised to users."""
    asked = (parameters[name] for name in ("noise_multiplier", "target_epsilon", "popularity_epsilon"))
    return any(value is not None for value in asked) and parameters["stage1"] != "published"


def check_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """PrivRec's arguments in Python's own types, or raise for one that makes no sense, alone or beside the others."""
    parameters = dict(given)
    parameters["preset"] = check_choice("preset", parameters["preset"], tuple(PRESETS))
    parameters["noise"] = check_choice("noise", parameters["noise"], ("gaussian", "laplace"))
    parameters["meta"] = check_choice("meta", parameters["meta"], METAS)
    optimizers = ("auto", *OPTIMIZERS)
    parameters["server_optimizer"] = check_choice("server_optimizer", parameters["server_optimizer"], optimizers)
    least = {"n_rounds": 0, "cohort_size": 1, "local_epochs": 1, "negatives": 0}
    for name, low in least.items():
        value = parameters[name]
        if isinstance(value, str):
            value = check_choice(name, value, ("auto", "all") if name == "cohort_size" else ("auto",))
        else:
            value = check_integer(name, value, low=low, high=2**31 - 1)
        parameters[name] = value
    for name in ("learning_rate", "server_learning_rate"):
        if isinstance(parameters[name], str):
            parameters[name] = check_choice(name, parameters[name], ("auto",))
        else:
            parameters[name] = check_real(name, parameters[name], low=0.0, exclusive=True)
    for name in ("clip_norm", "noise_multiplier"):
        if parameters[name] is not None:
            parameters[name] = check_real(name, parameters[name], low=1e-6, high=1e6)
    for name in ("popularity_epsilon", "target_epsilon"):
        if parameters[name] is not None:
            parameters[name] = check_noise_epsilon(name, parameters[name])
    if parameters["target_epsilon"] is not None:
        target = parameters["target_epsilon"]
        if parameters["noise_multiplier"] is not None:
            raise ValueError("give noise_multiplier or target_epsilon, not both: one follows from the other")
        if parameters["popularity_epsilon"] is not None and parameters["popularity_epsilon"] >= target:
            raise ValueError(
                f"popularity_epsilon must be below target_epsilon ({target}), which holds the rounds as well, got "
                f"{parameters['popularity_epsilon']}"
            )
    private = parameters["noise_multiplier"] is not None or parameters["target_epsilon"] is not None
    stage1 = parameters["stage1"] = check_choice("stage1", parameters["stage1"], STAGES)
    parameters["stage1_options"] = check_options(parameters["stage1_options"])
    parameters["stage1_share"] = check_real("stage1_share", parameters["stage1_share"], low=1e-3, high=1 - 1e-3)
    if has_joint_loss(parameters) and (stage1 == "none" or parameters["n_rounds"] == 0):
        raise ValueError(
            "stage1_options['contrastive_weight'] is for rounds after a stage one: they go on with its losses, got "
            f"stage1={stage1!r} and n_rounds={parameters['n_rounds']!r}"
        )
    if has_joint_loss(parameters) and parameters["meta"] != "reptile":
        raise ValueError(
            "meta must be 'reptile' with stage1_options['contrastive_weight']: no gradient goes through steps on its "
            f"losses, got {parameters['meta']!r}"
        )
    if stage1 == "dp" and not private:
        raise ValueError("stage1='dp' needs noise: give target_epsilon or noise_multiplier, and clip_norm")
    if private and isinstance(parameters["cohort_size"], int):  # before any data are read; `resolve` knows the rest
        _check_sums(parameters, parameters["clip_norm"], parameters["noise_multiplier"], parameters["cohort_size"])
    if private and parameters["clip_norm"] is None:
        raise ValueError("clip_norm must be given where there is noise: without a bound, no noise hides a user")
    to_hide = private and stage1 != "dp"
    if parameters["n_rounds"] == 0 and (to_hide or parameters["popularity_epsilon"] is None):
        raise ValueError(
            "n_rounds may be 0 only with popularity_epsilon alone, or beside stage1='dp': without rounds nothing else "
            "is learnt or hidden"
        )
    parameters["delta"] = check_real("delta", parameters["delta"], low=0.0, high=1.0, exclusive=True)
    parameters["threshold"] = check_real("threshold", parameters["threshold"], low=0.0)
    parameters["batch_size"] = check_integer("batch_size", parameters["batch_size"], low=1)
    parameters["n_factors"], parameters["hidden"] = check_widths(parameters["n_factors"], parameters["hidden"])
    return parameters


def _check_sums(
    parameters: Mapping[str, Any], clip_norm: float | None, noise_multiplier: float | None, cohort_size: int
) -> None:
    """Refuse a cohort whose sums are not exact, where there is noise."""
    if clip_norm is not None and noise_multiplier is not None:
        check_grid_sums(parameters["noise"], clip_norm, noise_multiplier, cohort_size)


def _calibrate(
    parameters: Mapping[str, Any], n_users: int, numbers: Mapping[str, Any], stage1: Mapping[str, Any] | None
) -> tuple[float | None, float | None]:
    """The least noise multipliers, of the rounds and of a private stage one, that keep a run within the target."""
    # A part in a million less: room for the rounding of the grid and for the delta of the table.
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

    def least(epsilon: float, cohort_size: int, count: int, accountant: Callable[[], Any]) -> float:
        target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "count": count, "accountant": accountant}
        release = event(1.0, cohort_size)
        if isinstance(release, Gaussian):
            return calibrate_noise_multiplier(release, **target)
        return 1 / calibrate_epsilon_per_report(release, **target)

    def after_stage1() -> PLDAccountant:
        accountant = PLDAccountant()
        if stage1 is not None and first is not None:
            accountant.compose(event(first, stage1["cohort_size"]), stage1["n_rounds"])
        return accountant

    first = None
    if parameters["stage1"] == "dp" and stage1 is not None:
        share = parameters["stage1_share"] if numbers["n_rounds"] else 1.0
        first = least(share * budget, stage1["cohort_size"], stage1["n_rounds"], PLDAccountant)
    if not numbers["n_rounds"]:
        return None, first
    # Stage one is composed with the rounds, not added to them.
    accountant = PLDAccountant if first is None else after_stage1
    return least(budget, numbers["cohort_size"], numbers["n_rounds"], accountant), first
