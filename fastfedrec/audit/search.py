"""Search for the pair of neighbouring inputs that costs most, among stated pairs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastfedrec.audit.bounds import AuditResult, _check_claim, _ClaimTest, audit
from fastfedrec.core.check import check_choice, check_flag
from fastfedrec.core.numbers import show
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.channels.channel import Channel

__all__ = ["WorstPair", "list_neighbours", "search_pairs"]

# Minimum number of draws that compare one pair with the others.
_MIN_PILOT = 500


@dataclass(frozen=True)
class WorstPair:
    """Pair of inputs with the highest lower bound, and its audit.

    Parameters
    ----------
    x0, x1 : object
        The two inputs.
    result : AuditResult
        Audit of these inputs, at a level that allows for the choice among all pairs.
    n_pairs : int
        Number of pairs that were searched.

    Examples
    --------
    >>> from fastfedrec.audit import search_pairs
    >>> from fastfedrec.mechanisms import GRR
    >>> pair = search_pairs(GRR(1.0, 3).channel(), [(0, 0), (0, 1)], claim=0.9)
    >>> pair.x0, pair.x1, pair.verdict
    (0, 1, 'violated')
    """

    x0: Any
    x1: Any
    result: AuditResult
    n_pairs: int

    @property
    def verdict(self) -> str:
        """Verdict of the audit: "violated" or "consistent".

        Returns
        -------
        str
            Verdict of `result`.
        """
        return self.result.verdict

    def __str__(self) -> str:
        return f"{self.result}\ninputs: {self.x0!r} and {self.x1!r}, the worst of {self.n_pairs:,} pairs"


def list_neighbours(data: Any, relation: str, values: Iterable[Any] = ()) -> list[tuple[Any, Any]]:
    """Return all pairs of a data set and its neighbours.

    Parameters
    ----------
    data : list, tuple or array
        Data set with one entry or row for each person.
    relation : str
        Relation of neighbours, with the names of the ledger's events: "replace", "add_remove" or "zero_out" (a
        person's data become zeros, and the person still counts).
    values : iterable
        Entries or rows that a person may have, for "replace" and "add_remove".

    Returns
    -------
    list of tuple of two data sets
        Pairs ``(data, neighbour)``, of the type of `data`.

    Raises
    ------
    TypeError
        `data` or `values` is of another kind.
    ValueError
        The relation is unknown or needs `values`, or an array cannot hold a value exactly.

    Examples
    --------
    >>> from fastfedrec.audit import list_neighbours
    >>> list_neighbours([0, 2], "replace", values=[0, 1])
    [([0, 2], [1, 2]), ([0, 2], [0, 0]), ([0, 2], [0, 1])]
    >>> list_neighbours([0, 2], "add_remove", values=[1])
    [([0, 2], [2]), ([0, 2], [0]), ([0, 2], [0, 2, 1])]
    """
    check_choice("relation", relation, ("replace", "add_remove", "zero_out"))
    if not _is_list(data):
        remedy = "pass its rows in a list, or those of a frame as .to_numpy()"
        raise TypeError(f"data must be a list, a tuple or an array of rows, got {type(data).__name__}; {remedy}")
    # Iteration would yield letters, keys or names of columns.
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping) or hasattr(values, "to_numpy"):
        remedy = "pass a list of rows, or those of a frame as .to_numpy()"
        raise TypeError(f"values must be a list of entries or rows, got {type(values).__name__}; {remedy}")
    values, rows = list(values), list(data)
    if isinstance(data, np.ndarray):
        for value in values:
            _check_held(data, value)
    if relation == "replace" and not values:
        raise ValueError("values must not be empty for 'replace', got no value; pass the entries a person may have")
    if relation == "replace":
        changed = [
            [*rows[:i], value, *rows[i + 1 :]]
            for i, row in enumerate(rows)
            for value in values
            if not np.array_equal(row, value)
        ]
    elif relation == "zero_out":
        changed = [[*rows[:i], np.zeros_like(row)[()], *rows[i + 1 :]] for i, row in enumerate(rows) if np.any(row)]
    else:
        changed = [[*rows[:i], *rows[i + 1 :]] for i in range(len(rows))] + [[*rows, value] for value in values]
    return [(data, _as_type_of(data, some)) for some in changed]


def _check_held(data: np.ndarray, value: Any) -> None:
    """Raise an error unless the value is a row of the array's shape and type."""
    try:
        given, held = np.asarray(value), np.array(value, dtype=data.dtype)
        # Python's numbers are compared exactly; NaN differs from itself.
        pairs = zip(given.reshape(-1).tolist(), held.reshape(-1).tolist(), strict=True)
        if given.shape == data.shape[1:] and all(a == b or (a != a and b != b) for a, b in pairs):
            return
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(
        f"values must be entries of shape {data.shape[1:]} that {data.dtype} holds exactly, as data, got "
        f"{show(value)}; convert data with .astype, or pass other values"
    )


