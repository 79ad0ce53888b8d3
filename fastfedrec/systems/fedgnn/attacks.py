"""Attacks of the server of FedGNN's published variant on a user's items among pseudo items, by experiment."""

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
_N_NEAREST = 2  # nearest rows that must have a small angle
_MAX_RELATIVE_ANGLE = 0.01  # relative to the expected distance of uniform angles


def pseudo_item_values(record: Messages, truth: InteractionsLike) -> AttackResult:
    """Distinguish rows of a user's items from rows of pseudo items by their values.

    Parameters
    ----------
    record : Messages
        An entry of a model's `records_`.
    truth : Interactions, SciPy sparse matrix or array, or frame
        The data, to score the claims.

    Returns
    -------
    AttackResult
        Claims on every pair of a user and an item with a row.  With `negatives` other predicted items count as the
        user's own.

    Notes
    -----
    A row of the user's item is ``W' (x h + y a_1 + z a_2)`` with numbers x, y, z and one h for all predicted items, or
    ``W' (x g + z a_2)`` with one g for all joined items.  The server knows W and a.  Orthogonal to W' a_1 and W' a_2,
    these rows are on two lines, while pseudo rows, with the same mean and covariance, are anywhere in their plane.
    Rows with nearest neighbours at a hundredth of the angle of uniform rows are claimed.  The attack needs 5 factors,
    and fails if noise has scattered the rows.
    """
    data = _check(record, truth)
    d = record.rows.shape[1]
    # Orthogonal to W' a_1 and W' a_2, which the server knows.
    known, _ = np.linalg.qr((record.attention @ record.weights).T)
    rows = record.rows - (record.rows @ known) @ known.T
    spread = np.ones(len(rows))
    for first, last in zip(record.indptr, record.indptr[1:], strict=False):
        if d > 4 and last - first > _N_NEAREST:
            spread[first:last] = _gaps(rows[first:last]) * (last - first) / (_N_NEAREST * np.pi)
    claims = np.where(spread < _MAX_RELATIVE_ANGLE, 1, -1).astype(np.int8)
    return _result("row values of one round, the server", claims, -spread, _cells(record, data), data)


def pseudo_item_intersection(records: Sequence[Messages], truth: InteractionsLike) -> AttackResult:
    """Claim that the items with a row in all of a user's messages are the user's own, since pseudo items change.

    Parameters
    ----------
    records : sequence of Messages
        Entries of a model's `records_`.
    truth : Interactions, SciPy sparse matrix or array, or frame
        The data, to score the claims.

    Returns
    -------
    AttackResult
        Claims on all pairs of users with at least two rounds; the score is the share of the user's rounds.
    """
    if not records:
        raise ValueError(f"records must hold at least one round, got none; {_REMEDY}")
    data = as_interactions("truth", truth)
    n_rounds = np.zeros(data.n_users, dtype=np.int64)
    for record in records:
        _check(record, data)
        n_rounds[_rows(record, data)] += 1
    pairs, times = np.unique(np.concatenate([_cells(record, data) for record in records]), return_counts=True)
    is_repeated = n_rounds[pairs // data.n_items] > 1
    pairs, times = pairs[is_repeated], times[is_repeated]
    share = times / n_rounds[pairs // data.n_items]
    name = f"intersection of {len(records)} round{'s' * (len(records) != 1)}, the server"
    return _result(name, np.where(share == 1, 1, -1).astype(np.int8), share, pairs, data)


def _gaps(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row's angle to its nearest rows, as lines in the plane of the two largest principal components."""
    values, vectors = np.linalg.eigh(rows.T @ rows)
    plane = vectors[:, -2:] / np.sqrt(np.maximum(values[-2:], 1e-300))
    x, y = (rows @ plane).T
    angles = np.arctan2(y, x) % np.pi
    order = np.argsort(angles)
    # Angles of lines are modulo pi, so the first ones follow the last.
    around = np.concatenate([angles[order], angles[order][:_N_NEAREST] + np.pi])
    spans = around[_N_NEAREST:] - around[:-_N_NEAREST]
    # The smallest span of consecutive angles that contains a row.
    min_spans = np.min([np.roll(spans, k) for k in range(_N_NEAREST + 1)], axis=0)
    row_spans = np.empty(len(rows))
    row_spans[order] = min_spans
    return row_spans


def _check(record: Messages, truth: InteractionsLike) -> Interactions:
    """Return the data, or raise if they do not match the record."""
    check_instance("record", record, Messages, _REMEDY)
    data = as_interactions("truth", truth)
    if (_rows(record, data) < 0).any() or record.items.max(initial=-1) >= data.n_items:
        raise ValueError(f"truth must be the data that the model was fitted on, got {data!r}")
    return data


def _rows(record: Messages, data: Interactions) -> NDArray[np.int64]:
    """Return the rows of the record's users in the data."""
    return find_rows("user", data.global_user_ids, record.users)


def _cells(record: Messages, data: Interactions) -> NDArray[np.int64]:
    """Return one number for each (user, item)."""
    return np.repeat(_rows(record, data), np.diff(record.indptr)) * data.n_items + record.items


def _result(
    attack: str, claims: NDArray[np.int8], scores: np.ndarray, cells: np.ndarray, data: Interactions
) -> AttackResult:
    """Return the result of an attack with the truth of its pairs."""
    rated_cells = np.repeat(np.arange(data.n_users), data.interactions_per_user()) * data.n_items + data.indices
    return AttackResult(attack, claims, np.isin(cells, rated_cells), scores, cells // data.n_items)
