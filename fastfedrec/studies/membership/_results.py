"""What a membership attack found, beside chance, the control, the ceiling, and what a guarantee allows."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.text import epsilon_to_json, format_table
from fastfedrec.studies.membership._figures import Estimate, TradeOff, chance_advantage


@dataclass(frozen=True)
class MembershipResult:
    """How well an attack tells the users a model was fitted on from others of the same population.

    Parameters
    ----------
    attack : str
        Its name.
    target : str
        The attacked model.
    auc : Estimate
        Chance that a member has a higher score than another user, ties counting half; .5 is no attack.  The interval
        is DeLong's, on the scale of the log odds.
    control : Estimate or None
        The same for the control, which has not seen the target: it must be at chance.  None where there is none.
    accuracy : float
        Share of right answers, if as many users as there are members are called so, from the highest score.
    advantage : Estimate
        The largest difference of hits and false alarms over all thresholds.  It is chosen on the users it is counted
        on, so it is above 0 at chance as well: see `chance_advantage`.
    hits : dict of float to Estimate
        Share of the members who are found where at most this share of the others is called a member.
    ceiling : float
        AUC of the best function of all that the attack looks at: users whom it cannot tell apart get one score.
    ceiling_accuracy : float
        The most right answers of such a function: whom it cannot tell apart, it calls the same.
    guarantee : tuple of (float, float)
        The (epsilon, delta) that the target states, for replacing all data of one user; empty without any.
    scores : ndarray of shape (n_users,), float64
        How strongly the attack holds each user to be a member.
    is_member : ndarray of shape (n_users,), bool
        The truth.
    user_ids : ndarray of shape (n_users,)
        Whose score it is.
    alpha : float
        Each interval misses with about this probability.
    """

    attack: str
    target: str
    auc: Estimate
    control: Estimate | None
    accuracy: float
    advantage: Estimate
    hits: dict[float, Estimate]
    ceiling: float
    ceiling_accuracy: float
    guarantee: tuple[tuple[float, float], ...]
    scores: NDArray[np.float64]
    is_member: NDArray[np.bool_]
    user_ids: np.ndarray
    alpha: float

    @property
    def n_members(self) -> int:
        """Users who were attacked, and whom the target was fitted on."""
        return int(self.is_member.sum())

    @property
    def n_others(self) -> int:
        """Users who were attacked, of the same population, whom it was not fitted on."""
        return len(self.is_member) - self.n_members

    @property
    def chance_advantage(self) -> float:
        """What the advantage stays below at chance, but with probability `alpha`.

        By Kolmogorov's distribution; with few users it errs upward.
        """
        return chance_advantage(self.n_members, self.n_others, self.alpha)

    @property
    def beats_chance(self) -> bool:
        """Whether the whole interval of the AUC is above .5; at chance true with probability about `alpha` / 2."""
        return self.auc.low > 0.5

    @property
    def bounds(self) -> dict[str, float]:
        """What the guarantee leaves to any attack whatever, in expectation over the target's own randomness.

        "auc", "accuracy", "advantage", and "hits" with each rate; all 1 without a guarantee.
        """
        allowed = TradeOff(self.guarantee)
        advantage = allowed.advantage()
        bounds = {"auc": allowed.auc(), "accuracy": (1 + advantage) / 2, "advantage": advantage}
        return bounds | {f"hits at {rate:g}": allowed.hits(rate) for rate in self.hits}

    def _figures(self) -> list[dict[str, Any]]:
        bounds = self.bounds
        estimates = {"auc": (self.auc, 0.5), "accuracy": (self.accuracy, 0.5), "advantage": (self.advantage, 0.0)}
        estimates |= {f"hits at {rate:g}": (found, rate) for rate, found in self.hits.items()}
        rows = []
        for name, (found, chance) in estimates.items():
            spread = asdict(found) if isinstance(found, Estimate) else {"value": found, "low": None, "high": None}
            rows.append({"figure": name, **spread, "chance": chance, "bound": bounds[name]})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain values that JSON can hold, without the scores of single users.

        Returns
        -------
        dict
            "figures" has a row each: value, limits, chance, and what the guarantee allows.
        """
        return {
            "attack": self.attack,
            "target": self.target,
            "n_members": self.n_members,
            "n_others": self.n_others,
            "alpha": self.alpha,
            "figures": self._figures(),
            "control_auc": None if self.control is None else asdict(self.control),
            "ceiling_auc": self.ceiling,
            "ceiling_accuracy": self.ceiling_accuracy,
            "chance_advantage": self.chance_advantage,
            "beats_chance": self.beats_chance,
            "guarantee": [[epsilon_to_json(epsilon), delta] for epsilon, delta in self.guarantee],
        }

    def to_json(self) -> str:
        """`to_dict` as JSON text.

        Returns
        -------
        str
            Indented.
        """
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_dataframe(self) -> Any:
        """The figures as a table.

        Returns
        -------
        pandas.DataFrame
            A row a figure, with its limits, chance, and what the guarantee allows.

        Raises
        ------
        ImportError
            Without pandas.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("to_dataframe needs pandas: pip install pandas") from None
        return pd.DataFrame(self._figures()).set_index("figure")

    def statement(self) -> str:
        """Put the figures into a sentence, for ``ledger.note``.

        Returns
        -------
        str
            Begins with "not protected", or where the attack does not beat chance with "withstood".
        """
        return (
            f"{'not protected' if self.beats_chance else 'withstood'}, by experiment: {self.attack} on {self.target}: "
            f"AUC {self.auc} over {self.n_members:,} members and {self.n_others:,} others (by chance 0.5; a guarantee "
            f"allows {self.bounds['auc']:.3f})"
        )

    def __str__(self) -> str:
        rows = [
            [
                row["figure"],
                f"{row['value']:.3f}",
                "" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}",
                f"{row['chance']:g}",
                f"{row['bound']:.3f}",
            ]
            for row in self._figures()
        ]
        control = "" if self.control is None else f"control, without the target: AUC {self.control}; "
        stated = f"advantage at chance below {self.chance_advantage:.3f}"
        return "\n".join(
            [
                f"{self.attack} on {self.target}: {self.n_members:,} members, {self.n_others:,} others",
                format_table(["", "reached", f"{1 - self.alpha:.0%} interval", "chance", "guarantee allows"], rows),
                f"{control}ceiling of any function of what it sees: AUC {self.ceiling:.3f}, accuracy "
                f"{self.ceiling_accuracy:.3f}; {stated}",
            ]
        )
