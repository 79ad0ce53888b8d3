"""What the server of FedGNN's published variant finds out about a user's items among pseudo items, by experiment."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_instance
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.ids import find_rows
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.fedgnn._views import Messages
from fastfedrec.systems.fedrec.attacks import AttackResult

__all__ = ["pseudo_item_intersection", "pseudo_item_values"]

_REMEDY = "pass an entry of a model's records_, from fit(record_views=...)"
_NEAR = 2  # so many next rows must be near
_ALIKE = 0.01  # of the distance of angles that are drawn uniformly


def pseudo_item_values(record: Messages, truth: InteractionsLike) -> AttackResult:
    """Tell rows of own items from rows of pseudo items by their values.

    Parameters
    ----------
    record : Messages
        An entry of a model's `records_`.
    truth : Interactions, SciPy sparse matrix or array, or frame
        The data, to score the claims.

    Returns
    -------
    AttackResult
        Of every pair of a user and an item that it sent a row of.  With `negatives` other predicted items are taken for
        the user's own.

    Notes
    -----
    A row of an own item is ``W' (x h + y a_1 + z a_2)`` with numbers x, y, z and one h for all that are predicted, or
    ``W' (x g + z a_2)`` with one g for all that are joined.  The server knows W and a.  Without what lies along W' a_1
    and W' a_2, own rows are on two lines; pseudo rows, which have the same mean and covariance, are anywhere in their
    plane.  Rows are claimed whose next ones are a hundred times nearer in angle than angles drawn uniformly would be.
    It takes 5 factors, and tells nothing of rows that noise has scattered.
    """
    data = _check(record, truth)
    d = record.rows.shape[1]
    known, _ = np.linalg.qr((record.attention @ record.weights).T)
    rows = record.rows - (record.rows @ known) @ known.T
    spread = np.ones(len(rows))
    for first, last in zip(record.indptr, record.indptr[1:], strict=False):
        if d > 4 and last - first > _NEAR:
            spread[first:last] = _gaps(rows[first:last]) * (last - first) / (_NEAR * np.pi)
    claims = np.where(spread < _ALIKE, 1, -1).astype(np.int8)
    return _result("row values of one round, the server", claims, -spread, _cells(record, data), data)


def pseudo_item_intersection(records: Sequence[Messages], truth: InteractionsLike) -> AttackResult:
    """Claim that the items which a user sends rows of whenever it is asked are its own: pseudo items come and go.

    Parameters
    ----------
    records : sequence of Messages
        Entries of a model's `records_`.
    truth : Interactions, SciPy sparse matrix or array, or frame
        The data, to score the claims.

    Returns
    -------
    AttackResult
        Of all pairs of users who were asked at least twice; the score is the share of the rounds in which the user was.
    """
    if not records:
        raise ValueError(f"records must hold at least one round, got none; {_REMEDY}")
    data = as_interactions("truth", truth)
    asked = np.zeros(data.n_users, dtype=np.int64)
    for record in records:
        _check(record, data)
        asked[_rows(record, data)] += 1
    pairs, times = np.unique(np.concatenate([_cells(record, data) for record in records]), return_counts=True)
    again = asked[pairs // data.n_items] > 1
    pairs, times = pairs[again], times[again]
    share = times / asked[pairs // data.n_items]
    name = f"intersection of {len(records)} round{'s' * (len(records) != 1)}, the server"
    return _result(name, np.where(share == 1, 1, -1).astype(np.int8), share, pairs, data)


def _gaps(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far the next rows are from each, in angle, as lines in the plane that most of the rows lie in."""
    values, vectors = np.linalg.eigh(rows.T @ rows)
    plane = vectors[:, -2:] / np.sqrt(np.maximum(values[-2:], 1e-300))
    x, y = (rows @ plane).T
    angles = np.arctan2(y, x) % np.pi
    order = np.argsort(angles)
    around = np.concatenate([angles[order], angles[order][:_NEAR] + np.pi])
    spans = around[_NEAR:] - around[:-_NEAR]
    # The least span of neighbours that a row is one end of, or lies in.
    least = np.min([np.roll(spans, k) for k in range(_NEAR + 1)], axis=0)
    found = np.empty(len(rows))
    found[order] = least
    return found


def _check(record: Messages, truth: InteractionsLike) -> Interactions:
    check_instance("record", record, Messages, _REMEDY)
    data = as_interactions("truth", truth)
    if (_rows(record, data) < 0).any() or record.items.max(initial=-1) >= data.n_items:
        raise ValueError(f"truth must be the data that the model was fitted on, got {data!r}")
    return data


def _rows(record: Messages, data: Interactions) -> NDArray[np.int64]:
    return find_rows("user", data.global_user_ids, record.users)


def _cells(record: Messages, data: Interactions) -> NDArray[np.int64]:
    """One number for each (user, item)."""
    return np.repeat(_rows(record, data), np.diff(record.indptr)) * data.n_items + record.items


def _result(
    attack: str, claims: NDArray[np.int8], scores: np.ndarray, cells: np.ndarray, data: Interactions
) -> AttackResult:
    own = np.repeat(np.arange(data.n_users), data.interactions_per_user()) * data.n_items + data.indices
    return AttackResult(attack, claims, np.isin(cells, own), scores, cells // data.n_items)
