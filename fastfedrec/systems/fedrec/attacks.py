"""Attacks on users' ratings by the parties of FedRec and FedRec++, by experiment.

Every attack gets the messages to some parties (``fit(record_views=...)``), claims for each pair (user, item) in the
server's messages whether it is rated, and is scored against the data.
docs/explanation/systems/fedrec/fedrec-privacy.md has the figures.

`fastfedrec.attacks` has these attacks and membership attacks on any model.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastfedrec.core.arrays import distinct
from fastfedrec.core.check import check_flag
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.mechanisms.report_checks import check_grid
from fastfedrec.systems.claims import MEASURE_ATTACKS, note_experiment
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
from fastfedrec.systems.gradient_rounds.views import Messages, RecordedRound
from fastfedrec.systems.rating_model import STARS

__all__ = [
    "AttackResult",
    "RatingResult",
    "gradients",
    "group_sums",
    "intersection",
    "note_attacks",
    "popularity",
    "run_attacks",
    "value_matching",
]

_TOLERANCE = 1e-3  # of a computed rating: gradients are exact to 2^-32
_MIN_EQUATIONS = 4  # for the four unknowns of a user, which are determined up to a factor
_N_REWEIGHTINGS = 12  # steps of iteratively reweighted least squares
_RESIDUAL_SHARE = 1e-3  # residual of a fitting equation, relative to a user's mean residual


#: The common parameters of all attacks, for their docstrings.
_scores_claims = shares_docstring("""\
record : RecordedRound
    Messages of one round, to all parties.
