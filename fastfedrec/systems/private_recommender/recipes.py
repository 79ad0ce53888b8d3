"""The systems that are offered in each trust model, and their settings within a given true epsilon.

The accountants compute the cost of a setting before a fit, from the events that the fit is going to record for these
numbers of users and items (`plan_run`).  Tests compare them with the recorded events of fits.
"""

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fastfedrec.accounting import CommunicationLedger, GaussianShares, Ledger
from fastfedrec.core.randomness import Key
from fastfedrec.systems.baselines.popularity import DPPopularity, best_n_reports, split_epsilon
from fastfedrec.systems.registry import make_system, system_class

__all__ = [
    "POPULARITY",
    "RECIPES",
    "Planned",
    "Recipe",
    "calibrated",
    "max_users_of",
    "objection",
    "plan_run",
    "recipes_of",
]

POPULARITY = "DPPopularity"
# Mechanisms that release sums over single items.
_COUNTS = {
    "discrete Laplace on item counts", "binary response on interaction bits",
    "Gaussian noise on item shares", "Gaussian noise in shares on item shares",
    "largest response on sketched items", "counts of items",
}  # fmt: skip
_SECURE = ("DPGram", "DPSubspace")  # systems with sums that nodes can add noise to
_NO_KEY = Key.from_seed(0)  # a key for plans; only the sizes of a plan are used
_MIN_USED = 0.985  # smallest share of the target epsilon at which the search stops
_LARGE = 8.0  # nats, above which a budget that no setting can spend is halved
_MAX_STEPS = 24  # largest number of steps of the search
_REPORT_EPSILON = 2.5  # epsilon of one report of FMFLDP, in nats
_MAX_COUNT_EPSILON = 2_000.0  # nats of local cost: each user reports about 900 items, and counts are nearly exact
_MAX_ANSWERS = 500_000_000  # users times reports
_MAX_CELLS = 30_000_000  # users times items, for systems that process all items for each user in each round
_MAX_ALS_CELLS = 10_000_000  # users times items for DPALS, which solves for all items in each round
_MAX_FMF_CELLS = 200_000_000  # users times items for DPFMF: about a minute on two cores
_MAX_PAIR_ITEMS = 10_000  # number of items of a matrix of pairs: below a gigabyte
_MAX_SHUFFLED_EPSILON = 12.0  # nats; the plan of a larger one takes up to a minute, and protects no user


@dataclass(frozen=True)
class Recipe:
    """One system in one trust model, with a strength on which its cost and accuracy depend."""

    system: str  # name of the class
    trust: str  # "local", "shuffle", "central" or "aggregator"
    # Parameters of the system from strength, epsilon and delta.
    make: Callable[[float, float, float], dict[str, Any]]
    # Strength at which the search starts, from epsilon and the number of users.
    first: Callable[[float, int], float] = lambda epsilon, n_users: epsilon / 2.2
    power: float = 1.0  # the strength grows approximately as epsilon to this power
    max_strength: float = math.inf  # a larger strength has the same accuracy
    # True if a fit takes at most minutes, from users, items and the planned run.
    is_small: Callable[[int, int, "Planned"], bool] = lambda n_users, n_items, planned: True
    max_items: int | None = None  # largest number of items for which it is offered on any machine; None for no bound


def _few_cells(n_users: int, n_items: int, planned: "Planned") -> bool:
    return n_users * n_items <= _MAX_CELLS


def _few_als_cells(n_users: int, n_items: int, planned: "Planned") -> bool:
    return n_users * n_items <= _MAX_ALS_CELLS


def _few_fmf_cells(n_users: int, n_items: int, planned: "Planned") -> bool:
    return n_users * n_items <= _MAX_FMF_CELLS


def _few_answers(n_users: int, n_items: int, planned: "Planned") -> bool:
    n_reports = sum(getattr(event, "n_reports", 0) for event in planned.ledger.events)
    return n_users * n_reports <= _MAX_ANSWERS


def _released(strength: float, epsilon: float, delta: float) -> dict[str, Any]:
    return {"epsilon": strength, "delta": delta}


@dataclass(frozen=True)
class SecureSums:
    """Parameters of a system with secure aggregation; equal ones share the cached search."""

    honest_fraction: float
    dropout_fraction: float

    def __call__(self, strength: float, epsilon: float, delta: float) -> dict[str, Any]:
        """Return the parameters for a strength."""
        return _released(strength, epsilon, delta) | {"aggregation": "secure"} | asdict(self)


