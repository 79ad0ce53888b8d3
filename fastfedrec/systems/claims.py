"""Notes of a system's ledger about the list of items and the number of users."""

from typing import Protocol

from fastfedrec.accounting import Ledger
from fastfedrec.core.text import large_delta_note
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms.item_choice import CHOICES

__all__ = [
    "FEWER_ITEMS",
    "MEASURE_ATTACKS",
    "catalogue_note",
    "note_catalogue",
    "note_experiment",
    "note_large_delta",
    "note_user_count",
]

#: Note by `Interactions.catalogue`; a public list needs no note.
_CATALOGUES = {
    "data": "The list of items was taken from the data. An item that only one user has reveals this user. Pass a "
    "public catalogue (item_ids=, --catalogue).",
    "counts": "The list of items was chosen by exact counts. The data of one user may decide whether an item is in it.",
    "chosen": "The list of items was chosen privately (choose_items). The cost of this choice is not in this ledger.",
}
#: Note of a fit without records of messages.
MEASURE_ATTACKS = (
    "The results of attacks on these data are not measured; fit(record_views=...) with two rounds does so."
)
#: Remedies if a private model of item pairs does not fit into memory; none of them is a list taken from the data.
FEWER_ITEMS = "fit a shorter public list of items, or a private choice (choose_items), or DPALS, which has no pairs"


class Experiment(Protocol):
    """Result of an attack, with its description."""

    def statement(self) -> str:
        """Return the figures as sentences."""


def catalogue_note(data: Interactions) -> str | None:
    """Return the ledger's note on the source of the list of items, or None for a public list."""
    return _CATALOGUES.get(data.catalogue)


def note_catalogue(ledger: Ledger, data: Interactions) -> None:
    """Note the source of the list of items, unless it is public or the ledger has the event of a private choice."""
    if data.catalogue == "chosen" and any(event.mechanism in CHOICES for event in ledger.events):
        return
    if note := catalogue_note(data):
        ledger.note(note, "not covered")


def note_user_count(ledger: Ledger, n_users: int) -> None:
    """Note that the number of users was taken from the data, so that participation is not protected."""
    ledger.note(
        f"The number of users ({n_users}) was taken from the data and is treated as public. The data of a user are "
        "protected, but the user's participation is not.",
        "not covered",
    )


def note_large_delta(ledger: Ledger, delta: float, n_users: int) -> None:
    """Note that delta is too large for the public number of users, if it is."""
    if note := large_delta_note(max(delta, ledger.delta), n_users):
        ledger.note(note, "not covered")


def note_experiment(ledger: Ledger, result: "Experiment") -> None:
    """Note the result of an attack on these data."""
    ledger.note("Results of attacks are computed from the data, so no guarantee covers them.", "not covered")
    ledger.note(result.statement(), "not covered")
