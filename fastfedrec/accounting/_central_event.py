"""What every event of a trusted holder of data states: who may differ, who was sampled, and how often."""

from dataclasses import dataclass
from typing import Literal

from fastfedrec.accounting._event_checks import SAMPLING_FIELDS, check_name, check_sampling_fields, store
from fastfedrec.core.check import check_choice, check_integer, check_real
from fastfedrec.core.docstrings import shares_docstring

Neighboring = Literal["replace", "add_remove", "zero_out"]
PrivacyUnit = Literal["user", "interaction"]
Sampling = Literal["none", "poisson", "without_replacement"]

#: Of every release of a trusted holder of data, where its docstring does not describe it otherwise.
_RELEASE = """\
neighboring : {"replace", "add_remove", "zero_out"}
    Required: what happens to one unit's data.
sampling : {"none", "poisson", "without_replacement"}
    Required: how the units of each release were drawn, independently each time and in secret.
sampling_probability : float or None
    For "poisson": in (0, 1].
n_users, cohort_size : int or None
    For "without_replacement": exactly `cohort_size` of `n_users`, uniformly.
count : int
    How many such releases.
privacy_unit : {"user", "interaction"}
    Whose data neighbours differ in, and what is sampled.
trust : {"central", "entity"}
    Who is trusted with the data: the server, or only the entity that holds them and sends the release to a server.
distance : float
    Total variation distance of one release from what is described here: that of noise from a table,
    ``noise.total_distance(n_draws)``."""

described = shares_docstring(_RELEASE)


@dataclass(frozen=True, kw_only=True)
class CentralEvent:
    """What every release of a trusted holder of data states; relation and sampling have no default.

    One unit's data are replaced by any others ("replace"), or by none ("zero_out": the unit is still counted, and adds
    nothing to any sum), or the unit comes or goes ("add_remove": then nothing may depend on how many there are).
    """

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
