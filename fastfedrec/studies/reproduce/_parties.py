"""What the parties of a system find out: rows of a table, of attacks on messages and on the released model."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.membership.attack import membership_loss
from fastfedrec.systems.fedrec.attacks import AttackResult, RatingResult

#: The columns of a table of parties.
HEADER = ("run", "attack", "claimed", "true", "base", "recall", "stars", "AUC")
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


def draw_parties(panel: Any, rows: Sequence[PartyRow]) -> None:
    """Areas under curves, one below the other."""
    names = [f"{row.algorithm}: {row.attack}" for row in rows]
    panel.plot([math.nan if row.auc is None else row.auc for row in rows], names, "o")
    panel.axvline(0.5, color="black", linestyle="--", linewidth=1)
    panel.set(xlabel="AUC", xlim=(0.35, 1.02))


def tells_most(rows: Sequence[PartyRow]) -> str:
    """A sentence: which attack tells most."""
    best = max((row for row in rows if row.auc is not None), key=lambda row: row.auc or 0.0)
    return f"Most is told by {best.attack}, of {best.algorithm}: AUC {best.auc:.3f}."
