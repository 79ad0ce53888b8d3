"""The one door to `Interactions` for what people have: SciPy's matrices, and frames with a row per interaction."""

from typing import Any, TypeAlias

import numpy as np
import scipy

from fastfedrec.data._frames import column_names, is_frame
from fastfedrec.data.interactions import Interactions

#: What `as_interactions` takes: `Interactions`, a SciPy sparse matrix or array, or a frame.
InteractionsLike: TypeAlias = Any

_COLUMNS = ("value", "timestamp")  # that a frame may have beside `user` and `item`


def as_interactions(name: str, given: InteractionsLike, *, item_ids: np.ndarray | None = None) -> Interactions:
    """Make `Interactions` of what people have, by the same checks as their constructors.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    given : Interactions, SciPy sparse matrix or array, or frame
        A matrix of users x items, as `Interactions.from_scipy` takes it: rows and columns are numbered from 0.  A frame
        of pandas, polars (also lazy) or pyarrow with the columns `user` and `item`, and perhaps `value` and
        `timestamp`, as `Interactions.from_dataframe` takes it: its list of items is taken from the data, which no
        guarantee covers.  `Interactions` are returned as they are.
    item_ids : ndarray or None
        Items that are known already: those of a frame are among them, and a matrix with a column for each has their
        ids.

    Returns
    -------
    Interactions
        Checked.

    Raises
    ------
    TypeError
        Anything else.
    """
    if isinstance(given, Interactions):
        return given
    if scipy.sparse.issparse(given):
        has_a_column_for_each = item_ids is not None and given.ndim == 2 and given.shape[1] == len(item_ids)
        return Interactions._of_matrix(name, given, None, item_ids if has_a_column_for_each else None)
    if is_frame(given):
        names = column_names(given)
        if not {"user", "item"} <= set(names):
            raise KeyError(
                f"{name} must have the columns 'user' and 'item', the frame has {names}; rename them, or use "
                "Interactions.from_dataframe, which takes other names"
            )
        extra: dict[str, Any] = {column: column for column in _COLUMNS if column in names}
        return Interactions.from_dataframe(given, item_ids=item_ids, **extra)
    remedy = "see Interactions.from_arrays"
    if hasattr(given, "__array__") or hasattr(given, "__dlpack__"):
        remedy = "make a matrix sparse with scipy.sparse.csr_array, or " + remedy
    raise TypeError(
        f"{name} must be Interactions, a SciPy sparse matrix or array, or a frame with the columns user and item, got "
        f"{type(given).__name__}; {remedy}"
    )
