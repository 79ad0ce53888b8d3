"""What the parties of FedRec and FedRec++ find out about which items users rated, by experiment.

Every attack takes what parties received (``fit(record_views=...)``), claims of each pair (user, item) that the server
saw whether it is rated, and is then scored against the data.  docs/explanation/systems/fedrec.md has the figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfedrec._check import check_flag, check_instance
from fastfedrec.interactions import Interactions
from fastfedrec.systems._fedrec_views import Messages, RecordedRound

_REMEDY = "pass an entry of a model's records_, from fit(record_views=...)"


@dataclass(frozen=True)
class AttackResult:
    """What an attack claims of each pair (user, item), and what is so.

    Parameters
    ----------
    attack : str
        Name, and who carries it out.
    claims : ndarray of shape (n_pairs,), int8
        1 "rated", -1 "not rated", 0 no claim.
    is_rated : ndarray of shape (n_pairs,), bool
        The truth, which the attack does not look at.
    scores : ndarray of shape (n_pairs,), float64
        How strongly the attack holds a pair to be rated.
    rows : ndarray of shape (n_pairs,), int64
        Whose pair it is: rows of the data.
    """

    attack: str
    claims: np.ndarray
    is_rated: np.ndarray
    scores: np.ndarray
    rows: np.ndarray

    @property
    def base_rate(self) -> float:
        """Share of the pairs that are rated: the precision of claiming it of all.

        Returns
        -------
        float
            In [0, 1].
        """
        return float(self.is_rated.mean())

    @property
    def precision(self) -> float:
        """Share of the pairs claimed to be rated that are.

        Returns
        -------
        float
            NaN without any such claim.
        """
        claimed = self.is_rated[self.claims > 0]
        return float(claimed.mean()) if len(claimed) else float("nan")

    @property
    def precision_by_user(self) -> float:
        """The mean over users of the precision among each one's pairs: short profiles weigh as much as long ones.

        Returns
        -------
        float
            Over users of whom anything is claimed to be rated; NaN without any.
        """
        claimed = self.claims > 0
        made = np.bincount(self.rows[claimed])
        right = np.bincount(self.rows[claimed & self.is_rated], minlength=len(made))
        return float((right[made > 0] / made[made > 0]).mean()) if claimed.any() else float("nan")

    @property
    def recall(self) -> float:
        """Share of the rated pairs that are claimed to be.

        Returns
        -------
        float
            NaN where nothing is rated.
        """
        claimed = self.claims[self.is_rated]
        return float((claimed > 0).mean()) if len(claimed) else float("nan")

    @property
    def told(self) -> float:
        """Share of all pairs of which something is claimed, and truly.

        Returns
        -------
        float
            In [0, 1].
        """
        return float((self.claims == np.where(self.is_rated, 1, -1)).mean())

    @property
    def auc(self) -> float:
        """Chance that a rated pair has a higher score than one that is not, ties counting half; .5 is no attack.

        Returns
        -------
        float
            NaN where all pairs are alike.
        """
        _, code = np.unique(self.scores, return_inverse=True)
        rated = np.bincount(code[self.is_rated], minlength=code.max(initial=0) + 1).astype(np.float64)
        other = np.bincount(code[~self.is_rated], minlength=len(rated)).astype(np.float64)
        below = np.cumsum(other) - other
        pairs = rated.sum() * other.sum()
        return float((rated * (below + other / 2)).sum() / pairs) if pairs else float("nan")

    def statement(self) -> str:
        """Put the figures into a sentence, for ``ledger.note``.

        Returns
        -------
        str
            Begins with "not protected".
        """
        return (
            f"not protected, by experiment: {self.attack}: of {len(self.claims):,} items that users spoke of, "
            f"{(self.claims > 0).sum():,} are claimed to be rated, {self.precision:.1%} of them truly (by chance "
            f"{self.base_rate:.1%}); they are {self.recall:.1%} of all rated ones; AUC {self.auc:.3f}"
        )


def value_matching(record: RecordedRound, truth: Interactions, *, colluding: bool = True) -> AttackResult:
    """Look for the vectors that the server received among those of the denoisers: what is found is virtual.

    Parameters
    ----------
    record : RecordedRound
        What everybody received in one round.
    truth : Interactions
        The data, to score the claims.
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
    server = _check(record, truth).server
    found = record.denoisers if check_flag("colluding", colluding) else record.denoiser_sums()
    rows = np.concatenate([_named(server), _named(found)])
    _, names = np.unique(rows, axis=0, return_inverse=True)
    matched = np.isin(names[: len(server)], names[len(server) :])
    who = "the server with denoisers" if colluding else "the server with each denoiser's sums"
    claims = np.where(matched, -1, 1).astype(np.int8)
    return _result(f"value matching, {who}", claims, claims, _cells(server, truth), truth)


