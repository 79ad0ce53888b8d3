"""Generated interactions; the peer draws by popularity alone, with the Gumbel trick in NumPy over users x items."""

import numpy as np

from benches.core_suite import core
from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Key
from fastfedrec.datasets import generate_implicit


def _fastfedrec(n_users, n_items):
    data = generate_implicit(n_users, n_items, key=Key.from_seed(1))
    return data.indptr, data.indices


def _numpy(n_users, n_items):
    """Return interactions from one popularity, without topics and calibration, the lower bound of a dense sampler."""
    rng = np.random.default_rng(1)
    # Popularity decreases with the rank to the power 0.8, and the lengths of rows are log-normal.
    log_weights = -0.8 * np.log(np.arange(1, n_items + 1))
    lengths = np.clip(np.exp(rng.normal(4.35, 1.15, n_users)), 20, 0.65 * n_items).astype(np.int64)
    rows = []
    for length in lengths:
        scores = log_weights + rng.gumbel(size=n_items)
        rows.append(np.sort(np.argpartition(-scores, length)[:length]).astype(np.int32))
    return np.concatenate([[0], np.cumsum(lengths)]), np.concatenate(rows)


def _floor(case):
    # Each interaction takes a word.
    return keystream_seconds(case.n_interactions)


@core("time_generate", impl=["fastfedrec"], shape=[(6_040, 3_706)])
@with_ratios("time_generate", floor=_floor)
class GenerateImplicit:
    params = (["fastfedrec", "numpy"], [(6_040, 3_706), (50_000, 5_000)])
    param_names = ("impl", "shape")

    def setup(self, impl, shape):
        self.generate = {"fastfedrec": _fastfedrec, "numpy": _numpy}[impl]
        indptr, indices = self.generate(200, shape[1])
        counts = np.bincount(indices, minlength=shape[1])
        rows = np.repeat(np.arange(200), np.diff(indptr))
        if len(np.unique(rows * shape[1] + indices)) != len(indices) or np.diff(indptr).min() < 20:
            raise AssertionError(f"{impl}: a user holds an item twice, or too few")
        if np.sort(counts)[::-1][: shape[1] // 10].sum() < 0.3 * len(indices):
            raise AssertionError(f"{impl}: popularity has no head")

    def time_generate(self, impl, shape):
        self.n_interactions = len(self.generate(*shape)[1])

    def peakmem_generate(self, impl, shape):
        self.generate(*shape)


class GeneratePreset:
    """Short rows from several hundred narrow topics, where calibrating the items' weights takes most of the time."""

    params = (["check-ins", "purchases", "catalogue"],)
    param_names = ("preset",)
    timeout = 300

    def setup(self, preset):
        data = generate_implicit(2_000, 500, key=Key.from_seed(1), preset=preset)
        if data.shape != (2_000, 500) or not 3 <= np.median(data.interactions_per_user()) <= 9:
            raise AssertionError(f"{preset}: rows are not short")

    def time_generate(self, preset):
        generate_implicit(key=Key.from_seed(1), preset=preset)

    peakmem_generate = time_generate


class GenerateMillion:
    """50 million interactions of a million users on the catalogue of MovieLens 20M, and a fifth of the users."""

    # The difference of the peaks should equal the difference of the results' sizes, about 28 bytes for each
    # user and 4 for each interaction.

    params = ([200_000, 1_000_000],)
    param_names = ("n_users",)
    number = repeat = 1
    warmup_time = 0

    def generate(self, n_users):
        return generate_implicit(
            1_000_000, 26_744, key=Key.from_seed(1), mean_interactions=50, users=range(1_000_000 - n_users, 1_000_000)
        )

    def setup(self, n_users):
        data = self.generate(10_000)
        if abs(data.n_interactions / 500_000 - 1) > 0.05 or data.interactions_per_user().min() < 20:
            raise AssertionError(f"10,000 users hold {data.n_interactions} items, not about 500,000")

    def time_generate(self, n_users):
        self.generate(n_users)

    peakmem_generate = time_generate
