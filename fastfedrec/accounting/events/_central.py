"""Fields that all releases of a trusted data holder share: neighbouring relation, sampling, number of releases."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from fastfedrec.accounting.events._event import Event, UnsupportedEventError, View, check_name, store
from fastfedrec.accounting.rounding import sampled_epsilon
from fastfedrec.core.check import check_choice, check_integer, check_real
from fastfedrec.core.docstrings import shares_docstring

Neighboring = Literal["replace", "add_remove", "zero_out"]
PrivacyUnit = Literal["user", "interaction"]
Sampling = Literal["none", "poisson", "without_replacement"]
# The fields that each kind of sampling requires; all other sampling fields must be None.
_SAMPLING_FIELDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "poisson": ("sampling_probability",),
    "without_replacement": ("n_users", "cohort_size"),
}

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
class CentralEvent(Event):
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

    _TRUSTED: ClassVar[tuple[str, ...]] = ("central", "entity")

    def __post_init__(self) -> None:
        check_choice("neighboring", self.neighboring, ("replace", "add_remove", "zero_out"))
        check_choice("sampling", self.sampling, tuple(_SAMPLING_FIELDS))
        check_choice("privacy_unit", self.privacy_unit, ("user", "interaction"))
        check_name(self)
        check_choice("trust", self.trust, self._TRUSTED)
        distance = check_real("distance", self.distance, low=0.0, high=1.0)
        store(self, count=check_integer("count", self.count, low=1), distance=distance)
        self._check_sampling_fields()

    def _check_sampling_fields(self) -> None:
        """Check that the event has exactly the fields of its sampling, each in its range."""
        required_fields = _SAMPLING_FIELDS[self.sampling]
        for name in ("sampling_probability", "n_users", "cohort_size"):
            if (getattr(self, name) is not None) != (name in required_fields):
                takes = " and ".join(required_fields) or "no further argument"
                raise ValueError(f"sampling={self.sampling!r} takes {takes}, got {name}={getattr(self, name)!r}")
        if self.sampling == "poisson":
            probability = check_real("sampling_probability", self.sampling_probability, low=0.0, high=1.0)
            if not probability:
                raise ValueError("sampling_probability must be greater than 0, got 0.0")
            store(self, sampling_probability=probability)
        if self.sampling == "without_replacement":
            n_users = check_integer("n_users", self.n_users, low=1)
            cohort_size = check_integer("cohort_size", self.cohort_size, low=1, high=n_users)
            store(self, n_users=n_users, cohort_size=cohort_size)

    @property
    def sampling_rate(self) -> float:
        """Probability that one unit's data are used in one release; 1 without sampling."""
        if self.sampling == "poisson":
            return float(self.sampling_probability or 0)
        if self.sampling == "without_replacement":
            return (self.cohort_size or 0) / (self.n_users or 1)
        return 1.0

    def _proved_samplings(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs of a sampling and a relation for which amplification is proved."""
        return ("poisson", "add_remove"), ("without_replacement", "replace")

    def _check_sampling(self) -> None:
        """Raise unless amplification by the event's sampling is proved for its neighbouring relation."""
        # A unit that adds nothing to a sum has the same effect as a unit that was not drawn.  Therefore for sums
        # "zero_out" has the pair of distributions of "add_remove".  Another release may distinguish a unit without data
        # from no unit.  In cohorts of fixed size, a unit that was not drawn is replaced by another unit, which may be
        # further from it than no unit is.
        if self.sampling != "none" and (self.sampling, self.neighboring) not in self._proved_samplings():
            only = "; only Gaussian noise, and Laplace noise with a contribution, state how far a unit is from none"
            why = only if self.sampling == "poisson" else ""
            raise UnsupportedEventError(
                f"no theorem is known here for sampling={self.sampling!r} with neighboring={self.neighboring!r}{why}"
            )

    def _amplified(self, epsilon: float) -> float:
        """Return the pure epsilon of one release after amplification by sampling, rounded up."""
        self._check_sampling()
        return epsilon if self.sampling == "none" else sampled_epsilon(epsilon, self.sampling_rate)

    def _seen_by(self, view: View) -> Event | None:
        if self.privacy_unit != "user":
            raise UnsupportedEventError(
                f"the ledger states the cost of one user, and {self!r} protects one interaction"
            )
        if view != "public" and self.trust == "central":
            return None
        if self.neighboring == "replace":
            self._check_sampling()
            return self
        return self._for_replacement()

    def _for_replacement(self) -> Event | None:
        """Restate the release for replacing a user; None if its cost is beyond the largest float."""
        raise UnsupportedEventError(f"no theorem is known here for the cost of replacing a user in {self!r}")

    def _without_crowd(self) -> Event:
        return replace(self, n_users=1, cohort_size=1) if self.sampling == "without_replacement" else self

    def _protection(self, view: View) -> str:
        return "the noise of " + ("the entity that holds the data" if self.trust == "entity" else "a trusted server")


def replaced_words(replace_sensitivity: float | None) -> str:
    """Return a stated `replace_sensitivity` in words, for a row's heading."""
    if replace_sensitivity is None:
        return ""
    return f"; a replaced user changes the sums {replace_sensitivity:.4g} times as much"
