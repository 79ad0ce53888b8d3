"""The parties that receive the vectors of FedRec's users: the server alone, or the server and denoisers."""

from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import Update
from fastfedrec.systems.gradient_rounds.devices import count_raters
from fastfedrec.systems.gradient_rounds.state import FedRecState
from fastfedrec.systems.gradient_rounds.views import ADDITIVE, PLAIN, PUBLISHED

__all__ = ["Denoisers", "Parties", "ServerOnly"]

_DEAL = "fedrec.denoisers"


@dataclass(frozen=True)
class ServerOnly:
    """Each user sends every vector to the server."""

    sharing: ClassVar[int] = PLAIN  # the kernel's code
    fields: ClassVar[tuple[str, ...]] = ("total",)

    def deal(self, state: FedRecState, interactions: Interactions, key: Key) -> FedRecState:
        """Return the first state, in which no user has a denoiser."""
        return state

    def real_sums(self, update: Update) -> NDArray[np.int64]:
        """Return each item's sum of gradients, in steps, and its count of users in the last column, exactly."""
        return update.arrays["total"].view(np.int64)

    def mean_sent(self, reported: float, rated: float) -> float:
        """Return the mean number of vectors that a user sends, for these mean numbers of reported and rated items."""
        return reported

    def exposed(self, hides_items: bool) -> str:
        """Describe the values that a round reveals, if the reported items have an epsilon, or if they have none."""
        return "each user's gradients" + ("" if hides_items else ", and which items they are of")

    def notes(self, server_notes: list[str], n_users: int, client_share: float) -> list[str]:
        """Return notes on the knowledge of each party; `server_notes` are for a server that receives all vectors."""
        return server_notes


@dataclass(frozen=True)
class Denoisers:
    """Some users are denoisers, which send sums of virtual vectors that the server subtracts."""

    n_denoisers: int
    is_additive: bool  # whether the server and a denoiser get uniform shares of each vector
    min_clients: int
    by_popularity: bool  # whether unrated items are drawn in proportion to their numbers of raters

    fields: ClassVar[tuple[str, ...]] = ("server", "denoisers")

    @property
    def sharing(self) -> int:
        """The kernel's code."""
        return ADDITIVE if self.is_additive else PUBLISHED

    def deal(self, state: FedRecState, interactions: Interactions, key: Key) -> FedRecState:
        """Return the first state with a denoiser for every user, or raise if there are too few users."""
        n_users, weights = interactions.n_users, state.weights
        if self.n_denoisers > n_users:
            raise ValueError(f"n_denoisers must be at most the number of users, {n_users}, got {self.n_denoisers}")
        is_below_minimum = n_users // self.n_denoisers < self.min_clients
        if self.is_additive and is_below_minimum and self.n_denoisers > 1:
            raise ValueError(
                f"n_denoisers={self.n_denoisers} leaves {n_users // self.n_denoisers} of {n_users} users to each, and "
                f"min_clients_per_denoiser is {self.min_clients}: sums over few users reveal single users; lower "
                "n_denoisers"
            )
        order = Key.from_seed(state.seed).permutation(_DEAL, size=n_users)
        denoisers = np.empty(n_users, dtype=np.uint64)
        # Dealt out in turn in a random order, so that the groups differ by one user at most.
        denoisers[order] = interactions.global_user_ids[order[np.arange(n_users) % self.n_denoisers]]
        if self.by_popularity:
            weights = count_raters(interactions, None, key, 1).astype(np.float64)
        return replace(state, denoisers=denoisers, weights=weights)

    def real_sums(self, update: Update) -> NDArray[np.int64]:
        """Return the server's sums minus the denoisers': the sums and counts over users who rated an item."""
        return (update.arrays["server"] - update.arrays["denoisers"]).view(np.int64)

    def mean_sent(self, reported: float, rated: float) -> float:
        """Return the mean number of vectors that a user sends, for these mean numbers of reported and rated items."""
        # Additive sharing sends each vector to both parties; the published variant sends the virtual ones twice.
        return 2 * reported if self.is_additive else 2 * reported - rated

    def exposed(self, hides_items: bool) -> str:
        """Describe the values that a round reveals, if the reported items have an epsilon, or if they have none."""
        if not self.is_additive:
            return ServerOnly().exposed(hides_items)
        items = "" if hides_items else ", and the items in each user's messages"
        return "exact sums of gradients and counts of raters" + items

    def notes(self, server_notes: list[str], n_users: int, client_share: float) -> list[str]:
        """Return notes on the knowledge of each party; `server_notes` are for a server that receives all vectors."""
        fewest = n_users // self.n_denoisers
        share = f" (on average {client_share * fewest:.3g} of them in a round)" if client_share < 1 else ""
        groups = (
            f"A denoiser adds up the messages of at least {fewest} users including itself{share}. Its sum alone "
            "reveals each item that only one of these users sends (attacks.group_sums)."
        )
        if not self.is_additive:
            collusion = (
                "A server that colludes with denoisers finds the virtual items by their values, even if users are "
                "anonymous to the denoisers (attacks.value_matching)."
            )
            return [*server_notes, collusion, groups]
        return [
            "No protection holds against the server and the denoisers together, because both get the same share of a "
            "virtual item (attacks.value_matching).",
            "The server sees the items in a user's messages, rated and virtual ones. Popular items among them are more "
            "often rated ones (attacks.popularity).",
            "The sums of gradients and the counts of raters of each item in each round are exact.",
            groups,
            "Shares must be encrypted for the denoisers, and the server must not see a denoiser's sum of few users "
            "alone. This run simulates all parties in one process.",
        ]


Parties: TypeAlias = ServerOnly | Denoisers
