"""Tables of a system: attacks of its parties on messages and on the released model, or prediction errors."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.membership.attack import membership_loss
from fastfedrec.studies.reproduce.side_by_side import SideBySide
from fastfedrec.systems.fedrec.attacks import AttackResult, RatingResult

PARTIES = "parties"  # the table of that name
_HEADER = ("run", "attack", "claimed", "true", "base", "recall", "stars", "AUC")
# Fields that are shown as percentages.
_SHARES = ("true", "base", "recall", "stars")


@dataclass(frozen=True)
class PartyRow:
    """One attack on one run.

    Parameters
    ----------
    algorithm : str
        Name of the attacked run.
    attack : str
        Name of the attack and of the attacking party.
    claimed : int or None
        Number of pairs of user and item that the attack claims are rated.  This and the following figures are None if
        the attack has no such figure.
    true : float or None
        Share of the claimed pairs that are rated.
    base : float or None
        Share of all pairs that are rated.
    recall : float or None
        Share of the rated pairs that are claimed.
    stars : float or None
        Share of the rated pairs with the exact rating inferred.
    auc : float or None
        Area under the ROC curve; None if all pairs are rated, or none.
    """

    algorithm: str
    attack: str
    claimed: int | None
    true: float | None
    base: float | None
    recall: float | None
    stars: float | None
    auc: float | None

    def cells(self) -> list[str]:
        """Return the row as text."""
        shares = (getattr(self, name) for name in _SHARES)
        return [
            self.algorithm,
            self.attack,
            "-" if self.claimed is None else f"{self.claimed:,}",
            *("-" if share is None else f"{share:.1%}" for share in shares),
            "-" if self.auc is None else f"{self.auc:.3f}",
        ]


def attack_rows(name: str, results: Iterable[AttackResult]) -> list[dict[str, Any]]:
    """Return the rows of attacks on received messages, as JSON values."""
    rows = []
    for result in results:
        stars = result.rating_recall if isinstance(result, RatingResult) else math.nan
        shares = {"true": result.precision, "base": result.base_rate, "recall": result.recall, "stars": stars}
        # JSON has no NaN, so missing figures are None.
        figures = {
            field: None if math.isnan(value) else value for field, value in (shares | {"auc": result.auc}).items()
        }
        rows.append(asdict(PartyRow(name, result.attack, int((result.claims > 0).sum()), **figures)))
    return rows


def membership_row(name: str, model: Any, data: Interactions, key: Key, n_threads: int) -> dict[str, Any]:
    """Return the row of a membership attack on the released model, as JSON values."""
    # The number of replicates is the minimum, because the intervals are not shown.
    member = membership_loss(model, data, loss="squared", key=key, n_threads=n_threads, n_bootstrap=100)
    empty = dict.fromkeys(("claimed", *_SHARES))
    return asdict(PartyRow(name, "membership by losses, the public", auc=member.auc.value, **empty))


@dataclass(frozen=True)
class SystemTable(SideBySide):
    """The table "parties" of a system, or its table of errors, which a subclass formats."""

    table: str
    rows: tuple[Any, ...]

    _system: ClassVar[str]
    _titles: ClassVar[dict[str, str]]  # by name of the table
    _legends: ClassVar[dict[str, str]]

    @property
    def title(self) -> str:
        """Title of the table."""
        return f"{self._system}: {self._titles[self.table]}"

    @property
    def legend(self) -> str:
        """Meaning of the columns."""
        return self._legends[self.table]

    def verdict(self) -> str:
        """Name the attack with the largest AUC, or summarise the errors."""
        return _strongest_attack(self.rows) if self.table == PARTIES else self._error_verdict()

    def _draw(self, figure: Any) -> None:
        """Draw the AUC of each attack, or the errors."""
        figure.set_size_inches(9, 5)
        panel = figure.subplots()
        if self.table == PARTIES:
            names = [f"{row.algorithm}: {row.attack}" for row in self.rows]
            panel.plot([math.nan if row.auc is None else row.auc for row in self.rows], names, "o")
            # The dashed line is chance.
            panel.axvline(0.5, color="black", linestyle="--", linewidth=1)
            panel.set(xlabel="AUC", xlim=(0.35, 1.02))
        else:
            self._draw_errors(panel)
        panel.set_title(self.title, fontsize="small")

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        if self.table == PARTIES:
            return list(_HEADER), [row.cells() for row in self.rows]
        return self._error_rows()

    @abstractmethod
    def _error_verdict(self) -> str:
        """Summarise the table of errors."""

    @abstractmethod
    def _draw_errors(self, panel: Any) -> None:
        """Draw the table of errors."""

    @abstractmethod
    def _error_rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of the table of errors."""


def _strongest_attack(rows: Sequence[PartyRow]) -> str:
    best = max((row for row in rows if row.auc is not None), key=lambda row: row.auc or 0.0)
    return f"The strongest attack is {best.attack}, on {best.algorithm}: AUC {best.auc:.3f}."
