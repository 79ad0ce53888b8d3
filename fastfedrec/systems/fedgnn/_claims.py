"""The ledger's notes on FedGNN's published variant: the effect of its noise, and the knowledge of each party."""

import math
from collections.abc import Sequence

from fastfedrec.accounting import Ledger
from fastfedrec.core.text import format_epsilon
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.fedgnn._noise import PublishedNoise
from fastfedrec.systems.fedgnn._rounds import FedGNNRounds
from fastfedrec.systems.fedgnn._views import Messages
from fastfedrec.systems.fedgnn.attacks import pseudo_item_intersection, pseudo_item_values


def note_published_claims(ledger: Ledger, system: FedGNNRounds, data: Interactions, *, n_neighbors: int) -> None:
    """Note in the ledger the claims that the rounds' event does not state."""
    noise = system.noise
    assert isinstance(noise, PublishedNoise)
    ledger.note(
        "not protected: a round shows which items a user does not have, for those that it has are always among the "
        "rows that it sends; pseudo items are drawn anew, so items of all its rounds are soon its own"
    )
    one = noise.epsilon_of_a_number
    if math.isinf(one):
        ledger.note("not protected: there is no noise on the numbers that are sent")
    else:
        many = one * system.n_shared
        ledger.note(
            f"the paper's epsilon, 2 clip / noise_scale = {format_epsilon(one)} a round, is that of one number: the "
            f"{system.n_shared:,} numbers that every user sends of the layer alone cost {format_epsilon(many)} a "
            f"round, those of a row {format_epsilon(one * system.n_factors)} more, and rounds add up; none is a "
            "guarantee for what is sent, for the choice of rows has none"
        )
    if n_neighbors:
        ledger.note(
            "third party: it learns who has how many items, who shares which of them with whom under other names, "
            "and each user's embedding; whoever knows how popular items are can name many, and with the server it "
            "can name all; not protected"
        )
        ledger.note(
            f"neighbours: each user is sent the embeddings of up to {n_neighbors} others who share an item with it, "
            "without names; not protected"
        )


def note_attacks(ledger: Ledger, records: Sequence[Messages], data: Interactions) -> None:
    """Note in the ledger the results of the attacks on the recorded messages."""
    if not records:
        ledger.note("what attacks on these data reach is measured, and stated here, by fit(record_views=...)")
        return
    ledger.note("what is stated by experiment is computed from the data, and covered by no guarantee")
    ledger.note(pseudo_item_values(records[0], data).statement())
    if len(records) > 1:
        ledger.note(pseudo_item_intersection(records, data).statement())
