"""The rule that chooses without figures: systems that decide by their releases come before popularity."""

from collections.abc import Sequence

from fastfedrec.systems.private_recommender._measured import RANDOM
from fastfedrec.systems.private_recommender.advice import Advice, Offer
from fastfedrec.systems.private_recommender.recipes import POPULARITY, Planned, Recipe

__all__ = [
    "SELF_DECIDING",
    "at_random",
    "by_rule",
    "in_order",
    "lack_of_lists",
    "reason_of",
    "without_figures",
]

#: Systems that choose popularity or a personal model themselves, so that they need no figures, in order of preference.
SELF_DECIDING = ("DPGram", "DPSubspace", "ShuffledGram")


def by_rule(offers: Sequence[Offer], popularities: Sequence[Offer]) -> Offer:
    """Return the first self-deciding system, else the first popularity, which is the best one."""
    for name in SELF_DECIDING:
        for offer in (*offers, *popularities):
            if offer.system == name:
                return offer
    return popularities[0]


def reason_of(choice: Offer, trust: str) -> str:
    """Return the reason of the rule's choice as plain sentences."""
    if choice.system in SELF_DECIDING and not choice.is_popularity:
        return (
            f"A fixed rule on public sizes chose {choice.system}. If its noisy releases show too little signal, all "
            "users get the same popular items."
        )
    if choice.system == "Random":
        return "No private system fits these sizes and this epsilon. All users get items in a random order."
    noise = (
        "The noise of each user's own device hides which items go together"
        if trust == "local"
        else "No system with personal lists fits these sizes and this epsilon"
    )
    return f"{noise}, so a fixed rule chose private popularity. All users get the same list."


def lack_of_lists(advice: Advice) -> str:
    """Return a warning if no system fits the arguments, so that items come in a random order, else an empty text."""
    if advice.best.system != "Random":
        return ""
    reasons = [remark for remark in advice.remarks if remark.startswith((*SELF_DECIDING, POPULARITY))]
    return (
        f"epsilon={advice.epsilon:g}, delta={advice.delta:g} and trust={advice.trust!r} permit no system for "
        f"{advice.n_users:,} users and {advice.n_items:,} items, so all users get items in a random order: "
        f"{'; '.join(reasons)}"
    )


def in_order(popularities: Sequence[Offer]) -> list[Offer]:
    """Sort offers of one list for all users: self-deciding systems, counts, and items at random."""
    # Gaussian noise on shares is less than noise on counts.  A list of noisy counts is never worse than a random one.
    order = (*SELF_DECIDING, POPULARITY)
    return sorted(popularities, key=lambda offer: (*order, offer.system).index(offer.system))


def without_figures(recipe: Recipe, parameters: dict[str, object], planned: Planned, delta: float) -> Offer:
    """Return the offer of a setting with its costs at a delta by its plan, and None for the figures of sweeps."""
    traffic = planned.communication.to_dict() if planned.communication else {}
    # The noise of other nodes protects no user who trusts only the own device.
    return Offer(
        recipe.system, parameters, planned.epsilon(recipe.trust, delta), planned.epsilon("local", delta),
        None, None, None, None, None, None, planned.is_popularity, traffic.get("download_per_client"),
        traffic.get("upload_per_client"), None,
    )  # fmt: skip


def at_random() -> Offer:
    """Return the offer of items in a random order, which has no cost."""
    # HR@10 of a random list is .1 in any evaluation against 99 other items; noisy popularity may be worse.
    return Offer("Random", {}, 0.0, 0.0, RANDOM, None, 0.0, 0.0, None, None, False, None, None, None)
