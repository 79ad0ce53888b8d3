"""Messages and releases without any protection."""

from dataclasses import dataclass
from typing import Literal

from fastfedrec.accounting.events._event import Event, View, check_name
from fastfedrec.core.check import check_choice


@dataclass(frozen=True)
class Unprotected(Event):
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

    def _seen_by(self, view: View) -> Event | None:
        return None

    def _exposure(self, view: View) -> str:
        return "no noise"
