"""Advice: which system, at which setting, for so many users and items, one budget and one trust model.

The accountants choose the setting for the numbers asked about, so that its guarantee holds; what it is worth is read
from sweeps of generated data that come with the package, always at settings that are no easier.  `PrivateRecommender`
goes by it.
"""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.core.check import check_choice, check_epsilon, check_flag, check_integer, check_real
from fastfedrec.systems.private_recommender._measured import (
    RANDOM,
    Row,
    above,
    around,
    best_below,
    error,
    mean,
    range_of,
    stored_sweeps,
    without_privacy,
)
from fastfedrec.systems.private_recommender._rule import GATED, RULES, at_random, by_rule, in_order, without_figures
from fastfedrec.systems.private_recommender._with_features import with_features
from fastfedrec.systems.private_recommender.advice import Advice, Offer
from fastfedrec.systems.private_recommender.recipes import POPULARITY, RECIPES, Recipe, calibrated, most_users

__all__ = ["Advice", "Offer", "advise", "stored_sweeps"]

MOST_EPSILON = 1e6  # nobody is promised anything by it


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
        Items of a user, on average; longer rows than were measured take the longest.  None takes the worse of what was
        measured, and only systems whose gates look at the rows themselves, as rows may be shorter than any measured.
    item_features : bool
        Whether something is publicly known of the items, for systems that take it; whatever it is, it counts alike.
    measured : str, Path or None
        Another file of sweeps, written by ``fastfedrec sweep --advice``.

    Returns
    -------
    Advice
        With what was weighed.

    Notes
    -----
    With fewer users, a smaller epsilon, shorter rows or another number of items than was measured, and where a gate is
    open that was closed there, the answer is by a rule: with n_users mu / sqrt(n_items) times the length of rows,
    DPSubspace from 2,200 (where it is not told, 1,500 with 30), DPGram from 8,000 and below (with more than 3,000 items
    DPSubspace), whose gates look at the rows themselves; ShuffledSketchGram behind a shuffler, whose gate does so, too;
    and popularity elsewhere.  Then there are no figures, and the first remark says so.

    A system's figure is the least of those measured with the numbers of items (and lengths of rows) next below and
    above, with no more users and no larger epsilon, at delta 1e-6; where `delta` is less, the accountants say which
    epsilon the same noise has at 1e-6.  It is compared with the best private popularity measured around the question.

    Examples
    --------
    >>> from fastfedrec.systems.private_recommender.choice import advise
    >>> answer = advise(20_000, 500, epsilon=2.0, trust="central", row_length=30)
    >>> answer.best.system, answer.best.epsilon <= 2.0
    ('DPGram', True)
    >>> advise(2_000, 1_000, epsilon=1.0, trust="local").popularity_is_as_good
    True
    """
    n_users, n_items = check_integer("n_users", n_users, low=1), check_integer("n_items", n_items, low=1)
    epsilon = check_real("epsilon", check_epsilon("epsilon", epsilon), high=MOST_EPSILON)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    if row_length is not None:
        row_length = check_real("row_length", row_length, low=0.0, exclusive=True)
    check_choice("trust", trust, tuple(TRUST_VIEWS))
    is_featured = check_flag("item_features", item_features)
    advice = _answer(n_users, n_items, epsilon, trust, delta, row_length, measured)
    return with_features(advice, row_length) if is_featured else advice


def _answer(
    n_users: int,
    n_items: int,
    epsilon: float,
    trust: str,
    delta: float,
    row_length: float | None,
    measured: str | Path | None,
) -> Advice:
    """The answer where nothing is known of the items."""
    stored = stored_sweeps() if measured is None else json.loads(Path(measured).read_text())
    rows = [row for row in stored["rows"] if row["trust"] == trust]
    asked = n_users, n_items, epsilon, delta, trust
    if unknown := _not_measured(rows, row_length, n_users=n_users, n_items=n_items, epsilon=epsilon):
        return _ruled(asked, row_length, unknown)
    remarks, near_length = _beyond(rows, row_length, n_users=n_users, epsilon=epsilon)
    offers: list[Offer] = []
    popularities = [at_random()]
    known = {row["system"] for row in rows}
    for recipe in (recipe for recipe in RECIPES if recipe.trust == trust):
        if recipe.system not in known:
            remarks.append(f"{recipe.system}: it was not measured")
            continue
        if row_length is None and recipe.system not in (*GATED, POPULARITY):
            remarks.append(f"{recipe.system}: nothing in it looks at how long rows are; pass row_length")
            continue
        found = _offer(recipe, rows, n_users, n_items, near_length, epsilon, delta, stored["delta"])
        if isinstance(found, str):
            if recipe.system in GATED and (planned := calibrated(recipe, epsilon, delta, n_users, n_items)):
                if not planned[1].is_popularity:  # the best there is, perhaps: what has figures is no answer then
                    return _ruled(asked, row_length, [f"{recipe.system}: {found}"])
                popularities.append(without_figures(recipe, *planned, delta))
            remarks.append(f"{recipe.system}: {found}")
            continue
        (popularities if found.is_popularity else offers).append(found)
        if found.n_measured is not None and found.n_measured < max(
            row["n_users"] for row in rows if row["n_users"] <= n_users
        ):
            few = f"measured with no more than {found.n_measured:,} users; with yours it may do better"
            remarks.append(f"{found.system}: {few}")
    remarks += without_privacy(stored["rows"], n_items, near_length)
    return Advice(
        *asked, tuple(sorted(offers, key=lambda offer: -(offer.gain or 0.0))),
        tuple(in_order(popularities, trust, n_users, n_items)),
        tuple(remarks), f"Measured on {stored['source']}, {stored['code']}, {stored['machine']}, "
        f"{stored['n_threads']} thread(s)",
    )  # fmt: skip


def _ruled(asked: tuple[int, int, float, float, str], row_length: float | None, unknown: Sequence[str]) -> Advice:
    """The answer without sweeps."""
    n_users, n_items, epsilon, delta, trust = asked
    offers, popularities = by_rule(trust, epsilon, delta, n_users, n_items, row_length)
    full = [f"{r.system}: {_no_room(r.system)}" for r in RECIPES if r.trust == trust and n_users > most_users(r.system)]
    remarks = RULES[trust], *unknown, *full
    return Advice(*asked, tuple(offers), tuple(popularities), remarks, "Nothing was measured there")


def _no_room(system: str) -> str:
    return f"its sums have room for {most_users(system):,.0f} users at most"


def _not_measured(rows: Sequence[Row], row_length: float | None, **asked: float) -> list[str]:
    """What lies where no setting that is no easier was measured, and nothing can be read from sweeps."""
    told = []
    if row_length is not None and row_length < (least := range_of(rows, "row_length")[0]):
        told.append(f"row_length {_number(row_length)} lies below {_number(least)}, and shorter rows tell less")
    for name, value in asked.items():
        least, most = range_of(rows, name)
        if value < least or (value > most and name == "n_items"):  # which need not get better with more
            told.append(
                f"{name} {_number(value)} lies outside {_number(least)} to {_number(most)}, where there are sweeps; "
                "run your own: fastfedrec sweep --users N --items M"
            )
    return told


def _beyond(rows: Sequence[Row], row_length: float | None, **asked: float) -> tuple[list[str], float | None]:
    """What lies beyond all that was measured, and whose figures stand for it; the length of rows that is looked up."""
    remarks = []
    for name, value in asked.items():
        _, most = range_of(rows, name)
        if value > most:
            remarks.append(
                f"{name} {_number(value)} lies beyond what was measured; the figures are those of {_number(most)}"
            )
    if row_length is not None:
        least, most = range_of(rows, "row_length")
        nearest = min(max(row_length, least), most)
        if nearest != row_length:
            remarks.append(
                f"row_length {_number(row_length)} lies beyond what was measured; the figures are those of "
                f"{_number(nearest)}, and no promise"
            )
        row_length = nearest
    return remarks, row_length


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _offer(
    recipe: Recipe,
    rows: Sequence[Row],
    n_users: int,
    n_items: int,
    row_length: float | None,
    epsilon: float,
    delta: float,
    stored_delta: float,
) -> Offer | str:
    """What a system is worth, or why that is not known."""
    if n_users > most_users(recipe.system):
        return _no_room(recipe.system)
    chosen = calibrated(recipe, epsilon, delta, n_users, n_items)
    if chosen is None:
        return f"no setting costs as little as epsilon {epsilon:g}"
    parameters, planned = chosen
    offer = without_figures(recipe, parameters, planned, delta)
    # The same noise at the delta of the sweeps: no more than what was asked for.
    less = planned.ledger.epsilon(TRUST_VIEWS[recipe.trust], stored_delta)
    equal = epsilon if delta >= stored_delta else epsilon * min(1.0, less / offer.epsilon)
    near: list[tuple[Row, float, float]] = []
    for items, length in itertools.product(around(rows, "n_items", n_items), around(rows, "row_length", row_length)):
        here = [row for row in rows if row["n_items"] == items and row["row_length"] == length]
        # What a closed gate gave says nothing of an open one, which may give less.
        known = here if offer.is_popularity else [row for row in here if not row["is_popularity"]]
        row = best_below(known, recipe.system, n_users, equal)
        if row is None:
            return f"nothing was measured at {items:,} items with so few users and so small an epsilon"
        if offer.is_popularity:
            near.append((row, 0.0, 0.0))
            continue
        # Popularity may have more users, and epsilon, than was asked about: it is not to look worse than it is.
        rival = best_below(here, None, above(rows, "n_users", n_users), above(rows, "target", epsilon))
        near.append((row, mean(row) - max(mean(rival), RANDOM), 2 * math.hypot(error(row), error(rival))))
    # Where the gain is least beside what chance explains.
    _, gain, margin = min(near, key=lambda entry: entry[1] - entry[2])
    measured = [row for row, _, _ in near]
    return replace(
        offer,
        expected=min(map(mean, measured)),
        gain=gain,
        margin=margin,
        measured_at=tuple(
            f"{row['n_users']:,} users x {row['n_items']:,} items, rows of {row['row_length']:g}, epsilon "
            f"{row['target']:g}: {mean(row):.3f}"
            for row in measured
        ),
        n_measured=min(row["n_users"] for row in measured),
        seconds=max(row["seconds"] for row in measured),
    )
