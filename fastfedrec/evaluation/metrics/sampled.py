"""Protocol with sampled negatives: a test item is ranked against a random sample of unseen items."""

from dataclasses import dataclass

from fastfedrec.core.check import check_choice, check_integer

__all__ = ["Sampled"]


@dataclass(frozen=True)
class Sampled:
    """Rank test items against `n` random items of each user, instead of all unseen items.

    Sampled metrics can order models differently than metrics over all items [1]_, and they depend on the number of
    sampled items.  They serve for comparison with papers that report them.

    Parameters
    ----------
    n : int
        Number of sampled items of each user, drawn uniformly from the items that the user has in neither `train`,
        `given` nor `test`; 99 in [2]_.  A user with fewer such items is ranked against all of them.
    per : {"user", "interaction"}
        "user": one list for each user, of the user's test items and the sampled items.  "interaction": one list for
        each test interaction, of its item and the sampled items, and means over interactions; a tied item gets the mean
        rank of the tie.  The reproductions in `fastfedrec.studies.reproduce` use "interaction".  If every user has one
        test item, the two differ only in ties.

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
