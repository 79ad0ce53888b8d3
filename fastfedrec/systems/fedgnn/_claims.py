"""The ledger's notes on FedGNN's published variant: the effect of its noise, and the knowledge of each party."""

import math
from collections.abc import Sequence

from fastfedrec.accounting import Ledger
from fastfedrec.core.text import format_epsilon
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.claims import MEASURE_ATTACKS, note_experiment
from fastfedrec.systems.fedgnn._noise import PublishedNoise
from fastfedrec.systems.fedgnn._rounds import FedGNNRounds
from fastfedrec.systems.fedgnn._views import Messages
from fastfedrec.systems.fedgnn.attacks import pseudo_item_intersection, pseudo_item_values


def note_published_claims(ledger: Ledger, system: FedGNNRounds, data: Interactions, *, n_neighbors: int) -> None:
    """Note in the ledger the claims that the rounds' event does not state."""
    noise = system.noise
    assert isinstance(noise, PublishedNoise)
    ledger.note(
        "A round reveals items that a user does not have, because the user's items are always among the rows that are "
        "sent. Pseudo items are drawn anew, so the items of all rounds are soon the user's items.",
        "not covered",
    )
    one = noise.epsilon_of_a_number
    if math.isinf(one):
        ledger.note("The numbers that users send have no noise.", "not covered")
    else:
        many = one * system.n_shared
        ledger.note(
            f"The paper's epsilon, 2 clip / noise_scale = {format_epsilon(one)}, is for one number of one round. The "
            f"{system.n_shared:,} numbers of the layer cost {format_epsilon(many)} in each round, and each row costs "
            f"{format_epsilon(one * system.n_factors)} more. Rounds add up. None of these figures is a guarantee for "
            "the messages, because the choice of rows has none.",
            "not covered",
        )
    if n_neighbors:
        ledger.note(
            "The third party learns each user's number of items, the pseudonyms of shared items, and each user's "
            "embedding. It can name many items if it knows their popularity, and all items together with the server.",
            "not covered",
        )
        ledger.note(
            f"Each user receives the embeddings of up to {n_neighbors} other users who share an item, without their "
            "names.",
            "not covered",
        )


def note_attacks(ledger: Ledger, records: Sequence[Messages], data: Interactions) -> None:
    """Note in the ledger the results of the attacks on the recorded messages."""
    if not records:
        ledger.note(MEASURE_ATTACKS, "not covered")
        return
    note_experiment(ledger, pseudo_item_values(records[0], data))
    if len(records) > 1:
        note_experiment(ledger, pseudo_item_intersection(records, data))
