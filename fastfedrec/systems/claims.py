"""Notes of a system's ledger about the list of items."""

from fastfedrec.accounting import Ledger
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms.item_choice import CHOICES

__all__ = ["FEWER_ITEMS", "catalogue_note", "note_catalogue"]

#: Note by `Interactions.catalogue`; a public list needs no note.
_CATALOGUES = {
    "data": "the list of items was taken from the data: not covered; an item that one user alone has gives this user "
    "away",
    "counts": "the list of items was chosen by exact counts: not covered; one user may decide which items are in it",
    "chosen": "the list of items was chosen privately (choose_items), and what that cost is not in this ledger",
}
#: Remedies if a private model of item pairs does not fit into memory; none of them is a list taken from the data.
FEWER_ITEMS = "fit a shorter public list of items, or a private choice (choose_items), or DPALS, which has no pairs"


def catalogue_note(data: Interactions) -> str | None:
    """Return the ledger's note on the source of the list of items, or None for a public list."""
    return _CATALOGUES.get(data.catalogue)


def note_catalogue(ledger: Ledger, data: Interactions) -> None:
    """Note the source of the list of items, unless it is public or the ledger has the event of a private choice."""
    if data.catalogue == "chosen" and any(event.mechanism in CHOICES for event in ledger.events):
        return
    if note := catalogue_note(data):
        ledger.note(note)
