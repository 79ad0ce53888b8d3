"""Advice: which system, at which setting, for so many users and items, one budget and one trust model.

The accountants choose the setting for the numbers asked about, so that its guarantee holds; what it is worth is read
from sweeps of generated data that come with the package, always at settings that are no easier.
"""

import functools
import itertools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from fastfedrec.core.check import check_choice, check_epsilon, check_integer, check_real
from fastfedrec.core.text import format_epsilon, format_table
from fastfedrec.studies.advise._recipes import RECIPES, Recipe, calibrated
from fastfedrec.studies.sweep.cells import TRUST_VIEWS, TRUST_WORDS, share_error
from fastfedrec.studies.sweep.runs import plain

__all__ = ["Advice", "Offer", "advise"]

METRIC = "hr@10"
_FILE = "advice.json"  # written by `grid`
_MOST_EPSILON = 1e6  # nobody is promised anything by it
_RANDOM = 0.1  # HR@10 of a random list, among 100 items: noisy popularity may be worse than none


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
    expected : float
        HR@10 that was measured where it is no easier: the least of what lies around.
    gain : float
        Over private popularity at the same epsilon, or a random list, where that is least.
    margin : float
        What chance alone explains of that gain: two standard errors.
    measured_at : tuple of str
        Where.
    n_measured : int
        Users there, at least.
    is_popularity : bool
        Whether it releases counts only, as DPGram does where its gate is closed: everybody gets the same list.
    download, upload : int or None
        Bytes of a client in the whole run, for the users and items asked about; None where the system counts none.
    seconds : float
        Of a fit with all clients simulated, where it took longest.
    """

    system: str
    parameters: dict[str, Any]
    epsilon: float
    epsilon_alone: float
    expected: float
    gain: float
    margin: float
    measured_at: tuple[str, ...]
    n_measured: int
    is_popularity: bool
    download: int | None
    upload: int | None
    seconds: float

    @property
    def setting(self) -> str:
        """As one would write it in Python."""
        return f"{self.system}({', '.join(f'{name}={value!r}' for name, value in self.parameters.items())})"

    @property
    def is_better_than_popularity(self) -> bool:
        """Whether the gain is more than chance explains."""
        return self.gain > self.margin


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
        Systems that give people lists of their own, the largest gain first.
    popularities : tuple of Offer
        Those that give everybody the same list, the best first.
    remarks : tuple of str
        What was left out, and where the answer is not from settings around the question.
    source : str
        What the figures were measured on.
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

    @property
    def popularity_is_as_good(self) -> bool:
        """Whether no system gains more than chance explains."""
        return not any(offer.is_better_than_popularity for offer in self.offers)

    @property
    def best(self) -> Offer:
        """What to use."""
        better = [offer for offer in self.offers if offer.is_better_than_popularity]
        return better[0] if better else self.popularities[0]

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
        over = f", {best.gain:+.3f} over private popularity (chance: {best.margin:.3f})" if best in self.offers else ""
        lines = [
            f"{self.n_users:,} users, {self.n_items:,} items, epsilon {self.epsilon:g} at delta {self.delta:g}; "
            f"trust: {self.trust} ({TRUST_WORDS[self.trust]})",
            "",
        ]
        if self.popularity_is_as_good:
            lines.append("Popularity is as good: nothing that was measured gains more over it than chance explains.")
        lines += [
            f"Use {best.setting}",
            f"  true epsilon {format_epsilon(best.epsilon)} of the whole run, in nats, for replacing all data of one "
            "user (unit: user), by the accountants for these users and items",
            *self._caveats(best),
            f"  expected HR@10 {best.expected:.3f} among 99 unseen items{over}",
            f"  {_bytes(best)}; {best.seconds:.1f} s to simulate all clients where it was measured",
            "",
            format_table(
                ("", "epsilon", "HR@10", "gain", "chance", "bytes down", "bytes up"),
                [
                    (
                        offer.setting, format_epsilon(offer.epsilon), f"{offer.expected:.3f}", f"{offer.gain:+.3f}",
                        f"{offer.margin:.3f}", _count(offer.download), _count(offer.upload),
                    )
                    for offer in (*self.offers, *self.popularities)
                ],
            ),
            "",
            "measured at: " + "; ".join(best.measured_at),
            *self.remarks,
            f"{self.source}.  Yours differ; sweep them before you decide: fastfedrec sweep --data PATH.",
        ]  # fmt: skip
        return "\n".join(lines)

    def _caveats(self, best: Offer) -> list[str]:
        """What becomes of the guarantee if the trust is misplaced; what else is as good."""
        alone = "nothing" if math.isinf(best.epsilon_alone) else f"epsilon {format_epsilon(best.epsilon_alone)}"
        lines = ["  everybody gets the same list"] if best.is_popularity else []
        lines += ["  no better than items at random, which have .100"] if best.expected <= _RANDOM else []
        lines += [] if self.trust == "local" else [f"  if that trust is misplaced, {alone} is left of it"]
        ties = [o.system for o in self.offers if o is not best and best.gain - o.gain <= max(best.margin, o.margin)]
        if best in self.offers and ties:
            lines.append(f"  by these figures not clearly better than {' or '.join(ties)}")
        return lines


def _count(n: int | None) -> str:
    return "-" if n is None else f"{n:,}"


def _bytes(offer: Offer) -> str:
    if offer.upload is None:
        return "bytes of a client are not counted by this system"
    return f"a client receives {_count(offer.download)} bytes and sends {_count(offer.upload)}"


@functools.cache
def stored_sweeps() -> dict[str, Any]:
    """The sweeps that come with the package.

    Returns
    -------
    dict
        As `fastfedrec sweep --advice` writes them.
    """
    return json.loads(resources.files(__package__).joinpath(_FILE).read_text())


def advise(
    n_users: int,
    n_items: int,
    epsilon: float,
    trust: str,
    *,
    delta: float = 1e-6,
    row_length: float | None = None,
    measured: str | Path | None = None,
) -> Advice:
    """Choose a system and its setting.

    Parameters
    ----------
    n_users, n_items : int
        Of your data.
    epsilon : float
        Budget of the whole run, in nats, for replacing all data of one user.
    trust : {"local", "shuffle", "central"}
        Whom one trusts: nothing but the user's own device, a shuffler, or the server.
    delta : float
        Budget, in (0, 1).
    row_length : float or None
        Items of a user, on average; None takes the worse of what was measured.
    measured : str, Path or None
        Another file of sweeps, written by ``fastfedrec sweep --advice``.

    Returns
    -------
    Advice
        With what was weighed.

    Raises
    ------
    ValueError
        The question lies outside what was measured, to the side where nothing can be said.

    Notes
    -----
    A system's figure is the least of those measured with the numbers of items (and lengths of rows) next below and
    above, with no more users and no larger epsilon, at delta 1e-6; where `delta` is less, the accountants say which
    epsilon the same noise has at 1e-6.  It is compared with the best private popularity measured around the question.

    Examples
    --------
    >>> from fastfedrec.studies.advise.advice import advise
    >>> answer = advise(20_000, 500, epsilon=2.0, trust="central", row_length=30)
    >>> answer.best.system, answer.best.epsilon <= 2.0
    ('DPGram', True)
    >>> advise(2_000, 1_000, epsilon=1.0, trust="local").popularity_is_as_good
    True
    """
    n_users, n_items = check_integer("n_users", n_users, low=1), check_integer("n_items", n_items, low=1)
    epsilon = check_real("epsilon", check_epsilon("epsilon", epsilon), high=_MOST_EPSILON)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    if row_length is not None:
        row_length = check_real("row_length", row_length, low=0.0, exclusive=True)
    check_choice("trust", trust, tuple(TRUST_VIEWS))
    stored = stored_sweeps() if measured is None else json.loads(Path(measured).read_text())
    rows = [row for row in stored["rows"] if row["trust"] == trust]
    remarks = _check_range(rows, n_users=n_users, n_items=n_items, epsilon=epsilon, row_length=row_length)
    offers: list[Offer] = []
    popularities: list[Offer] = []
    for recipe in (recipe for recipe in RECIPES if recipe.trust == trust):
        found = _offer(recipe, rows, n_users, n_items, row_length, epsilon, delta, stored["delta"])
        if isinstance(found, str):
            remarks.append(f"{recipe.system}: {found}")
            continue
        (popularities if found.is_popularity else offers).append(found)
        if found.n_measured < max(row["n_users"] for row in rows if row["n_users"] <= n_users):
            few = f"measured with no more than {found.n_measured:,} users; with yours it may do better"
            remarks.append(f"{found.system}: {few}")
    remarks += _without_privacy(stored["rows"], n_items, row_length)
    if not popularities:
        raise ValueError(f"epsilon {epsilon:g} at delta {delta:g} is too little even for DP popularity")
    return Advice(
        n_users, n_items, epsilon, delta, trust, tuple(sorted(offers, key=lambda offer: -offer.gain)),
        tuple(sorted(popularities, key=lambda offer: -offer.expected)),
        tuple(remarks), f"Measured on {stored['source']}, {stored['code']}, {stored['machine']}, "
        f"{stored['n_threads']} thread(s)",
    )  # fmt: skip


def _check_range(rows: Sequence[dict[str, Any]], **asked: float | None) -> list[str]:
    """Refuse what lies where nothing is known; name what lies beyond settings that are no easier."""
    remarks = []
    for name, value in asked.items():
        if value is None:
            continue
        known = {row["target" if name == "epsilon" else name] for row in rows}
        is_beyond = value > max(known)
        # With more users and a larger epsilon nothing gets worse; of items and lengths of rows that is not known.
        if value < min(known) or (is_beyond and name in ("n_items", "row_length")):
            raise ValueError(
                f"{name} must be from {_number(min(known))} to {_number(max(known))}, where there are sweeps, got "
                f"{_number(value)}; for others run your own: fastfedrec sweep --users N --items M"
            )
        if is_beyond:
            most = _number(max(known))
            remarks.append(f"{name} {_number(value)} lies beyond what was measured; the figures are those of {most}")
    return remarks


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _offer(
    recipe: Recipe,
    rows: Sequence[dict[str, Any]],
    n_users: int,
    n_items: int,
    row_length: float | None,
    epsilon: float,
    delta: float,
    stored_delta: float,
) -> Offer | str:
    """What a system is worth, or why that is not known."""
    if not any(row["system"] == recipe.system for row in rows):
        return "it was not measured"
    chosen = calibrated(recipe, epsilon, delta, n_users, n_items)
    if chosen is None:
        return f"no setting costs as little as epsilon {epsilon:g}"
    parameters, planned = chosen
    ledger = planned.ledger
    traffic = planned.communication.to_dict() if planned.communication else {}
    view = TRUST_VIEWS[recipe.trust]
    cost = ledger.epsilon(view, delta)
    # The same noise at the delta of the sweeps: no more than what was asked for.
    equal = epsilon if delta >= stored_delta else epsilon * min(1.0, ledger.epsilon(view, stored_delta) / cost)
    near: list[tuple[dict[str, Any], float, float]] = []
    for items, length in itertools.product(_around(rows, "n_items", n_items), _around(rows, "row_length", row_length)):
        here = [row for row in rows if row["n_items"] == items and row["row_length"] == length]
        row = _best_below(here, recipe.system, n_users, equal)
        if row is None:
            return f"nothing was measured at {items:,} items with so few users and so small an epsilon"
        if planned.is_popularity:
            near.append((row, 0.0, 0.0))
            continue
        # Popularity may have more users, and epsilon, than was asked about: it is not to look worse than it is.
        rival = _best_below(here, None, _above(rows, "n_users", n_users), _above(rows, "target", epsilon))
        near.append((row, _mean(row) - max(_mean(rival), _RANDOM), 2 * math.hypot(_error(row), _error(rival))))
    # Where the gain is least beside what chance explains.
    _, gain, margin = min(near, key=lambda entry: entry[1] - entry[2])
    measured = [row for row, _, _ in near]
    return Offer(
        recipe.system,
        parameters,
        cost,
        ledger.epsilon("server", delta),
        min(map(_mean, measured)),
        gain,
        margin,
        tuple(
            f"{row['n_users']:,} users x {row['n_items']:,} items, rows of {row['row_length']:g}, epsilon "
            f"{row['target']:g}: {_mean(row):.3f}"
            for row in measured
        ),
        min(row["n_users"] for row in measured),
        planned.is_popularity,
        traffic.get("download_per_client"),
        traffic.get("upload_per_client"),
        max(row["seconds"] for row in measured),
    )


def _without_privacy(rows: Sequence[dict[str, Any]], n_items: int, row_length: float | None) -> list[str]:
    """What could be had by trusting everybody, around the question."""
    open_rows = [
        row
        for row in rows
        if row["trust"] is None
        and row["n_items"] in _around(rows, "n_items", n_items)
        and row["row_length"] in _around(rows, "row_length", row_length)
    ]
    values: dict[str, list[float]] = {}
    for row in open_rows:
        values.setdefault(row["system"], []).append(_mean(row))
    told = [f"{system} {min(found):.3f} to {max(found):.3f}" for system, found in values.items()]
    return [f"without any privacy, around here: {'; '.join(told)}"] if told else []


def _around(rows: Sequence[dict[str, Any]], name: str, value: float | None) -> list[Any]:
    """The measured values next below and above; all of them where it is not known."""
    known = sorted({row[name] for row in rows})
    if value is None:
        return known
    return sorted({max(v for v in known if v <= value), min(v for v in known if v >= value)})


def _above(rows: Sequence[dict[str, Any]], name: str, value: float) -> float:
    """The measured value next above, or the largest."""
    known = {row[name] for row in rows}
    return min((v for v in known if v >= value), default=max(known))


def _best_below(rows: Sequence[dict[str, Any]], system: str | None, n_users: float, epsilon: float) -> Any:
    """The best measurement of a system (None: of popularity) with no more users and no larger epsilon, if any."""
    below = [
        row
        for row in rows
        if (row["is_popularity"] if system is None else row["system"] == system)
        and row["n_users"] <= n_users
        and row["target"] <= epsilon * (1 + 1e-9)
    ]
    return max(below, key=_mean, default=None)


def _mean(row: dict[str, Any]) -> float:
    return statistics.fmean(row["metrics"][METRIC])


def _error(row: dict[str, Any]) -> float:
    return share_error(row["metrics"][METRIC], row["n_tested"])
