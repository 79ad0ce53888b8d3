"""Presets of `generate_implicit`: public figures of the data sets that it imitates."""

from dataclasses import dataclass

import numpy as np
import scipy

MAX_LENGTH_SHARE = 0.65  # maximum share of all items that a user has


@dataclass(frozen=True)
class QuadraticPopularity:
    """Popularity with a logarithm that is a parabola in the normal score of an item's rank."""

    slope: float
    curvature: float
    floor: float = 0.0  # added to each weight, as a multiple of the mean weight
    n_ranked: int | None = None  # size of the catalogue from which the top items are taken; None: a random subset

    def of_items(self, n_items: int) -> tuple[np.ndarray, np.ndarray]:
        """Return normal scores and shares of all interactions, both [n_items], by decreasing popularity."""
        shown = 1.0 if self.n_ranked is None else min(1.0, n_items / self.n_ranked)
        # `shown` is the share of the catalogue that its top items are.
        z = _normal_scores(n_items, shown)
        top = np.minimum(z, self.slope / (2 * self.curvature))  # beyond its vertex the parabola would decrease
        weight = np.exp(self.slope * top - self.curvature * top**2)
        weight += self.floor * weight.mean()
        return z, weight / weight.sum()


@dataclass(frozen=True)
class RankedPopularity:
    """Popularity by numbers of users at given ranks, with linear interpolation of log users in log rank."""

    n_users_at_rank: tuple[tuple[int, int], ...]  # (rank from 1, users); the last rank is the size of the catalogue

    def of_items(self, n_items: int) -> tuple[np.ndarray, np.ndarray]:
        """Return normal scores and shares of all interactions, both [n_items], by decreasing popularity."""
        ranks, users = np.log(np.array(self.n_users_at_rank, dtype=np.float64)).T
        # A smaller number of items is a random subset; a larger number is a larger catalogue of the same shape.
        rank = (np.arange(n_items) + 0.5) / n_items * self.n_users_at_rank[-1][0] + 0.5
        weight = np.exp(np.interp(np.log(rank), ranks, users))
        return _normal_scores(n_items, 1.0), weight / weight.sum()


@dataclass(frozen=True)
class Preset:
    """Size, activity, popularity and structure of a data set; a length is the number of items of a user."""

    n_users: int
    n_items: int
    popularity: QuadraticPopularity | RankedPopularity
    shortest: int  # minimum length
    activity_mean: float  # of the logarithm of a length, before truncation
    activity_stddev: float
    n_topics: int = 64
    item_pull: float = 2.0  # scale of the effect of an item's position on its topics
    user_pull: float = 4.5  # scale of the effect of a user's position on its topics
    topic_noise: float = 2.25  # standard deviation of a user's preference for a topic, beyond the position
    speciality: float = 4.0  # standard deviation of an item's log weight in a topic, beyond the position
    popularity_correlation: float = 0.8  # correlation of an item's first dimension with its popularity
    decay: float = 0.5  # the scale of dimension j is j ** -decay
    n_groups: int = 0  # number of groups of topics with similar positions, at most 2 * N_DIMS
    nearness: float = 0.0  # share in [0, 1] of the variance of a topic's position that its group shares
    damping: float = 1.0  # exponent by which popularity reduces an item's dependence on topics
    gamma: float = 0.4  # exponent by which a user's length flattens the shares of topics
    activity_tilt: float = 0.0  # decrease of a user's first dimension per unit of log length
    n_rounds: int = 8  # number of rounds of calibration
    n_pilots: int = 1024  # number of simulated users for the calibration of items' weights
    n_pilot_candidates: int = 1024  # number of simulated users from which the pilots are selected

    @property
    def fewest_items(self) -> int:
        """Minimum number of items, so that a user's maximum share is at least `shortest` items."""
        return int(np.ceil(self.shortest / MAX_LENGTH_SHARE))


# The last three presets were fitted to published statistics and scores of the data, and two of them also to scores of
# private systems, which depend on the spectrum (docs/explanation/datasets/generator.md).
PRESETS = {
    "movielens-1m": Preset(
        n_users=6_040, n_items=3_706, popularity=QuadraticPopularity(1.72, 0.225),
        shortest=20, activity_mean=4.35, activity_stddev=1.15,
    ),
    "movielens-20m": Preset(
        n_users=75_040, n_items=9_781, popularity=QuadraticPopularity(4.10, 0.525, floor=0.0013, n_ranked=26_744),
        shortest=60, activity_mean=4.35, activity_stddev=1.15,
    ),
    "check-ins": Preset(
        n_users=14_066, n_items=1_000,
        popularity=RankedPopularity(
            ((1, 2500), (10, 1480), (16, 880), (50, 480), (100, 340), (300, 190), (800, 128), (1000, 125))
        ),
        shortest=5, activity_mean=1.1, activity_stddev=1.18,
        n_topics=256, n_groups=32, nearness=0.7, item_pull=8.8, user_pull=10.0, topic_noise=1.35, speciality=2.0,
        popularity_correlation=0.2, decay=0.65, damping=8.0, gamma=0.4,
        n_rounds=24, n_pilots=2048, n_pilot_candidates=32_768,
    ),
    "purchases": Preset(
        n_users=35_219, n_items=1_000,
        popularity=RankedPopularity(
            ((1, 1616), (10, 980), (20, 700), (50, 530), (100, 400), (300, 245), (600, 170), (1000, 80))
        ),
        shortest=3, activity_mean=0.3, activity_stddev=1.18,
        n_topics=256, n_groups=32, nearness=0.4, item_pull=4.0, user_pull=7.4, topic_noise=1.7, speciality=2.5,
        popularity_correlation=0.25, decay=0.5, damping=7.0, gamma=0.48,
        n_rounds=16, n_pilots=2048, n_pilot_candidates=32_768,
    ),
    "catalogue": Preset(
        n_users=70_679, n_items=24_915,
        popularity=RankedPopularity(((1, 2100), (10, 1200), (100, 470), (1000, 140), (10_000, 20), (24_915, 8))),
        shortest=5, activity_mean=-7.5, activity_stddev=2.6,
        n_topics=256, item_pull=4.5, user_pull=9.2, topic_noise=2.5, speciality=2.5, popularity_correlation=0.7,
        decay=0.5, damping=6.0, activity_tilt=0.55, gamma=0.35,
        n_rounds=6, n_pilots=1024, n_pilot_candidates=32_768,
    ),
}  # fmt: skip


def _normal_scores(n_items: int, shown: float) -> np.ndarray:
    """Return decreasing standard normal quantiles [n_items] of the ranks of the top share `shown` of a catalogue."""
    return -scipy.special.ndtri((np.arange(n_items) + 0.5) / n_items * shown)
