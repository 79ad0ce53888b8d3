"""Tables that all users of a generated data set share: topics over items, activity, and what ratings need.

The constants are frozen.  They were fitted to MovieLens and must never be tuned on what a private system scores.
Everything a user reads is rounded to 32 bits, and nothing is summed by BLAS, so that machines agree.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy

from fastfedrec._kernels.datasets import generate as _kernel
from fastfedrec.core.randomness import Key

N_TOPICS = 64
N_DIMS = 16
KAPPA = 2.0  # how far an item's position moves it between topics
TAU = 4.5  # how far a user's position does
TOPIC_NOISE = 2.25
SPECIALITY = 4.0  # standard deviation of an item's own liking for a topic
RHO = 0.8  # correlation of an item's first dimension with its popularity
DECAY = 0.5
GAMMA = 0.4  # the more items a user holds, the flatter the shares of topics
BUDGET = 16
LARGEST_SHARE = 0.97
LARGEST_LENGTH = 0.65  # of the items
N_PILOTS = 1024
N_PILOT_BLOCKS = 32
N_SINKHORN = 5
N_ROUNDS = 8
N_STRONG_ROUNDS = 5
N_TASTES = 8

USER_WEIGHT, ITEM_WEIGHT, AFFINITY_WEIGHT, TASTE_WEIGHT = 0.42, 0.52, 0.10, 0.30
POPULARITY_CORRELATION = 0.55
RATING_CUTS = (0.056, 0.164, 0.425, 0.774)


@dataclass(frozen=True)
class Preset:
    """What differs between the two data sets that the generator imitates."""

    slope: float
    curvature: float
    floor: float
    catalogue: int | None  # items come from the top of a catalogue of this size; None: from all of it
    shortest: int
    activity_mean: float = 4.35  # of the logarithm, before truncation
    activity_stddev: float = 1.15

    @property
    def fewest_items(self) -> int:
        """The smallest number of items whose allowed share holds `shortest`."""
        return int(np.ceil(self.shortest / LARGEST_LENGTH))


PRESETS = {
    "movielens-1m": Preset(slope=1.72, curvature=0.225, floor=0.0, catalogue=None, shortest=20),
    "movielens-20m": Preset(slope=4.10, curvature=0.525, floor=0.0013, catalogue=26_744, shortest=60),
}


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
    lengths = preset.shortest + np.searchsorted(thresholds, _midpoints(N_PILOTS) * 2.0**32, side="right")
    median = float(preset.shortest + np.searchsorted(thresholds, 2.0**31, side="right"))
    shown = 1.0 if preset.catalogue is None else min(1.0, n_items / preset.catalogue)
    z = -scipy.special.ndtri(_midpoints(n_items) * shown)
    popularity = _popularity(preset, z)
    target = np.minimum(LARGEST_SHARE, popularity * lengths.mean())

    scales = np.arange(1, N_DIMS + 1) ** -DECAY
    scales /= np.sqrt((scales**2).sum())
    anchors = _normal_table(key, "topic anchors", N_TOPICS, N_DIMS) * scales
    positions = _normal_table(key, "item positions", n_items, N_DIMS)
    positions[:, 0] = RHO * z / z.std() + np.sqrt(1 - RHO**2) * positions[:, 0]
    topics = KAPPA * np.einsum("kj,ij->ki", anchors, positions, optimize=False)
    topics += SPECIALITY * _normal_table(key, "item specialities", N_TOPICS, n_items)
    topics *= 1.0 - target
    topics += np.log(popularity)
    topics -= topics.max(axis=1, keepdims=True)
    np.exp(topics, out=topics)
    topics /= topics.sum(axis=1, keepdims=True)

    anchors = (TAU * anchors).astype(np.float32).astype(np.float64)
    shares = _pilot_shares(key, anchors, lengths, median)
    times, error = _calibrate(topics, shares, lengths, popularity, target, n_threads)
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
    low = np.log(preset.shortest) - margin
    high = np.log(int(LARGEST_LENGTH * n_items)) + margin
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


def _activity_thresholds(preset: Preset, n_items: int) -> np.ndarray:
    """P(n <= shortest + j) in 2^-32: a lognormal cut off at both ends and rounded."""
    longest = int(LARGEST_LENGTH * n_items)
    edges = np.log(np.arange(preset.shortest, longest + 2) - 0.5)
    below = scipy.special.ndtr((edges - preset.activity_mean) / preset.activity_stddev)
    share = (below[1:-1] - below[0]) / (below[-1] - below[0])
    return np.minimum(np.rint(share * 2.0**32), 2.0**32 - 1).astype(np.uint32)


def _popularity(preset: Preset, z: np.ndarray) -> np.ndarray:
    top = np.minimum(z, preset.slope / (2 * preset.curvature))  # beyond its vertex the parabola would fall again
    weight = np.exp(preset.slope * top - preset.curvature * top**2)
    weight += preset.floor * weight.mean()
    return weight / weight.sum()


def _pilot_shares(key: Key, anchors: np.ndarray, lengths: np.ndarray, median: float) -> np.ndarray:
    """Topic shares of the pilot users: those of no real user, at the midpoints of the activity distribution."""
    positions = _normal_table(key, "pilot positions", N_PILOTS, N_DIMS)
    logits = np.einsum("kj,uj->uk", anchors, positions, optimize=False)
    logits += TOPIC_NOISE * _normal_table(key, "pilot noise", N_PILOTS, N_TOPICS)
    logits *= (lengths[:, None] / median) ** -GAMMA
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _calibrate(topics, shares, lengths, popularity, target, n_threads):
    """Scale items, in place, until the pilot users are expected to hold each with its target share."""
    mean_shares = np.einsum("u,uk->k", lengths / lengths.sum(), shares, optimize=False)
    for _ in range(N_SINKHORN):
        topics *= popularity / np.einsum("k,ki->i", mean_shares, topics, optimize=False)
        topics /= topics.sum(axis=1, keepdims=True)
    times = lengths.astype(np.float64)
    blocks = np.empty((N_PILOT_BLOCKS, topics.shape[1]))
    scratch = np.empty((n_threads, topics.shape[1]))
    for round_number in range(N_ROUNDS + 1):
        blocks[:] = 0.0
        _kernel.expected_shares(shares, topics, lengths, times, blocks, scratch, n_threads)
        expected = blocks.sum(axis=0) / N_PILOTS
        if round_number == N_ROUNDS:
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
    rows = np.arange(N_TOPICS)
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
    some = slice(None, None, N_PILOTS // 64)
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
