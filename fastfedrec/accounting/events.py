"""Events: frozen records of what happened to people's data. What it costs is the accountant's business."""

from dataclasses import dataclass
from typing import Literal

Trust = Literal["local", "central"]
Neighboring = Literal["replace", "add_remove"]


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
    neighboring: Literal["replace"] = "replace"
    privacy_unit: Literal["user"] = "user"
    trust: Literal["local"] = "local"


@dataclass(frozen=True)
class CentralRelease:
    """A trusted server saw the data and released a noisy statistic.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism.
    epsilon : float
        Of the release, in nats.
    neighboring : {"add_remove"}
        One user's data are added or removed.
    privacy_unit : {"user"}
        All of one person's data.
    trust : {"central"}
        The server is trusted with the data.
    """

    mechanism: str
    epsilon: float
    neighboring: Literal["add_remove"] = "add_remove"
    privacy_unit: Literal["user"] = "user"
    trust: Literal["central"] = "central"


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


Event = LocalReports | CentralRelease | Unprotected
