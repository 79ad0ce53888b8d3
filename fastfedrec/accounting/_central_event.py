"""Fields that all releases of a trusted data holder share: neighbouring relation, sampling, number of releases."""

from dataclasses import dataclass
from typing import Literal

from fastfedrec.accounting._event_checks import SAMPLING_FIELDS, check_name, check_sampling_fields, store
from fastfedrec.core.check import check_choice, check_integer, check_real
from fastfedrec.core.docstrings import shares_docstring

Neighboring = Literal["replace", "add_remove", "zero_out"]
PrivacyUnit = Literal["user", "interaction"]
Sampling = Literal["none", "poisson", "without_replacement"]

#: Parameters of every release of a trusted data holder that its own docstring does not describe.
_RELEASE = """\
neighboring : {"replace", "add_remove", "zero_out"}
    Neighbouring relation; required.
sampling : {"none", "poisson", "without_replacement"}
    Sampling of the units of each release, independent each time and secret; required.
sampling_probability : float or None
    For "poisson": probability of each unit, in (0, 1].
n_users, cohort_size : int or None
    For "without_replacement": exactly `cohort_size` of `n_users`, uniformly.
count : int
    Number of such releases.
privacy_unit : {"user", "interaction"}
    Unit in which neighbouring data sets differ, and which is sampled.
trust : {"central", "entity"}
    Party that is trusted with the data: the server, or only the entity that holds them and sends the release to a
    server.
distance : float
    Total-variation distance of one release from the mechanism described here; for noise from a table,
    ``noise.total_variation_of(n_draws)``."""

described = shares_docstring(_RELEASE)


@dataclass(frozen=True, kw_only=True)
class CentralEvent:
    """Base class of all releases of a trusted data holder; the relation and the sampling have no default."""

    # "replace": one unit's data are replaced by any others.  "zero_out": by none, but the unit is still counted, and
    # adds nothing to any sum.  "add_remove": the unit comes or goes, so no output may depend on the number of units.
    neighboring: Neighboring
    sampling: Sampling
    sampling_probability: float | None = None
    n_users: int | None = None
    cohort_size: int | None = None
    count: int = 1
    privacy_unit: PrivacyUnit = "user"
    trust: Literal["central", "entity"] = "central"
    distance: float = 0.0

    def __post_init__(self) -> None:
        check_choice("neighboring", self.neighboring, ("replace", "add_remove", "zero_out"))
        check_choice("sampling", self.sampling, tuple(SAMPLING_FIELDS))
        check_choice("privacy_unit", self.privacy_unit, ("user", "interaction"))
        check_name(self)
        check_choice("trust", self.trust, ("central", "entity"))
        distance = check_real("distance", self.distance, low=0.0, high=1.0)
        store(self, count=check_integer("count", self.count, low=1), distance=distance)
        check_sampling_fields(self)

    @property
    def sampling_rate(self) -> float:
        """Probability that one unit's data are used in one release; 1 without sampling."""
        if self.sampling == "poisson":
            return float(self.sampling_probability or 0)
        if self.sampling == "without_replacement":
            return (self.cohort_size or 0) / (self.n_users or 1)
        return 1.0
