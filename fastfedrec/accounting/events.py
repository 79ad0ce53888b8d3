"""Events: frozen records of the messages and releases of a run. The accountants compute their cost."""

from dataclasses import dataclass, field
from typing import Any, Literal

from fastfedrec.accounting._central_event import CentralEvent, Neighboring, PrivacyUnit, Sampling, described
from fastfedrec.accounting._event_checks import (
    check_contribution,
    check_name,
    check_release_delta,
    check_replace_sensitivity,
    check_reports,
    store,
)
from fastfedrec.core.check import check_choice, check_epsilon, check_instance, check_integer, check_real

__all__ = [
    "ZCDP",
    "CentralRelease",
    "Composed",
    "DiscreteGaussianRelease",
    "Event",
    "Gaussian",
    "Laplace",
    "LocalReports",
    "Neighboring",
    "PrivacyUnit",
    "Sampling",
    "ShuffledReports",
    "Unprotected",
    "UnsupportedEventError",
]

# Metadata of a field that a ledger's document may lack, because documents were written before the field existed.
_OPTIONAL = {"optional": True}
# Limits of a `Composed`: elementary events in total, and levels of nesting.
_MAX_PARTS, _MAX_DEPTH = 100_000, 100


class UnsupportedEventError(TypeError):
    """Error for an event for which this package knows no theorem that states its cost."""


@dataclass(frozen=True)
class LocalReports:
    """Randomized reports of every user, protected on the user's own device.

    Parameters
    ----------
    mechanism : str
        Name of the local randomizer.
    epsilon : float
        Epsilon of one report, in nats, exact for the sampler that ran (rounded up).
    n_reports : int
        Number of reports of one user in one round.
    n_users : int
        Number of users who were requested.
    separable : bool
        Whether each report is a binary response that is useful alone, about a subject that is drawn independently of
        the user's data.  Then a shuffler may break the link between any two reports, and hides each among the reports
        of the other users.
    neighboring : {"replace"}
        Neighbouring relation: one user's data are replaced by any others.
    privacy_unit : {"user"}
        All data of one user.
    trust : {"local"}
        Only the user's own device is trusted.
    """

    mechanism: str
    epsilon: float
    n_reports: int
    n_users: int
    separable: bool = False
    neighboring: Literal["replace"] = "replace"
    privacy_unit: Literal["user"] = "user"
    trust: Literal["local"] = "local"

    def __post_init__(self) -> None:
        check_reports(self, "local")


@dataclass(frozen=True)
class ShuffledReports:
    """Binary or largest responses of every user, with the senders removed by a shuffler before the server sees them.

    Parameters
    ----------
    mechanism : str
        Name of the local randomizer, binary or largest response.  Data must not choose the number of reports or their
        subjects, except for the choice of a largest response among its candidates.
    epsilon : float
        Epsilon of one report, in nats, exact for the sampler that ran (rounded up).
    n_reports : int
        Number of reports of one user in one round; no two of them can be linked.
    n_users : int
        Number of users who were requested; each sends `n_reports` reports.
    honest_fraction : float
        Share of the users, in (0, 1], who follow the protocol and do not reveal their reports.
    neighboring : {"replace", "zero_out"}
        Neighbouring relation: one user's data are replaced by any others, or by none, so that each of the user's
        reports is drawn uniformly.
    privacy_unit : {"user"}
        All data of one user.
    trust : {"shuffle"}
        The shuffler is trusted to break every link, and not to collude with the server.
    n_candidates : int
        Number of candidates of `LargestResponse`; 1 for binary response.
    """

    mechanism: str
    epsilon: float
    n_reports: int
    n_users: int
    honest_fraction: float = 1.0
    neighboring: Literal["replace", "zero_out"] = "replace"
    privacy_unit: Literal["user"] = "user"
    trust: Literal["shuffle"] = "shuffle"
    n_candidates: int = 1

    def __post_init__(self) -> None:
        check_reports(self, "shuffle")

    @property
    def n_honest_users(self) -> int:
        """Number of honest users, rounded down; a report hides among these.

        Returns
        -------
        int
            At least 1.
        """
        # Beyond 2^53 users the product may round up, so the number of users bounds it.
        return min(self.n_users, int(self.honest_fraction * self.n_users))


