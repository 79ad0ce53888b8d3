"""Random data for the test suites of other projects: interactions, inputs of mechanisms, and neighbouring data sets.

The functions need hypothesis, which ``pip install 'fastfedrec[testing]'`` installs.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_choice, check_flag, check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["interactions", "mechanism_inputs", "neighbours", "shards"]

# Entries of vectors are multiples of the clip norm's power of two times 2^-20, so that their sums are exact.
_GRID_BITS = 20


def _strategies() -> Any:
    """Return hypothesis's strategies, or raise an ImportError with the extra to install."""
    try:
        from hypothesis import strategies
    except ImportError:
        raise ImportError("random data need hypothesis: pip install 'fastfedrec[testing]'") from None
    return strategies


def interactions(
    *, max_users: int = 12, max_items: int = 10, min_items: int = 1, with_values: bool = False
) -> "SearchStrategy[Interactions]":
    """Hypothesis strategy for small interactions.

    Parameters
    ----------
    max_users, max_items : int
        Maximum numbers of users and items.
    min_items : int
        Minimum number of items.
    with_values : bool
        True for ratings of 1 to 5 as values, False for values of 1.

    Returns
    -------
    SearchStrategy of Interactions
        Interactions, at least one of them; users and items may have none.

    Examples
    --------
    >>> from hypothesis import given
    >>> from fastfedrec.testing import interactions
    >>> @given(interactions())
    ... def test_every_interaction_has_a_user(data):
    ...     assert data.interactions_per_user().sum() == data.n_interactions > 0
    >>> test_every_interaction_has_a_user()
    """
    st = _strategies()
    from scipy.sparse import csr_array

    max_users, min_items = check_integer("max_users", max_users, low=1), check_integer("min_items", min_items, low=1)
    max_items = check_integer("max_items", max_items, low=min_items)

    @st.composite
    def build(draw):
        shape = draw(st.integers(1, max_users)), draw(st.integers(min_items, max_items))
        key, density = Key.from_seed(draw(st.integers(0, 2**32 - 1))), draw(st.sampled_from([0.1, 0.4, 0.9]))
        size = shape[0] * shape[1]
        filled = key.uniform("testing.interactions", size=size) < density
        filled[draw(st.integers(0, size - 1))] = True  # at least one interaction
        values = 1 + key.words("testing.values", size=size) % np.uint64(5) if with_values else 1
        return Interactions.from_scipy(csr_array((filled * values).astype(np.float32).reshape(shape)))

    return build()


def shards(*, max_shards: int = 4, **options: Any) -> "SearchStrategy[list[Interactions]]":
    """Hypothesis strategy for shards of interactions, as several machines hold them.

    Parameters
    ----------
    max_shards : int
        Maximum number of shards.
    **options : object
        Options of `interactions`.

    Returns
    -------
    SearchStrategy of list of Interactions
        Shards in the order of users, with the users' global ids.

    Examples
    --------
    >>> import numpy as np
    >>> from hypothesis import given
    >>> from fastfedrec.testing import shards
    >>> @given(shards())
    ... def test_users_keep_their_global_ids(parts):
    ...     users = np.concatenate([part.global_user_ids for part in parts])
    ...     assert users.tolist() == list(range(len(users)))
    >>> test_users_keep_their_global_ids()
    """
    st = _strategies()

    max_shards = check_integer("max_shards", max_shards, low=1)
    return st.builds(
        lambda data, n_shards: data.shard(min(n_shards, data.n_users)),
        interactions(**options),
        st.integers(1, max_shards),
    )


