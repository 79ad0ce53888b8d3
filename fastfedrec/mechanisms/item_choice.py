"""Private choice of items: from a public list by the exponential mechanism or noisy counts, else above a threshold."""

import decimal
from fractions import Fraction
from typing import Any

import numpy as np

from fastfedrec._kernels.mechanisms import item_choice as _kernel
from fastfedrec.accounting.events import CentralRelease
from fastfedrec.accounting.ledger import Ledger
from fastfedrec.core.check import check_epsilon, check_exact, check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.ids import column_array
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.pairs import in_order, sort_pairs
from fastfedrec.data.remote_users import RemoteUsers
from fastfedrec.mechanisms.exponential import ExponentialMechanism
from fastfedrec.mechanisms.noise.discrete_laplace import DiscreteLaplace

__all__ = ["CHOICES", "choose_items"]

_SUBSET, _NOISE = "item_choice.subset", "item_choice.noise"
_DIGITS = decimal.Context(prec=60)
_MARGIN = decimal.Decimal(10) ** -40  # relative; far above what is lost in 60 digits


#: Names of the releases, by which a fit knows that its ledger has them.
CHOICES = ("exponential mechanism on item counts", "item counts above a threshold", "largest noisy item counts")


def choose_items(
    interactions: InteractionsLike,
    n: int,
    epsilon: float,
    *,
    delta: float | None = None,
    max_items_per_user: int = 10,
    key: Key | None = None,
    ledger: Ledger | None = None,
) -> Interactions:
    """Keep `n` items that many users have, chosen under differential privacy.

    **Guarantee.** Which items are kept is `epsilon`-differentially private where the list of items is public, and
    (`epsilon`, `delta`)-differentially private where it was taken from the data, for adding or removing one user
    ("add_remove", privacy unit "user"), against everyone who sees the items; the server that counts is trusted
    ("central").  The interactions that are returned are the users' own, of the items that were chosen.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or frame
        Each stored interaction is one user's vote for an item.  With a public list of items (`Interactions.catalogue`
        is "public"), `n` of all of it are chosen.  With one taken from the data, nothing may be shown that one user
        alone can put there: an item is kept only if its noisy count reaches a threshold.
    n : int
        At least 1.  With a list taken from the data at most so many are kept, perhaps none.
    epsilon : float
        Of the whole choice, in nats.
    delta : float or None
        In (0, 1): needed where the list of items was taken from the data, and not used where it is public.
    max_items_per_user : int
        How many of its items, drawn uniformly, a user is counted with where the list was taken from the data, or where
        more than so many are chosen from a public one; noise and threshold are proportional to it.  A public number,
        never taken from the data.
    key : Key or None
        Source of the draws; None draws a new one from entropy.  An entropy key serves one call.
    ledger : fastfedrec.accounting.Ledger or None
        Takes the event, before anything is drawn; pass the same one to `fit`.

    Returns
    -------
    Interactions
        All users, also those left without an interaction; `catalogue` is "chosen".  Items stand in the order of a
        public list, else in ascending order, so that it tells nothing.

    Raises
    ------
    TypeError
        Users whose rows are not here, as an engine's server knows them.
    ValueError
        No `delta` for a list taken from the data, a list that was chosen by exact counts before (`top_items`), or one
        that `choose_items` chose and whose event the ledger does not hold.

    Notes
    -----
    Of a public list, `n` up to `max_items_per_user` items are those of the exact `ExponentialMechanism`, whose scores
    one user changes by at most 1, all in one direction, and whose noise grows with `n`; more are those with the largest
    noisy counts, whose noise grows with `max_items_per_user`.  See docs/explanation/mechanisms/item-choice.md.

    References
    ----------
    .. [1] Korolova, Kenthapadi, Mishra, Ntoulas, "Releasing search queries and clicks privately", WWW 2009.
    .. [2] Desfontaines, Voss, Gipson, Mandayam, "Differentially private partition selection", PoPETs 2022.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key, choose_items
    >>> from fastfedrec.accounting import Ledger
    >>> users = [u for u in range(300) for _ in range(2)]
    >>> items = [item for u in range(300) for item in ("tea", f"note of {u}")]
    >>> ledger = Ledger(delta=1e-5)
    >>> chosen = choose_items(
    ...     Interactions.from_arrays(users, items), 5, 1.0, delta=1e-6, max_items_per_user=2, key=Key.from_seed(1),
    ...     ledger=ledger,
    ... )
    >>> chosen.item_ids.tolist(), chosen.catalogue, round(ledger.epsilon("public"), 2)
    (['tea'], 'chosen', 2.0)
    """
    interactions = as_interactions("interactions", interactions, is_private=True)
    if isinstance(interactions, RemoteUsers):
        raise TypeError(
            "interactions must hold the users' rows, got RemoteUsers, whose rows are elsewhere: their counts would be "
            "0; choose where the rows are, or give the engine a public list"
        )
    n, epsilon = check_integer("n", n, low=1), check_epsilon("epsilon", epsilon)
    most = check_integer("max_items_per_user", max_items_per_user, low=1, high=2**31 - 1)
    if delta is not None:
        delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    ledger = Ledger() if ledger is None else check_instance("ledger", ledger, Ledger, "pass a model's ledger_")
    if interactions.catalogue == "counts":
        raise ValueError(
            "interactions must have a list of items that is public or all of the data's, got one that was chosen by "
            "exact counts (top_items, filter_core), which no later choice makes private; choose from the data"
        )
    if interactions.catalogue == "chosen" and not any(event.mechanism in CHOICES for event in ledger.events):
        raise ValueError(
            "ledger must hold the choice that made the list of items of interactions, which is not public, got one "
            "without it; pass the same ledger= to every choice, and to fit"
        )
    key = resolve_key(key)
    if interactions.catalogue == "data":
        if delta is None:
            raise ValueError(
                "delta must be given where the list of items was taken from the data, got None; pass one, such as "
                "1e-6, or give a public list when the interactions are built (item_ids=)"
            )
        key.claim("choose_items")
        return _above_threshold(interactions, n, epsilon, delta, most, key, ledger)
    if n >= interactions.n_items:
        return interactions  # a public list as it is: nothing was chosen
    if n > most:
        key.claim("choose_items")
        return _largest_noisy(interactions, n, epsilon, most, key, ledger)
    mechanism = ExponentialMechanism(epsilon, n_selected=n, monotone=True)
    key.claim("choose_items")
    ledger.record(
        CentralRelease(CHOICES[0], mechanism.epsilon, neighboring="add_remove", n_choices=n),
        simulation=key.is_simulation,
    )
    columns = mechanism._peel(interactions.interactions_per_item(), key, 0)
    return interactions.select_items(columns)._replace(catalogue="chosen")