@described
@dataclass(frozen=True)
class Gaussian(CentralEvent):
    """Sums with Gaussian noise, continuous or rounded after it was added, released by a trusted server.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the L2 sensitivity under `neighboring`.  For vectors clipped to norm S the
        sensitivity is S if a user is added, removed, or left without data.  It is at most 2 S if a user is replaced.
        Either covers leaving a user out, as sampling does.
    mechanism : str
        Name, for the ledger.
    contribution : float or None
        Under "replace": the largest norm of one unit's contribution over the sensitivity, in [0.5, 1].  Only Poisson
        sampling uses it.  None means not stated, and counts as 1.
    replace_sensitivity : float or None
        Under "add_remove" or "zero_out" without sampling: the largest distance between the contributions of two units
        over the sensitivity, in [1, 2].  The square root of 2 holds for contributions with non-negative inner products.
        None counts as 2, which always holds.
    """

    noise_multiplier: float
    mechanism: str = "Gaussian"
    contribution: float | None = field(default=None, kw_only=True, metadata=_OPTIONAL)
    replace_sensitivity: float | None = field(default=None, kw_only=True, metadata=_OPTIONAL)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_contribution(self)
        check_replace_sensitivity(self)
        store(self, noise_multiplier=check_real("noise_multiplier", self.noise_multiplier, low=0.0, exclusive=True))


@described
@dataclass(frozen=True)
class Laplace(CentralEvent):
    """One number with continuous Laplace noise, released by a trusted server.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise over the sensitivity under `neighboring`; one release without sampling costs its inverse.
    mechanism : str
        Name, for the ledger.
    contribution : float or None
        Under "replace": the maximum change of the number when one unit is left out, over the sensitivity, in [0.5, 1].
        Only Poisson sampling uses it, and Poisson sampling requires it.

    Notes
    -----
    For a vector with an L1 sensitivity, or discrete Laplace noise, use a `CentralRelease` with the pure epsilon.
    """

    noise_multiplier: float
    mechanism: str = "Laplace"
    contribution: float | None = field(default=None, kw_only=True, metadata=_OPTIONAL)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_contribution(self)
        store(self, noise_multiplier=check_real("noise_multiplier", self.noise_multiplier, low=0.0, exclusive=True))


