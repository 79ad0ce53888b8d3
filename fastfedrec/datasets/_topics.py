"""Tables that all users of a generated data set share: topics over items, activity and ratings.

The constants are frozen.  They were fitted to MovieLens, not to scores of private systems.  Machines give equal data,
because all tables that a user reads are rounded to 32 bits, and BLAS computes no sum.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy

from fastfedrec._kernels.datasets import generate as _kernel
from fastfedrec.core.randomness import Key
from fastfedrec.datasets._presets import MAX_LENGTH_SHARE, Preset

N_DIMS = 16  # dimensions of the positions of users, items and topics
BUDGET = 16  # random draws per item of a user; the remaining items come from an exponential race
LARGEST_SHARE = 0.97  # maximum target share of users for an item
MIN_PILOT_SHARE = 2.0**-20  # of a topic; smaller shares of selected pilots become 0, which saves their products
N_PILOT_BLOCKS = 32  # partial sums over pilots; their fixed number makes results independent of the threads
N_SINKHORN = 5  # rounds of scaling before the calibration by pilots
N_STRONG_ROUNDS = 5  # first rounds of calibration, with larger steps for popular items
N_TASTES = 8  # dimensions of taste in ratings

# Weights of the terms of a rating's score, which has variance 1; noise has the remaining variance.
USER_WEIGHT, ITEM_WEIGHT, AFFINITY_WEIGHT, TASTE_WEIGHT = 0.42, 0.52, 0.10, 0.30
POPULARITY_CORRELATION = 0.55  # of an item's effect on ratings with its popularity
RATING_CUTS = (0.056, 0.164, 0.425, 0.774)  # cumulative shares of the ratings 1 to 4


@dataclass(frozen=True)
class RatingTables:
    """Tables that give a drawn item its rating, as float32 by item id."""

    item_effects: np.ndarray
    item_tastes: np.ndarray
    item_topics: np.ndarray
    log_mean_weights: np.ndarray
    scales: np.ndarray  # user, taste, affinity mean and scale, noise, four cuts; see the kernel


@dataclass(frozen=True)
class Tables:
    """Input of the kernel's `draw_lengths` and `draw_users`."""

    thresholds: np.ndarray
    median: float
    anchors: np.ndarray
    alias: np.ndarray
    calibration_error: float  # mean relative error of the items' expected shares; used by tests
    ratings: RatingTables | None