def threshold(scale: Fraction, delta: Fraction) -> int:
    """The noisy count that an item of a single user reaches with probability at most `delta`.

    Parameters
    ----------
    scale : Fraction
        Of the discrete Laplace noise, greater than 0.
    delta : Fraction
        In (0, 1).

    Returns
    -------
    int
        At least 2: 1 + the least k >= 1 with q^k / (1 + q) <= `delta`, q = exp(-1 / scale), or the next, for it is
        rounded up.
    """
    scale = check_exact("scale", scale, low=0, exclusive=True)
    delta = check_exact("delta", delta, low=0, high=1, exclusive=True)
    with decimal.localcontext(_DIGITS):
        wide = decimal.Decimal(scale.numerator) / scale.denominator
        rate = (-1 / wide).exp()
        depth = wide * ((decimal.Decimal(delta.denominator) / delta.numerator).ln() - (1 + rate).ln())
        depth += abs(depth) * _MARGIN + _MARGIN
        return 1 + max(1, int(depth.to_integral_value(decimal.ROUND_CEILING)))


def _above_threshold(
    data: Interactions, n: int, epsilon: float, delta: float, most: int, key: Key, ledger: Ledger
) -> Interactions:
    noise = DiscreteLaplace(Fraction(most) / Fraction(epsilon))
    lowest = threshold(noise.scale, Fraction(delta) / most)
    ledger.record(
        CentralRelease(CHOICES[1], noise.epsilon(most), delta=delta, neighboring="add_remove"),
        simulation=key.is_simulation,
    )
    counts = np.zeros(data.n_items, dtype=np.int64)
    _kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET), most)
    there = np.flatnonzero(counts)  # an item that nobody is counted with is as one that does not exist
    noisy = counts[there] + noise.sample(len(there), key=key, purpose=_NOISE)
    # What follows looks at items above the threshold alone.  The order of the columns may come from the data, so they
    # are put in the order of their names, and of equal noisy counts the first by name is the better.
    above = noisy >= lowest
    columns, noisy = there[above], noisy[above]
    by_name = _order_of(data.item_ids[columns])
    columns, noisy = columns[by_name], noisy[by_name]
    best = np.argsort(-noisy, kind="stable")[:n]
    return _take(data, columns[np.sort(best)])


def _largest_noisy(data: Interactions, n: int, epsilon: float, most: int, key: Key, ledger: Ledger) -> Interactions:
    noise = DiscreteLaplace(Fraction(most) / Fraction(epsilon))
    ledger.record(
        CentralRelease(CHOICES[2], noise.epsilon(most), neighboring="add_remove"), simulation=key.is_simulation
    )
    counts = np.zeros(data.n_items, dtype=np.int64)
    _kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET), most)
    noisy = noise.add_noise(counts, key=key, purpose=_NOISE)  # of all items, also of those that nobody has
    columns = np.argsort(-noisy, kind="stable")[:n]  # ties go by the public list
    return data.select_items(columns)._replace(catalogue="chosen")


def _order_of(ids: np.ndarray) -> np.ndarray:
    """Places of ids in an order that depends on nothing but these ids."""
    names = list(ids) if ids.dtype.kind in "Mm" else ids.tolist()
    try:
        order = sorted(range(len(names)), key=names.__getitem__)
    except TypeError:  # of several types
        order = sorted(range(len(names)), key=lambda k: (type(names[k]).__name__, repr(names[k])))
    return np.array(order, dtype=np.int64)


def _take(data: Interactions, columns: np.ndarray) -> Interactions:
    """These items in this order, in arrays that tell nothing of the others: not even how long the longest id was."""
    places = np.full(data.n_items, -1, dtype=np.int32)
    places[columns] = np.arange(len(columns), dtype=np.int32)
    kept = data._keep(places[data.indices] >= 0)
    users = np.repeat(np.arange(data.n_users), kept.interactions_per_user())
    indptr, order = sort_pairs(users, places[kept.indices], data.n_users, len(columns))
    changes: dict[str, Any] = {"indptr": indptr, "indices": places[kept.indices]}
    if order is not None:
        for name in ("indices", "values", "timestamps"):
            column = changes.get(name, getattr(kept, name))
            changes[name] = None if column is None else in_order(column, order)
    if kept._repeats is not None:
        changes["repeats"] = kept._repeats if order is None else kept._repeats.select(order, kept.n_interactions)
    features = {name: _narrow(name, column[columns]) for name, column in data.item_features.items()}
    return kept._replace(
        **changes, item_ids=_narrow("item_ids", data.item_ids[columns]), item_features=features, catalogue="chosen"
    )


def _narrow(name: str, column: np.ndarray) -> np.ndarray:
    return column if column.dtype.kind in "Mm" else column_array(name, column.tolist())
