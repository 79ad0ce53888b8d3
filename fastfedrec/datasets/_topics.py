"""Tables that all users of a generated data set share: topics over items, activity, and what ratings need.

The constants are frozen.  They were fitted to MovieLens, not to what a private system scores.
Everything a user reads is rounded to 32 bits, and nothing is summed by BLAS, so that machines agree.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy

from fastfedrec._kernels.datasets import generate as _kernel
from fastfedrec.core.randomness import Key
from fastfedrec.datasets._presets import MAX_LENGTH_SHARE, Preset

N_DIMS = 16
BUDGET = 16
LARGEST_SHARE = 0.97
MIN_PILOT_SHARE = 2.0**-20  # of a topic: smaller shares of selected pilots count as 0, which saves their products
N_PILOT_BLOCKS = 32
N_SINKHORN = 5
N_STRONG_ROUNDS = 5
N_TASTES = 8

USER_WEIGHT, ITEM_WEIGHT, AFFINITY_WEIGHT, TASTE_WEIGHT = 0.42, 0.52, 0.10, 0.30
POPULARITY_CORRELATION = 0.55
RATING_CUTS = (0.056, 0.164, 0.425, 0.774)


@dataclass(frozen=True)
class RatingTables:
    """What turns an item that was drawn into a rating: float32, by item id."""

    item_effects: np.ndarray
    item_tastes: np.ndarray
    item_topics: np.ndarray
    log_mean_weights: np.ndarray
    scales: np.ndarray  # user, taste, affinity mean and scale, noise, four cuts; see the kernel


@dataclass(frozen=True)
class Tables:
    """What `draw_lengths` and `draw_users` of the kernel read."""

    thresholds: np.ndarray
    median: float
    anchors: np.ndarray
    alias: np.ndarray
    calibration_error: float  # mean relative error of the items' expected shares; for the tests
    ratings: RatingTables | None


def build_tables(preset: Preset, n_items: int, key: Key, ratings: bool, n_threads: int) -> Tables:
    """All tables of one data set; they depend on the key, the preset and the number of items."""
    thresholds = _activity_thresholds(preset, n_items)
    candidate_lengths = preset.shortest + np.searchsorted(
        thresholds, _midpoints(preset.n_pilot_candidates) * 2.0**32, side="right"
    )
    median = float(preset.shortest + np.searchsorted(thresholds, 2.0**31, side="right"))
    z, popularity = preset.popularity.of_items(n_items)
    target = np.minimum(LARGEST_SHARE, popularity * candidate_lengths.mean())

    scales = np.arange(1, N_DIMS + 1) ** -preset.decay
    scales /= np.sqrt((scales**2).sum())
    anchors = _normal_table(key, "topic anchors", preset.n_topics, N_DIMS)
    if preset.n_groups:  # each on half an axis: keys differ more where the centres are random
        group = _groups(preset)
        anchors *= np.sqrt(1.0 - preset.nearness)
        anchors[np.arange(preset.n_topics), group // 2] += np.sqrt(preset.nearness * N_DIMS) * (1 - 2 * (group % 2))
    anchors *= scales
    positions = _normal_table(key, "item positions", n_items, N_DIMS)
    rho = preset.popularity_correlation
    positions[:, 0] = rho * z / z.std() + np.sqrt(1 - rho**2) * positions[:, 0]
    topics = preset.item_pull * np.einsum("kj,ij->ki", anchors, positions, optimize=False)
    topics += preset.speciality * _normal_table(key, "item specialities", preset.n_topics, n_items)
    topics *= (1.0 - target) ** preset.damping
    topics += np.log(popularity)
    topics -= topics.max(axis=1, keepdims=True)
    np.exp(topics, out=topics)
    topics /= topics.sum(axis=1, keepdims=True)

    anchors = (preset.user_pull * anchors).astype(np.float32).astype(np.float64)
    shares = _candidate_shares(preset, key, anchors, candidate_lengths, median)
    mean_shares = np.einsum("u,uk->k", candidate_lengths / candidate_lengths.sum(), shares, optimize=False)
    lengths, shares = _select_pilots(preset, candidate_lengths, shares)
    target = np.minimum(LARGEST_SHARE, popularity * lengths.mean())
    times, error = _calibrate(preset, topics, mean_shares, shares, lengths, popularity, target, n_threads)
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
    """The same preset with users who hold `mean` items on average; raises where its shape cannot have that mean."""

    def excess(activity_mean):
        thresholds = _activity_thresholds(replace(preset, activity_mean=activity_mean), n_items)
        return preset.shortest + (1.0 - thresholds / 2.0**32).sum() - mean

    # Beyond three standard deviations from either end the distribution is hardly a lognormal any more.
    margin = 3.0 * preset.activity_stddev
    low = min(np.log(preset.shortest), preset.activity_mean) - margin
    high = np.log(int(MAX_LENGTH_SHARE * n_items)) + margin
    if not excess(low) <= 0.0 <= excess(high):
        raise ValueError(
            f"mean_interactions must lie between {excess(low) + mean:.1f} and {excess(high) + mean:.1f} with this "
            f"preset and {n_items} items, got {mean:g}"
        )
    # Rounded, so that another machine's last digit gives the same data.
    return replace(preset, activity_mean=round(scipy.optimize.brentq(excess, low, high, xtol=1e-10), 6))


def _midpoints(n: int) -> np.ndarray:
    return (np.arange(n) + 0.5) / n


def _normal_table(key: Key, what: str, n_rows: int, n_columns: int) -> np.ndarray:
    return key.normal(f"datasets.generate.{what}", size=n_rows * n_columns).reshape(n_rows, n_columns)


def _groups(preset: Preset) -> np.ndarray:
    """The group of each topic: the g-th group has a part of the topics in proportion to 1 / g."""
    ends = np.cumsum(1.0 / np.arange(1, preset.n_groups + 1))
    return np.searchsorted(ends, _midpoints(preset.n_topics) * ends[-1])


def _activity_thresholds(preset: Preset, n_items: int) -> np.ndarray:
    """P(n <= shortest + j) in 2^-32: a lognormal cut off at both ends and rounded."""
    longest = int(MAX_LENGTH_SHARE * n_items)
    edges = np.log(np.arange(preset.shortest, longest + 2) - 0.5)
    below = scipy.special.ndtr((edges - preset.activity_mean) / preset.activity_stddev)
    share = (below[1:-1] - below[0]) / (below[-1] - below[0])
    return np.minimum(np.rint(share * 2.0**32), 2.0**32 - 1).astype(np.uint32)


def _candidate_shares(preset: Preset, key: Key, anchors: np.ndarray, lengths: np.ndarray, median: float) -> np.ndarray:
    """Topic shares of pilot users, who are no real users, at the midpoints of the activity distribution."""
    positions = _normal_table(key, "pilot positions", len(lengths), N_DIMS)
    positions[:, 0] -= preset.activity_tilt * np.log(lengths / median)
    # One array all along: with 32,768 candidates each copy would take 64 MiB.
    shares = _normal_table(key, "pilot noise", len(lengths), preset.n_topics)
    shares *= preset.topic_noise
    shares += np.einsum("kj,uj->uk", anchors, positions, optimize=False)
    shares *= (lengths[:, None] / median) ** -preset.gamma
    shares -= shares.max(axis=1, keepdims=True)
    np.exp(shares, out=shares)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _select_pilots(preset: Preset, lengths: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths and shares of `n_pilots` candidates, evenly spread over the topics and lengths.

    Where a user has few topics, pilots drawn at random would miss the topics' sizes by tens of percent.
    """
    step = preset.n_pilot_candidates // preset.n_pilots
    if step == 1:
        return lengths, shares
    # Candidates come in the order of their lengths.  From each of `step` ranges of these, every `step`-th candidate is
    # taken in the order of the topics, from another start each time, so that the ranges together cover all topics.
    topics, heights = (a.reshape(step, -1) for a in (shares.argmax(axis=1), shares.max(axis=1)))
    chosen = np.concatenate([
        number * preset.n_pilots + np.lexsort((heights[number], topics[number]))[5 * number % step :: step]
        for number in range(step)
    ])  # fmt: skip
    shares = np.where(shares[chosen] < MIN_PILOT_SHARE, 0.0, shares[chosen])
    return lengths[chosen], shares / shares.sum(axis=1, keepdims=True)