def build_tables(preset: Preset, n_items: int, key: Key, ratings: bool, n_threads: int) -> Tables:
    """Build all tables of a data set, which depend on the key, the preset and the number of items."""
    thresholds = _activity_thresholds(preset, n_items)
    candidate_lengths = preset.shortest + np.searchsorted(
        thresholds, _midpoints(preset.n_pilot_candidates) * 2.0**32, side="right"
    )
    # The threshold 2^31 is a probability of one half.
    median = float(preset.shortest + np.searchsorted(thresholds, 2.0**31, side="right"))
    z, popularity = preset.popularity.of_items(n_items)
    target = np.minimum(LARGEST_SHARE, popularity * candidate_lengths.mean())

    scales = np.arange(1, N_DIMS + 1) ** -preset.decay
    scales /= np.sqrt((scales**2).sum())
    anchors = _normal_table(key, "topic anchors", preset.n_topics, N_DIMS)
    # Group centres are on half axes; random centres would make the data depend more on the key.
    if preset.n_groups:
        group = _groups(preset)
        anchors *= np.sqrt(1.0 - preset.nearness)
        anchors[np.arange(preset.n_topics), group // 2] += np.sqrt(preset.nearness * N_DIMS) * (1 - 2 * (group % 2))
    anchors *= scales
    positions = _normal_table(key, "item positions", n_items, N_DIMS)
    # The first dimension of an item has correlation rho with its popularity.
    rho = preset.popularity_correlation
    positions[:, 0] = rho * z / z.std() + np.sqrt(1 - rho**2) * positions[:, 0]
    # The logarithm of an item's weight in a topic: affinity of positions, item noise, damping, and popularity.
    topics = preset.item_pull * np.einsum("kj,ij->ki", anchors, positions, optimize=False)
    topics += preset.speciality * _normal_table(key, "item specialities", preset.n_topics, n_items)
    topics *= (1.0 - target) ** preset.damping
    topics += np.log(popularity)
    # A softmax over items; the maximum is subtracted to avoid overflow.
    topics -= topics.max(axis=1, keepdims=True)
    np.exp(topics, out=topics)
    topics /= topics.sum(axis=1, keepdims=True)

    anchors = (preset.user_pull * anchors).astype(np.float32).astype(np.float64)
    shares = _candidate_shares(preset, key, anchors, candidate_lengths, median)
    mean_shares = np.einsum("u,uk->k", candidate_lengths / candidate_lengths.sum(), shares, optimize=False)
    lengths, shares = _select_pilots(preset, candidate_lengths, shares)
    target = np.minimum(LARGEST_SHARE, popularity * lengths.mean())
    times, error = _calibrate(preset, topics, mean_shares, shares, lengths, popularity, target, n_threads)
    # Items are ordered by popularity up to here; a random permutation assigns their ids.
    order = key.permutation("datasets.generate.item ids", size=n_items)
    by_id = np.empty_like(topics)
    by_id[:, order] = topics
    return Tables(
        thresholds,
        median,
        anchors,
        _alias_tables(by_id),
        error,
        _rating_tables(key, topics, z, target, shares, times, order) if ratings else None,
    )


def with_mean(preset: Preset, n_items: int, mean: float) -> Preset:
    """Return the preset with another mean number of items per user, or raise for an impossible mean."""

    def excess(activity_mean):
        thresholds = _activity_thresholds(replace(preset, activity_mean=activity_mean), n_items)
        return preset.shortest + (1.0 - thresholds / 2.0**32).sum() - mean

    # Beyond three standard deviations from either bound, the truncated distribution no longer resembles a lognormal.
    margin = 3.0 * preset.activity_stddev
    low = min(np.log(preset.shortest), preset.activity_mean) - margin
    high = np.log(int(MAX_LENGTH_SHARE * n_items)) + margin
    if not excess(low) <= 0.0 <= excess(high):
        raise ValueError(
            f"mean_interactions must be between {excess(low) + mean:.1f} and {excess(high) + mean:.1f} with this "
            f"preset and {n_items} items, got {mean:g}; pass a mean in this range, or "
            "another preset"
        )
    # The result is rounded, so that machines with other rounding errors give the same data.
    return replace(preset, activity_mean=round(scipy.optimize.brentq(excess, low, high, xtol=1e-10), 6))


def _midpoints(n: int) -> np.ndarray:
    return (np.arange(n) + 0.5) / n


def _normal_table(key: Key, purpose: str, n_rows: int, n_columns: int) -> np.ndarray:
    return key.normal(f"datasets.generate.{purpose}", size=n_rows * n_columns).reshape(n_rows, n_columns)


def _groups(preset: Preset) -> np.ndarray:
    """Return the group of each topic; the size of group g is proportional to 1 / g."""
    ends = np.cumsum(1.0 / np.arange(1, preset.n_groups + 1))
    return np.searchsorted(ends, _midpoints(preset.n_topics) * ends[-1])


def _activity_thresholds(preset: Preset, n_items: int) -> np.ndarray:
    """Return P(n <= shortest + j) as multiples of 2^-32, for a truncated and rounded lognormal."""
    longest = int(MAX_LENGTH_SHARE * n_items)
    edges = np.log(np.arange(preset.shortest, longest + 2) - 0.5)
    below = scipy.special.ndtr((edges - preset.activity_mean) / preset.activity_stddev)
    share = (below[1:-1] - below[0]) / (below[-1] - below[0])
    return np.minimum(np.rint(share * 2.0**32), 2.0**32 - 1).astype(np.uint32)


def _candidate_shares(preset: Preset, key: Key, anchors: np.ndarray, lengths: np.ndarray, median: float) -> np.ndarray:
    """Return topic shares of simulated pilot users with lengths at the midpoints of the activity distribution."""
    positions = _normal_table(key, "pilot positions", len(lengths), N_DIMS)
    positions[:, 0] -= preset.activity_tilt * np.log(lengths / median)
    # All operations are in place, because with 32,768 candidates each copy would take 64 MiB.
    shares = _normal_table(key, "pilot noise", len(lengths), preset.n_topics)
    shares *= preset.topic_noise
    shares += np.einsum("kj,uj->uk", anchors, positions, optimize=False)
    shares *= (lengths[:, None] / median) ** -preset.gamma
    shares -= shares.max(axis=1, keepdims=True)
    np.exp(shares, out=shares)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _select_pilots(preset: Preset, lengths: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths and shares of `n_pilots` candidates that are spread evenly over topics and lengths."""
    # For users with few topics, random pilots would miss the sizes of topics by tens of percent.
    step = preset.n_pilot_candidates // preset.n_pilots
    if step == 1:
        return lengths, shares
    # Candidates are sorted by length.  Each of `step` ranges is sorted by topic, and every `step`-th candidate is
    # selected, with another offset in each range, so that all ranges combined cover all topics.
    topics, heights = (a.reshape(step, -1) for a in (shares.argmax(axis=1), shares.max(axis=1)))
    selected = np.concatenate([
        number * preset.n_pilots + np.lexsort((heights[number], topics[number]))[5 * number % step :: step]
        for number in range(step)
    ])  # fmt: skip
    shares = np.where(shares[selected] < MIN_PILOT_SHARE, 0.0, shares[selected])
    return lengths[selected], shares / shares.sum(axis=1, keepdims=True)


def _calibrate(preset, topics, mean_shares, shares, lengths, popularity, target, n_threads):
    """Scale items in place until the expected share of pilot users with each item equals its target."""
    # Sinkhorn scaling: alternating updates match the popularity of items and the unit sums of topics.
    for _ in range(N_SINKHORN):
        topics *= popularity / np.einsum("k,ki->i", mean_shares, topics, optimize=False)
        topics /= topics.sum(axis=1, keepdims=True)
    times = lengths.astype(np.float64)
    blocks = np.empty((N_PILOT_BLOCKS, topics.shape[1]))
    scratch = np.empty((n_threads, topics.shape[1]))
    for round_number in range(preset.n_rounds + 1):
        # Each block sums its own pilots in a fixed order, so the bits do not depend on the number of threads.
        blocks[:] = 0.0
        _kernel.expected_shares(shares, topics, lengths, times, blocks, scratch, n_threads)
        expected = blocks.sum(axis=0) / len(lengths)
        if round_number == preset.n_rounds:
            break
        ratio = target / expected
        if round_number < N_STRONG_ROUNDS:  # a share near 1 responds weakly to its weight
            high = expected > 0.3
            # 1 - share is about exp(-c * weight), so the ratio of the logarithms is the factor of the weight.
            ratio[high] = np.log1p(-target[high]) / np.log1p(-expected[high])
        topics *= ratio
        topics /= topics.sum(axis=1, keepdims=True)
    return times, float(np.abs(expected / target - 1).mean())


def _alias_tables(topics: np.ndarray) -> np.ndarray:
    """Round each topic to positive integers with the sum n_items * 2^32, and build its alias table."""
    n_items = topics.shape[1]
    weights = np.maximum(topics * (n_items * 2.0**32), 1.0).astype(np.uint64)
    total = np.uint64(n_items << 32)
    rows = np.arange(len(weights))
    # The largest weight takes the rounding error, which changes it least.
    weights[rows, weights.argmax(axis=1)] += total - weights.sum(
        axis=1
    )  # modulo 2^64, because the difference may be negative
    alias = np.empty_like(weights)
    _kernel.build_alias(weights, alias, np.empty(n_items, dtype=np.int32))
    return alias


def _rating_tables(
    key: Key,
    topics: np.ndarray,
    z: np.ndarray,
    target: np.ndarray,
    shares: np.ndarray,
    times: np.ndarray,
    order: np.ndarray,
) -> RatingTables:
    """Build rating tables such that a score has mean 0 and variance 1 over the drawn user-item pairs."""
    n_items = len(z)
    held = target / target.sum()
    effects = POPULARITY_CORRELATION * z / z.std()
    effects += np.sqrt(1 - POPULARITY_CORRELATION**2) * key.normal("datasets.generate.item effects", size=n_items)
    effects = ITEM_WEIGHT * (effects - (held * effects).sum())
    log_mean = np.log(np.einsum("k,ki->i", shares.mean(axis=0), topics, optimize=False))
    subset = slice(None, None, len(shares) // 64)  # about 64 pilots suffice for the moments
    mean, variance, covariance = _affinity_moments(topics, shares[subset], times[subset], log_mean, effects)
    # The noise has the variance that the other terms leave of the total of 1.
    affinity_scale = AFFINITY_WEIGHT / np.sqrt(variance)
    noise = 1.0 - USER_WEIGHT**2 - (held * effects**2).sum() - AFFINITY_WEIGHT**2 - TASTE_WEIGHT**2
    # Affinity and item effects are correlated, so their covariance also reduces the variance of the noise.
    noise -= 2.0 * affinity_scale * covariance
    scales = [
        USER_WEIGHT, TASTE_WEIGHT / np.sqrt(N_TASTES), mean, affinity_scale,
        np.sqrt(max(noise, 0.0)), *scipy.special.ndtri(RATING_CUTS),
    ]  # fmt: skip

    def by_id(table):
        out = np.empty(table.shape, dtype=np.float32)
        out[order] = table
        return out

    return RatingTables(
        by_id(effects),
        by_id(_normal_table(key, "item tastes", n_items, N_TASTES)),
        by_id(topics.T),
        by_id(log_mean),
        np.array(scales, dtype=np.float32).astype(np.float64),
    )


def _affinity_moments(topics, shares, times, log_mean, effects):
    """Return mean and variance of log(w_ui / mean w_i) over drawn pairs, and its covariance with item effects."""
    # Pairs are weighted by the probability that the pilot user draws the item.  The affinity is large for a rare item
    # that the user draws nevertheless, and raises its rating.
    sums = np.zeros(4)
    for share, time in zip(shares, times, strict=True):
        weights = np.einsum("k,ki->i", share, topics, optimize=False)
        held, affinity = -np.expm1(-time * weights), np.log(weights) - log_mean
        sums += [held.sum(), (held * affinity).sum(), (held * affinity**2).sum(), (held * affinity * effects).sum()]
    _, mean, square, product = sums / sums[0]
    return mean, square - mean**2, product
