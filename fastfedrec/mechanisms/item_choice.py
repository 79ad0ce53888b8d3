"""Private choice of items, by the exponential mechanism or by noisy item counts."""

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
_MARGIN = decimal.Decimal(10) ** -40  # relative; far above the rounding errors of 60 digits


#: Names of the releases.  `fit` looks for them in its ledger.
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
    ("central").  The returned interactions are the users' own interactions with the chosen items.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or frame
        Each stored interaction is one user's vote for an item.  With a public list of items (`Interactions.catalogue`
        is "public"), `n` of its items are chosen.  With a list taken from the data, an item is kept only if its noisy
        count reaches a threshold.  An item that a single user has would reveal that user otherwise.
    n : int
        Number of items to choose, at least 1.  With a list taken from the data, fewer items or none may be kept.
    epsilon : float
        Epsilon of the whole choice, in nats.
    delta : float or None
        In (0, 1).  It is required where the list of items was taken from the data, and not used where it is public.
    max_items_per_user : int
        Maximum number of a user's items that are counted, drawn uniformly.  It applies to a list taken from the data,
        and to a public list if `n` is larger.  Noise and threshold are proportional to it.  A public number, never
        taken from the data.
    key : Key or None
        Source of the draws; None draws a new key from entropy.  An entropy key serves one call.
    ledger : fastfedrec.accounting.Ledger or None
        Ledger that records the event, before anything is drawn; pass the same ledger to `fit`.

    Returns
    -------
    Interactions
        All users, also users without a remaining interaction; `catalogue` is "chosen".  Items have the order of a
        public list, else ascending order, so that the order depends on the chosen items alone.

    Raises
    ------
    TypeError
        The interactions hold no rows, as the `RemoteUsers` of an engine's server.
    ValueError
        `delta` is missing for a list taken from the data, the list was chosen by exact counts (`top_items`), or the
        ledger lacks the event of an earlier `choose_items`.

    Notes
    -----
    From a public list, the exact `ExponentialMechanism` chooses up to `max_items_per_user` items.  One user changes its
    scores by at most 1, all in one direction, and its noise grows with `n`.  For a larger `n` the items with the
    largest noisy counts are chosen; that noise grows with `max_items_per_user`.  See
    docs/explanation/mechanisms/item-choice.md.

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
            "interactions must hold the users' rows, got RemoteUsers, which hold none, so that all counts would be 0; "
            "choose the items where the rows are, or give the engine a public list"
        )
    n, epsilon = check_integer("n", n, low=1), check_epsilon("epsilon", epsilon)
    max_items = check_integer("max_items_per_user", max_items_per_user, low=1, high=2**31 - 1)
    if delta is not None:
        delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    remedy = "pass a model's ledger_, or read a file by Ledger.from_json"
    ledger = Ledger() if ledger is None else check_instance("ledger", ledger, Ledger, remedy)
    if interactions.catalogue == "counts":
        raise ValueError(
            "interactions must have a list of items that is public or all of the data's, got one that was chosen by "
            "exact counts (top_items, filter_core), which no later choice makes private; choose from all items"
        )
    if interactions.catalogue == "chosen" and not any(event.mechanism in CHOICES for event in ledger.events):
        raise ValueError(
            "ledger must hold the choice that made the list of items of interactions, which is not public, got one "
            "without it; pass the same ledger= to every choice, and to fit"
        )
    key = resolve_key(key)
    # A list from the data is private, so only a threshold may release its items; a public list needs no delta.
    if interactions.catalogue == "data":
        if delta is None:
            raise ValueError(
                "delta must be given where the list of items was taken from the data, got None; pass one, such as "
                "1e-6, or give a public list when the interactions are built (item_ids=)"
            )
        key.claim("choose_items")
        return _above_threshold(interactions, n, epsilon, delta, max_items, key, ledger)
    if n >= interactions.n_items:
        return interactions  # the whole public list, which is no choice and costs 0
    if n > max_items:
        key.claim("choose_items")
        return _largest_noisy(interactions, n, epsilon, max_items, key, ledger)
    # One user adds at most 1 to each count and lowers none, so that the scores are monotone.
    mechanism = ExponentialMechanism(epsilon, n_selected=n, monotone=True)
    key.claim("choose_items")
    ledger.record(
        CentralRelease(CHOICES[0], mechanism.epsilon, neighboring="add_remove", n_choices=n),
        simulation=key.is_simulation,
    )
    columns = mechanism._peel(interactions.interactions_per_item(), key, 0)
    return interactions.select_items(columns)._replace(catalogue="chosen")


