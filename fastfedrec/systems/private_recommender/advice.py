"""The result of `advise`: the systems that fit a budget, the cost and the figures of each, and the choice."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastfedrec.accounting.views import TRUST_VIEWS, TRUST_WORDS
from fastfedrec.core.interface import choose_words
from fastfedrec.core.memory import format_bytes
from fastfedrec.core.text import format_epsilon, format_table, large_delta_note, plain
from fastfedrec.systems.private_recommender._measured import CANDIDATES, METRIC, RANDOM

__all__ = ["Advice", "Offer", "is_tie"]

_NODES = ("honest_fraction", "dropout_fraction")  # parameters that PrivateRecommender has as well
_SETTINGS = (
    "The accountants chose each setting so that the whole run costs the true epsilon above. A setting's own epsilon "
    "differs: it is the cost without the shuffler, or for one user's data against none."
)


@dataclass(frozen=True)
class Offer:
    """One system that fits a budget in a trust model.

    Parameters
    ----------
    system : str
        Name of the class.
    parameters : dict
        Parameters that cost at most the budget, for the requested numbers of users and items; the others have their
        defaults.
    epsilon : float
        Cost of the whole run by the accountants, rounded up.
    epsilon_alone : float
        Cost if only the user's device is trusted; infinite if there is no guarantee then.
    expected : float or None
        HR@10 in the reference cell of the sweeps.  None, like `gain`, `margin` and `seconds`, without a cell near the
        requested setting.
    popularity : float or None
        HR@10 of private popularity in the same cell, or of a random list if that is better.
    gain : float or None
        Difference of the two.
    margin : float or None
        Part of the gain that chance alone explains: two standard errors.
    measured_at : str or None
        Reference cell.
    n_measured : int or None
        Number of users of the reference cell.
    is_popularity : bool
        Whether its plan releases sums over single items only, so that all users get the same list.
    download, upload : int or None
        Bytes of a client in the whole run, for the requested numbers of users and items; None if they are not counted.
    seconds : float or None
        Time of a fit in the reference cell, with all clients simulated.
    memory : int or None
        Bytes that a fit in one process needs beside its data, on one thread; None if they are not computed.
    """

    system: str
    parameters: dict[str, Any]
    epsilon: float
    epsilon_alone: float
    expected: float | None
    popularity: float | None
    gain: float | None
    margin: float | None
    measured_at: str | None
    n_measured: int | None
    is_popularity: bool
    download: int | None
    upload: int | None
    seconds: float | None
    memory: int | None = None

    @property
    def setting(self) -> str:
        """Python expression of the system with its parameters."""
        return f"{self.system}({', '.join(f'{name}={value!r}' for name, value in self.parameters.items())})"

    @property
    def is_better_than_popularity(self) -> bool:
        """True if figures show a larger gain than chance explains."""
        return self.sure_gain > 0

    @property
    def sure_gain(self) -> float:
        """Gain that chance does not explain; minus infinity without figures."""
        return -math.inf if self.gain is None or self.margin is None else self.gain - self.margin


@dataclass(frozen=True)
class Advice:
    """A choice of a system, with all offers that were compared.

    Parameters
    ----------
    n_users, n_items : int
        Requested numbers of users and items.
    epsilon, delta : float
        Budget, for replacing all data of one user.
    trust : {"local", "shuffle", "central", "aggregator"}
        Trust model.
    offers : tuple of Offer
        Systems with personal lists: the choice of the rule, then the others by falling `sure_gain`.
    popularities : tuple of Offer
        Systems with the same list for all users, the best first.
    remarks : tuple of str
        Omitted systems, and figures from settings that differ from the requested one.
    source : str
        Data and machine of the figures.
    ruled : Offer or None
        Offer that the rule chooses; None if figures choose.
    """

    n_users: int
    n_items: int
    epsilon: float
    delta: float
    trust: str
    offers: tuple[Offer, ...]
    popularities: tuple[Offer, ...]
    remarks: tuple[str, ...]
    source: str
    ruled: Offer | None = None

    @property
    def popularity_is_as_good(self) -> bool:
        """True if the choice is one list for all users."""
        return self.best in self.popularities

    @property
    def best(self) -> Offer:
        """Return the choice by the rule or by figures."""
        if self.ruled is not None:
            return self.ruled
        better = (offer for offer in self.offers if offer.is_better_than_popularity)
        return next(better, self.popularities[0])

    @property
    def is_measured(self) -> bool:
        """True if there are sweeps near the requested setting, and so figures."""
        return any(offer.measured_at for offer in (*self.offers, *self.popularities))

    @property
    def _has_gains(self) -> bool:
        """True if a system is compared with popularity; a column of figures of popularity alone would be empty."""
        return any(offer.gain is not None for offer in self.offers)

    @property
    def reason(self) -> str:
        """Reason of the choice, in plain sentences."""
        best = self.best
        if self.ruled is not None:
            return self.remarks[0]
        if best.gain is None or best.popularity is None:
            return "In the sweeps no private system is clearly better than popularity. All users get the same list."
        return (
            f"In sweeps of generated data, {best.system} reached HR@10 {best.expected:.3f} where private popularity "
            f"reached {best.popularity:.3f} (difference {best.gain:+.3f} +- {best.margin:.3f})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as plain numbers and strings.

        Returns
        -------
        dict
            The fields, and the choice.
        """
        return plain(
            asdict(self)
            | {
                "best": asdict(self.best),
                "popularity_is_as_good": self.popularity_is_as_good,
                "privacy_unit": "user",
                "neighboring": "replace",
                "protected_from": TRUST_VIEWS[self.trust],
                "metric": METRIC,
                "candidates": CANDIDATES,
            }
        )

    def summary(self, *, details: bool = False) -> str:
        """Return the advice as text.

        Parameters
        ----------
        details : bool
            Whether to add the parameters of all offers, and all remarks.

        Returns
        -------
        str
            The choice, its guarantee, and a table of all offers, each with the figures of one reference cell.
        """
        best, offers = self.best, (*self.offers, *self.popularities)
        lines = [
            f"{self.n_users:,} users, {self.n_items:,} items, epsilon {self.epsilon:g} at delta {self.delta:g}; "
            f"trust: {self.trust} ({TRUST_WORDS[self.trust]})",
            "",
            f"Use {best.system}{self._way_to_fit(best)}",
            f"  The whole run costs a true epsilon of {format_epsilon(best.epsilon)}, in nats, for replacing all data "
            "of one user.",
            *self._caveats(best),
            "",
            self._table(offers),
            "",
            *self._sentences(details),
        ]
        if details:
            settings = format_table(("system", "setting"), [(offer.system, offer.setting) for offer in offers])
            remarks = self.remarks[self.ruled is not None :]  # the reason is above
            lines += ["", _SETTINGS, "", settings, "", *remarks]
            lines += [f"{self.source}."] if self.is_measured else []
        return "\n".join(lines)

    def _way_to_fit(self, best: Offer) -> str:
        """Return how to fit the choice, in the words of the interface in use."""
        if self.ruled is None:
            return f", with the setting {best.setting}"
        values = {"epsilon": self.epsilon, "delta": self.delta, "trust": self.trust}
        values |= {name: best.parameters[name] for name in _NODES if name in best.parameters}
        python = ", ".join(f"{name}={value!r}" for name, value in values.items())
        shell = " ".join(f"{name}={value}" for name, value in values.items())
        command = f"fastfedrec fit private-recommender --data FILE --set {shell}"
        call = choose_words(f"PrivateRecommender({python})", command)
        return f"; this fits it: {call}"

    def _caveats(self, best: Offer) -> list[str]:
        """Return sentences on misplaced trust, one list for all, equal figures and traffic."""
        lines = ["All users get the same list."] if best.is_popularity else []
        if best.measured_at and best.expected is not None and best.expected <= RANDOM:
            lines.append("In its reference cell it is no better than items at random, which have HR@10 0.100.")
        lines += filter(None, [large_delta_note(self.delta, self.n_users)])
        if self.trust == "central":
            lines.append("If the server is not trustworthy, users have no protection.")
        if honest := best.parameters.get("honest_fraction"):
            lines.append(f"If fewer than {honest:.0%} of the nodes are honest, users have less protection.")
        if self.trust == "shuffle":
            cost = f"the cost is epsilon {format_epsilon(best.epsilon_alone)}"
            cost = cost if math.isfinite(best.epsilon_alone) else "or discloses them, users have no protection"
            lines.append(f"If the shuffler links messages to their senders, {cost}.")
        ties = [offer.system for offer in self.offers if offer is not best and is_tie(best, offer)]
        if best in self.offers and ties:
            lines.append(f"By these figures it is not clearly better than {' or '.join(ties)}.")
        if best.upload is not None and best.download is not None:
            lines.append(f"A client receives {format_bytes(best.download)} and sends {format_bytes(best.upload)}.")
        if best.memory is not None:
            lines.append(f"A fit in one process needs {format_bytes(best.memory)} of memory beside the data.")
        return [f"  {line}" for line in lines]

    def _table(self, offers: Sequence[Offer]) -> str:
        """Return a row for each offer, with columns for which there are values."""
        columns: dict[str, Callable[[Offer], str]] = {
            "system": lambda offer: offer.system,
            "true epsilon": lambda offer: format_epsilon(offer.epsilon),
        }
        if self.trust == "shuffle":
            columns["without the shuffler"] = lambda offer: format_epsilon(offer.epsilon_alone)
        if self._has_gains:
            columns |= {
                "HR@10 there": lambda offer: _share(offer.expected if offer.measured_at else None),
                "popularity there": lambda offer: _share(offer.popularity),
                "difference": lambda offer: (
                    "-" if offer.popularity is None else f"{offer.gain:+.3f} +- {offer.margin:.3f}"
                ),
                "there: reference cell": lambda offer: offer.measured_at or "-",
            }
        columns["received, sent by a client"] = lambda offer: (
            "-" if offer.upload is None or offer.download is None
            else f"{format_bytes(offer.download)}, {format_bytes(offer.upload)}"
        )  # fmt: skip
        return format_table(list(columns), [[cell(offer) for cell in columns.values()] for offer in offers])

    def _sentences(self, details: bool) -> list[str]:
        """Return at most three lines below the table."""
        cells = (
            f"Figures of a line are from one cell of sweeps of generated data, among {CANDIDATES}, with two standard "
            "errors."
        )
        more = "" if details else f" {choose_words('summary(details=True)', '--details')} adds settings and remarks."
        sweep = "Your data differ: sweep them before you decide, with fastfedrec sweep --data PATH."
        return [self.reason, *[cells] * self._has_gains, sweep + more]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def is_tie(best: Offer, other: Offer) -> bool:
    """Return whether chance may explain that one offer gains more than another.

    Parameters
    ----------
    best, other : Offer
        Offers to compare; without figures they are not a tie.

    Returns
    -------
    bool
        Whether the gains differ by at most the larger margin.
    """
    if best.gain is None or best.margin is None or other.gain is None or other.margin is None:
        return False
    return best.gain - other.gain <= max(best.margin, other.margin)
