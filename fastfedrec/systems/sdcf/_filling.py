"""Two stages of randomized response on the reported items: one drawn once, and one in each round."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import Channel
from fastfedrec.mechanisms.channels.channel import TOTAL, log_upper
from fastfedrec.systems.gradient_rounds.devices import VIRTUAL, ReportedItems, fill_by_response
from fastfedrec.systems.gradient_rounds.filling import ResponseFilling

_MAX_EXACT_ROUNDS = 512  # rounds with an exact epsilon; more rounds get the limit of infinitely many


@dataclass(frozen=True)
class TwoStageFilling(ResponseFilling):
    """A permanent response on each item, and a response on that one in each round."""

    report: Channel  # second stage, from the permanent answer to "reported in this round"
    only_rated: bool  # whether unrated items are left out, which reveals the rated ones

    @property
    def channel(self) -> Channel | None:
        return None if self.only_rated else self.response

    @property
    def chances(self) -> tuple[float, float]:
        """Probabilities that a user reports an unrated and a rated item in a round."""
        no, yes = (row[1] / TOTAL for row in self.report.counts)
        unrated, rated = (row[1] / TOTAL * yes + row[0] / TOTAL * no for row in self.response.counts)
        return (0.0 if self.only_rated else unrated), rated

    def redraws_in(self, round_number: int) -> bool:
        return True  # draws the second stage; the first stage reads the same words in every round

    def draw(
        self, shard: Interactions, weights: np.ndarray, key: Key, round_number: int, n_threads: int,
        previous: ReportedItems | None,
    ) -> ReportedItems:  # fmt: skip
        reported = fill_by_response(shard, self.response, key, n_threads, self.report, round_number)
        if self.only_rated:
            is_rated = reported.kinds != VIRTUAL
            return ReportedItems(shard.indptr, reported.items[is_rated], reported.kinds[is_rated])
        return reported

    def cost(self, n_rounds: int) -> tuple[float, str] | None:
        if self.only_rated:
            return None
        return self.epsilon_after(n_rounds), (
            f"One round costs {self.epsilon_after(1):.6g}, and no number of rounds costs more than "
            f"{self.response.epsilon:.6g}, because the first stage is drawn once."
        )

    def epsilon_after(self, n_rounds: int) -> float:
        """Return the epsilon of a user's reports on one item in this number of rounds."""
        return float("inf") if self.only_rated else log_upper(self.likelihood_ratio(n_rounds))

    def likelihood_ratio(self, n_rounds: int) -> Fraction:
        """Return the largest likelihood ratio of a rated and an unrated item over all rounds, exactly."""
        unrated, rated = (Fraction(row[1], TOTAL) for row in self.response.counts)
        no, yes = (Fraction(row[1], TOTAL) for row in self.report.counts)
        worst = Fraction(1)
        for on_yes, on_no in ((yes, no), (1 - yes, 1 - no)):
            # Likelihoods of "in all rounds" and of "in none", after a first "yes" and "no", up to a common factor; the
            # smaller one tends to 0 with many rounds.
            ratio = min(on_yes, on_no) / max(on_yes, on_no)
            rarer = ratio**n_rounds if n_rounds <= _MAX_EXACT_ROUNDS else Fraction(0)
            on_yes, on_no = (Fraction(1), rarer) if on_yes >= on_no else (rarer, Fraction(1))
            ratio = (rated * on_yes + (1 - rated) * on_no) / (unrated * on_yes + (1 - unrated) * on_no)
            worst = max(worst, ratio, 1 / ratio)
        return worst
