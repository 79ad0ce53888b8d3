"""An answer of `advise`: the systems that can be had at a budget, what each costs and is worth, and which to use."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from fastfedrec.accounting.views import TRUST_VIEWS, TRUST_WORDS
from fastfedrec.core.text import format_epsilon, format_table, plain
from fastfedrec.systems.private_recommender._measured import METRIC, RANDOM

__all__ = ["Advice", "Offer", "is_tie"]


@dataclass(frozen=True)
class Offer:
    """One system that can be had in a trust model at a budget.

    Parameters
    ----------
    system : str
        Name of the class.
    parameters : dict
        That cost no more than the budget, for the users and items asked about; all others have their defaults.
    epsilon : float
        What the whole run costs, by the accountants; rounded up.
    epsilon_alone : float
        The same where nothing but the user's own device is trusted; infinite where nothing is guaranteed then.
    expected : float or None
        HR@10 that was measured where it is no easier: the smallest of the settings around.  None, as of `gain`,
        `margin` and `seconds`, where nothing was measured around the question.
    gain : float or None
        Over private popularity at the same epsilon, or a random list, where that is least.
    margin : float or None
        What chance alone explains of that gain: two standard errors.
    measured_at : tuple of str
        Where.
    n_measured : int or None
        Users there, at least.
    is_popularity : bool
        Whether its plan releases sums over single items only: all users get the same list.
    download, upload : int or None
        Bytes of a client in the whole run, for the users and items asked about; None where the system counts none.
    seconds : float or None
        Of a fit with all clients simulated, where it took longest.
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
        """As one would write it in Python."""
        return f"{self.system}({', '.join(f'{name}={value!r}' for name, value in self.parameters.items())})"

    @property
    def is_better_than_popularity(self) -> bool:
        """Whether figures show a larger gain than chance explains."""
        return self.gain is not None and self.margin is not None and self.gain > self.margin


@dataclass(frozen=True)
class Advice:
    """An answer.

    Parameters
    ----------
    n_users, n_items : int
        Asked about.
    epsilon, delta : float
        The budget, for replacing all data of one user.
    trust : {"local", "shuffle", "central"}
        Whom one trusts.
    offers : tuple of Offer
        Systems that give users lists of their own: the one that the rule chooses, then those with the largest gain.
    popularities : tuple of Offer
        Those that give everybody the same list, the best first.
    remarks : tuple of str
        What was left out, and where the answer is not from settings around the question.
    source : str
        What the figures were measured on.
    ruled : Offer or None
        The offer that the rule chooses; None where figures choose.
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
        """Whether the rule chooses one list for all; by figures, whether no system gains more than chance explains."""
        if self.ruled is not None:
            return self.ruled in self.popularities
        return not any(offer.is_better_than_popularity for offer in self.offers)

    @property
    def best(self) -> Offer:
        """Return the choice: by the rule, or by figures.

        Where figures show nothing clearly better than popularity with more users, it has most with the same users.
        """
        if self.ruled is not None:
            return self.ruled
        better = [offer for offer in self.offers if offer.is_better_than_popularity]
        if better:
            return better[0]
        sure = self.popularities[0]
        leading = (offer for offer in self.offers if _leads(offer, sure))
        return max((sure, *leading), key=lambda offer: offer.expected or 0.0)

    @property
    def is_measured(self) -> bool:
        """Whether there are sweeps around the question, and so figures."""
        return any(offer.measured_at for offer in (*self.offers, *self.popularities))

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
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
        """Plain numbers and strings.

        Returns
        -------
        dict
            The fields, and the answer.
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
        """Lay out the answer as text.

        Returns
        -------
        str
            The setting, its guarantee, what it is worth, and all that was weighed.
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
        """What becomes of the guarantee if the trust is misplaced; what else is as good."""
        alone = "nothing" if math.isinf(best.epsilon_alone) else f"epsilon {format_epsilon(best.epsilon_alone)}"
        lines = ["  all users get the same list"] if best.is_popularity else []
        if best.expected is not None and best.expected <= RANDOM:
            lines.append("  no better than items at random, which have .100")
        lines += [] if self.trust == "local" else [f"  if that trust is misplaced, {alone} is left of it"]
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
    """Whether its figure is clearly above that of a popularity with as few users."""
    if offer.expected is None or offer.margin is None or sure.expected is None:
        return False
    return offer.expected - sure.expected > offer.margin


def is_tie(best: Offer, other: Offer) -> bool:
    """Whether chance may explain that one gains more than another.

    Parameters
    ----------
    best, other : Offer
        With figures, or it is none.

    Returns
    -------
    bool
        By the larger of their margins.
    """
    if best.gain is None or best.margin is None or other.gain is None or other.margin is None:
        return False
    return best.gain - other.gain <= max(best.margin, other.margin)
