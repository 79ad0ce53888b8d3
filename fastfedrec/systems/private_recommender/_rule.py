"""The rule that answers where nothing was measured: by the gates of the systems, which know public numbers alone."""

import math
from typing import Any

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.systems.baselines.popularity import best_n_reports
from fastfedrec.systems.private_recommender._measured import RANDOM
from fastfedrec.systems.private_recommender.advice import Offer
from fastfedrec.systems.private_recommender.recipes import POPULARITY, RECIPES, Planned, Recipe, calibrated

#: What is said first of an answer without sweeps.
RULES = {
    "central": "by rule, for want of sweeps: DPSubspace or DPGram, whose gates look at the rows too, else popularity, "
    "from whichever of them has its gate closed by public numbers",
    "shuffle": "by rule, for want of sweeps: ShuffledSketchGram, whose gate looks at the rows too, and popularity from "
    "it where its gate is closed by public numbers",
    "local": "by rule, for want of sweeps: popularity, which is all that so strong a promise leaves, and items at "
    "random where fewer than one item in ten would get a yes",
}
#: Their gates look at the released mean, too: where rows are short they close.
GATED = ("DPGram", "DPSubspace", "ShuffledSketchGram")

SHORT_ROW = 30.0  # items of a user that are counted on where nothing is known: the shortest rows of the sweeps
_LEAST_REACH = 2_200.0  # from which pairs of items tell more than popularity
_LEAST_UNTOLD = 1_500.0  # counting on rows of 30
_LEAST_PAIRS = 8_000.0  # from which all pairs tell more than their strongest directions
_MOST_GRAM = 3_000  # items up to which DPGram was tried beside DPSubspace
_MOST_CLOSED_GRAM = 2_000  # items beyond which DPSubspace's popularity was found better than DPGram's


def by_rule(
    trust: str, epsilon: float, delta: float, n_users: int, n_items: int, row_length: float | None
) -> tuple[list[Offer], list[Offer]]:
    """Systems and popularities, the first of which is to be used.

    Parameters
    ----------
    trust : {"local", "shuffle", "central"}
        Whom one trusts.
    epsilon, delta : float
        The budget, for replacing all data of one user.
    n_users, n_items : int
        Public.
    row_length : float or None
        Items of a user, on average, if something public is known of it.

    Returns
    -------
    offers, popularities : list of Offer
        Without figures.
    """
    offers: list[tuple[bool, Offer]] = []
    popularities: list[Offer] = []
    for recipe in RECIPES:
        if recipe.trust != trust or recipe.system not in (*GATED, POPULARITY):
            continue
        found = calibrated(recipe, epsilon, delta, n_users, n_items)
        if found is None:
            continue
        offer = without_figures(recipe, *found, delta)
        if offer.is_popularity:
            popularities.append(offer)
            continue
        if trust == "shuffle":
            offers.append((True, offer))
            continue
        reach = _reach(recipe.system, found[1].signal, n_items, row_length)
        is_far = reach >= (_LEAST_UNTOLD if row_length is None else _LEAST_REACH)
        if is_far and (recipe.system != "DPGram" or n_items <= _MOST_GRAM):
            offers.append(((recipe.system == "DPSubspace") == (reach < _LEAST_PAIRS), offer))
        elif recipe.system == ("DPGram" if n_items <= _MOST_GRAM else "DPSubspace"):
            offers.append((True, offer))
    return [offer for _, offer in sorted(offers, key=lambda entry: not entry[0])], in_order(
        [*popularities, at_random()], trust, n_users, n_items
    )


def in_order(popularities: list[Offer], trust: str, n_users: int, n_items: int) -> list[Offer]:
    """Lists for everybody, the one first that is to be used.

    Parameters
    ----------
    popularities : list of Offer
        One of which is random.
    trust : {"local", "shuffle", "central"}
        Whom one trusts.
    n_users, n_items : int
        Public.

    Returns
    -------
    list of Offer
        A closed gate's first, for it has less noise than item counts; then the best, where that is known.
    """
    first = "DPGram" if n_items <= _MOST_CLOSED_GRAM else "DPSubspace"

    def rank(offer: Offer) -> tuple[int, float]:
        if offer.system in GATED:
            return (0 if offer.system == first else 1), 0.0
        if trust == "local":
            return 2, -(_share_with_yes(offer, n_users, n_items) if offer.system == POPULARITY else RANDOM)
        return 2, -(offer.expected if offer.expected is not None else 2 * RANDOM)

    return sorted(popularities, key=rank)


def _share_with_yes(popularity: Offer, n_users: int, n_items: int) -> float:
    """Of all items, what gets a yes from noise alone: too few to fill the top of a list, and the rest stand as one."""
    epsilon = popularity.parameters["epsilon"]
    n_reports = best_n_reports(epsilon)
    return n_users * n_reports / n_items / (1 + math.exp(epsilon / n_reports))


def _reach(system: str, signal: float, n_items: int, row_length: float | None) -> float:
    """DPGram's number, n_users mu / sqrt(n_items), times the length of rows, which tell of as many pairs.

    DPSubspace's own is n_users mu / n_items.
    """
    factor = math.sqrt(n_items) if system == "DPSubspace" else 1.0
    return factor * signal * (SHORT_ROW if row_length is None else row_length)


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
