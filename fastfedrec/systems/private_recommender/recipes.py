"""What is offered in each trust model, and the setting of each that costs no more than a given true epsilon.

The accountants answer before anything is fitted: from the events that a fit is going to record, for so many users and
items (`plan_run`; tests hold it equal to what fits record).
"""

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastfedrec.accounting import CommunicationLedger, Ledger, ShuffledReports
from fastfedrec.accounting.views import TRUST_VIEWS, View
from fastfedrec.core.randomness import Key
from fastfedrec.systems.baselines.popularity import DPPopularity, best_n_reports, split_epsilon
from fastfedrec.systems.registry import make_system, system_class

__all__ = ["POPULARITY", "RECIPES", "Planned", "Recipe", "calibrated", "most_users", "plan_run"]

POPULARITY = "DPPopularity"
_COUNTS = {
    "discrete Laplace on item counts", "binary response on interaction bits",
    "Gaussian noise on item shares", "largest response on sketched items",
}  # fmt: skip
_NO_KEY = Key.from_seed(0)  # of a plan only sizes are looked at
_CLOSE = 0.985  # of the target: an epsilon this near is not worth another search step
_MOST_STEPS = 24
_REPORT_EPSILON = 2.5
_MOST_ASKED = 2_000.0  # nats of local cost: some 900 items that each user answers for, and counts are as good as exact
_MOST_ANSWERS = 500_000_000  # users times reports
_MOST_CELLS = 30_000_000  # users times items, of systems that go over all items for each user in each round
_MOST_ALS_CELLS = 10_000_000  # the same, of DPALS, which solves for all items in each round
_MOST_FMF_CELLS = 200_000_000  # the same, of DPFMF: about a minute on two cores
_MOST_PAIRS = 10_000  # items whose matrix of pairs is planned: below a gigabyte
_MOST_SKETCHED = 4_096  # items that fit into the rotations of the sketch by default
_MOST_SKETCH = 49.0  # epsilon: more reports hide nobody


@dataclass(frozen=True)
class Recipe:
    """One system in one trust model, with a strength that makes it cost more and learn more.

    Parameters
    ----------
    system : str
        Name of the class.
    trust : {"local", "shuffle", "central"}
        Whom it needs.
    make : callable
        From strength, epsilon and delta to the parameters of the system.
    first : callable
        From epsilon and the number of users to the strength that the search starts with.
    power : float
        Roughly, the strength grows as the epsilon to this.
    most : float
        Strength beyond which nothing more is learnt.
    is_small : callable
        From users, items and the planned run whether a fit takes no more than minutes.
    most_items : int or None
        Beyond which it is not offered, on whatever machine; None for no bound.
    """

    system: str
    trust: str
    make: Callable[[float, float, float], dict[str, Any]]
    first: Callable[[float, int], float] = lambda epsilon, n_users: epsilon / 2.2
    power: float = 1.0
    most: float = math.inf
    is_small: Callable[[int, int, "Planned"], bool] = lambda n_users, n_items, planned: True
    most_items: int | None = None


def _few_cells(n_users: int, n_items: int, planned: "Planned") -> bool:
    return n_users * n_items <= _MOST_CELLS


def _few_als_cells(n_users: int, n_items: int, planned: "Planned") -> bool:
    return n_users * n_items <= _MOST_ALS_CELLS


def _few_fmf_cells(n_users: int, n_items: int, planned: "Planned") -> bool:
    return n_users * n_items <= _MOST_FMF_CELLS


def _few_answers(n_users: int, n_items: int, planned: "Planned") -> bool:
    asked = sum(event.n_reports for event in planned.ledger.events if isinstance(event, ShuffledReports))
    return n_users * asked <= _MOST_ANSWERS


def _released(strength: float, epsilon: float, delta: float) -> dict[str, Any]:
    return {"epsilon": strength, "delta": delta}


