"""ShuffledGram: counts of fake messages on one thread, and a complete fit of users with short rows on two."""

import itertools

import numpy as np

from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Key, ShuffledGram, datasets
from fastfedrec.systems.gram.fake_messages import FakeMessages

N_THREADS = 2
N_USERS, N_CELLS, N_MESSAGES = 20_000, 500_000, 1_000
PART = 2**18  # words that stay in the cache: the kernel writes none to memory
USERS, NUMBERS = np.arange(N_USERS, dtype=np.uint64), np.full(N_USERS, N_MESSAGES)
HUNDREDTHS = itertools.count(200)  # of epsilon
FAKES, KEY = FakeMessages.of(1.0, N_CELLS), Key.from_seed(2)


def _fastfedrec():
    return FAKES.counts(KEY, "bench", USERS, NUMBERS, 0, 1)


def _numpy():
    draws = np.random.Generator(np.random.PCG64(1))
    counts = np.zeros(N_CELLS, dtype=np.int64)
    for _ in range(0, N_USERS * N_MESSAGES, 2**20):
        counts += np.bincount(draws.integers(N_CELLS, size=2**20), minlength=N_CELLS)
    return counts


def _floor(case):
    return N_USERS * N_MESSAGES / PART * keystream_seconds(PART)


@with_ratios("time_counts", floor=_floor)
class Counts:
    """Counts of 20 million fake messages.  The floor is the keystream; the peer's generator, PCG64, is no cipher."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        self.run = _fastfedrec if impl == "fastfedrec" else _numpy
        counts = self.run()
        if not np.isclose(counts.var(), counts.mean(), rtol=0.02):
            raise AssertionError(f"the counts have variance {counts.var()}, and are not uniform")

    def time_counts(self, impl):
        self.run()


class Plan:
    """Numbers of fakes and reports for 20,000 users and 1,000 items; a process plans once for an epsilon."""

    number = 1  # `setup` comes before each call

    def setup(self):
        self.model = ShuffledGram(next(HUNDREDTHS) / 100)

    def time_plan(self):
        self.model._rounds(20_000, 1_000)


class Fit:
    """Calibration, messages of all users and their fakes, counts, the decision, the spectrum and the factors."""

    param_names = ("n_users", "epsilon")
    params = ((20_000,), (2.0, 4.0))

    def setup(self, n_users, epsilon):
        self.data = datasets.generate_implicit(n_users, 1_000, key=Key.from_seed(1), preset="check-ins")

    def time_fit(self, n_users, epsilon):
        ShuffledGram(epsilon).fit(self.data, key=KEY, n_threads=N_THREADS)

    peakmem_fit = time_fit
