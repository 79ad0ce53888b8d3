"""Advice on a system and its setting, for the numbers of users and items, a budget and a trust model.

The accountants choose the setting for these numbers, so that its guarantee holds.  A rule chooses the system, unless a
file of sweeps is given.  `PrivateRecommender` follows the rule.
"""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastfedrec.core.check import check_choice, check_epsilon, check_flag, check_integer, check_real
from fastfedrec.systems._aggregation import check_honest_fraction
from fastfedrec.systems._noise_source import NodeNoise
from fastfedrec.systems._parameters import TRUSTED_PARTIES
from fastfedrec.systems.private_recommender._measured import (
    RANDOM,
    Row,
    around,
    error,
    mean,
    popularity_beside,
    range_of,
    rows_below,
    stored_sweeps,
    without_privacy,
)
from fastfedrec.systems.private_recommender._rule import (
    SELF_DECIDING,
    at_random,
    by_rule,
    in_order,
    reason_of,
    without_figures,
)
from fastfedrec.systems.private_recommender.advice import Advice, Offer
from fastfedrec.systems.private_recommender.recipes import (
    POPULARITY,
    Planned,
    Recipe,
    calibrated,
    max_users_of,
    objection,
    recipes_of,
)
from fastfedrec.systems.registry import make_system, system_class

__all__ = ["Advice", "Offer", "advise", "stored_sweeps"]

__dir__ = __all__.copy  # dir() lists only the public names

MAX_EPSILON = 1e6  # largest epsilon, in nats, which is no protection


def advise(
    n_users: int,
    n_items: int,
    epsilon: float,
    trust: str,
    *,
    delta: float = 1e-6,
    row_length: float | None = None,
    item_features: bool = False,
    measured: str | Path | None = None,
    honest_fraction: float | None = None,
    dropout_fraction: float = 0.05,
) -> Advice:
    """Choose a system and its setting.

    Parameters
    ----------
    n_users, n_items : int
        Numbers of users and items of your data.
    epsilon : float
        Epsilon of the whole run, in nats, for replacing all data of one user.
    trust : {"central", "shuffle", "local", "aggregator"}
        Party that users trust: the server, a shuffler, only their own device, or an honest share of all nodes, which
        add noise to masked numbers.
    delta : float
        Delta of the whole run, in (0, 1).
    row_length : float or None
        Mean number of items of a user, for the figures of sweeps; rows longer than the longest measured ones count as
        these.  None takes the worst cell of all lengths.  The rule does not use it.
    item_features : bool
        Whether there are public features of the items.  Sweeps had no features, so the rule chooses then.
    measured : str, Path or None
        File of your sweeps, written by ``fastfedrec sweep --advice``.  A system that is clearly better than
        popularity by its figures is chosen.  Without one, or with None, the rule chooses.
    honest_fraction : float or None
        With ``trust="aggregator"``, which requires it: share of honest nodes, in (0, 1].
    dropout_fraction : float
        With ``trust="aggregator"``: largest share of the nodes that do not answer in a round, in [0, 1).

    Returns
    -------
    Advice
        The choice, and all offers that were compared.

    Raises
    ------
    ValueError
        An argument is out of its range, or dropouts may leave no honest node.

    Notes
    -----
    The rule takes a system that chooses popularity or a personal model by its private releases.  With a trusted server
    or secure aggregation this is DPGram, or DPSubspace if the matrix of item pairs or the number of users is too large
    for DPGram.  Behind a shuffler it is ShuffledGram.  Otherwise the rule takes popularity.

    The figures of an offer are from one reference cell of the sweeps: HR@10 of the system, of private popularity on
    the same data at the same epsilon, and their difference with its error.  Cells have at most the requested number of
    users and epsilon, at delta 1e-6, and the nearest numbers of items (and lengths of rows) below and above.  For each
    of these numbers the cell with the largest difference less its error counts; the smallest of them is the reference.
    For a smaller `delta`, the accountants compute the epsilon of the same noise at 1e-6.  Secure aggregation has the
    figures of a trusted server with the same noise on its sums, and with the users that answer at least.  The sweeps
    that come with the package have no figures of self-deciding systems.

    A larger epsilon never gets a worse answer: it has all cells of a smaller one, and the rule takes popularity only
    where no self-deciding system fits.

    Examples
    --------
    >>> from fastfedrec.systems.private_recommender.choice import advise
    >>> answer = advise(20_000, 500, epsilon=2.0, trust="central")
    >>> answer.best.system, answer.best.epsilon <= 2.0
    ('DPGram', True)
    >>> advise(2_000, 1_000, epsilon=1.0, trust="local").popularity_is_as_good
    True
    """
    n_users, n_items = check_integer("n_users", n_users, low=1), check_integer("n_items", n_items, low=1)
    epsilon = check_real("epsilon", check_epsilon("epsilon", epsilon), high=MAX_EPSILON)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    if row_length is not None:
        row_length = check_real("row_length", row_length, low=0.0, exclusive=True)
    check_choice("trust", trust, TRUSTED_PARTIES)
    is_featured = check_flag("item_features", item_features)
    stored = stored_sweeps() if measured is None else _read_sweeps(measured)
    check_real("dropout_fraction", dropout_fraction, low=0.0, high=1.0)
    if honest_fraction is not None:
        check_real("honest_fraction", honest_fraction, low=0.0, high=1.0)
    check_honest_fraction(honest_fraction, is_needed=trust == "aggregator", of=f"trust={trust!r}")
    if honest_fraction is not None:
        NodeNoise.planned(n_users, honest_fraction, dropout_fraction)  # refuses shares that leave no noise
    recipes = recipes_of(trust, honest_fraction, dropout_fraction)
    advice = _compared(stored, recipes, n_users, n_items, epsilon, trust, delta, row_length)
    choice = by_rule(advice.offers, advice.popularities)
    if is_featured:
        advice = replace(advice, remarks=(*advice.remarks, _remark_on_features(choice)))
    # Figures choose only if the system of the rule has figures, too, and if they show a clear gain.
    is_known = measured is not None and not is_featured and advice.is_measured and choice.expected is not None
    if is_known and any(offer.is_better_than_popularity for offer in advice.offers):
        return advice
    offers = sorted(advice.offers, key=lambda offer: offer != choice)
    no_gain = " In the sweeps no private system is clearly better than popularity." if is_known else ""
    return replace(
        advice, ruled=choice, offers=tuple(offers), remarks=(reason_of(choice, trust) + no_gain, *advice.remarks)
    )