def _rotated(strength: float, epsilon: float, delta: float) -> dict[str, Any]:
    """FMF-LDP's rotated gradients with half the factors and rounds of its page, which take a quarter of the time."""
    return {
        "n_factors": 10, "epsilon": _REPORT_EPSILON, "n_reports": max(1, int(strength)), "n_rounds": 5,
        "delta": delta, "normalize": "l2", "rotate": True,
    }  # fmt: skip


def _rotated_once(strength: float, epsilon: float, delta: float) -> dict[str, Any]:
    """The same with no shuffler: so few reports fit that one round takes all."""
    n_reports = best_n_reports(epsilon)
    return _rotated(n_reports, epsilon, delta) | {"n_rounds": 1, "epsilon": split_epsilon(strength, n_reports)}


RECIPES = (
    Recipe("DPGram", "central", _released, most_items=_MOST_PAIRS),
    Recipe("DPSubspace", "central", _released),
    Recipe("DPFMF", "central", _released, is_small=_few_fmf_cells),
    Recipe("DPALS", "central", _released, is_small=_few_als_cells),
    Recipe(
        POPULARITY, "central", lambda strength, epsilon, delta: {"epsilon": strength},
        lambda epsilon, n_users: epsilon / 2,
    ),
    Recipe(
        "ShuffledSketchGram", "shuffle", _released, most=_MOST_SKETCH, is_small=_few_answers, most_items=_MOST_SKETCHED
    ),
    Recipe(
        "FMFLDP", "shuffle", _rotated, lambda epsilon, n_users: max(1.0, n_users / 2_000 * epsilon**2), 2.0,
        is_small=_few_cells,
    ),
    Recipe(
        POPULARITY, "shuffle", lambda strength, epsilon, delta: {"epsilon": strength, "trust": "local"},
        most=_MOST_ASKED,
    ),
    Recipe("FMFLDP", "local", _rotated_once, lambda epsilon, n_users: epsilon, is_small=_few_cells),
    Recipe(
        POPULARITY, "local", lambda strength, epsilon, delta: {"epsilon": strength, "trust": "local"},
        lambda epsilon, n_users: epsilon,
    ),
)  # fmt: skip


