"""Reports of subset selection, with the item popularity of a real data set; one thread."""

import math

import numpy as np

from benches.mechanisms.frequencies.bench_frequency import check, draw_items
from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Key
from fastfedrec.mechanisms import SubsetSelection

EPSILON = 2.0
SIZES = {100: 50_000, 2_000: 2_000}  # number of clients by number of items


def _floor(case):
    # A report takes the random bits that identify one set, which include the decision about the client's item.
    n, d = case.oracle.n_values, case.oracle.subset_size
    return keystream_seconds(math.ceil(len(case.values) * math.log2(math.comb(n, d)) / 64))


@with_ratios("time_privatize", floor=_floor)
class PrivatizeItems:
    """Reports of one item: sets of 12 out of 100 items, and of 238 out of 2,000."""

    param_names = ("impl", "n_items")
    params = (("fastfedrec", "numpy"), tuple(SIZES))

    def setup(self, impl, n_items):
        self.oracle = SubsetSelection(EPSILON, n_items)
        self.run = self._fastfedrec if impl == "fastfedrec" else self._numpy
        self.values = draw_items(n_items, SIZES[n_items]).astype(np.uint16)
        check(impl, self.oracle, self.values, self.run())

    def time_privatize(self, impl, n_items):
        self.run()

    def _fastfedrec(self):
        return self.oracle.privatize(self.values, key=Key.from_seed(0), n_threads=1)

    def _numpy(self):
        # The usual vectorised form reports the values with the smallest uniform doubles.  The client's value gets the
        # smallest or the largest number of all.  It has no claim on the exact probability, and reports are not sorted.
        rng, (n, d) = np.random.Generator(np.random.PCG64(0)), (self.oracle.n_values, self.oracle.subset_size)
        p = d * math.exp(EPSILON) / (d * math.exp(EPSILON) + n - d)
        ranks = rng.random((len(self.values), n))
        ranks[np.arange(len(self.values)), self.values] = np.where(rng.random(len(self.values)) < p, -1.0, 2.0)
        return np.argpartition(ranks, d - 1, axis=1)[:, :d]
