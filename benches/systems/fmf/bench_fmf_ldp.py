"""FMF-LDP: one round and a complete run, against NumPy with one user at a time."""

import functools
import math
import os
import resource
import time

import numpy as np

from benches.core_suite import core, first_module
from benches.floors import fastest, in_turns
from benches.ratios import INSTRUCTION_SETS, OnInstructionSet, times_faster
from fastfedrec import FMFLDP, Key, datasets, hardware
from fastfedrec.mechanisms import BinaryResponse

store = first_module("data.store", "interaction_store")
FMFState = first_module("systems.fmf.fmf_ldp", "systems.fmf_ldp").FMFState

N_REPORTS, REGULARIZATION = 100, 1e-6


def numpy_round(item_factors, shard, seed):
    """Return the sums of the +-1 answers by coordinate, with steps that are vectorised over one user's reports."""
    # PCG64 is no CSPRNG, and faster than ChaCha20.
    rng = np.random.default_rng(seed)
    channel = BinaryResponse(2.5)
    n_factors = item_factors.shape[1]
    inverse = np.linalg.inv(item_factors.T @ item_factors + REGULARIZATION * np.eye(n_factors))
    sums = np.zeros(item_factors.size, dtype=np.int64)
    for user in range(shard.n_users):
        items = shard.indices[shard.indptr[user] : shard.indptr[user + 1]]
        # The user solves a ridge regression, and answers about random coordinates of the gradient.
        x = inverse @ item_factors[items].sum(axis=0)
        coordinates = rng.integers(item_factors.size, size=N_REPORTS)
        item, factor = np.divmod(coordinates, n_factors)
        gradient = 2 * (item_factors[item] @ x - np.isin(item, items)) * x[factor]
        plus = rng.random(N_REPORTS) < 0.5 + np.clip(gradient, -1, 1) / (2 * channel.decoder)
        np.add.at(sums, coordinates, 2 * plus - 1)
    return sums


def _check(update, theirs, n_users, min_correlation):
    """Raise an error if an update and NumPy's sums do not estimate the same gradient."""
    ours = np.zeros(len(theirs))
    ours[update.arrays["coordinate"]] = update.arrays["total"]
    # Each report changes one coordinate by +-1, so the squared difference of the sums is about 2 for each report.
    spread = np.sum((ours - theirs) ** 2) / (2 * n_users * N_REPORTS)
    if not 0.8 < spread < 1.2 or np.corrcoef(ours, theirs)[0, 1] < min_correlation:
        raise AssertionError(f"the two rounds do not estimate the same (spread {spread:.3f})")


@core("time_round", impl=["fastfedrec"], n_threads=[1])
class Round:
    """One round at 20,000 x 1,000, after a check that both sums estimate the same gradient."""

    param_names = ("impl", "n_threads")
    params = (["fastfedrec", "numpy"], [1, 2])
    version = "1"

    def setup_cache(self):
        return datasets.generate_implicit(20_000, 1_000, key=Key.from_seed(1))

    def setup(self, data, impl, n_threads):
        if impl == "numpy" and n_threads > 1:
            raise NotImplementedError("a Python loop has one thread")
        model = FMFLDP(n_reports=N_REPORTS, regularization=REGULARIZATION)
        self.rounds = model._rounds() if hasattr(model, "_rounds") else model  # in 0.1.0 a model has its rounds itself
        factors = (0.02 * Key.from_seed(2).normal("bench", size=5_000).reshape(1_000, 5)).astype(np.float32)
        self.state = FMFState(factors)
        if impl == "numpy":
            shard = data.shard(4)[0]
            update = self.rounds.local_round(self.state, shard, Key.from_seed(3), 0)
            theirs = numpy_round(self.state.item_factors.astype(np.float64), shard, seed=4)
            _check(update, theirs, shard.n_users, 0.3)

    def time_round(self, data, impl, n_threads):
        if impl == "numpy":
            numpy_round(self.state.item_factors.astype(np.float64), data, seed=0)
        else:
            self.rounds.local_round(self.state, data, Key.from_seed(3), 0, n_threads=n_threads)