def _calibrate(preset, topics, mean_shares, shares, lengths, popularity, target, n_threads):
    """Scale items, in place, until the pilot users are expected to hold each with its target share."""
    for _ in range(N_SINKHORN):
        topics *= popularity / np.einsum("k,ki->i", mean_shares, topics, optimize=False)
        topics /= topics.sum(axis=1, keepdims=True)
    times = lengths.astype(np.float64)
    blocks = np.empty((N_PILOT_BLOCKS, topics.shape[1]))
    scratch = np.empty((n_threads, topics.shape[1]))
    for round_number in range(preset.n_rounds + 1):
        blocks[:] = 0.0
        _kernel.expected_shares(shares, topics, lengths, times, blocks, scratch, n_threads)
        expected = blocks.sum(axis=0) / len(lengths)
        if round_number == preset.n_rounds:
            break
        ratio = target / expected
        if round_number < N_STRONG_ROUNDS:  # a share near 1 hardly moves with its weight
            high = expected > 0.3
            ratio[high] = np.log1p(-target[high]) / np.log1p(-expected[high])
        topics *= ratio
        topics /= topics.sum(axis=1, keepdims=True)
    return times, float(np.abs(expected / target - 1).mean())


def _alias_tables(topics: np.ndarray) -> np.ndarray:
    """Round each topic to integers that add up to n_items * 2^32, none 0, and build its alias table."""
    n_items = topics.shape[1]
    weights = np.maximum(topics * (n_items * 2.0**32), 1.0).astype(np.uint64)
    total = np.uint64(n_items << 32)
    rows = np.arange(len(weights))
    weights[rows, weights.argmax(axis=1)] += total - weights.sum(axis=1)  # modulo 2^64: the rest may be negative
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
    """Item terms centred, and the noise sized, so that a rating's score has mean 0 and variance 1 over what is held."""
    n_items = len(z)
    held = target / target.sum()
    effects = POPULARITY_CORRELATION * z / z.std()
    effects += np.sqrt(1 - POPULARITY_CORRELATION**2) * key.normal("datasets.generate.item effects", size=n_items)
    effects = ITEM_WEIGHT * (effects - (held * effects).sum())
    log_mean = np.log(np.einsum("k,ki->i", shares.mean(axis=0), topics, optimize=False))
    some = slice(None, None, len(shares) // 64)
    mean, variance, covariance = _affinity_moments(topics, shares[some], times[some], log_mean, effects)
    affinity_scale = AFFINITY_WEIGHT / np.sqrt(variance)
    noise = 1.0 - USER_WEIGHT**2 - (held * effects**2).sum() - AFFINITY_WEIGHT**2 - TASTE_WEIGHT**2
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
    """Moments of log(w_ui / mean w_i) over the items that these pilot users are expected to hold.

    Its mean and variance, and its covariance with the item effects: what is held in spite of being rare is liked more.
    """
    sums = np.zeros(4)
    for share, time in zip(shares, times, strict=True):
        weights = np.einsum("k,ki->i", share, topics, optimize=False)
        held, affinity = -np.expm1(-time * weights), np.log(weights) - log_mean
        sums += [held.sum(), (held * affinity).sum(), (held * affinity**2).sum(), (held * affinity * effects).sum()]
    _, mean, square, product = sums / sums[0]
    return mean, square - mean**2, product
