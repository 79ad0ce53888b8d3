"""The rule that chooses without figures: systems that decide by their releases come before popularity."""

import math
from collections.abc import Sequence

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.systems.baselines.popularity import best_n_reports
from fastfedrec.systems.private_recommender._measured import RANDOM
from fastfedrec.systems.private_recommender.advice import Offer
from fastfedrec.systems.private_recommender.recipes import POPULARITY, Planned, Recipe

__all__ = ["RULES", "SELF_DECIDING", "at_random", "by_rule", "in_order", "undominated", "without_figures"]

#: Reason of the rule's choice, by trust model.
RULES = {
    "central": "by rule: DPGram, or DPSubspace where the matrix of item pairs is too large or users are too many; both "
    "choose popularity or a personal model by their own releases",
    "shuffle": "by rule: ShuffledSketchGram, which chooses popularity or a personal model by its own reports, or "
    "shuffled popularity where no report fits the budget or there are too many items",
    "local": "by rule: popularity, which is all that this trust model leaves at such an epsilon, or items at random "
    "where noise gives fewer than one item in ten a yes",
}
#: Systems that choose popularity or a personal model themselves, so that they need no figures, in order of preference.
SELF_DECIDING = ("DPGram", "DPSubspace", "ShuffledSketchGram")


def by_rule(offers: Sequence[Offer], popularities: Sequence[Offer]) -> Offer:
    """Return the first self-deciding system, else the first popularity, which is the best one."""
    for name in SELF_DECIDING:
        for offer in (*offers, *popularities):
            if offer.system == name:
                return offer
    return popularities[0]


def undominated(popularities: Sequence[Offer], offers: Sequence[Offer]) -> list[Offer]:
    """Return popularities without those that another offer equals at a smaller epsilon without the shuffler.

    `offers` are all offers of the trust model; those without figures count only if the system decides itself.
    """

    def is_as_good(other: Offer, offer: Offer) -> bool:
        if other.expected is not None and offer.expected is not None:
            return other in popularities and other.expected >= offer.expected
        return offer.system == POPULARITY and other.system in SELF_DECIDING

    return [
        offer
        for offer in popularities
        if not any(other.epsilon_alone < offer.epsilon_alone and is_as_good(other, offer) for other in offers)
    ]


def in_order(popularities: Sequence[Offer], trust: str, n_users: int, n_items: int) -> list[Offer]:
    """Sort offers of one list for all users, with the preferred one first."""

    # Self-deciding systems come first, since Gaussian noise on shares is less than noise on counts.
    def rank(offer: Offer) -> tuple[int, float]:
        if offer.system in SELF_DECIDING:
            return SELF_DECIDING.index(offer.system), 0.0
        if trust == "local":
            share = _share_with_yes(offer, n_users, n_items) if offer.system == POPULARITY else RANDOM
            return len(SELF_DECIDING), -share
        return len(SELF_DECIDING), -(offer.expected if offer.expected is not None else 2 * RANDOM)

    return sorted(popularities, key=rank)


def _share_with_yes(popularity: Offer, n_users: int, n_items: int) -> float:
    """Return the share of items that receive a yes by noise alone."""
    # If fewer items than a list needs have a yes, the remaining ones are tied.
    epsilon = popularity.parameters["epsilon"]
    n_reports = best_n_reports(epsilon)
    return n_users * n_reports / n_items / (1 + math.exp(epsilon / n_reports))


def without_figures(recipe: Recipe, parameters: dict[str, object], planned: Planned, delta: float) -> Offer:
    """Return the offer of a setting with its costs at a delta by its plan, and None for the figures of sweeps."""
    traffic = planned.communication.to_dict() if planned.communication else {}
    return Offer(
        recipe.system, parameters, planned.epsilon(TRUST_VIEWS[recipe.trust], delta), planned.epsilon("server", delta),
        None, None, None, (), None, planned.is_popularity, traffic.get("download_per_client"),
        traffic.get("upload_per_client"), None,
    )  # fmt: skip


def at_random() -> Offer:
    """Return the offer of items in a random order, which has no cost."""
    # HR@10 of a random list is .1 in any evaluation against 99 other items; noisy popularity may be worse.
    return Offer("Random", {}, 0.0, 0.0, RANDOM, 0.0, 0.0, (), None, False, None, None, None)