def _is_list(value: Any) -> bool:
    """Return whether a value is a list, a tuple or an array of at least one dimension without a mask."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and not isinstance(value, np.ma.MaskedArray)
    return isinstance(value, list | tuple)


def check_pairs(pairs: Any) -> list[tuple[Any, Any]]:
    """Return pairs of inputs as a list, or raise an error that shows the first other entry.

    Parameters
    ----------
    pairs : iterable of pairs
        Lists, tuples or arrays ``(x0, x1)``; an iterator is read to its end.

    Returns
    -------
    list of tuple of two objects
        The pairs, at least one.

    Raises
    ------
    TypeError
        `pairs` is not iterable.
    ValueError
        There is no pair, or an entry is no pair.
    """
    if not isinstance(pairs, Iterable):
        raise TypeError(f"pairs must be a list of pairs (x0, x1), got {show(pairs)} ({type(pairs).__name__})")
    stated = list(pairs)
    others = [pair for pair in stated if not _is_list(pair) or len(pair) != 2]
    if not stated or others:
        got = show(others[0]) if others else "no entries"
        raise ValueError(f"pairs must have at least one pair (x0, x1), and no other entries, got {got}")
    return [(x0, x1) for x0, x1 in stated]


def _as_type_of(data: Any, rows: list[Any]) -> Any:
    """Return rows as an array, a tuple or a list, as the data are."""
    if isinstance(data, np.ndarray):
        return np.array(rows, dtype=data.dtype).reshape(-1, *data.shape[1:])
    return tuple(rows) if isinstance(data, tuple) else rows


def search_pairs(
    mechanism: Any,
    pairs: Iterable[Sequence[Any]],
    claim: float,
    n: int | None = None,
    alpha: float = 0.05,
    *,
    delta: float = 0.0,
    measure: str = "auto",
    key: Key | None = None,
    check_repeats: bool = True,
) -> WorstPair:
    """Search for the pair of inputs that refutes a privacy claim.

    Parameters
    ----------
    mechanism : Channel, mechanism or callable
        Mechanism to audit, as in `audit`.
    pairs : iterable of pairs
        Neighbouring inputs ``(x0, x1)``, such as those of `list_neighbours`.
    claim : float
        Claimed epsilon (or mu) of one output; at least 0.
    n : int or None
        Number of draws from each input of the worst pair, as in `audit`.  All other pairs together get about the same
        number, but each pair at least 500.
    alpha : float
        Maximum probability that a true claim gets the verdict "violated", for all pairs together; in (0, 0.25].
    delta, measure, key, check_repeats : object
        Further arguments of `audit`.

    Returns
    -------
    WorstPair
        The pair and its audit.

    Raises
    ------
    ValueError
        There is no pair, or a parameter is out of range.
    Exception
        The mechanism raises on every draw from both inputs of a pair; its own exception is raised.

    Notes
    -----
    Each of k pairs is audited with few draws at alpha / (2 k).  If the pair with the highest lower bound does not
    violate the claim, it is audited with `n` new draws at alpha / 2.  By the union bound, the probability of a false
    alarm is at most alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.audit import list_neighbours, search_pairs
    >>> rng = np.random.default_rng(1)
    >>> def count_twos(x, n):  # noise for one count, although a replaced row may change two of them
    ...     noise = rng.geometric(1 - np.exp(-1), (2, n, 2))
    ...     return [np.sum(x == 1), np.sum(x == 2)] + noise[0] - noise[1]
    >>> pairs = list_neighbours(np.array([0, 1, 1]), "replace", values=[0, 1, 2])
    >>> worst = search_pairs(count_twos, pairs, claim=1.0)
    >>> worst.verdict, sorted(worst.x1.tolist())
    ('violated', [0, 1, 2])
    """
    inputs = check_pairs(pairs)
    claim, n, alpha, delta = _check_claim(claim, n, alpha, delta, measure, key)
    if isinstance(mechanism, Channel):
        exact = [audit(mechanism, pair[0], pair[1], claim, delta=delta, measure=measure) for pair in inputs]
        i = max(range(len(inputs)), key=lambda i: exact[i].lower_bound)
        return WorstPair(*inputs[i], exact[i], len(inputs))
    repeats = check_flag("check_repeats", check_repeats)
    test = _ClaimTest.make(mechanism, claim, n, delta, measure, key, repeats)
    if len(inputs) == 1:
        return WorstPair(*inputs[0], test.run(inputs[0], test.n, alpha), 1)
    # Repeated bits show on any pair.
    pilot = replace(test, check_repeats=False)
    n_pilot = min(max(test.n // len(inputs), _MIN_PILOT), test.n)
    results = [pilot.run(pair, n_pilot, alpha / 2 / len(inputs)) for pair in inputs]
    i = max(range(len(inputs)), key=lambda i: results[i].lower_bound)
    result = results[i] if results[i].verdict == "violated" else test.run(inputs[i], test.n, alpha / 2)
    return WorstPair(*inputs[i], result, len(inputs))
