"""Tables of a system: of what its parties find out, by attacks on messages and on the released model, or of errors."""

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
_SHARES = ("true", "base", "recall", "stars")


@dataclass(frozen=True)
class PartyRow:
    """One attack on one run.

    Parameters
    ----------
    algorithm : str
        How it ran.
    attack : str
        Which, and whose.
    claimed, true, base, recall, stars : float or None
        Claims of "rated", the share of them that are true and that of all pairs, the shares of the rated ones that are
        claimed and whose rating is told; None where the attack has no such figure.
    auc : float or None
        None where all pairs are alike.
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
        """The row as text."""
        shares = (getattr(self, name) for name in _SHARES)
        return [
            self.algorithm,
            self.attack,
            "-" if self.claimed is None else f"{self.claimed:,}",
            *("-" if share is None else f"{share:.1%}" for share in shares),
            "-" if self.auc is None else f"{self.auc:.3f}",
        ]


def attack_rows(name: str, results: Iterable[AttackResult]) -> list[dict[str, Any]]:
    """Rows of attacks on what parties received, in plain JSON."""
    rows = []
    for result in results:
        stars = result.rating_recall if isinstance(result, RatingResult) else math.nan
        shares = {"true": result.precision, "base": result.base_rate, "recall": result.recall, "stars": stars}
        found = {field: None if math.isnan(value) else value for field, value in (shares | {"auc": result.auc}).items()}
        rows.append(asdict(PartyRow(name, result.attack, int((result.claims > 0).sum()), **found)))
    return rows


def membership_row(name: str, model: Any, data: Interactions, key: Key, n_threads: int) -> dict[str, Any]:
    """The row of the attack on whose ratings the released model was fitted on."""
    member = membership_loss(model, data, loss="squared", key=key, n_threads=n_threads, n_bootstrap=100)
    empty = dict.fromkeys(("claimed", *_SHARES))
    return asdict(PartyRow(name, "membership by losses, the public", auc=member.auc.value, **empty))


@dataclass(frozen=True)
class SystemTable(SideBySide):
    """The table "parties" of a system, or another of it, which a class of its own lays out.

    Parameters
    ----------
    source, settings : object
        As for `SideBySide`.
    table : str
        "parties", or the other's name.
    rows : tuple
        By model; of PartyRow in the table "parties".
    """

    table: str
    rows: tuple[Any, ...]

    _system: ClassVar[str]
    _titles: ClassVar[dict[str, str]]  # by table
    _legends: ClassVar[dict[str, str]]

    @property
    def title(self) -> str:
        """What the table shows."""
        return f"{self._system}: {self._titles[self.table]}"

    @property
    def legend(self) -> str:
        """What the columns mean."""
        return self._legends[self.table]

    def verdict(self) -> str:
        """Say which attack tells most, or what the errors say.

        Returns
        -------
        str
            A sentence or two.
        """
        return _tells_most(self.rows) if self.table == PARTIES else self._errors_say()

    def _draw(self, figure: Any) -> None:
        """Areas under curves, one below the other, or errors."""
        figure.set_size_inches(9, 5)
        panel = figure.subplots()
        if self.table == PARTIES:
            names = [f"{row.algorithm}: {row.attack}" for row in self.rows]
            panel.plot([math.nan if row.auc is None else row.auc for row in self.rows], names, "o")
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
    def _errors_say(self) -> str:
        """The verdict on the table of errors."""

    @abstractmethod
    def _draw_errors(self, panel: Any) -> None:
        """Draw the table of errors."""

    @abstractmethod
    def _error_rows(self) -> tuple[list[str], list[list[str]]]:
        """Header and cells of the table of errors."""


def _tells_most(rows: Sequence[PartyRow]) -> str:
    best = max((row for row in rows if row.auc is not None), key=lambda row: row.auc or 0.0)
    return f"Most is told by {best.attack}, of {best.algorithm}: AUC {best.auc:.3f}."
