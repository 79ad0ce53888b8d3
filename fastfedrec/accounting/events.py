"""Events: frozen records of what happened to people's data. What it costs is the accountants' business."""

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

_OPTIONAL = {"optional": True}  # a field that a ledger's document may lack; it was added to a format in use
_MOST_PARTS, _DEEPEST = 100_000, 100  # of a `Composed`


class UnsupportedEventError(TypeError):
    """An event whose cost is not known: there is no theorem for it here, and no guess is made."""


@dataclass(frozen=True)
class LocalReports:
    """Every user sent some randomized reports, protected on the user's own device.

    Parameters
    ----------
    mechanism : str
        Name of the local randomizer.
    epsilon : float
        Of one report, in nats, exact for what ran (rounded up).
    n_reports : int
        Reports of one user in one round.
    n_users : int
        Users who were asked.
    separable : bool
        Whether each report is a binary response that means something alone, and what it is about is drawn without
        regard to the user's data: then a shuffler may break the link between any two reports, and hides each among
        the others'.
    neighboring : {"replace"}
        One user's data are replaced by any others.
    privacy_unit : {"user"}
        All of one person's data.
    trust : {"local"}
        Nothing beyond the user's own device is trusted.
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
    """Every user sent some binary or largest responses, and a shuffler took the senders off before anybody saw them.

    Parameters
    ----------
    mechanism : str
        Name of the local randomizer, binary or largest response.  But for the latter's choice among its candidates,
        data must not choose how many reports there are, nor what they are about.
    epsilon : float
        Of one report, in nats, exact for what ran (rounded up).
    n_reports : int
        Reports of one user in one round; no two of them can be linked.
    n_users : int
        Users who were asked, each sending as many.
    honest_fraction : float
        Share of the users, in (0, 1], who follow the protocol and do not tell what they sent.
    neighboring : {"replace", "zero_out"}
        One user's data are replaced by any others, or by none, so that each of its reports is drawn uniformly.
    privacy_unit : {"user"}
        All of one person's data.
    trust : {"shuffle"}
        The shuffler is trusted to break every link, and not to collude with the server.
    n_candidates : int
        Of `LargestResponse`; 1 for binary response.
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
        """Users among whom a report hides, rounded down.

        Returns
        -------
        int
            At least 1.
        """
        return min(self.n_users, int(self.honest_fraction * self.n_users))  # a float may round up beyond 2^53


@described
@dataclass(frozen=True)
class Gaussian(CentralEvent):
    """A trusted server released sums with Gaussian noise, continuous or rounded after it was added.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the l2 sensitivity under `neighboring`.  For vectors clipped to norm S the
        sensitivity is S if a user is added, removed, or left without data, and at most 2 S if one is replaced; either
        covers leaving a user out, as sampling does.
    mechanism : str
        Name, for the ledger.
    contribution : float or None
        Under "replace": the largest norm of one unit's contribution over the sensitivity, in [0.5, 1]; only Poisson
        sampling uses it.  None where it is not stated, which counts as 1.
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
    """A trusted server released one number with continuous Laplace noise.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise over the sensitivity under `neighboring`; one release without sampling costs its inverse.
    mechanism : str
        Name, for the ledger.
    contribution : float or None
        Under "replace": the most that leaving one unit out changes the number, over the sensitivity, in [0.5, 1].  Only
        Poisson sampling uses it, and is refused without it.

    Notes
    -----
    A vector with l1 sensitivity, or discrete Laplace noise, is a `CentralRelease` with its pure epsilon.
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
    """A trusted server saw the data and released something with an epsilon, and perhaps a delta, of its own.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism.
    epsilon : float
        Of one release, in nats, before any sampling.
    neighboring : {"add_remove", "replace", "zero_out"}
        What happens to one unit's data; the default is one that costs more in the ledger.
    sampling : {"none", "poisson", "without_replacement"}
        How the units of each release were drawn; the default is the one that costs more.
    delta : float
        Of one release, in [0, 1): 0 where the guarantee is pure.
    n_choices : int or None
        One release is this number of exponential mechanisms, one after the other, each of bounded range epsilon /
        n_choices: then less is lost than by other releases with this epsilon.  None for any other mechanism, as
        permute-and-flip, noisy maxima with other noise than Gumbel's, or randomized response.  Needs delta 0.
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
    """A trusted server released something that is rho-zero-concentrated differentially private.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism, as the discrete Gaussian.
    rho : float
        Of one release; nothing is known of it under sampling.
    sampling : {"none"}
        Required; any other raises, for there is no amplification theorem for zCDP alone.
    sampling_probability, n_users, cohort_size : None
        Not for this event.
    privacy_unit : {"user", "interaction"}
        Whose data neighbours differ in.
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
    """A trusted server released one whole number with discrete Gaussian noise.

    Parameters
    ----------
    stddev : float
        The noise is x with a probability in proportion to exp(-x^2 / (2 stddev^2)).
    sensitivity : int
        The most that the number changes under `neighboring`.
    mechanism : str
        Name, for the ledger.
    sampling : {"none"}
        Required; any other raises.
    sampling_probability, n_users, cohort_size : None
        Not for this event.
    privacy_unit : {"user", "interaction"}
        Whose data neighbours differ in.

    Notes
    -----
    Several numbers of one unit, with an l2 sensitivity together, are a `ZCDP`.
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
    """Something was sent or released without any formal protection.

    Parameters
    ----------
    mechanism : str
        What was sent, in words.
    privacy_unit : {"user"}
        All of one person's data.
    """

    mechanism: str
    privacy_unit: Literal["user"] = "user"

    def __post_init__(self) -> None:
        check_name(self)
        check_choice("privacy_unit", self.privacy_unit, ("user",))


@dataclass(frozen=True)
class Composed:
    """Several events on the same people, fixed beforehand; later ones may use the outputs of earlier ones.

    Parameters
    ----------
    events : tuple of events
        All with the same neighbouring relation and privacy unit; at most 100,000 in all, nested at most 100 deep.
    count : int
        How many times all of them happened.
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
        # Parts may be shared, so that 40 pairs of pairs are 2^40 events: known before anybody walks through them.
        size = sum(getattr(event, "_size", 1) for event in self.events)
        depth = 1 + max((getattr(event, "_depth", 0) for event in self.events), default=0)
        if size > _MOST_PARTS or depth > _DEEPEST:
            raise ValueError(
                f"events must hold at most {_MOST_PARTS:,} events, nested at most {_DEEPEST} deep, got {size:,} and "
                f"{depth}; say how often with count"
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
        The argument's name, for the message.
    value : object
        What the caller passed.

    Returns
    -------
    event
        The value itself.

    Raises
    ------
    TypeError
        Anything else.
    """
    if not isinstance(value, Event):
        raise TypeError(f"{name} must hold events of fastfedrec.accounting, got {value!r} ({type(value).__name__})")
    return value