def _read_sweeps(path: str | Path) -> dict[str, Any]:
    """Return the sweeps of a file."""
    try:
        stored = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        stored = None
    if not isinstance(stored, dict) or not stored.keys() >= {"rows", "source", "code", "machine", "delta"}:
        raise ValueError(
            f"measured must be a file of sweeps, got {str(path)!r}; fastfedrec sweep --advice writes such a file"
        )
    return stored


def _remark_on_features(choice: Offer) -> str:
    takes_features = "item_features" in system_class(choice.system)().get_params()
    return f"{choice.system} {'takes' if takes_features else 'does not take'} features of items"


def _compared(
    stored: dict[str, Any],
    recipes: Sequence[Recipe],
    n_users: int,
    n_items: int,
    epsilon: float,
    trust: str,
    delta: float,
    row_length: float | None,
) -> Advice:
    """Return all offers of a trust model, with their figures if there are any."""
    # Sums of nodes have the noise of a trusted server at a smaller epsilon, so its rows have their figures.
    rows = [row for row in stored["rows"] if row["trust"] == ("central" if trust == "aggregator" else trust)]
    remarks = _not_measured(rows, row_length, n_users=n_users, n_items=n_items, epsilon=epsilon)
    has_figures, near_length = not remarks, row_length
    if has_figures:
        remarks, near_length = _limit_to_measured(rows, row_length, n_users=n_users, epsilon=epsilon)
    offers: list[Offer] = []
    popularities = [at_random()]
    for recipe in recipes:
        chosen = _setting_of(recipe, n_users, n_items, epsilon, delta)
        if isinstance(chosen, str):
            remarks.append(f"{recipe.system}: {chosen}")
            continue
        offer = without_figures(recipe, *chosen, delta)
        sizes = n_users, n_items, round(n_users * min(row_length or 0, n_items))
        offer = replace(offer, memory=make_system(recipe.system, offer.parameters).memory_needed(*sizes))
        if has_figures:
            figures = _with_figures(offer, chosen[1], recipe, rows, n_users, n_items, near_length, epsilon, stored)
            if isinstance(figures, str):
                remarks.append(f"{recipe.system}: {figures}")
            else:
                offer, few = figures
                remarks += [few] if few else []
        (popularities if offer.is_popularity else offers).append(offer)
    if has_figures:
        remarks += without_privacy(stored["rows"], n_items, near_length)
    return Advice(
        n_users, n_items, epsilon, delta, trust,
        tuple(sorted(offers, key=lambda offer: -offer.sure_gain)),
        tuple(in_order(popularities)), tuple(remarks),
        f"Measured on {stored['source']}, {stored['code']}, {stored['machine']}, {stored['n_threads']} thread(s)",
    )  # fmt: skip


def _setting_of(
    recipe: Recipe, n_users: int, n_items: int, epsilon: float, delta: float
) -> tuple[dict[str, Any], Planned] | str:
    """Return the setting of a system and its plan, or the reason why it is not offered."""
    if n_users > (max_users := max_users_of(recipe.system)):
        return f"its sums have room for {max_users:,.0f} users at most"
    if recipe.max_items is not None and n_items > recipe.max_items:
        return f"it is offered for {recipe.max_items:,} items at most"
    chosen = calibrated(recipe, epsilon, delta, n_users, n_items)
    if chosen is None:
        return objection(recipe, epsilon, delta, n_users, n_items)
    # Self-deciding systems and popularity have no such bound here, since theirs are for simulations, not deployments.
    if recipe.system not in (*SELF_DECIDING, POPULARITY) and not recipe.is_small(n_users, n_items, chosen[1]):
        return "a fit takes too long with so many users and items"
    return chosen


