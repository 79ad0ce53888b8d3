"""Results of a membership attack, compared with chance, its control, its ceiling, and the bound of a guarantee."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.old_names import OldAttribute
from fastfedrec.core.text import epsilon_to_json, format_table
from fastfedrec.studies.membership._figures import Estimate, TradeOff, chance_advantage


@dataclass(frozen=True)
class MembershipResult:
    """Success of an attack that separates members of a model's training data from non-members.

    Parameters
    ----------
    attack : str
        Name of the attack.
    target : str
        Class name of the attacked model.
    auc : Estimate
        Probability that a member has a higher score than a non-member, ties counting half; .5 is chance.  The
        interval is DeLong's, on the scale of the log odds.
    control : Estimate or None
        AUC of the control, which has no access to the target and must be at chance.  None if there is no control.
    accuracy : float
        Share of correct answers if the `n_members` users with the highest scores are called members.
    advantage : Estimate
        Maximum difference of true and false positive rates over all thresholds.  The threshold is chosen on the users
        that are counted, so the advantage is above 0 at chance as well: see `chance_advantage`.
    true_positive_rates : dict of float to Estimate
        True positive rate at each false positive rate: the key is the largest share of non-members called members.
    ceiling : float
        AUC of the best function of the attack's input: users with the same input have the same score.
    ceiling_accuracy : float
        Accuracy of the best such function: users with the same input get the same answer.
    guarantee : tuple of (float, float)
        The (epsilon, delta) that the target states, for replacing all data of one user; empty without any.
    scores : ndarray of shape (n_users,), float64
        The attack's score of each user; a higher one means that membership is more likely.
    is_member : ndarray of shape (n_users,), bool
        Whether each user is a member.
    user_ids : ndarray of shape (n_users,)
        User id of each score.
    alpha : float
        Approximate probability that an interval misses the true value.
    """

    attack: str
    target: str
    auc: Estimate
    control: Estimate | None
    accuracy: float
    advantage: Estimate
    true_positive_rates: dict[float, Estimate]
    ceiling: float
    ceiling_accuracy: float
    guarantee: tuple[tuple[float, float], ...]
    scores: NDArray[np.float64]
    is_member: NDArray[np.bool_]
    user_ids: np.ndarray
    alpha: float

    hits = OldAttribute("true_positive_rates")
    n_others = OldAttribute("n_non_members")

    @property
    def n_members(self) -> int:
        """Number of attacked users that the target was fitted on."""
        return int(self.is_member.sum())

    @property
    def n_non_members(self) -> int:
        """Number of attacked users of the same population that the target was not fitted on."""
        return len(self.is_member) - self.n_members

    @property
    def chance_advantage(self) -> float:
        """Limit that the advantage of a random score exceeds with probability `alpha`.

        The limit is that of Kolmogorov's distribution; with few users it is too large.
        """
        return chance_advantage(self.n_members, self.n_non_members, self.alpha)

    @property
    def beats_chance(self) -> bool:
        """Whether the interval of the AUC is above .5; a random score does so with probability about `alpha` / 2."""
        return self.auc.low > 0.5

    @property
    def bounds(self) -> dict[str, float]:
        """Largest figures that the guarantee allows any attack, in expectation over the target's own randomness.

        The keys are "auc", "accuracy", "advantage", and "hits" with each rate; all values are 1 without a guarantee.
        """
        allowed = TradeOff(self.guarantee)
        advantage = allowed.advantage()
        # Half of the attacked users are members, so the accuracy is (1 + advantage) / 2.
        bounds = {"auc": allowed.auc(), "accuracy": (1 + advantage) / 2, "advantage": advantage}
        return bounds | {f"hits at {rate:g}": allowed.true_positive_rate(rate) for rate in self.true_positive_rates}

    def _figures(self) -> list[dict[str, Any]]:
        bounds = self.bounds
        # Each figure is paired with its expected value at chance.
        estimates = {"auc": (self.auc, 0.5), "accuracy": (self.accuracy, 0.5), "advantage": (self.advantage, 0.0)}
        estimates |= {f"hits at {rate:g}": (estimate, rate) for rate, estimate in self.true_positive_rates.items()}
        rows = []
        for name, (estimate, chance) in estimates.items():
            spread = (
                asdict(estimate) if isinstance(estimate, Estimate) else {"value": estimate, "low": None, "high": None}
            )
            rows.append({"figure": name, **spread, "chance": chance, "bound": bounds[name]})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON values, without the scores of single users.

        Returns
        -------
        dict
            "figures" has a row for each figure: value, limits, value at chance, and the bound of the guarantee.
        """
        return {
            "attack": self.attack,
            "target": self.target,
            "n_members": self.n_members,
            "n_others": self.n_non_members,
            "alpha": self.alpha,
            "figures": self._figures(),
            "control_auc": None if self.control is None else asdict(self.control),
            "ceiling_auc": self.ceiling,
            "ceiling_accuracy": self.ceiling_accuracy,
            "chance_advantage": self.chance_advantage,
            "beats_chance": self.beats_chance,
            # JSON has no infinity, so an infinite epsilon becomes text.
            "guarantee": [[epsilon_to_json(epsilon), delta] for epsilon, delta in self.guarantee],
        }

    def to_json(self) -> str:
        """Return `to_dict` as JSON text.

        Returns
        -------
        str
            Indented JSON.
        """
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_dataframe(self) -> Any:
        """Return the figures as a table.

        Returns
        -------
        pandas.DataFrame
            A row for each figure, with its limits, its value at chance, and the bound of the guarantee.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("to_dataframe needs pandas: pip install pandas") from None
        return pd.DataFrame(self._figures()).set_index("figure")

    def statement(self) -> str:
        """Return the figures as sentences for ``ledger.note``.

        Returns
        -------
        str
            Two sentences; the first one states whether the attack exceeds chance.
        """
        return (
            f"The attack '{self.attack}' on {self.target} {'exceeds' if self.beats_chance else 'does not exceed'} "
            f"chance in an experiment. Its AUC is {self.auc} over {self.n_members:,} members and "
            f"{self.n_non_members:,} others (0.5 by chance; the guarantee allows {self.bounds['auc']:.3f})."
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
        # The loss attack without references has no control.
        control = "" if self.control is None else f"control, without the target: AUC {self.control}; "
        stated = f"advantage at chance below {self.chance_advantage:.3f}"
        return "\n".join(
            [
                f"{self.attack} on {self.target}: {self.n_members:,} members, {self.n_non_members:,} others",
                format_table(["", "reached", f"{1 - self.alpha:.0%} interval", "chance", "guarantee allows"], rows),
                f"{control}ceiling of any function of what it sees: AUC {self.ceiling:.3f}, accuracy "
                f"{self.ceiling_accuracy:.3f}; {stated}",
            ]
        )