truth : Interactions, SciPy sparse matrix or array, or frame
    The data, to score the claims.""")


@_scores_claims
def value_matching(record: RecordedRound, truth: InteractionsLike, *, colluding: bool = True) -> AttackResult:
    """Search the denoisers' messages for the vectors that the server received: matches are virtual items.

    Parameters
    ----------
    colluding : bool
        Whether denoisers show the server their messages, without the senders; otherwise it has only their sums.

    Returns
    -------
    AttackResult
        Pairs without a match are claimed to be rated, or all pairs if there is no match.

    Notes
    -----
        Anonymity of senders does not prevent this, since a vector of integers identifies a message.
    """
    record, truth = check_record(record, truth)
    server = record.server
    denoiser_messages = record.denoisers if check_flag("colluding", colluding) else record.denoiser_sums()
    matched = np.isin(_hashes_of(server), _hashes_of(denoiser_messages))
    who = "the server with denoisers" if colluding else "the server with each denoiser's sums"
    claims = np.where(matched, -1, 1).astype(np.int8)
    return result_of(f"value matching, {who}", claims, claims, cells_of(server, truth), truth)


@_scores_claims
def intersection(records: Sequence[RecordedRound], truth: InteractionsLike) -> AttackResult:
    """Claim that the items a user reports in every round are rated, since virtual items change.

    Parameters
    ----------
    records : sequence of RecordedRound
        Messages of several rounds, to all parties.

    Returns
    -------
    AttackResult
        Claims on all pairs of all rounds; the score is the share of the user's rounds in which the pair occurs.
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
    # A user outside a round's cohort sends no item, so each user's own number of rounds counts.
    share = times / present[pairs // truth.n_items]
    claims = np.where(share == 1, 1, -1).astype(np.int8)
    name = f"intersection of {len(rounds)} round{'s' * (len(rounds) != 1)}, the server"
    return result_of(name, claims, share, pairs, truth)


@_scores_claims
def popularity(record: RecordedRound, truth: InteractionsLike, counts: np.ndarray) -> AttackResult:
    """Claim that popular items are rated, the only attack on a user's fixed list that is open to the server.

    Parameters
    ----------
    counts : ndarray of shape (n_items,)
        Number of users who rated each item, as the server computes in every round of FedRec++.

    Returns
    -------
    AttackResult
        The score is the item's count; the upper half of the pairs is claimed to be rated.
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
    """Subtract each denoiser's sums separately, which reveals items that all or none of the reporting users rated.

    Returns
    -------
    AttackResult
        No claim if the count of raters is neither all nor none.  With one user per denoiser there is always a claim.

    Notes
    -----
    The server needs the assignment of users to denoisers, which it made, and each denoiser's sum.
    """
    record, truth = check_record(record, truth)
    server = record.server
    # The server knows each user's denoiser, since it made the assignment.
    known, first = np.unique(record.denoisers.senders, return_index=True)
    receivers = record.denoisers.receivers[first]
    grouped = np.isin(server.senders, known)  # a user who sent a denoiser no message is in no group
    groups = np.zeros(len(server), dtype=np.uint64)
    groups[grouped] = receivers[np.searchsorted(known, server.senders[grouped])]
    server_counts = Messages(server.senders, groups, server.items, server.values[:, -1:])  # the counts alone
    denoiser_counts = replace(record.denoisers, values=record.denoisers.values[:, -1:])
    server_sums, denoiser_sums = (
        messages.add_up("receivers", record.n_items) for messages in (server_counts, denoiser_counts)
    )
    owners, position = np.unique(np.concatenate([server_sums.receivers, denoiser_sums.receivers]), return_inverse=True)
    cells = position * record.n_items + np.concatenate([server_sums.items, denoiser_sums.items])
    known_cells, index = np.unique(cells, return_inverse=True)
    raters, speakers = np.zeros(len(known_cells), dtype=np.uint64), np.zeros(len(known_cells), dtype=np.int64)
    raters[index[: len(server_sums)]] = server_sums.values[:, -1]
    # The last column counts users, so the difference is the number of raters.
    raters[index[len(server_sums) :]] -= denoiser_sums.values[:, -1]
    report_cells = np.searchsorted(owners, groups) * record.n_items + server.items
    cell_numbers = np.searchsorted(known_cells, report_cells)
    np.add.at(speakers, cell_numbers, 1)
    # A denoiser that sends the server no message of its own, as in the published variant, may be an additional rater.
    is_silent = ~np.isin(owners, server.senders)[known_cells // record.n_items]
    all_rated = raters.view(np.int64) == speakers + is_silent
    claims = np.where(all_rated[cell_numbers], 1, np.where(raters[cell_numbers] == 0, -1, 0)).astype(np.int8)
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
        Messages of any two rounds, to all parties.
    grid : sequence of float
        Possible ratings, increasing.

    Returns
    -------
    RatingResult
        Claims on all pairs of both rounds: pairs with a computed rating on the grid are claimed to be rated, with this
        rating.  There is no claim on users who reported fewer than four items in both rounds.

    Notes
    -----
    A gradient is ``e x + reg v``, and the server knows ``reg v``.  The remaining gradients of a user have the direction
    of the user's factors x = c y, with y of norm 1, and e = a / c with a known.  The rating of an item is
    ``c y'v - a / c``, and is the same in both rounds.  This is one linear equation per item in c and 1 / c of both
    rounds, so that four items determine c.  Virtual ratings are computed as well, but a user's mean is rarely on the
    grid.  Equations of ratings that are predicted anew do not hold, and get a low weight.

    References
    ----------
    .. [1] Chai, Wang, Chen, Yang, "Secure federated matrix factorization", IEEE Intelligent Systems 36(5), 2021.
    """
    stars = np.array([float(v) for v in check_grid("grid", grid, high=32)])
    truth = as_interactions("truth", truth)
    views = [_unpacked(*check_record(record, truth)) for record in (first, second)]
    (cells, sizes, products, directions), (other_cells, other_sizes, other_products, _) = views
    # Each pair of both rounds gives one equation.
    common, one, two = np.intersect1d(cells, other_cells, assume_unique=True, return_indices=True)
    # c_1 y'v_1 - a_1 / c_1 = c_2 y'v_2 - a_2 / c_2, with the unknowns c_1, 1 / c_1, c_2 and 1 / c_2.
    equations = np.column_stack([products[one], -sizes[one], -other_products[two], other_sizes[two]])
    lengths = [np.full(truth.n_users, np.nan) for _ in views]
    users, equation_user = np.unique(common // truth.n_items, return_inverse=True)
    unknown = _null_vectors(equations, equation_user, len(users))
    # The solution is (c, 1 / c) of both rounds up to a factor, so each pair must have one sign.
    has_signs = (unknown[:, ::2] * unknown[:, 1::2] > 0).all(1)
    is_solved = (np.bincount(equation_user, minlength=len(users)) >= _MIN_EQUATIONS) & has_signs
    for length, column in zip(lengths, (0, 2), strict=True):
        length[users[is_solved]] = np.sqrt(unknown[is_solved, column] / unknown[is_solved, column + 1])
    seen, positions = np.unique(np.concatenate([cells, other_cells]), return_index=True)
    computed = np.empty(len(cells) + len(other_cells))
    for part, (pairs, size, product, _), length in zip(
        (slice(len(cells)), slice(len(cells), None)), views, lengths, strict=True
    ):
        row = pairs // truth.n_items
        computed[part] = length[row] * product - size / length[row]
        # The negative of both x and c explains the gradients as well, but ratings are mostly positive.
        sign = np.where(np.bincount(row, computed[part], truth.n_users) < 0, -1.0, 1.0)
        computed[part] *= sign[row]
        length *= sign
    computed = computed[positions]
    # A claim needs a computed rating on the grid.
    nearest = stars[np.abs(computed[:, None] - stars).argmin(axis=1)]
    distance = np.abs(computed - nearest)
    claims = np.where(distance < _TOLERANCE, 1, -1).astype(np.int8)
    claims[np.isnan(computed)] = 0
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
    """Run every attack that applies to these records, as ``fit(record_views=...)`` does for the ledger.

    Parameters
    ----------
    records : sequence of RecordedRound
        Messages of one or several rounds of one run, to all parties.
    truth : Interactions, SciPy sparse matrix or array, or frame
        The data, to score the claims.
    grid : sequence of float
        Possible ratings, increasing.

    Returns
    -------
    list of AttackResult
        On the first record: value matching and sums of groups if there are denoisers, and popularity by the numbers of
        raters that the server computes.  With at least two records: the intersection of all, and the gradients of the
        first and the last.  If users report rated items only: the gradients only.
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
        # Modulo 2^64 the denoisers' counts cancel the virtual items' counts.
        np.add.at(counts, first.server.items, first.server.values[:, -1])
        np.subtract.at(counts, first.denoisers.items, first.denoisers.values[:, -1])
        results.append(popularity(first, truth, counts))
        if len(records) > 1:
            results.append(intersection(records, truth))
    if len(records) > 1:
        results.append(gradients(first, records[-1], truth, grid=grid))
    return results


def note_attacks(model: Any) -> None:
    """Run the attacks on a model's recorded messages, and note their results in its ledger.

    Parameters
    ----------
    model : FedRec, FedRecPlusPlus or SDCF
        Fitted model, of which `records_` holds the messages.
    """
    records, ledger = model.records_, model.ledger_
    if len(records) < 2:
        ledger.note(MEASURE_ATTACKS, "not covered")
    if records:
        for result in run_attacks(records, model.interactions_, grid=model.grid):
            note_experiment(ledger, result)


def _hashes_of(messages: Messages) -> np.ndarray:
    """Return a hash of each message's item and values; two different messages collide with probability 2^-64."""
    # Multiplication by odd numbers is a bijection modulo 2^64.
    odd = Key.from_seed(0).words("attacks.names", size=messages.values.shape[1] + 1) | np.uint64(1)
    return messages.values @ odd[1:] + messages.items.astype(np.uint64) * odd[0]


def _unpacked(record: RecordedRound, truth: Interactions) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs of one round, a and y'v of each, and y of each user; see the notes of `gradients`."""
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
    # A user's gradients have one direction; one power iteration from the largest one averages the rounding errors.
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
    """Return for each of `n` users, in ascending order, the vector that solves most of the user's equations."""
    if not n:
        return np.zeros((0, 4))
    starts = np.searchsorted(owner, np.arange(n))
    norms = np.sqrt(np.add.reduceat(equations**2, starts))
    norms[norms == 0] = 1.0
    scaled = equations / norms[owner]
    weights, counts = np.ones(len(owner)), np.bincount(owner, minlength=n)
    for _ in range(_N_REWEIGHTINGS):
        # The smallest eigenvector solves the weighted least squares problem; outliers lose weight in each step.
        grams = np.add.reduceat(scaled[:, :, None] * (weights[:, None] * scaled)[:, None, :], starts)
        vectors = np.linalg.eigh(grams)[1][:, :, 0]
        residuals = np.abs(np.einsum("nj,nj->n", scaled, vectors[owner]))
        small = (_RESIDUAL_SHARE * np.bincount(owner, residuals, n) / counts)[owner] + 1e-30
        weights = small**2 / (residuals**2 + small**2)
    return vectors / norms
