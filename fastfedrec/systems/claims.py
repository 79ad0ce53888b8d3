"""What a system tells its ledger of its claim: whom its epsilon covers, and where the list of items came from."""

from fractions import Fraction

from fastfedrec.accounting import Ledger
from fastfedrec.core.check import check_real
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.mechanisms.item_choice import CHOICES

__all__ = ["FEWER_ITEMS", "catalogue_note", "check_run_epsilon", "layered_noise", "tell_catalogue", "tell_claim"]

_MOST_EPSILON = 1e12  # of a run whose noise stays above the least that LayeredGaussian draws
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


def check_run_epsilon(epsilon: float) -> float:
    """Check the epsilon of a run with layered Gaussian noise on sums in steps of 2^-36 of a user's share.

    Parameters
    ----------
    epsilon : float
        What the caller passed.

    Returns
    -------
    float
        Above 0, below 1e12.
    """
    return check_real("epsilon", epsilon, low=0.0, high=_MOST_EPSILON, exclusive=True)


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


def tell_claim(ledger: Ledger, system: str, epsilon: float, delta: float, n_users: int | None, n_in_data: int) -> None:
    """Note the nominal epsilon of a run whose result may depend on a public number of users.

    Where the list of items came from is `tell_catalogue`'s to say: it need not be public.

    Parameters
    ----------
    ledger : Ledger
        Gets the note.
    system : str
        Its name.
    epsilon, delta : float
        Of the whole run, for "zero_out".
    n_users : int or None
        The public number of users; None where the data's own is taken.
    n_in_data : int
        The data's own, which is told only where it was taken.
    """
    public = f"its number of users ({n_users}) is public"
    if n_users is None:
        public = (
            f"its number of users ({n_in_data}) was taken from the data, and is the same in neighbouring data: that "
            "somebody takes part is not hidden"
        )
    ledger.note(
        f"{system}: epsilon {epsilon:g} at delta {delta:g} for one user's data against none, the user still counted "
        f"(zero_out), the whole run together; {public}"
    )
