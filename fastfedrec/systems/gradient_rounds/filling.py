"""The items that users of FedRec report: rated and virtual ones, or the output of randomized response."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import Channel
from fastfedrec.mechanisms.channels.channel import TOTAL
from fastfedrec.systems.gradient_rounds.devices import ReportedItems, fill_by_response, fill_hybrid

__all__ = ["Filling", "HybridFilling", "ResponseFilling"]


@dataclass(frozen=True)
class HybridFilling:
    """All rated items, and `rho` unrated items for each rated one."""

    rho: int
    redraws: bool  # whether the unrated items are drawn anew in each round

    channel: ClassVar[None] = None  # the reported items have no epsilon
    rated_chance: ClassVar[float] = 1.0  # probability that a user reports a rated item

    def mean_reports(self, lengths: np.ndarray, n_items: int) -> float:
        """Return the mean number of items that a user reports, for users with these numbers of rated items."""
        return float(np.minimum((1 + self.rho) * lengths, n_items).mean())

    def redraws_in(self, round_number: int) -> bool:
        """Return whether the reported items are drawn in this round."""
        return round_number == 0 or (self.redraws and self.rho > 0)

    def draw(
        self, shard: Interactions, weights: np.ndarray, key: Key, round_number: int, n_threads: int,
        previous: ReportedItems | None,
    ) -> ReportedItems:  # fmt: skip
        """Draw the items that users report, by weights of unrated items; `previous` lists are overwritten."""
        return fill_hybrid(shard, self.rho, weights, key, round_number, n_threads, previous)

    def cost(self, n_rounds: int) -> tuple[float, str] | None:
        """Return None, since the reported items have no epsilon."""
        return None

    def notes(self) -> list[str]:
        """Return notes on the items that a server learns if it receives the gradients."""
        if self.rho == 0:
            return ["The server sees the items that each user has rated."]
        redrawn = (
            "Virtual items are drawn anew in each round, so items in a user's messages of several rounds are rated "
            "(attacks.intersection)."
        )
        return [redrawn] * self.redraws


@dataclass(frozen=True)
class ResponseFilling:
    """Randomized response on each item, which is drawn once, since a second draw would cost its epsilon again."""

    response: Channel

    @property
    def channel(self) -> Channel | None:
        """Channel from "rated" to "reported" with the epsilon of all rounds, or None."""
        return self.response

    @property
    def chances(self) -> tuple[float, float]:
        """Probabilities that a user reports an unrated and a rated item in a round."""
        unrated, rated = (row[1] / TOTAL for row in self.response.counts)
        return unrated, rated

    @property
    def rated_chance(self) -> float:
        """Probability that a user reports a rated item in a round."""
        return self.chances[1]

    def mean_reports(self, lengths: np.ndarray, n_items: int) -> float:
        """Return the mean number of items that a user reports, for users with these numbers of rated items."""
        unrated_chance, rated_chance = self.chances
        return float((rated_chance * lengths + unrated_chance * (n_items - lengths)).mean())

    def redraws_in(self, round_number: int) -> bool:
        """Return whether the reported items are drawn in this round."""
        return round_number == 0

    def draw(
        self, shard: Interactions, weights: np.ndarray, key: Key, round_number: int, n_threads: int,
        previous: ReportedItems | None,
    ) -> ReportedItems:  # fmt: skip
        """Draw the items that users report; the weights and `previous` have no effect."""
        return fill_by_response(shard, self.response, key, n_threads)

    def cost(self, n_rounds: int) -> tuple[float, str] | None:
        """Return the epsilon of the reports on one item in all rounds, and its explanation."""
        return self.response.epsilon, "The set is drawn once, so further rounds add no cost."

    def notes(self) -> list[str]:
        """Return no notes, since the epsilon describes the knowledge of a server that receives the gradients."""
        return []


Filling: TypeAlias = HybridFilling | ResponseFilling
