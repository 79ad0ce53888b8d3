"""What the parties of FedRec and FedRec++ find out about users' ratings, by experiment.

Every attack takes what parties received (``fit(record_views=...)``), claims of each pair (user, item) that the server
saw whether it is rated, and is then scored against the data.  docs/explanation/systems/fedrec/fedrec-privacy.md
has the figures.

`fastfedrec.attacks` has these and the attacks on whose data any model was fitted on.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastfedrec.core.arrays import distinct
from fastfedrec.core.check import check_flag
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms.report_checks import check_grid
from fastfedrec.systems.fedrec._attack_results import (
    REMEDY,
    AttackResult,
    RatingResult,
    cells_of,
    check_record,
    rated_cells,
    result_of,
    rows_of,
)
from fastfedrec.systems.fedrec._views import Messages, RecordedRound
from fastfedrec.systems.rating_model import STARS

__all__ = [
    "AttackResult",
    "RatingResult",
    "gradients",
    "group_sums",
    "intersection",
    "popularity",
    "run_attacks",
    "value_matching",
]

_TOLERANCE = 1e-3  # of a rating that is told: gradients are exact to 2^-32
_FEWEST = 4  # equations for the four unknowns of a user, one of which is free
_N_REWEIGHTINGS = 12
_RESIDUAL = 1e-3  # of a user's mean residual: what a fitting equation is off by


#: Of all attacks, that part of the docstring.
_scores_claims = shares_docstring("""\
record : RecordedRound
    What everybody received in one round.
