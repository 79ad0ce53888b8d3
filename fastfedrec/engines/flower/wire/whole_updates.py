"""A model's arrays as one row of numbers, and updates of nodes of any app, which are not trusted."""

from typing import TYPE_CHECKING

import numpy as np

from fastfedrec.engines.flower.wire.records import read_array

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, Message

__all__ = ["UnusedReplyError", "flatten", "read_whole_update", "unflatten"]


class UnusedReplyError(ValueError):
    """Error with a reason that holds no data of the node."""


def read_whole_update(reply: "Message", arrays: "ArrayRecord", start: np.ndarray) -> np.ndarray:
    """Return a node's whole update in doubles, or raise."""
    if reply.has_error():
        raise UnusedReplyError("it returned an error")
    records = list(reply.content.array_records.values())
    if len(records) != 1 or list(records[0]) != list(arrays):
        raise UnusedReplyError("its reply must have one ArrayRecord with the arrays of the request")
    for name, array in arrays.items():
        sent, received = read_array(name, array), read_array(name, records[0][name])
        if (sent.shape, sent.dtype) != (received.shape, received.dtype):
            raise UnusedReplyError(f"array {name!r} of its reply must have the shape and type of the request")
    with np.errstate(all="ignore"):  # an update that overflows is not finite, and counts as zero
        return flatten(records[0]) - start


def flatten(arrays: "ArrayRecord") -> np.ndarray:
    """Return all numbers of a record in one row of doubles."""
    rows = []
    for name, array in arrays.items():
        values = read_array(name, array)
        if values.dtype.kind != "f" or values.dtype.itemsize > 8:
            raise ValueError(
                f"arrays must hold float16, float32 or float64, got {values.dtype} in {name!r}; keep counters and "
                "other integers out of the model that nodes send"
            )
        rows.append(values.ravel().astype(np.float64))
    if not rows:
        raise ValueError("arrays must hold at least one array, got none; pass the initial model")
    return np.concatenate(rows)


def unflatten(row: np.ndarray, arrays: "ArrayRecord") -> "ArrayRecord":
    """Return a row in the names, shapes and types of a record."""
    from flwr.app import Array, ArrayRecord

    parts, first = {}, 0
    for name, array in arrays.items():
        like = read_array(name, array)
        values = row[first : first + like.size].reshape(like.shape)
        with np.errstate(over="ignore"):
            parts[name] = Array(values.astype(like.dtype))
        first += like.size
    return ArrayRecord(parts)