def mechanism_inputs(
    *, low: float = -1.0, high: float = 1.0, max_size: int = 50, with_non_finite: bool = False
) -> "SearchStrategy[NDArray[np.float64]]":
    """Hypothesis strategy for arrays that a randomizer of real numbers must accept.

    Parameters
    ----------
    low, high : float
        Stated range of inputs; its ends, 0 and the smallest doubles are drawn often.
    max_size : int
        Maximum number of values.
    with_non_finite : bool
        True to draw NaN, infinities and values out of range as well.

    Returns
    -------
    SearchStrategy of ndarray of float64
        Arrays of one or two dimensions, possibly empty, strided or read-only.

    Examples
    --------
    >>> from hypothesis import given
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import Piecewise
    >>> from fastfedrec.testing import mechanism_inputs
    >>> mechanism = Piecewise(1.0)
    >>> @given(mechanism_inputs(with_non_finite=True))
    ... def test_every_value_is_answered(values):
    ...     assert mechanism.privatize(values, key=Key.from_seed(1)).shape == values.shape
    >>> test_every_value_is_answered()
    """
    st = _strategies()

    low = check_real("low", low)
    high = check_real("high", high, low=low)
    max_size = check_integer("max_size", max_size, low=0)
    ends = {low, high, math.nextafter(low, high), math.nextafter(high, low)}
    numbers = st.floats(low, high) | st.sampled_from(
        sorted(ends | {v for v in (0.0, 5e-324, -5e-324) if low <= v <= high})
    )
    if with_non_finite:
        numbers |= st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, -0.0])

    # Randomizers must copy or accept every memory layout, so all of them are drawn.
    def lay_out(values: list[float], layout: str) -> np.ndarray:
        array = np.array(values, dtype=np.float64)
        if layout == "rows":
            return array[: len(values) // 2 * 2].reshape(2, -1)
        if layout == "strided":
            return np.repeat(array, 2)[::2]
        if layout == "read-only":
            array.flags.writeable = False
        return array

    return st.builds(
        lay_out,
        st.lists(numbers, max_size=max_size),
        st.sampled_from(["plain", "rows", "strided", "read-only"]),
    )


# ---- neighbouring data sets ----------------------------------------------------------------------------------------


def neighbours(
    kind: str = "rows",
    relation: str = "replace",
    *,
    max_size: int = 6,
    n_columns: int = 1,
    low: float = 0.0,
    high: float = 1.0,
    max_count: int = 20,
    clip_norm: float = 1.0,
    norm: str = "l2",
    with_non_finite: bool = False,
) -> "SearchStrategy[tuple[Any, Any]]":
    """Hypothesis strategy for pairs of data sets that differ in the data of one person.

    Parameters
    ----------
    kind : str
        Kind of data.

        - "rows": arrays of shape (n_rows, `n_columns`), one row for each person, with entries between `low` and `high`.
        - "histograms": int64 arrays of shape (`n_columns`,), with one unit for each person.
        - "counts": integers, with one unit for each person.
        - "vectors": float64 arrays of shape (`n_columns`,), sums of one vector of norm at most `clip_norm` for each
          person.
    relation : str
        Relation of the two data sets, with the names of the ledger's events: "replace" (one person's data are
        replaced), "add_remove" (one person is added or removed), or "zero_out" (one person's data become zeros, and
        the person still counts).
    max_size : int
        Maximum number of rows.
    n_columns : int
        Number of columns of rows and vectors, and of bins of a histogram.
    low, high : float
        Range of the entries of rows.  Rows are int64 if both are Python integers, otherwise float64.  The ends are
        drawn often.
    max_count : int
        Maximum count, at least 1.
    clip_norm : float
        Maximum norm of one person's vector, greater than 0.  Vectors of this norm are drawn often.
    norm : str
        Norm of vectors: "l2" or "l1".
    with_non_finite : bool
        True to draw NaN, infinities and values out of range as entries of rows as well.

    Returns
    -------
    SearchStrategy of tuple of two data sets
        Pairs ``(x0, x1)``, in either order.

    Raises
    ------
    ValueError
        A parameter is out of range, or a histogram with one bin should replace a person's data.

    Notes
    -----
    The distance of a pair is exact: two histograms under "replace" differ by one unit in two bins, and two vectors
    under "replace" by at most twice `clip_norm`, without any rounding.

    Examples
    --------
    >>> from hypothesis import given
    >>> from fastfedrec.testing import strategies
    >>> @given(strategies.neighbours("histograms", "replace", n_columns=3))
    ... def test_one_person_moves_to_another_bin(pair):
    ...     assert sorted(pair[1] - pair[0]) == [-1, 0, 1]
    >>> test_one_person_moves_to_another_bin()
    """
    st = _strategies()

    check_choice("kind", kind, tuple(_KINDS))
    check_choice("relation", relation, ("replace", "add_remove", "zero_out"))
    is_integer = type(low) is int and type(high) is int
    if is_integer:
        low = check_integer("low", low, low=-(2**63))
        high = check_integer("high", high, low=low)
    else:
        low = check_real("low", low)
        high = check_real("high", high, low=low)
    options = {
        "max_size": check_integer("max_size", max_size, low=1),
        "n_columns": check_integer("n_columns", n_columns, low=1),
        "low": low,
        "high": high,
        "is_integer": is_integer,
        "max_count": check_integer("max_count", max_count, low=1),
        "clip_norm": check_real("clip_norm", clip_norm, low=1e-100, high=1e100),
        "norm": check_choice("norm", norm, ("l1", "l2")),
        "with_non_finite": check_flag("with_non_finite", with_non_finite),
    }
    if kind == "histograms" and relation == "replace" and n_columns < 2:
        raise ValueError("n_columns must be at least 2 for histograms under 'replace', got 1; one bin has no other bin")
    if options["with_non_finite"] and options["is_integer"]:
        raise ValueError("with_non_finite must be False for rows of integers, got True; pass low and high as floats")
    pairs = _KINDS[kind](st, relation, options)
    return st.builds(lambda pair, is_swapped: pair[::-1] if is_swapped else pair, pairs, st.booleans())


def _rows(st: Any, relation: str, options: dict[str, Any]) -> Any:
    """Return a strategy of pairs of arrays of rows."""
    low, high, n_columns = options["low"], options["high"], options["n_columns"]
    ends = st.sampled_from([low, high])
    entries = ends | (st.integers(low, high) if options["is_integer"] else st.floats(low, high))
    if options["with_non_finite"]:
        entries |= st.sampled_from([math.nan, math.inf, -math.inf, 2 * high + 1, 2 * low - 1, -0.0])
    row = st.lists(entries, min_size=n_columns, max_size=n_columns)
    dtype = np.int64 if options["is_integer"] else np.float64

    @st.composite
    def build(draw):
        # An added row makes the longer data set, so that both have at most `max_size` rows.
        adds = relation == "add_remove"
        rows = draw(st.lists(row, min_size=0 if adds else 1, max_size=options["max_size"] - adds))
        i = draw(st.integers(0, len(rows) - (not adds)))
        inserted = [[0] * n_columns] if relation == "zero_out" else [draw(row)]
        others = [*rows[:i], *inserted, *rows[i + (not adds) :]]
        return tuple(np.array(some, dtype=dtype).reshape(-1, n_columns) for some in (rows, others))

    return build()


def _counts(st: Any, relation: str, options: dict[str, Any]) -> Any:
    """Return a strategy of pairs of counts, which differ by 1 under every relation."""
    return st.integers(0, options["max_count"] - 1).map(lambda count: (count, count + 1))


def _histograms(st: Any, relation: str, options: dict[str, Any]) -> Any:
    """Return a strategy of pairs of histograms."""
    n_bins = options["n_columns"]
    bins = st.integers(0, n_bins - 1)

    def add_one(counts: list[int], i: int) -> np.ndarray:
        histogram = np.array(counts, dtype=np.int64)
        histogram[i] += 1
        return histogram

    @st.composite
    def build(draw):
        counts = draw(st.lists(st.integers(0, options["max_count"] - 1), min_size=n_bins, max_size=n_bins))
        i = draw(bins)
        if relation != "replace":
            return np.array(counts, dtype=np.int64), add_one(counts, i)
        return add_one(counts, i), add_one(counts, draw(bins.filter(lambda j: j != i)))

    return build()


def _vectors(st: Any, relation: str, options: dict[str, Any]) -> Any:
    """Return a strategy of pairs of sums of clipped vectors."""
    size, bound = options["n_columns"], options["clip_norm"]
    order = 1 if options["norm"] == "l1" else 2
    step = 2.0 ** (math.floor(math.log2(bound)) - _GRID_BITS)
    signs = st.lists(st.sampled_from([-1.0, 1.0]), min_size=size, max_size=size)
    axes = st.builds(lambda j, sign: sign * np.eye(size)[j], st.integers(0, size - 1), st.sampled_from([-1.0, 1.0]))
    directions = st.lists(st.floats(-1, 1), min_size=size, max_size=size)

    def scale(direction: Any) -> np.ndarray:
        direction = np.asarray(direction, dtype=np.float64)
        # Tiny directions count as 0, because their squares underflow.
        length = np.linalg.norm(direction, order)
        if length < 1e-100:
            return np.zeros(size)
        # Rounding toward 0 shortens the vector.  The factor covers the rounding errors of the division.
        factor = 1.0 if np.count_nonzero(direction) == 1 else 1 - 2.0**-_GRID_BITS
        return np.trunc(direction / length * (bound * factor / step)) * step

    contribution = (axes | signs | directions).map(scale)
    base = st.lists(st.integers(-10, 10), min_size=size, max_size=size)

    @st.composite
    def build(draw):
        start = np.array(draw(base)) * np.trunc(bound / step) * step
        first = draw(contribution)
        if relation != "replace":
            return start, start + first
        second = draw(st.just(-first) | contribution)
        return start + first, start + second

    return build()


_KINDS = {"rows": _rows, "histograms": _histograms, "counts": _counts, "vectors": _vectors}
