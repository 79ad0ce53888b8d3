"""What a system tells its ledger of its claim: whom its epsilon covers, and where the list of items came from."""

from fractions import Fraction

from fastfedrec.accounting import Ledger
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.mechanisms.item_choice import CHOICES

__all__ = ["FEWER_ITEMS", "catalogue_note", "layered_noise", "tell_catalogue"]

_WIDEST = 2**56  # of its standard deviations

#: By `Interactions.catalogue`; of a public list there is nothing to say.
_CATALOGUES = {
    "data": "the list of items was taken from the data: not covered; an item that one user alone has gives this user "
    "away",
    "counts": "the list of items was chosen by exact counts: not covered; one user may decide which items are in it",
    "chosen": "the list of items was chosen privately (choose_items), and what that cost is not in this ledger",
}
#: What to do where a private model of pairs of items does not fit into memory: no list taken from the data.
FEWER_ITEMS = "fit a shorter public list of items, or a private choice (choose_items), or DPALS, which has no pairs"


def catalogue_note(data: Interactions) -> str | None:
    """Where the list of items came from, as a ledger without an event of it says it; None of a public one."""
    return _CATALOGUES.get(data.catalogue)


def tell_catalogue(ledger: Ledger, data: Interactions) -> None:
    """Note where the list of items came from, if it was not public: every fit begins with it.

    Parameters
    ----------
    ledger : Ledger
        Gets the note.
    data : Interactions
        What is fitted.
    """
    if data.catalogue == "chosen" and any(event.mechanism in CHOICES for event in ledger.events):
        return
    if note := catalogue_note(data):
        ledger.note(note)


def layered_noise(stddev: Fraction | float, remedy: str) -> LayeredGaussian:
    """The noise on the sums of one round, or a refusal that names what the model was given.

    Parameters
    ----------
    stddev : Fraction or float
        In steps.
    remedy : str
        What else would do but a larger budget, after an "or".

    Returns
    -------
    LayeredGaussian
        Of this standard deviation.
    """
    if stddev > _WIDEST:
        raise ValueError(
            f"epsilon or delta must be larger{remedy}: a round's noise would have the standard deviation "
            f"{float(stddev):.3g}, and {_WIDEST:.3g} is the most on 64-bit sums"
        )
    return LayeredGaussian(stddev)