def _not_measured(rows: Sequence[Row], row_length: float | None, **requested: float) -> list[str]:
    """Return remarks on numbers without a measured setting that is no easier, so that there are no figures."""
    if not rows:
        return ["the sweeps have no row of this trust model"]
    remarks = []
    if row_length is not None and row_length < (low := range_of(rows, "row_length")[0]):
        remarks.append(f"row_length {_number(row_length)} lies below {_number(low)}, and shorter rows may have less")
    for name, value in requested.items():
        low, high = range_of(rows, name)
        # More users or a larger epsilon are no harder, but more items may be.
        if value < low or (value > high and name == "n_items"):
            remarks.append(
                f"{name} {_number(value)} lies outside {_number(low)} to {_number(high)}, where there are sweeps; "
                "run your own: fastfedrec sweep --users N --items M"
            )
    return remarks


def _limit_to_measured(
    rows: Sequence[Row], row_length: float | None, **requested: float
) -> tuple[list[str], float | None]:
    """Return remarks on numbers above the measured ones, and the measured length of rows for the figures."""
    remarks = []
    for name, value in requested.items():
        _, high = range_of(rows, name)
        if value > high:
            remarks.append(
                f"{name} {_number(value)} lies beyond what was measured; the figures are those of {_number(high)}"
            )
    if row_length is not None:
        low, high = range_of(rows, "row_length")
        nearest = min(max(row_length, low), high)
        if nearest != row_length:
            remarks.append(
                f"row_length {_number(row_length)} lies beyond what was measured; the figures are those of "
                f"{_number(nearest)}, and no promise"
            )
        row_length = nearest
    return remarks, row_length


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _with_figures(
    offer: Offer,
    planned: Planned,
    recipe: Recipe,
    rows: Sequence[Row],
    n_users: int,
    n_items: int,
    row_length: float | None,
    epsilon: float,
    stored: dict[str, Any],
) -> tuple[Offer, str | None] | str:
    """Return the offer with its figures and a remark on them, or the reason why there are none."""
    if recipe.system not in {row["system"] for row in rows}:
        return "not measured for this version"
    if row_length is None and recipe.system not in (*SELF_DECIDING, POPULARITY):
        return "its figures depend on how long rows are; pass row_length"
    # The epsilon of the same noise at the delta of the sweeps, which is at most the budget.
    converted = planned.epsilon(recipe.trust, stored["delta"])
    is_larger = planned.ledger.delta >= stored["delta"]
    equal = epsilon if is_larger else epsilon * min(1.0, converted / offer.epsilon)
    if recipe.trust == "aggregator":
        equal *= planned.central().epsilon(recipe.trust, stored["delta"]) / converted
        n_users -= math.ceil(offer.parameters["dropout_fraction"] * n_users)
    cells: list[tuple[Row, Row | None]] = []  # the best cell of each nearest setting, with popularity there
    for items, length in itertools.product(around(rows, "n_items", n_items), around(rows, "row_length", row_length)):
        here = [row for row in rows if row["n_items"] == items and row["row_length"] == length]
        known = [row for row in rows_below(here, n_users, equal) if row["system"] == recipe.system]
        pairs: list[tuple[Row, Row | None]]
        if offer.is_popularity:
            pairs = [(row, None) for row in known]
        else:
            # A run that released popularity does not predict a run with pairs, which may be worse.
            beside = ((row, popularity_beside(here, row)) for row in known if not row["is_popularity"])
            pairs = [(row, rival) for row, rival in beside if rival is not None]
        if not pairs:
            return f"nothing was measured at {items:,} items with so few users and so small an epsilon"
        cells.append(max(pairs, key=lambda pair: _sure_gain(*pair)))
    row, rival = min(cells, key=lambda pair: _sure_gain(*pair))
    max_measured = max(known["n_users"] for known in rows if known["n_users"] <= n_users)
    few = f"{recipe.system}: measured with no more than {row['n_users']:,} users; with yours it may do better"
    gain, margin = (0.0, 0.0) if rival is None else _gain(row, rival)
    figures = replace(
        offer,
        expected=mean(row),
        popularity=None if rival is None else mean(row) - gain,
        gain=gain,
        margin=margin,
        measured_at=f"{row['n_users']:,} users x {row['n_items']:,} items, rows of {row['row_length']:g}, epsilon "
        f"{row['target']:g}",
        n_measured=row["n_users"],
        seconds=row["seconds"],
    )
    return figures, few if row["n_users"] < max_measured else None


def _gain(row: Row, rival: Row) -> tuple[float, float]:
    """Return the difference of a row from popularity, or from a random list if that is better, and its error."""
    return mean(row) - max(mean(rival), RANDOM), 2 * math.hypot(error(row), error(rival))


def _sure_gain(row: Row, rival: Row | None) -> float:
    """Return the gain that chance does not explain; for popularity itself its figure."""
    if rival is None:
        return mean(row)
    gain, margin = _gain(row, rival)
    return gain - margin