class NormalizedRound(OnInstructionSet):
    """One round of normalised, rotated reports at 20,000 x 1,000, against NumPy with one user at a time."""

    param_names = ("n_threads", "instruction_set")
    params = ([1, 2], INSTRUCTION_SETS)
    setup_cache = Round.setup_cache

    def setup(self, data, n_threads, instruction_set):
        super().setup(instruction_set)
        model = FMFLDP(n_reports=N_REPORTS, regularization=REGULARIZATION, normalize="l2", rotate=True)
        self.rounds = model._rounds()
        self.state = self.rounds.initial_state(data.n_items, Key.from_seed(2))
        shard = data.shard(40)[0]
        update = self.rounds.local_round(self.state, shard, Key.from_seed(3), 0)
        _check(update, self._numpy(shard), shard.n_users, 0.05)

    def _numpy(self, shard):
        """Return the sums of `numpy_round` with a Hadamard transform of each gradient, pass by pass."""
        rng = np.random.default_rng(0)
        channel = BinaryResponse(2.5)
        normal = self.rounds._normal(self.state, 0)
        factors, signs = self.state.item_factors.astype(np.float64), normal.signs()
        inverse = np.linalg.inv(factors.T @ factors + REGULARIZATION * np.eye(5))
        sums = np.zeros(normal.size, dtype=np.int64)
        for user in range(shard.n_users):
            items = shard.indices[shard.indptr[user] : shard.indptr[user + 1]]
            x = inverse @ factors[items].sum(axis=0)
            residual = factors @ x
            residual[items] -= 1
            rotated = np.zeros(normal.shape)
            rotated[:1_000, :5] = signs * np.outer(residual, x) / np.sqrt((residual @ residual) * (x @ x))
            rotated = rotated.reshape(-1)
            for half in 2 ** np.arange(13):
                pairs = rotated.reshape(-1, 2, half)
                rotated = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
            coordinates = rng.integers(normal.size, size=N_REPORTS)
            value = np.clip(normal.scale * rotated[coordinates], -1, 1)
            plus = rng.random(N_REPORTS) < 0.5 + value / (2 * channel.decoder)
            np.add.at(sums, coordinates, 2 * plus - 1)
        return sums

    def time_round(self, data, n_threads, instruction_set):
        self.rounds.local_round(self.state, data, Key.from_seed(3), 0, n_threads=n_threads)

    def track_times_numpy(self, data, n_threads, instruction_set):
        """Compare with a loop of NumPy over 500 of the users, scaled to all of them."""
        some = data.shard(40)[0]
        times = times_faster(lambda: self._numpy(some), lambda: self.time_round(data, n_threads, instruction_set))
        return data.n_users / some.n_users * times

    track_times_numpy.unit = "times faster"


@functools.cache
def _large_factors():
    return (0.02 * Key.from_seed(2).normal("bench", size=25_000).reshape(5_000, 5)).astype(np.float32)


