"""The rule of a choice without figures: systems that decide by their own releases come before popularity."""

import math
from collections.abc import Sequence

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.systems.baselines.popularity import best_n_reports
from fastfedrec.systems.private_recommender._measured import RANDOM
from fastfedrec.systems.private_recommender.advice import Offer
from fastfedrec.systems.private_recommender.recipes import POPULARITY, Planned, Recipe

__all__ = ["RULES", "SELF_DECIDING", "at_random", "by_rule", "in_order", "undominated", "without_figures"]

#: Why the rule chooses, by trust model.
RULES = {
    "central": "by rule: DPGram, or DPSubspace where the matrix of item pairs is too large or users are too many; both "
    "choose popularity or a personal model by their own releases",
    "shuffle": "by rule: ShuffledSketchGram, which chooses popularity or a personal model by its own reports, or "
    "shuffled popularity where no report fits the budget or there are too many items",
    "local": "by rule: popularity, which is all that this trust model leaves at such an epsilon, or items at random "
    "where noise gives fewer than one item in ten a yes",
}
#: Systems that choose popularity or a personal model themselves, so that they need no figures; the first one that can
#: be had is chosen.
SELF_DECIDING = ("DPGram", "DPSubspace", "ShuffledSketchGram")


def by_rule(offers: Sequence[Offer], popularities: Sequence[Offer]) -> Offer:
    """Choose without figures.

    Parameters
    ----------
    offers : sequence of Offer
        Systems with lists for each user.
    popularities : sequence of Offer
        Lists for all users, the best first.

    Returns
    -------
    Offer
        The first self-deciding system, else the first popularity.
    """
    for name in SELF_DECIDING:
        for offer in (*offers, *popularities):
            if offer.system == name:
                return offer
    return popularities[0]


def undominated(popularities: Sequence[Offer], others: Sequence[Offer]) -> list[Offer]:
    """Leave out popularities that protect less than an offer that is at least as good, if the shuffler fails.

    Parameters
    ----------
    popularities : sequence of Offer
        Lists for all users.
    others : sequence of Offer
        All offers of the trust model.  Systems that do not decide themselves and have no figures are passed over.

    Returns
    -------
    list of Offer
        In the same order.
    """

    def is_as_good(other: Offer, offer: Offer) -> bool:
        if other.expected is not None and offer.expected is not None:
            return other in popularities and other.expected >= offer.expected
        return offer.system == POPULARITY and other.system in SELF_DECIDING

    return [
        offer
        for offer in popularities
        if not any(other.epsilon_alone < offer.epsilon_alone and is_as_good(other, offer) for other in others)
    ]


def in_order(popularities: Sequence[Offer], trust: str, n_users: int, n_items: int) -> list[Offer]:
    """Sort lists for all users, the one first that is to be used.

    Parameters
    ----------
    popularities : sequence of Offer
        One of which is random.
    trust : {"local", "shuffle", "central"}
        Trust model.
    n_users, n_items : int
        Public numbers.

    Returns
    -------
    list of Offer
        A self-deciding system's first, because Gaussian noise on shares is less than noise on counts; then by figures.
    """

    def rank(offer: Offer) -> tuple[int, float]:
        if offer.system in SELF_DECIDING:
            return SELF_DECIDING.index(offer.system), 0.0
        if trust == "local":
            share = _share_with_yes(offer, n_users, n_items) if offer.system == POPULARITY else RANDOM
            return len(SELF_DECIDING), -share
        return len(SELF_DECIDING), -(offer.expected if offer.expected is not None else 2 * RANDOM)

    return sorted(popularities, key=rank)


def _share_with_yes(popularity: Offer, n_users: int, n_items: int) -> float:
    """Return the share of items that noise alone gives a yes; fewer than a list needs leave the others tied."""
    epsilon = popularity.parameters["epsilon"]
    n_reports = best_n_reports(epsilon)
    return n_users * n_reports / n_items / (1 + math.exp(epsilon / n_reports))


def without_figures(recipe: Recipe, parameters: dict[str, object], planned: Planned, delta: float) -> Offer:
    """Return the offer of a setting with its costs, by its plan.

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
        With None for every figure that sweeps would give.
    """
    traffic = planned.communication.to_dict() if planned.communication else {}
    return Offer(
        recipe.system, parameters, planned.epsilon(TRUST_VIEWS[recipe.trust], delta), planned.epsilon("server", delta),
        None, None, None, (), None, planned.is_popularity, traffic.get("download_per_client"),
        traffic.get("upload_per_client"), None,
    )  # fmt: skip


def at_random() -> Offer:
    """Return the offer of items in a random order, which costs nothing; noisy popularity may be worse.

    Returns
    -------
    Offer
        With the figure of any evaluation against 99 others.
    """
    return Offer("Random", {}, 0.0, 0.0, RANDOM, 0.0, 0.0, (), None, False, None, None, None)