@described
@dataclass(frozen=True)
class CentralRelease(CentralEvent):
    """Release of a trusted server that saw the data, with an epsilon and an optional delta of its own.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism.
    epsilon : float
        Epsilon of one release, in nats, before any sampling.
    neighboring : {"add_remove", "replace", "zero_out"}
        Neighbouring relation; the default is one that costs more in the ledger.
    sampling : {"none", "poisson", "without_replacement"}
        How the units of each release were drawn; the default is the one that costs more.
    delta : float
        Delta of one release, in [0, 1): 0 if the guarantee is pure.
    n_choices : int or None
        Number of exponential mechanisms that one release runs, one after the other, each of bounded range epsilon /
        n_choices.  Such a release costs less than others with this epsilon, and requires delta 0.  None for any other
        mechanism, such as permute-and-flip, noisy maxima with other noise than Gumbel's, or randomized response.
    """

    mechanism: str
    epsilon: float
    delta: float = field(default=0.0, kw_only=True)
    n_choices: int | None = field(default=None, kw_only=True, metadata=_OPTIONAL)
    neighboring: Neighboring = field(default="add_remove", kw_only=True)
    sampling: Sampling = field(default="none", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        store(self, epsilon=check_epsilon("epsilon", self.epsilon), delta=check_release_delta(self.delta))
        if self.n_choices is not None:
            store(self, n_choices=check_integer("n_choices", self.n_choices, low=1))
            if self.delta:
                raise ValueError(
                    f"`delta` must be 0.0 with n_choices, got {self.delta!r}; state how far the sampler is from the "
                    "exponential mechanism as `distance`"
                )


@described
@dataclass(frozen=True)
class ZCDP(CentralEvent):
    """Release of a trusted server that is rho-zero-concentrated differentially private.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism, such as the discrete Gaussian.
    rho : float
        Rho of one release; no theorem states it under sampling.
    sampling : {"none"}
        Required; any other value raises, because zCDP alone has no amplification theorem.
    sampling_probability, n_users, cohort_size : None
        Not used by this event.
    privacy_unit : {"user", "interaction"}
        Unit in which neighbouring data sets differ.
    """

    mechanism: str
    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("sampling", self.sampling, ("none",))
        store(self, rho=check_real("rho", self.rho, low=0.0, exclusive=True))


@described
@dataclass(frozen=True)
class DiscreteGaussianRelease(CentralEvent):
    """One whole number with discrete Gaussian noise, released by a trusted server.

    Parameters
    ----------
    stddev : float
        Parameter of the noise, which is x with a probability in proportion to exp(-x^2 / (2 stddev^2)).
    sensitivity : int
        Maximum change of the number under `neighboring`.
    mechanism : str
        Name, for the ledger.
    sampling : {"none"}
        Required; any other value raises.
    sampling_probability, n_users, cohort_size : None
        Not used by this event.
    privacy_unit : {"user", "interaction"}
        Unit in which neighbouring data sets differ.

    Notes
    -----
    For several numbers of one unit with a joint L2 sensitivity, use a `ZCDP`.
    """

    stddev: float
    sensitivity: int
    mechanism: str = "discrete Gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("sampling", self.sampling, ("none",))
        stddev = check_real("stddev", self.stddev, low=0.0, exclusive=True)
        store(self, stddev=stddev, sensitivity=check_integer("sensitivity", self.sensitivity, low=1))


@dataclass(frozen=True)
class Unprotected:
    """Message or release without any formal protection.

    Parameters
    ----------
    mechanism : str
        Description of the content.
    privacy_unit : {"user"}
        All data of one user.
    """

    mechanism: str
    privacy_unit: Literal["user"] = "user"

    def __post_init__(self) -> None:
        check_name(self)
        check_choice("privacy_unit", self.privacy_unit, ("user",))


@dataclass(frozen=True)
class Composed:
    """Several events on the same users, fixed beforehand; later ones may use the outputs of earlier ones.

    Parameters
    ----------
    events : tuple of events
        Events with the same neighbouring relation and privacy unit; at most 100,000 in total, nested at most 100 deep.
    count : int
        Number of times that all of them happened.
    mechanism : str
        Name, for the ledger.
    """

    events: "tuple[Event, ...]"
    count: int = 1
    mechanism: str = "composition"

    def __post_init__(self) -> None:
        check_instance("events", self.events, tuple, "pass a tuple of events")
        for event in self.events:
            check_event("events", event)
        # Parts may be shared, so 40 nested pairs are 2^40 events.  Sizes are summed without a walk through all events.
        size = sum(getattr(event, "_size", 1) for event in self.events)
        depth = 1 + max((getattr(event, "_depth", 0) for event in self.events), default=0)
        if size > _MAX_PARTS or depth > _MAX_DEPTH:
            raise ValueError(
                f"events must hold at most {_MAX_PARTS:,} events, nested at most {_MAX_DEPTH} deep, got {size:,} and "
                f"{depth}; use count for repeated events"
            )
        store(self, count=check_integer("count", self.count, low=1), _size=size, _depth=depth)


Event = (
    LocalReports
    | ShuffledReports
    | Gaussian
    | Laplace
    | CentralRelease
    | ZCDP
    | DiscreteGaussianRelease
    | Unprotected
    | Composed
)


def check_event(name: str, value: Any) -> Any:
    """Return `value` if it is an event, or raise.

    Parameters
    ----------
    name : str
        Name of the argument, for the message.
    value : object
        Value that the caller passed.

    Returns
    -------
    event
        The value itself.

    Raises
    ------
    TypeError
        The value is not an event.
    """
    if not isinstance(value, Event):
        raise TypeError(f"{name} must hold events of fastfedrec.accounting, got {value!r} ({type(value).__name__})")
    return value
