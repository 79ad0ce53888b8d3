"""The protocol with sampled negatives: which items a test item is ranked against."""

from dataclasses import dataclass

from fastfedrec.core.check import check_choice, check_integer

__all__ = ["Sampled"]


@dataclass(frozen=True)
class Sampled:
    """Rank test items against so many items that are drawn for each user, instead of all that are unseen.

    Sampled metrics can order models differently than metrics over all items [1]_, and depend on the number of items;
    they are here to compare with papers that have them.

    Parameters
    ----------
    n : int
        Items a user, drawn uniformly from those that are neither in `train`, `given` nor `test` for the user; 99 in
        [2]_.  A user with fewer is ranked against all there are.
    per : {"user", "interaction"}
        "user": one list a user, of all its test items and the sampled ones, as over all items.  "interaction": one list
        for each test interaction, of its item and the sampled ones alone, and means over interactions; a tie counts as
        the middle of its places.  That is the protocol of the reproductions in `fastfedrec.studies.reproduce`.  Where
        every user has one test item the two differ in ties alone.

    References
    ----------
    .. [1] Krichene and Rendle, "On sampled metrics for item recommendation", KDD 2020.
    .. [2] He et al., "Neural collaborative filtering", WWW 2017.

    Examples
    --------
    >>> from fastfedrec.evaluation import Sampled
    >>> Sampled(99)
    Sampled(n=99, per='user')
    """

    n: int
    per: str = "user"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_integer("n", self.n, low=1))
        object.__setattr__(self, "per", check_choice("per", self.per, ("user", "interaction")))

    def __str__(self) -> str:
        lists = "" if self.per == "user" else ", a list for each test interaction"
        return f"{self.n} sampled unseen items{lists}"