# ---- what a fit will record -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """A run before it is run.

    Parameters
    ----------
    ledger : Ledger
        With the events of the whole run.
    communication : CommunicationLedger or None
        What a client receives and sends, at most; None where the system counts nothing.
    others : tuple of Ledger
        With the events of the plans that a release may choose instead.
    """

    ledger: Ledger
    communication: CommunicationLedger | None
    others: tuple[Ledger, ...] = ()

    def epsilon(self, view: View, delta: float) -> float:
        """Compute the cost of the dearest plan: a release chooses the plan, and the budget covers each.

        Parameters
        ----------
        view : {"server", "shuffled_server", "public"}
            Against whom.
        delta : float
            At which the cost is stated.

        Returns
        -------
        float
            For replacing all data of one user.
        """
        return max(ledger.epsilon(view, delta) for ledger in (self.ledger, *self.others))

    @property
    def is_popularity(self) -> bool:
        """Whether nothing but counts of items is released, so that everybody gets the same list."""
        return {event.mechanism for event in self.ledger.events} <= _COUNTS


class _Sizes(NamedTuple):
    """All that a plan looks at of data."""

    n_users: int
    n_items: int
    item_ids: np.ndarray | None = None


def plan_run(model: Any, n_users: int, n_items: int, delta: float, item_ids: np.ndarray | None = None) -> Planned:
    """What a fit is going to record, before it.

    Parameters
    ----------
    model : Recommender
        Of a system that a recipe names.
    n_users, n_items : int
        Of the data.
    delta : float
        Of the ledger.
    item_ids : ndarray or None
        The list of items, of a model that was given features of them.

    Returns
    -------
    Planned
        The two accounts of the fit.

    Raises
    ------
    TypeError
        Another system: what it will record is not known here.
    ValueError
        The system refuses so few users, or so small a delta.
    """
    if type(model).__name__ not in {recipe.system for recipe in RECIPES} or model.epsilon is None:
        raise TypeError(f"what a fit of {model!r} will record is not known before it; fit it, and read its ledger_")
    model = copy.copy(model)  # which notes on itself what it plans
    model._check_parameters()
    ledger = Ledger(delta)
    if isinstance(model, DPPopularity):
        ledger.record(model._event(n_users))
        return Planned(ledger, None)
    phases = model._plan(_Sizes(n_users, n_items, item_ids), _NO_KEY)
    plans = model._plans(phases) if hasattr(model, "_plans") else [phases]
    ledgers = [ledger, *(Ledger(delta) for _ in plans[1:])]
    accounts = [CommunicationLedger(n_clients=getattr(model, "n_users", None)) for _ in plans]
    for of_plan, account, plan in zip(ledgers, accounts, plans, strict=True):
        for system, state, n_rounds in plan:
            for _ in range(n_rounds):
                of_plan.record(system.round_event(n_users))
                account.record(system.traffic(state, n_users))
    return Planned(ledger, max(accounts, key=_bytes_of_client), tuple(ledgers[1:]))


def _bytes_of_client(account: CommunicationLedger) -> float:
    moved = account.to_dict()
    return moved["download_per_client"] + moved["upload_per_client"]


def most_users(system: str) -> float:
    """How many users a system's sums have room for.

    Parameters
    ----------
    system : str
        Name of a class.

    Returns
    -------
    float
        Infinite where there is no bound.
    """
    return float(getattr(system_class(system), "_max_users", math.inf))


# ---- the setting that costs so much ---------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def calibrated(
    recipe: Recipe, epsilon: float, delta: float, n_users: int, n_items: int
) -> tuple[dict[str, Any], Planned] | None:
    """The setting of a system whose whole run costs no more than a true epsilon, and what its fit will record.

    Parameters
    ----------
    recipe : Recipe
        Which system, and in which trust model.
    epsilon : float
        Target: for replacing all data of one user, against the adversary of the trust model.
    delta : float
        Target.
    n_users, n_items : int
        Of the data.

    Returns
    -------
    tuple of dict and Planned, or None
        Parameters that cost at most `epsilon`, as a rule more than .985 of it; None where no setting is so cheap, or
        the system has no room for so many users or items.
    """
    if (recipe.most_items is not None and n_items > recipe.most_items) or n_users > most_users(recipe.system):
        return None
    view = TRUST_VIEWS[recipe.trust]
    found = None
    low, high = 0.0, math.inf  # strengths that are known to be cheap enough, and too dear
    strength = _round_down(min(recipe.first(epsilon, n_users), recipe.most))
    for _ in range(_MOST_STEPS):
        parameters = recipe.make(strength, epsilon, delta)
        try:
            planned = plan_run(make_system(recipe.system, parameters), n_users, n_items, delta)
            cost = planned.epsilon(view, delta)
        except ValueError:  # too little for a single report, or for the noise's own share of delta
            low, strength = strength, 2 * strength
        else:
            if cost <= epsilon:
                low, found = strength, (parameters, planned)
                if cost >= _CLOSE * epsilon or strength >= recipe.most:
                    break
            else:
                high = strength
            ratio = epsilon / cost if cost > 0 else math.inf
            strength *= min(ratio**recipe.power, 16.0) * (1 - 2.0**-20)
        if high <= 1.002 * low or (parameters.get("n_reports", 0) == 1 and found is None and high < math.inf):
            break
        if not low < strength < high:
            strength = math.sqrt(max(low, high / 4) * high) if high < math.inf else 2 * low
        strength = _round_down(min(strength, recipe.most))
    return found


def _round_down(strength: float) -> float:
    """Keep four digits, which a person can type; less costs less."""
    unit = 10.0 ** (math.floor(math.log10(strength)) - 3)
    return float(f"{math.floor(strength / unit * (1 + 1e-12)) * unit:.4g}")
