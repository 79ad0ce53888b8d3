"""The rule that answers where nothing was measured: by the gates of the systems, which know public numbers alone."""

from typing import Any

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.systems.private_recommender._measured import RANDOM
from fastfedrec.systems.private_recommender.advice import Offer
from fastfedrec.systems.private_recommender.recipes import POPULARITY, RECIPES, Planned, Recipe, calibrated

#: What is said first of an answer without sweeps.
RULES = {
    "central": "by rule, for want of sweeps: DPGram to 3,000 items, DPSubspace beyond, popularity where a gate closes",
    "shuffle": "by rule, for want of sweeps: ShuffledSketchGram to 4,096 items, popularity where its gate closes",
    "local": "by rule, for want of sweeps: popularity, which is all that so strong a promise leaves",
}

_MOST_GRAM = 3_000  # items up to which DPGram's gate was found right on generated data; DPSubspace's, beyond
_LEAST_SKETCH = 1_000  # items from which the sketch of a closed gate knows popularity better than answers about items


def by_rule(trust: str, epsilon: float, delta: float, n_users: int, n_items: int) -> tuple[list[Offer], list[Offer]]:
    """Systems and popularities, the first of which is to be used.

    Parameters
    ----------
    trust : {"local", "shuffle", "central"}
        Whom one trusts.
    epsilon, delta : float
        The budget, for replacing all data of one user.
    n_users, n_items : int
        Public.

    Returns
    -------
    offers, popularities : list of Offer
        Without figures.
    """
    chosen = {"central": "DPGram" if n_items <= _MOST_GRAM else "DPSubspace", "shuffle": "ShuffledSketchGram"}
    names = [chosen.get(trust, POPULARITY), POPULARITY]
    if trust == "shuffle" and n_items < _LEAST_SKETCH:
        names.reverse()
    recipes = {recipe.system: recipe for recipe in RECIPES if recipe.trust == trust}
    offers: list[Offer] = []
    popularities: list[Offer] = []
    for name in dict.fromkeys(names):
        found = calibrated(recipes[name], epsilon, delta, n_users, n_items)
        if found is not None:
            offer = without_figures(recipes[name], *found, delta)
            (popularities if offer.is_popularity else offers).append(offer)
    return offers, [*popularities, at_random()]


def without_figures(recipe: Recipe, parameters: dict[str, Any], planned: Planned, delta: float) -> Offer:
    """What a setting costs, by its plan.

    Parameters
    ----------
    recipe : Recipe
        Of the system.
    parameters : dict
        The setting.
    planned : Planned
        What its fit will record.
    delta : float
        At which costs are stated.

    Returns
    -------
    Offer
        With None for every figure that sweeps would tell.
    """
    ledger = planned.ledger
    traffic = planned.communication.to_dict() if planned.communication else {}
    return Offer(
        recipe.system, parameters, ledger.epsilon(TRUST_VIEWS[recipe.trust], delta), ledger.epsilon("server", delta),
        None, None, None, (), None, planned.is_popularity, traffic.get("download_per_client"),
        traffic.get("upload_per_client"), None,
    )  # fmt: skip


def at_random() -> Offer:
    """Items in a random order, which cost nothing; noisy popularity may be worse.

    Returns
    -------
    Offer
        With the figure of any evaluation against 99 others.
    """
    return Offer("Random", {}, 0.0, 0.0, RANDOM, 0.0, 0.0, (), None, False, None, None, None)