def count_threshold(scale: Fraction, delta: Fraction) -> int:
    """Return the noisy count that an item of a single user reaches with probability at most `delta`.

    Parameters
    ----------
    scale : Fraction
        Scale of the discrete Laplace noise, greater than 0.
    delta : Fraction
        Probability in (0, 1).

    Returns
    -------
    int
        At least 2: 1 + the smallest k >= 1 with q^k / (1 + q) <= `delta`, where q = exp(-1 / scale).  Rounding up may
        make it larger by 1.
    """
    scale = check_exact("scale", scale, low=0, exclusive=True)
    delta = check_exact("delta", delta, low=0, high=1, exclusive=True)
    with decimal.localcontext(_DIGITS):
        decimal_scale = decimal.Decimal(scale.numerator) / scale.denominator
        rate = (-1 / decimal_scale).exp()  # q
        # P(1 + noise >= 1 + k) = q^k / (1 + q), solved for k and moved up by more than all rounding errors.
        depth = decimal_scale * ((decimal.Decimal(delta.denominator) / delta.numerator).ln() - (1 + rate).ln())
        depth += abs(depth) * _MARGIN + _MARGIN
        return 1 + max(1, int(depth.to_integral_value(decimal.ROUND_CEILING)))


def _above_threshold(
    data: Interactions, n: int, epsilon: float, delta: float, max_items: int, key: Key, ledger: Ledger
) -> Interactions:
    # One user changes at most `max_items` counts, each by at most 1, and delta is split evenly among them.
    noise = DiscreteLaplace(Fraction(max_items) / Fraction(epsilon))
    min_count = count_threshold(noise.scale, Fraction(delta) / max_items)
    ledger.record(
        CentralRelease(CHOICES[1], noise.epsilon(max_items), delta=delta, neighboring="add_remove"),
        simulation=key.is_simulation,
    )
    counts = np.zeros(data.n_items, dtype=np.int64)
    _kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET), max_items)
    counted = np.flatnonzero(counts)  # an item with a count of 0 is treated as an item that does not exist
    noisy = counts[counted] + noise.sample(len(counted), key=key, purpose=_NOISE)
    # The steps below read items above the threshold alone.  The order of the columns may come from the data, so columns
    # are sorted by their names, and the first name wins among equal noisy counts.
    is_above = noisy >= min_count
    columns, noisy = counted[is_above], noisy[is_above]
    by_name = _sort_order(data.item_ids[columns])
    columns, noisy = columns[by_name], noisy[by_name]
    best = np.argsort(-noisy, kind="stable")[:n]
    return _take(data, columns[np.sort(best)])


def _largest_noisy(
    data: Interactions, n: int, epsilon: float, max_items: int, key: Key, ledger: Ledger
) -> Interactions:
    noise = DiscreteLaplace(Fraction(max_items) / Fraction(epsilon))
    ledger.record(
        CentralRelease(CHOICES[2], noise.epsilon(max_items), neighboring="add_remove"), simulation=key.is_simulation
    )
    counts = np.zeros(data.n_items, dtype=np.int64)
    _kernel.contributed_counts(data.indptr, data.indices, data.global_user_ids, counts, key.subkey(_SUBSET), max_items)
    # Items without users get noise too: their absence from the draws would reveal a count of 0.
    noisy = noise.add_noise(counts, key=key, purpose=_NOISE)
    columns = np.argsort(-noisy, kind="stable")[:n]  # among equal counts the first of the public list wins
    return data.select_items(columns)._replace(catalogue="chosen")


def _sort_order(ids: np.ndarray) -> np.ndarray:
    """Return the positions that sort ids, in an order that depends on these ids alone."""
    names = list(ids) if ids.dtype.kind in "Mm" else ids.tolist()
    try:
        order = sorted(range(len(names)), key=names.__getitem__)
    except TypeError:  # ids of several types do not compare
        order = sorted(range(len(names)), key=lambda k: (type(names[k]).__name__, repr(names[k])))
    return np.array(order, dtype=np.int64)


def _take(data: Interactions, columns: np.ndarray) -> Interactions:
    """Return the data of these items in this order, in new arrays that do not depend on the other items."""
    # An item that is not chosen has the new column -1.
    new_columns = np.full(data.n_items, -1, dtype=np.int32)
    new_columns[columns] = np.arange(len(columns), dtype=np.int32)
    chosen = data._keep(new_columns[data.indices] >= 0)
    users = np.repeat(np.arange(data.n_users), chosen.interactions_per_user())
    indptr, order = sort_pairs(users, new_columns[chosen.indices], data.n_users, len(columns))
    changes: dict[str, Any] = {"indptr": indptr, "indices": new_columns[chosen.indices]}
    if order is not None:
        for name in ("indices", "values", "timestamps"):
            column = changes.get(name, getattr(chosen, name))
            changes[name] = None if column is None else in_order(column, order)
    if chosen._repeats is not None:
        changes["repeats"] = chosen._repeats if order is None else chosen._repeats.select(order, chosen.n_interactions)
    # A string type of NumPy has the length of the longest id, which may be the id of an item that was not chosen.
    features = {name: _narrow(name, column[columns]) for name, column in data.item_features.items()}
    return chosen._replace(
        **changes, item_ids=_narrow("item_ids", data.item_ids[columns]), item_features=features, catalogue="chosen"
    )


def _narrow(name: str, column: np.ndarray) -> np.ndarray:
    return column if column.dtype.kind in "Mm" else column_array(name, column.tolist())
