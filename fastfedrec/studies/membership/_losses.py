"""Losses of a model's scores on users' items, for the attack that compares them with the losses of other models."""

from typing import Any

import numpy as np

from fastfedrec.compute.ranking import held_out_ranks
from fastfedrec.core.arrays import exceed
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.membership._runs import score_blocks


def user_losses(served: Any, profiles: Interactions, loss: Any, threshold: float, n_threads: int) -> np.ndarray:
    """Return one loss per user, by the name of a loss or by a function of scores and profiles."""
    blocks = []
    for rows, scores in score_blocks(served, profiles):
        block_profiles = profiles.select_users(rows)
        if callable(loss):
            block = np.asarray(loss(scores, block_profiles), dtype=np.float64)
            if block.shape != (len(rows),) or not np.isfinite(block).all():
                raise ValueError(f"loss must return one finite number per user, {len(rows)} in all, got {block!r}")
        else:
            block = _loss_of_block(scores, block_profiles, loss, threshold, n_threads)
        blocks.append(block)
    return np.concatenate(blocks)


def _loss_of_block(
    scores: np.ndarray, profiles: Interactions, loss: str, threshold: float, n_threads: int
) -> np.ndarray:
    positives = profiles._keep(exceed(profiles.values_or_ones(), threshold))
    lengths = positives.interactions_per_user()
    rows = np.repeat(np.arange(positives.n_users), lengths)
    positive_scores = scores[rows, positives.indices]
    if loss == "rank":
        # Ranks start at 1, so the best item has a loss of 0.
        counts = np.full(len(scores), positives.n_items)
        values = (
            held_out_ranks(positive_scores, scores, counts, rows=rows, n_threads=n_threads) - 1
        ) / positives.n_items
    elif loss == "squared":
        values = (positive_scores - positives.values_or_ones()) ** 2
    else:
        # A positive item with logit s has the cross-entropy log(1 + e^-s), a negative one log(1 + e^s).
        values = np.logaddexp(0.0, -positive_scores)
        positive_terms = np.logaddexp(0.0, positive_scores)
        negative_terms = np.logaddexp(0.0, scores).sum(axis=1) - np.bincount(rows, positive_terms, len(scores))
        values = values + (negative_terms / np.maximum(positives.n_items - lengths, 1))[rows]
    return np.bincount(rows, values, len(scores)) / lengths