def _rotated(strength: float, epsilon: float, delta: float) -> dict[str, Any]:
    """Return parameters of FMF-LDP's rotated gradients, with half the factors and rounds of its page."""
    # Half the factors and rounds take a quarter of the time.
    return {
        "n_factors": 10, "epsilon": _REPORT_EPSILON, "n_reports": max(1, int(strength)), "n_rounds": 5,
        "delta": delta, "normalize": "l2", "rotate": True,
    }  # fmt: skip


def _rotated_once(strength: float, epsilon: float, delta: float) -> dict[str, Any]:
    """Return the same parameters without a shuffler, where the few reports within the budget fit into one round."""
    n_reports = best_n_reports(epsilon)
    return _rotated(n_reports, epsilon, delta) | {"n_rounds": 1, "epsilon": split_epsilon(strength, n_reports)}


RECIPES = (
    Recipe("DPGram", "central", _released, max_items=_MAX_PAIR_ITEMS),
    Recipe("DPSubspace", "central", _released),
    Recipe("DPFMF", "central", _released, is_small=_few_fmf_cells),
    Recipe("DPALS", "central", _released, is_small=_few_als_cells),
    Recipe(
        POPULARITY, "central", lambda strength, epsilon, delta: {"epsilon": strength},
        lambda epsilon, n_users: epsilon / 2,
    ),
    Recipe(
        # Its epsilon is for replacing a user, so the first step has the wanted cost.
        "ShuffledGram", "shuffle", _released, lambda epsilon, n_users: epsilon, max_strength=_MAX_SHUFFLED_EPSILON,
        is_small=_few_answers,
    ),
    Recipe(
        "FMFLDP", "shuffle", _rotated, lambda epsilon, n_users: max(1.0, n_users / 2_000 * epsilon**2), 2.0,
        is_small=_few_cells,
    ),
    Recipe(
        POPULARITY, "shuffle", lambda strength, epsilon, delta: {"epsilon": strength, "trust": "local"},
        max_strength=_MAX_COUNT_EPSILON,
    ),
    Recipe("FMFLDP", "local", _rotated_once, lambda epsilon, n_users: epsilon, is_small=_few_cells),
    Recipe(
        POPULARITY, "local", lambda strength, epsilon, delta: {"epsilon": strength, "trust": "local"},
        lambda epsilon, n_users: epsilon,
    ),
)  # fmt: skip


def recipes_of(trust: str, honest_fraction: float | None, dropout_fraction: float) -> tuple[Recipe, ...]:
    """Return the recipes of a trust model, with these parameters of secure aggregation if it has one."""
    if trust != "aggregator":
        return tuple(recipe for recipe in RECIPES if recipe.trust == trust)
    make = SecureSums(float(honest_fraction or 0), float(dropout_fraction))
    central = (recipe for recipe in RECIPES if recipe.system in _SECURE and recipe.trust == "central")
    return tuple(replace(recipe, trust=trust, make=make) for recipe in central)


# ---- the events that a fit will record ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """The privacy and communication costs of a run, computed before it."""

    ledger: Ledger  # the events of the whole run
    # Largest traffic of a client; None if the system does not count it.
    communication: CommunicationLedger | None
    # The events of the alternative plans that a release may choose.
    alternatives: tuple[Ledger, ...] = ()

    def epsilon(self, view: str, delta: float) -> float:
        """Compute the largest cost of all plans for replacing all data of one user, as `Ledger.epsilon`."""
        # A release chooses the plan, so the budget must cover each of them.
        return max(ledger.epsilon(view, delta) for ledger in (self.ledger, *self.alternatives))

    def central(self) -> "Planned":
        """Return the costs of the same noise on the sums of all users, added by a trusted server."""

        def without_nodes(ledger: Ledger) -> Ledger:
            other = Ledger(ledger.delta)
            for event, times in ledger.events.items():
                assert isinstance(event, GaussianShares)
                # Sums of the nodes that answer are scaled to all nodes, and their noise with them.
                n_shares = math.ceil(event.n_nodes**2 / event.n_answers)
                same = replace(event, n_nodes=n_shares, n_answers=n_shares, honest_fraction=1.0)
                for _ in range(times):
                    other.record(same)
            return other

        return replace(
            self, ledger=without_nodes(self.ledger), alternatives=tuple(map(without_nodes, self.alternatives))
        )

    @property
    def is_popularity(self) -> bool:
        """True if only counts of items are released, so that all users get the same list."""
        return {event.mechanism for event in self.ledger.events} <= _COUNTS


class _Sizes(NamedTuple):
    """The public numbers that a plan uses instead of the data."""

    n_users: int
    n_items: int
    item_ids: np.ndarray | None = None