truth : Interactions, SciPy sparse matrix or array, or frame
    The data, to score the claims.""")


@_scores_claims
def value_matching(record: RecordedRound, truth: InteractionsLike, *, colluding: bool = True) -> AttackResult:
    """Look for the vectors that the server received among those of the denoisers: what is found is virtual.

    Parameters
    ----------
    colluding : bool
        Whether denoisers show the server what they received, without the senders; otherwise it has only their sums.

    Returns
    -------
    AttackResult
        All pairs that are not found are claimed to be rated; found nothing, it claims that of all.

    Notes
    -----
    Anonymity of senders does not matter: a vector of integers is its own name.
    """
    record, truth = check_record(record, truth)
    server = record.server
    found = record.denoisers if check_flag("colluding", colluding) else record.denoiser_sums()
    matched = np.isin(_names_of(server), _names_of(found))
    who = "the server with denoisers" if colluding else "the server with each denoiser's sums"
    claims = np.where(matched, -1, 1).astype(np.int8)
    return result_of(f"value matching, {who}", claims, claims, cells_of(server, truth), truth)


@_scores_claims
def intersection(records: Sequence[RecordedRound], truth: InteractionsLike) -> AttackResult:
    """Claim that the items which a user speaks of in every round are rated: virtual ones come and go.

    Parameters
    ----------
    records : sequence of RecordedRound
        What everybody received in several rounds.

    Returns
    -------
    AttackResult
        Of all pairs of all rounds; the score is the share of the rounds in which the user sent anything.
    """
    if not records:
        raise ValueError(f"records must hold at least one round, got none; {REMEDY}")
    truth = as_interactions("truth", truth)
    rounds = [check_record(record, truth)[0].server for record in records]
    cells = np.concatenate([cells_of(messages, truth) for messages in rounds])
    pairs, times = np.unique(cells, return_counts=True)
    present = np.zeros(truth.n_users)
    for messages in rounds:
        present[rows_of(distinct(messages.senders), truth)] += 1
    share = times / present[pairs // truth.n_items]
    claims = np.where(share == 1, 1, -1).astype(np.int8)
    name = f"intersection of {len(rounds)} round{'s' * (len(rounds) != 1)}, the server"
    return result_of(name, claims, share, pairs, truth)


@_scores_claims
def popularity(record: RecordedRound, truth: InteractionsLike, counts: np.ndarray) -> AttackResult:
    """Hold popular items for rated ones: the only thing that is left to a server with one fixed list of each user.

    Parameters
    ----------
    counts : ndarray of shape (n_items,)
        How many users rated each item, as the server computes in every round of FedRec++.

    Returns
    -------
    AttackResult
        The score is the item's count; the upper half is claimed to be rated.
    """
    record, truth = check_record(record, truth)
    server = record.server
    counts = np.asarray(counts, dtype=np.float64)
    if counts.shape != (truth.n_items,):
        raise ValueError(f"counts must have shape ({truth.n_items},), one number an item, got {counts.shape}")
    scores = counts[server.items]
    claims = np.where(scores > np.median(scores), 1, -1).astype(np.int8) if len(scores) else np.zeros(0, np.int8)
    return result_of("popularity, the server", claims, scores, cells_of(server, truth), truth)


@_scores_claims
def group_sums(record: RecordedRound, truth: InteractionsLike) -> AttackResult:
    """Subtract each denoiser's sums alone: where all of its users who speak of an item rated it, or none did, it shows.

    Returns
    -------
    AttackResult
        No claim where the count of raters is neither all nor none.  With one user to a denoiser it is always one of
        them.

    Notes
    -----
    It needs who is served by whom, which the server has dealt out, and each denoiser's sum alone.
    """
    record, truth = check_record(record, truth)
    server = record.server
    known, first = np.unique(record.denoisers.senders, return_index=True)
    receivers = record.denoisers.receivers[first]
    grouped = np.isin(server.senders, known)  # who sent a denoiser nothing is in no group
    groups = np.zeros(len(server), dtype=np.uint64)
    groups[grouped] = receivers[np.searchsorted(known, server.senders[grouped])]
    sent = Messages(server.senders, groups, server.items, server.values[:, -1:])  # the counts alone
    heard = replace(record.denoisers, values=record.denoisers.values[:, -1:])
    ours, theirs = (messages.add_up("receivers", record.n_items) for messages in (sent, heard))
    owners, position = np.unique(np.concatenate([ours.receivers, theirs.receivers]), return_inverse=True)
    cells = position * record.n_items + np.concatenate([ours.items, theirs.items])
    known_cells, index = np.unique(cells, return_inverse=True)
    raters, speakers = np.zeros(len(known_cells), dtype=np.uint64), np.zeros(len(known_cells), dtype=np.int64)
    raters[index[: len(ours)]] = ours.values[:, -1]
    raters[index[len(ours) :]] -= theirs.values[:, -1]
    own = np.searchsorted(owners, groups) * record.n_items + server.items
    place = np.searchsorted(known_cells, own)
    np.add.at(speakers, place, 1)
    # A denoiser that sends the server nothing itself, as published, may be one more of the raters.
    silent = ~np.isin(owners, server.senders)[known_cells // record.n_items]
    all_of_them = raters.view(np.int64) == speakers + silent
    claims = np.where(all_of_them[place], 1, np.where(raters[place] == 0, -1, 0)).astype(np.int8)
    claims[~grouped] = 0
    return result_of("sums of single denoisers, the server", claims, claims, cells_of(server, truth), truth)


@_scores_claims
def gradients(
    first: RecordedRound, second: RecordedRound, truth: InteractionsLike, *, grid: Sequence[float] = STARS
) -> RatingResult:
    """Compute users' factors and ratings from the gradients that the server received in two rounds.

    Parameters
    ----------
    first, second : RecordedRound
        What everybody received in any two rounds.
    grid : sequence of float
        The ratings there are.

    Returns
    -------
    RatingResult
        Of all pairs of both rounds, those whose rating comes out on the grid are claimed to be rated, with that rating.
        No claim of users who did not speak of four items in both rounds.

    Notes
    -----
    A gradient is ``e x + reg v``, of which the server knows ``reg v``.  What is left of a user's gradients has one
    direction, that of its factors x = c y with y of norm 1, and e = a / c with a known.  The rating of an item is
    ``c y'v - a / c``, and the same in both rounds: one linear equation for each item in c and 1 / c of both rounds, so
    that four items tell c.  A virtual rating is computed as well; the user's mean is rarely on the grid.  Equations
    that do not hold, of ratings predicted anew, are weighted down.

    References
    ----------
    .. [1] Chai, Wang, Chen, Yang, "Secure federated matrix factorization", IEEE Intelligent Systems 36(5), 2021.
    """
    stars = np.array([float(v) for v in check_grid("grid", grid, high=32)])
    truth = as_interactions("truth", truth)
    views = [_unpacked(*check_record(record, truth)) for record in (first, second)]
    (cells, sizes, products, directions), (other_cells, other_sizes, other_products, _) = views
    common, one, two = np.intersect1d(cells, other_cells, assume_unique=True, return_indices=True)
    equations = np.column_stack([products[one], -sizes[one], -other_products[two], other_sizes[two]])
    lengths = [np.full(truth.n_users, np.nan) for _ in views]
    owners, owner = np.unique(common // truth.n_items, return_inverse=True)
    unknown = _null_vectors(equations, owner, len(owners))
    solved = (np.bincount(owner, minlength=len(owners)) >= _FEWEST) & (unknown[:, ::2] * unknown[:, 1::2] > 0).all(1)
    for length, column in zip(lengths, (0, 2), strict=True):
        length[owners[solved]] = np.sqrt(unknown[solved, column] / unknown[solved, column + 1])
    seen, place = np.unique(np.concatenate([cells, other_cells]), return_index=True)
    told = np.empty(len(cells) + len(other_cells))
    for part, (where, size, product, _), length in zip(
        (slice(len(cells)), slice(len(cells), None)), views, lengths, strict=True
    ):
        row = where // truth.n_items
        told[part] = length[row] * product - size / length[row]
        # -x with -c explains the gradients as well: ratings are not negative, on the whole.
        sign = np.where(np.bincount(row, told[part], truth.n_users) < 0, -1.0, 1.0)
        told[part] *= sign[row]
        length *= sign
    told = told[place]
    nearest = stars[np.abs(told[:, None] - stars).argmin(axis=1)]
    distance = np.abs(told - nearest)
    claims = np.where(distance < _TOLERANCE, 1, -1).astype(np.int8)
    claims[np.isnan(told)] = 0
    plain = result_of("gradients of two rounds, the server", claims, -np.nan_to_num(distance, nan=1.0), seen, truth)
    true_ratings = np.full(len(seen), np.nan)
    true_ratings[plain.is_rated] = truth.values_or_ones()[np.searchsorted(rated_cells(truth), seen[plain.is_rated])]
    return RatingResult(
        plain.attack,
        claims,
        plain.is_rated,
        plain.scores,
        plain.rows,
        np.where(claims > 0, nearest, np.nan),
        true_ratings,
        directions * lengths[0][:, None],
    )


def run_attacks(
    records: Sequence[RecordedRound], truth: InteractionsLike, *, grid: Sequence[float] = STARS
) -> list[AttackResult]:
    """Carry out every attack that applies to these records; ``fit(record_views=...)`` puts them into the ledger.

    Parameters
    ----------
    records : sequence of RecordedRound
        What everybody received in one or several rounds of one run.
    truth : Interactions, SciPy sparse matrix or array, or frame
        The data, to score the claims.
    grid : sequence of float
        The ratings there are.

    Returns
    -------
    list of AttackResult
        On the first record: where there are denoisers value matching and sums of groups, and popularity by the numbers
        of raters that the server computes; with two records or more, intersection of all, and the gradients of the
        first and the last.  Where users speak only of what they rated, the gradients alone.
    """
    if not records:
        raise ValueError(f"records must hold at least one round, got none; {REMEDY}")
    first, truth = check_record(records[0], truth)
    results: list[AttackResult] = []
    if not np.isin(cells_of(first.server, truth), rated_cells(truth)).all():
        if len(first.denoisers):
            results += [value_matching(first, truth, colluding=colluding) for colluding in (True, False)]
            results.append(group_sums(first, truth))
        counts = np.zeros(first.n_items, dtype=np.uint64)
        np.add.at(counts, first.server.items, first.server.values[:, -1])
        np.subtract.at(counts, first.denoisers.items, first.denoisers.values[:, -1])
        results.append(popularity(first, truth, counts))
        if len(records) > 1:
            results.append(intersection(records, truth))
    if len(records) > 1:
        results.append(gradients(first, records[-1], truth, grid=grid))
    return results


def _names_of(messages: Messages) -> np.ndarray:
    """A number for each message, by its item and its values: two that are not alike share one in 2^64 cases."""
    odd = Key.from_seed(0).words("attacks.names", size=messages.values.shape[1] + 1) | np.uint64(1)
    return messages.values @ odd[1:] + messages.items.astype(np.uint64) * odd[0]


def _unpacked(record: RecordedRound, truth: Interactions) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of one round: pairs, a and y'v of each, and y of each user; see the notes of `gradients`."""
    messages = record.server
    directions = np.full((truth.n_users, record.item_factors.shape[1]), np.nan)
    cells = cells_of(messages, truth)
    order = np.argsort(cells)
    cells, items = cells[order], messages.items[order]
    values = messages.values[order, :-1].view(np.int64) / record.scale
    values -= record.regularization * record.item_factors[items]
    owners, starts, owner = np.unique(cells // truth.n_items, return_index=True, return_inverse=True)
    if not len(owners):
        return cells, np.zeros(0), np.zeros(0), directions
    # All of one direction, so the largest tells it; one step of the power method takes the mean over rounding errors.
    sizes = np.einsum("nf,nf->n", values, values)
    peaks = np.flatnonzero(sizes == np.maximum.reduceat(sizes, starts)[owner])
    largest = np.empty(len(owners), dtype=np.int64)
    largest[owner[peaks]] = peaks
    y = values[largest]
    y = np.add.reduceat(np.einsum("nf,nf->n", values, y[owner])[:, None] * values, starts)
    norms = np.linalg.norm(y, axis=1, keepdims=True)
    y = np.divide(y, norms, out=np.zeros_like(y), where=norms > 0)
    directions[owners] = y
    return (
        cells,
        np.einsum("nf,nf->n", values, y[owner]),
        np.einsum("nf,nf->n", record.item_factors[items], y[owner]),
        directions,
    )


def _null_vectors(equations: np.ndarray, owner: np.ndarray, n: int) -> np.ndarray:
    """For each of `n` owners of equations, in ascending order, the vector that solves most of them."""
    if not n:
        return np.zeros((0, 4))
    starts = np.searchsorted(owner, np.arange(n))
    norms = np.sqrt(np.add.reduceat(equations**2, starts))
    norms[norms == 0] = 1.0
    scaled = equations / norms[owner]
    weights, counts = np.ones(len(owner)), np.bincount(owner, minlength=n)
    for _ in range(_N_REWEIGHTINGS):
        grams = np.add.reduceat(scaled[:, :, None] * (weights[:, None] * scaled)[:, None, :], starts)
        found = np.linalg.eigh(grams)[1][:, :, 0]
        residuals = np.abs(np.einsum("nj,nj->n", scaled, found[owner]))
        small = (_RESIDUAL * np.bincount(owner, residuals, n) / counts)[owner] + 1e-30
        weights = small**2 / (residuals**2 + small**2)
    return found / norms