def intersection(records: Sequence[RecordedRound], truth: Interactions) -> AttackResult:
    """Claim that the items which a user speaks of in every round are rated: virtual ones come and go.

    Parameters
    ----------
    records : sequence of RecordedRound
        What everybody received in several rounds.
    truth : Interactions
        The data, to score the claims.

    Returns
    -------
    AttackResult
        Of all pairs of all rounds; the score is the share of the rounds in which the user sent anything.
    """
    if not records:
        raise ValueError(f"records must hold at least one round, got none; {_REMEDY}")
    rounds = [_check(record, truth).server for record in records]
    cells = np.concatenate([_cells(messages, truth) for messages in rounds])
    pairs, times = np.unique(cells, return_counts=True)
    present = np.zeros(truth.n_users)
    for messages in rounds:
        present[_rows(np.unique(messages.senders), truth)] += 1
    share = times / present[pairs // truth.n_items]
    claims = np.where(share == 1, 1, -1).astype(np.int8)
    name = f"intersection of {len(rounds)} round{'s' * (len(rounds) != 1)}, the server"
    return _result(name, claims, share, pairs, truth)


def popularity(record: RecordedRound, truth: Interactions, counts: np.ndarray) -> AttackResult:
    """Hold popular items for rated ones: the only thing that is left to a server with one fixed list of each user.

    Parameters
    ----------
    record : RecordedRound
        What everybody received in one round.
    truth : Interactions
        The data, to score the claims.
    counts : ndarray of shape (n_items,)
        How many users rated each item, as the server computes in every round of FedRec++.

    Returns
    -------
    AttackResult
        The score is the item's count; the upper half is claimed to be rated.
    """
    server = _check(record, truth).server
    counts = np.asarray(counts, dtype=np.float64)
    if counts.shape != (truth.n_items,):
        raise ValueError(f"counts must have shape ({truth.n_items},), one number an item, got {counts.shape}")
    scores = counts[server.items]
    claims = np.where(scores > np.median(scores), 1, -1).astype(np.int8) if len(scores) else np.zeros(0, np.int8)
    return _result("popularity, the server", claims, scores, _cells(server, truth), truth)


def group_sums(record: RecordedRound, truth: Interactions) -> AttackResult:
    """Subtract each denoiser's sums alone: where all of its users who speak of an item rated it, or none did, it shows.

    Parameters
    ----------
    record : RecordedRound
        What everybody received in one round.
    truth : Interactions
        The data, to score the claims.

    Returns
    -------
    AttackResult
        No claim where the count of raters is neither all nor none.  With one user to a denoiser it is always one of
        them.

    Notes
    -----
    It needs who is served by whom, which the server has dealt out, and each denoiser's sum alone.
    """
    server = _check(record, truth).server
    known, first = np.unique(record.denoisers.senders, return_index=True)
    receivers = record.denoisers.receivers[first]
    grouped = np.isin(server.senders, known)  # who sent a denoiser nothing is in no group
    groups = np.zeros(len(server), dtype=np.uint64)
    groups[grouped] = receivers[np.searchsorted(known, server.senders[grouped])]
    sent = Messages(server.senders, groups, server.items, server.values)
    ours, theirs = sent.add_up("receivers", record.n_items), record.denoiser_sums()
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
    return _result("sums of single denoisers, the server", claims, claims, _cells(server, truth), truth)


# ---- pairs ----------------------------------------------------------------------------------------------------------


def _check(record: RecordedRound, truth: Interactions) -> RecordedRound:
    check_instance("record", record, RecordedRound, _REMEDY)
    check_instance("truth", truth, Interactions, "pass the data that the model was fitted on")
    if record.n_items != truth.n_items or not np.isin(record.server.senders, truth.global_user_ids).all():
        raise ValueError(f"truth must be the data that the model was fitted on, got {truth!r}")
    return record


def _named(messages: Messages) -> np.ndarray:
    """One row a message: its item and its values, which are all that is needed to find it again."""
    return np.column_stack([messages.items.astype(np.uint64), messages.values])


def _rows(users: np.ndarray, truth: Interactions) -> np.ndarray:
    order = np.argsort(truth.global_user_ids)
    return order[np.searchsorted(truth.global_user_ids, users, sorter=order)]


def _cells(messages: Messages, truth: Interactions) -> np.ndarray:
    return _rows(messages.senders, truth) * truth.n_items + messages.items


def _result(
    attack: str, claims: np.ndarray, scores: np.ndarray, cells: np.ndarray, truth: Interactions
) -> AttackResult:
    rows = np.repeat(np.arange(truth.n_users), truth.interactions_per_user())
    is_rated = np.isin(cells, rows * truth.n_items + truth.indices)
    return AttackResult(attack, claims, is_rated, scores.astype(np.float64), cells // truth.n_items)
