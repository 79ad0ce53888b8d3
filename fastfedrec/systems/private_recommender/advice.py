"""The result of `advise`: the systems that fit a budget, the cost and the figures of each, and the choice."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from fastfedrec.accounting.views import TRUST_VIEWS, TRUST_WORDS
from fastfedrec.core.text import format_epsilon, format_table, plain
from fastfedrec.systems.private_recommender._measured import METRIC, RANDOM

__all__ = ["Advice", "Offer", "is_tie"]


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
        Smallest measured HR@10 of the nearest settings that are no easier.  None, like `gain`, `margin` and `seconds`,
        without measurements near the requested setting.
    gain : float or None
        Smallest gain over private popularity at the same epsilon, or over a random list.
    margin : float or None
        Part of the gain that chance alone explains: two standard errors.
    measured_at : tuple of str
        Settings of the measurements.
    n_measured : int or None
        Smallest number of users of the measurements.
    is_popularity : bool
        Whether its plan releases sums over single items only, so that all users get the same list.
    download, upload : int or None
        Bytes of a client in the whole run, for the requested numbers of users and items; None if they are not counted.
    seconds : float or None
        Longest measured time of a fit with all clients simulated.
    """

    system: str
    parameters: dict[str, Any]
    epsilon: float
    epsilon_alone: float
    expected: float | None
    gain: float | None
    margin: float | None
    measured_at: tuple[str, ...]
    n_measured: int | None
    is_popularity: bool
    download: int | None
    upload: int | None
    seconds: float | None

    @property
    def setting(self) -> str:
        """Python expression of the system with its parameters."""
        return f"{self.system}({', '.join(f'{name}={value!r}' for name, value in self.parameters.items())})"

    @property
    def is_better_than_popularity(self) -> bool:
        """True if figures show a larger gain than chance explains."""
        return self.gain is not None and self.margin is not None and self.gain > self.margin


@dataclass(frozen=True)
class Advice:
    """A choice of a system, with all offers that were compared.

    Parameters
    ----------
    n_users, n_items : int
        Requested numbers of users and items.
    epsilon, delta : float
        Budget, for replacing all data of one user.
    trust : {"local", "shuffle", "central"}
        Trust model.
    offers : tuple of Offer
        Systems with personal lists: the choice of the rule, then the others by falling gain.
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
        """True if the rule chooses one list for all or, by figures, no system gains more than chance explains."""
        if self.ruled is not None:
            return self.ruled in self.popularities
        return not any(offer.is_better_than_popularity for offer in self.offers)

    @property
    def best(self) -> Offer:
        """Return the choice by the rule or by figures."""
        if self.ruled is not None:
            return self.ruled
        # If no system is clearly better than popularity measured with more users, the best one with the same number of
        # users is chosen.
        better = [offer for offer in self.offers if offer.is_better_than_popularity]
        if better:
            return better[0]
        sure = self.popularities[0]
        leading = (offer for offer in self.offers if _leads(offer, sure))
        return max((sure, *leading), key=lambda offer: offer.expected or 0.0)

    @property
    def is_measured(self) -> bool:
        """True if there are sweeps near the requested setting, and so figures."""
        return any(offer.measured_at for offer in (*self.offers, *self.popularities))

    @property
    def reason(self) -> str:
        """Reason of the choice, in one sentence."""
        best = self.best
        if self.ruled is not None or best.expected is None:
            return self.remarks[0]
        figure = f"HR@10 {best.expected:.3f} on generated data where it is no easier"
        if best.system == "Random":
            return "nothing that was measured is better than items at random"
        if best.is_popularity:
            return f"nothing that was measured gains more over popularity than chance explains ({figure})"
        if not best.is_better_than_popularity:
            return f"{figure}, where private popularity has {self.popularities[0].expected:.3f} with as few users"
        return f"{figure}, {best.gain:+.3f} over private popularity (chance: {best.margin:.3f})"

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
            }
        )

    def summary(self) -> str:
        """Return the advice as text.

        Returns
        -------
        str
            The setting, its guarantee and its figures, and all offers that were compared.
        """
        best = self.best
        lines = [
            f"{self.n_users:,} users, {self.n_items:,} items, epsilon {self.epsilon:g} at delta {self.delta:g}; "
            f"trust: {self.trust} ({TRUST_WORDS[self.trust]})",
            "",
        ]
        if self.ruled is None and self.popularity_is_as_good and best in self.popularities:
            lines.append("Popularity is as good: nothing that was measured gains more over it than chance explains.")
        elif self.ruled is None and self.popularity_is_as_good:
            lines.append("Not clearly better than popularity with more users, but than popularity with as few.")
        lines += [
            f"Use {best.setting}",
            f"  true epsilon {format_epsilon(best.epsilon)} of the whole run, in nats, for replacing all data of one "
            "user (unit: user), by the accountants for these users and items",
            *self._caveats(best),
            *_figures(best, is_gain=best in self.offers),
            "",
            format_table(
                ("", "epsilon", "HR@10", "gain", "chance", "bytes down", "bytes up"),
                [
                    (
                        offer.setting, format_epsilon(offer.epsilon), _share(offer.expected), _share(offer.gain, "+"),
                        _share(offer.margin), _count(offer.download), _count(offer.upload),
                    )
                    for offer in (*self.offers, *self.popularities)
                ],
            ),
            "",
            *(["measured at: " + "; ".join(best.measured_at)] if best.measured_at else []),
            *self.remarks,
            *([f"{self.source}."] if self.is_measured else []),
            "Your data differ; sweep them before you decide: fastfedrec sweep --data PATH.",
        ]  # fmt: skip
        return "\n".join(lines)

    def _caveats(self, best: Offer) -> list[str]:
        """Return remarks on the guarantee if the trust is misplaced, and on systems with equal figures."""
        guarantee = "nothing" if math.isinf(best.epsilon_alone) else f"epsilon {format_epsilon(best.epsilon_alone)}"
        lines = ["  all users get the same list"] if best.is_popularity else []
        if best.expected is not None and best.expected <= RANDOM:
            lines.append("  no better than items at random, which have .100")
        lines += [] if self.trust == "local" else [f"  if that trust is misplaced, {guarantee} is left of it"]
        ties = [o.system for o in self.offers if o is not best and is_tie(best, o)]
        if best in self.offers and ties:
            lines.append(f"  by these figures not clearly better than {' or '.join(ties)}")
        return lines


def _count(n: int | None) -> str:
    return "-" if n is None else f"{n:,}"


def _bytes(offer: Offer) -> str:
    if offer.upload is None:
        return "bytes of a client are not counted by this system"
    return f"a client receives {_count(offer.download)} bytes and sends {_count(offer.upload)}"


def _figures(best: Offer, *, is_gain: bool) -> list[str]:
    if best.expected is None or best.seconds is None:
        return [f"  {_bytes(best)}"]
    over = f", {best.gain:+.3f} over private popularity (chance: {best.margin:.3f})" if is_gain else ""
    return [
        f"  expected HR@10 {best.expected:.3f} among 99 unseen items{over}",
        f"  {_bytes(best)}; {best.seconds:.1f} s to simulate all clients where it was measured",
    ]


def _share(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.3f}"


def _leads(offer: Offer, sure: Offer) -> bool:
    """Return whether the figure is clearly above a popularity with at most the same number of users."""
    if offer.expected is None or offer.margin is None or sure.expected is None:
        return False
    return offer.expected - sure.expected > offer.margin


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
