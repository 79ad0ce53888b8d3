"""Attacks of a neighbour in DMF on a user's items, by experiment."""

from collections.abc import Sequence

import numpy as np

from fastfedrec.core.check import check_instance
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.dmf._views import SentRound
from fastfedrec.systems.fedrec.attacks import AttackResult

__all__ = ["neighbor_gradients", "neighbor_intersection"]

_REMEDY = "pass an entry of a model's records_, from fit(record_views=...)"


def neighbor_gradients(record: SentRound, truth: InteractionsLike) -> AttackResult:
    """Distinguish a user's items from drawn ones by the gradients that a neighbour received in one round.

    Parameters
    ----------
    record : SentRound
        An entry of a model's `records_`.
    truth : Interactions, SciPy sparse matrix or array, or frame
        The data, to score the claims.

    Returns
    -------
    AttackResult
        Claims on every pair of a user and an item in the user's messages.  For each user the number of pairs that are
        claimed to be rated follows from `n_negatives`.

    Notes
    -----
    A user's gradients are nearly ``e x``, where x begins with positive numbers, so the longest gradient gives the
    direction of x.  For an item of the user, e is a prediction minus 1, and mostly negative; for a drawn item it is a
    prediction times 1 / n_negatives.  The score is ``-e |x|``.
    """
    cells, data = _cells(record, truth)
    gradients = record.gradients.astype(np.float64)
    lengths = np.sqrt(np.einsum("nf,nf->n", gradients, gradients))
    order = np.lexsort((lengths, record.senders))
    owners, counts = np.unique(record.senders, return_counts=True)
    longest = gradients[order[np.cumsum(counts) - 1]]
    # With this sign the direction equals x / |x|, which has positive numbers.
    longest *= np.where(longest.sum(axis=1, keepdims=True) > 0, -1, 1)
    sizes = np.sqrt(np.einsum("nf,nf->n", longest, longest))
    directions = np.divide(longest, sizes[:, None], out=np.zeros_like(longest), where=sizes[:, None] > 0)
    along = np.einsum("nf,nf->n", gradients, np.repeat(directions, counts, axis=0))
    # An item that was drawn twice is one pair; the user's own items occur once.
    pairs, pair_numbers = np.unique(cells, return_inverse=True)
    scores = np.full(len(pairs), np.inf)
    np.minimum.at(scores, pair_numbers, along)
    rows = pairs // data.n_items
    n_claimed = np.zeros(data.n_users, dtype=np.int64)
    n_claimed[owners] = counts // (1 + record.n_negatives)
    n_reported = np.bincount(rows, minlength=data.n_users)
    rank = np.empty(len(pairs), dtype=np.int64)
    # Rank of each pair among its user's pairs, by falling score.
    firsts = np.repeat(np.cumsum(n_reported) - n_reported, n_reported)
    rank[np.lexsort((-scores, rows))] = np.arange(len(pairs)) - firsts
    return _result("a neighbour, gradients of one round", rank < n_claimed[rows], scores, pairs, data)


def neighbor_intersection(records: Sequence[SentRound], truth: InteractionsLike) -> AttackResult:
    """Claim that the items in a user's messages of every round are rated, since drawn items change.

    Parameters
    ----------
    records : sequence of SentRound
        Entries of a model's `records_`.
    truth : Interactions, SciPy sparse matrix or array, or frame
        The data, to score the claims.

    Returns
    -------
    AttackResult
        Claims on all pairs of all rounds; the score is the share of the rounds in which the pair occurs.
    """
    if not records:
        raise ValueError(f"records must hold at least one round, got none; {_REMEDY}")
    records_cells = [_cells(record, truth) for record in records]
    pairs, times = np.unique(np.concatenate([np.unique(cells) for cells, _ in records_cells]), return_counts=True)
    share = times / len(records)
    return _result(f"a neighbour, intersection of {len(records)} rounds", share == 1, share, pairs, records_cells[0][1])


def _cells(record: SentRound, truth: InteractionsLike) -> tuple[np.ndarray, Interactions]:
    """Return one number for each pair (user, item), and the data, or raise if they do not match."""
    check_instance("record", record, SentRound, _REMEDY)
    data = as_interactions("truth", truth)
    if len(record.senders) and not (record.senders[-1] < data.n_users and record.items.max() < data.n_items):
        raise ValueError(f"truth must be the data that the model was fitted on, got {data!r}")
    return record.senders * data.n_items + record.items, data


def _result(
    attack: str, is_claimed: np.ndarray, scores: np.ndarray, pairs: np.ndarray, data: Interactions
) -> AttackResult:
    """Return the result of an attack with the truth of its pairs."""
    rated_pairs = np.repeat(np.arange(data.n_users), data.interactions_per_user()) * data.n_items + data.indices
    claims = np.where(is_claimed, 1, -1).astype(np.int8)
    return AttackResult(attack, claims, np.isin(pairs, rated_pairs), scores, pairs // data.n_items)