def plan_run(model: Any, n_users: int, n_items: int, delta: float, item_ids: np.ndarray | None = None) -> Planned:
    """Return the costs that a fit of a recipe's system is going to record; `item_ids` are needed with item features.

    It raises TypeError for another system, and ValueError for too few users or too small a delta.
    """
    if type(model).__name__ not in {recipe.system for recipe in RECIPES} or model.epsilon is None:
        raise TypeError(f"the events of a fit of {model!r} are not known before the fit; fit it, and read its ledger_")
    model = copy.copy(model)  # planning sets attributes of the model
    model._check_parameters()
    ledger = Ledger(delta)
    if isinstance(model, DPPopularity):
        ledger.record(model._event(n_users))
        return Planned(ledger, None)
    phases = model._plan(_Sizes(n_users, n_items, item_ids), _NO_KEY)
    plans = model._plans(phases) if hasattr(model, "_plans") else [phases]
    ledgers = [ledger, *(Ledger(delta) for _ in plans[1:])]
    accounts = [CommunicationLedger(n_clients=getattr(model, "n_users", None)) for _ in plans]
    for plan_ledger, account, plan in zip(ledgers, accounts, plans, strict=True):
        for system, state, n_rounds in plan:
            for _ in range(n_rounds):
                plan_ledger.record(system.round_event(n_users))
                account.record(system.traffic(state, n_users))
    return Planned(ledger, max(accounts, key=_bytes_of_client), tuple(ledgers[1:]))


def _bytes_of_client(account: CommunicationLedger) -> float:
    traffic = account.to_dict()
    return traffic["download_per_client"] + traffic["upload_per_client"]


def max_users_of(system: str) -> float:
    """Return the largest number of users for which a system's sums cannot overflow, infinite without a bound."""
    return float(getattr(system_class(system), "_max_users", math.inf))


# ---- the setting of a given cost ------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def calibrated(
    recipe: Recipe, epsilon: float, delta: float, n_users: int, n_items: int
) -> tuple[dict[str, Any], Planned] | None:
    """Return the parameters of a system and the plan of a run that costs at most a true epsilon, or None.

    The epsilon is for replacing all data of one user, against the adversary of the trust model.  The cost is usually
    above .985 of it.  None means that every setting costs more, or that there are too many users or items.
    """
    if (recipe.max_items is not None and n_items > recipe.max_items) or n_users > max_users_of(recipe.system):
        return None
    result = None
    low, high = 0.0, math.inf  # the largest strength within the budget, and the smallest one above it
    strength = _round_down(min(recipe.first(epsilon, n_users), recipe.max_strength))
    for _ in range(_MAX_STEPS):
        # Replacing a user's data costs no less than the setting's epsilon, which is for data against none.
        if recipe.trust in ("central", "aggregator") and strength > epsilon:
            break
        parameters = recipe.make(strength, epsilon, delta)
        try:
            planned = plan_run(make_system(recipe.system, parameters), n_users, n_items, delta)
            cost = planned.epsilon(recipe.trust, delta)
        except ValueError:  # the budget is too small for a single report, or for the noise's share of delta
            low, strength = strength, 2 * strength
        else:
            if cost <= epsilon:
                low, result = strength, (parameters, planned)
                if cost >= _MIN_USED * epsilon or strength >= recipe.max_strength:
                    break
            else:
                high = strength
            # The next strength follows the recipe's power law, by at most a factor of 16.
            ratio = epsilon / cost if cost > 0 else math.inf
            strength *= min(ratio**recipe.power, 16.0) * (1 - 2.0**-20)
        if high <= 1.002 * low or (parameters.get("n_reports", 0) == 1 and result is None and high < math.inf):
            break
        # A step out of the bracket is replaced by the geometric mean of its ends.
        if not low < strength < high:
            strength = math.sqrt(max(low, high / 4) * high) if high < math.inf else 2 * low
        strength = _round_down(min(strength, recipe.max_strength))
    # Some systems have a least noise, so that no setting costs as much as a large epsilon.
    return calibrated(recipe, epsilon / 2, delta, n_users, n_items) if result is None and epsilon > _LARGE else result


def objection(recipe: Recipe, epsilon: float, delta: float, n_users: int, n_items: int) -> str:
    """Return the reason why no setting of a system costs at most a true epsilon."""
    try:
        strength = min(recipe.first(epsilon, n_users), recipe.max_strength)
        plan_run(make_system(recipe.system, recipe.make(strength, epsilon, delta)), n_users, n_items, delta)
    except ValueError as error:
        return str(error)
    return f"no setting costs as little as epsilon {epsilon:g}"


def _round_down(strength: float) -> float:
    """Return a strength rounded down to four digits, so that it is short and costs no more."""
    unit = 10.0 ** (math.floor(math.log10(strength)) - 3)
    return float(f"{math.floor(strength / unit * (1 + 1e-12)) * unit:.4g}")
