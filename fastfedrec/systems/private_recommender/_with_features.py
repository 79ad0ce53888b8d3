"""What public features of the items change in an answer: a system that takes them, where popularity would be chosen.

The rule knows public numbers alone, and not what the features say or how many they are: columns of noise, whether 5 or
12, cost next to nothing.  So a system may be asked for as soon as it is as good as popularity without any.
"""

import functools
import math
from dataclasses import replace
from typing import Any

from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.systems.private_recommender._rule import SHORT_ROW, without_figures
from fastfedrec.systems.private_recommender.advice import Advice, is_tie
from fastfedrec.systems.private_recommender.recipes import RECIPES, Recipe, calibrated

__all__ = ["with_features"]

# Of n_users mu / sqrt(n_items), of a sketch its gate's number, times the length of rows: from these on each system with
# features of noise had popularity's HR@10 on generated data, but for .005; those of topics had .01 to .17 more.
_LEAST = {"DPGram": 1_200.0, "DPSubspace": 1_200.0, "ShuffledSketchGram": 4_000.0}
_LEAST_SHORT = 4_000.0  # in short rows, where features told little more than there was
_SHORTER_ROW, _LONGEST_ROW = 25.0, 40.0  # longer ones tell of more pairs, but mostly of what is popular anyway
_MOST_GRAM = 1_000  # items; of more DPSubspace tells more of what it asks about
_SOME = ItemFeatures.of("item_features", "0" * 64)  # plans ask only whether there are any


def with_features(advice: Advice, row_length: float | None) -> Advice:
    """The answer where there are public features of the items.

    Parameters
    ----------
    advice : Advice
        Without them.
    row_length : float or None
        Items of a user, on average, if something public is known of it.

    Returns
    -------
    Advice
        The same, but where it has popularity, or what no sweep shows to be ahead: then the system of the trust model
        that takes features, if the noise leaves it anything.  It has no figures, for no sweep had features.
    """
    best = advice.best
    if advice.trust == "local":
        return _remarked(advice, "no system with nobody trusted takes features of items")
    if best.system in _LEAST and not best.is_popularity:
        return _remarked(advice, f"{best.system} takes features of items; its figures are those without")
    central = "DPGram" if advice.n_items <= _MOST_GRAM else "DPSubspace"
    name = central if advice.trust == "central" else "ShuffledSketchGram"
    alone = next((offer for offer in advice.offers if offer.system == name), None)
    if not best.is_popularity and best.system != "Random" and (alone is None or not is_tie(best, alone)):
        return _remarked(advice, f"{best.system} makes nothing of features of items, and is ahead without them")
    recipe = next(recipe for recipe in RECIPES if (recipe.system, recipe.trust) == (name, advice.trust))
    found = calibrated(_featured(recipe), advice.epsilon, advice.delta, advice.n_users, advice.n_items)
    if found is None:
        return _remarked(advice, f"{name}: features of items would help, but no setting costs so little")
    parameters, planned = found
    length = SHORT_ROW if row_length is None else min(row_length, _LONGEST_ROW)
    reach = length * planned.signal
    reach *= math.sqrt(advice.n_items) if name == "DPSubspace" else 1.0
    least = max(_LEAST[name], _LEAST_SHORT if length < _SHORTER_ROW else 0.0)
    if planned.is_popularity:
        return _remarked(advice, f"{name}: its gate is closed, so it makes nothing of features of items")
    if reach < least:
        needed = f"{least:.0f} would be needed in such rows"
        return _remarked(advice, f"{name}: features of items help too little at its number {reach:.0f}; {needed}")
    offer = without_figures(
        recipe, {key: value for key, value in parameters.items() if key != "item_features"}, planned, advice.delta
    )
    reason = (
        f"by rule, for there are public features of the items, which no sweep had: {name} is as good as popularity "
        f"even with features that tell nothing, by its number {reach:.0f}, of which {least:.0f} are needed"
    )
    others = tuple(other for other in advice.offers if other.system != name)
    return replace(advice, offers=(offer, *others), remarks=(reason, *advice.remarks))


@functools.cache  # so that its plans are kept
def _featured(recipe: Recipe) -> Recipe:
    def make(strength: float, epsilon: float, delta: float) -> dict[str, Any]:
        return recipe.make(strength, epsilon, delta) | {"item_features": _SOME}

    return replace(recipe, make=make)


def _remarked(advice: Advice, text: str) -> Advice:
    return replace(advice, remarks=(*advice.remarks, text))