class LargeRound(OnInstructionSet):
    """One round at 50,000 x 5,000 with 11.5 million interactions, and equal sums on each instruction set."""

    param_names = ("n_threads", "instruction_set")
    params = ([1, 2], INSTRUCTION_SETS)

    def setup_cache(self):
        """Return the data, and the sums of a round without vector instructions."""
        self.data = datasets.generate_implicit(50_000, 5_000, key=Key.from_seed(1), preset="movielens-20m")
        with hardware.use_instruction_set("plain"):
            return self.data, dict(self._round(N_REPORTS, 2).arrays)

    def setup(self, cached, n_threads, instruction_set):
        super().setup(instruction_set)
        self.data, expected = cached
        for name, array in self._round(N_REPORTS, n_threads).arrays.items():
            np.testing.assert_array_equal(array, expected[name])

    def _round(self, n_reports, n_threads):
        rounds, state = FMFLDP(n_reports=n_reports, regularization=REGULARIZATION)._rounds(), FMFState(_large_factors())
        return rounds.local_round(state, self.data, Key.from_seed(3), 0, n_threads=n_threads)

    def _words(self, n_threads):
        users = self.data.global_user_ids
        return Key.from_seed(3).words_by_user("bench", users, size=2 * N_REPORTS, n_threads=n_threads)

    def track_round_ms(self, cached, n_threads, instruction_set):
        return 1e3 * fastest(self._round, N_REPORTS, n_threads)

    def track_report_ns(self, cached, n_threads, instruction_set):
        """Return the additional ns of a report, from a hundred more reports for each user."""
        fewer, more = in_turns(*(lambda k=k: self._round(k, n_threads) for k in (N_REPORTS, 2 * N_REPORTS)))
        return 1e9 * (more - fewer) / (N_REPORTS * self.data.n_users)

    def track_times_one_thread(self, cached, n_threads, instruction_set):
        if n_threads == 1:
            return math.nan  # n/a: it is the peer
        return times_faster(lambda: self._round(N_REPORTS, 1), lambda: self._round(N_REPORTS, n_threads))

    def track_times_numpy(self, cached, n_threads, instruction_set):
        """Compare with a loop of NumPy over 500 of the users, scaled to all of them."""
        some = self.data.shard(100)[0]
        times = times_faster(
            lambda: numpy_round(_large_factors().astype(np.float64), some, seed=0),
            lambda: self._round(N_REPORTS, n_threads),
        )
        return self.data.n_users / some.n_users * times

    def track_floor_share(self, cached, n_threads, instruction_set):
        """Count the keystream alone, with two words for each report."""
        return times_faster(lambda: self._words(n_threads), lambda: self._round(N_REPORTS, n_threads))

    def track_report_over_keystream(self, cached, n_threads, instruction_set):
        """Return the additional time of a report over the time of its two words of keystream."""
        # The figure is a difference of two minima.  It varied by a tenth with five turns, and by a twentieth with ten.
        fewer, more, words = in_turns(
            *(lambda k=k: self._round(k, n_threads) for k in (N_REPORTS, 2 * N_REPORTS)),
            lambda: self._words(n_threads),
            min_seconds=12.0,
            max_turns=2000,
        )
        return (more - fewer) / words

    track_round_ms.unit = "ms"
    track_report_ns.unit = "ns"
    track_times_one_thread.unit = track_times_numpy.unit = "times faster"
    track_floor_share.unit = "share of floor"
    track_report_over_keystream.unit = "times the keystream"


class Fit:
    """Complete run of the paper at 50,000 x 1,000: 20 rounds of 100 reports."""

    param_names = ("n_threads",)
    params = ([1, 2],)
    version = "1"

    def setup_cache(self):
        return datasets.generate_implicit(50_000, 1_000, key=Key.from_seed(1))

    def time_fit(self, data, n_threads):
        FMFLDP().fit(data, key=Key.from_seed(2), n_threads=n_threads)

    peakmem_fit = time_fit

    def track_reports_per_second(self, data, n_threads):
        start = time.perf_counter()
        FMFLDP().fit(data, key=Key.from_seed(2), n_threads=n_threads)
        return 20 * 50_000 * 100 / (time.perf_counter() - start)

    track_reports_per_second.unit = "reports/s"


class ByUsers:
    """Cost of a user in a round over stored interactions, with 26,744 items and 50 for each user."""

    param_names = ("n_users",)
    params = ([10_000, 100_000, 1_000_000],)

    def setup_cache(self):
        for n_users in self.params[0]:
            data = datasets.generate_implicit(n_users, 26_744, key=Key.from_seed(1), mean_interactions=50.0)
            store.store_interactions(data, f"users-{n_users}")
        return {n_users: os.path.abspath(f"users-{n_users}") for n_users in self.params[0]}

    def _round(self, folders, n_users):
        """Return the CPU seconds of a round, and its peak memory beyond the peak of a round with few users."""
        rounds, few = FMFLDP()._rounds(), datasets.generate_implicit(1_000, 26_744, key=Key.from_seed(1))
        state = rounds.initial_state(26_744, Key.from_seed(2))
        # A round with few users first loads and compiles everything.
        rounds.local_round(state, few, Key.from_seed(3), 0)
        before, data = _peak_bytes(), store.open_interactions(folders[n_users])
        seconds = []
        for number in range(1, 5):  # one thread, since the idle time of a second one would count
            start = time.process_time()
            rounds.local_round(state, data, Key.from_seed(3), number, n_threads=1)
            seconds.append(time.process_time() - start)
        return min(seconds), _peak_bytes() - before

    def track_microseconds_a_user(self, folders, n_users):
        return 1e6 * self._round(folders, n_users)[0] / n_users

    def track_bytes_a_user(self, folders, n_users):
        """Return the bytes for each user, which include mapped files (4 for an interaction and 24 for a user)."""
        return self._round(folders, n_users)[1] / n_users

    track_microseconds_a_user.unit = "us of processors"
    track_bytes_a_user.unit = "bytes"


def _peak_bytes():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
