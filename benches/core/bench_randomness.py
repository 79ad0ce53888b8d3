"""Words of ChaCha20 streams, one thread, against NumPy's generators, which are no CSPRNGs and have no named streams."""

import numpy as np

from benches.core_suite import core
from benches.floors import fastest, integer_operations_per_second
from benches.ratios import INSTRUCTION_SETS, OnInstructionSet, microseconds, times_faster
from fastfedrec import Key, hardware

N_WORDS = 4_000_000
# Instructions of a quarter round's four rotations.  A rotation takes one instruction, a shuffle of whole bytes, or two
# shifts and an or.
ROTATIONS = {"x86-64-v4": 4, "x86-64-v3": 1 + 3 + 1 + 3, "plain": 2 + 3 + 3 + 3}


def _fastfedrec(n_users):
    users = np.arange(n_users, dtype=np.uint64)
    return Key.from_seed(0).words_by_user("bench", users, size=N_WORDS // n_users, n_threads=1)


def _numpy(bit_generator):
    def words(n_users):
        return np.random.Generator(bit_generator(0)).integers(
            0, 2**64, size=(n_users, N_WORDS // n_users), dtype=np.uint64
        )

    return words


@core("time_words", impl=["fastfedrec"], n_users=[1, 40_000])
class Words:
    """Four million words of one user or of many users."""

    param_names = ("impl", "n_users")
    params = (["fastfedrec", "numpy_philox", "numpy_pcg64"], [1, 40_000, 1_000_000])

    def setup(self, impl, n_users):
        self.words = {
            "fastfedrec": _fastfedrec,
            "numpy_philox": _numpy(np.random.Philox),
            "numpy_pcg64": _numpy(np.random.PCG64),
        }[impl]
        drawn = self.words(n_users)
        ones = np.bitwise_count(drawn).sum(dtype=np.int64) if hasattr(np, "bitwise_count") else 32 * N_WORDS
        if drawn.shape != (n_users, N_WORDS // n_users) or abs(ones - 32 * N_WORDS) > 6 * np.sqrt(16 * N_WORDS):
            raise AssertionError(f"{impl} drew {ones} ones in {64 * N_WORDS} bits")

    def time_words(self, impl, n_users):
        self.words(n_users)


class InstructionSets(OnInstructionSet):
    param_names = ("n_users", "instruction_set")
    params = ([1, 40_000, 1_000_000], INSTRUCTION_SETS)

    def setup(self, n_users, instruction_set):
        super().setup(instruction_set)
        with hardware.use_instruction_set("plain"):
            expected = _fastfedrec(n_users)
        np.testing.assert_array_equal(_fastfedrec(n_users), expected)

    def track_words_per_second(self, n_users, instruction_set):
        return N_WORDS / fastest(_fastfedrec, n_users)

    def track_times_numpy(self, n_users, instruction_set):
        """Compare with PCG64, which is no CSPRNG."""
        peer = _numpy(np.random.PCG64)
        return times_faster(lambda: peer(n_users), lambda: _fastfedrec(n_users))

    def track_floor_share(self, n_users, instruction_set):
        """Count the operations of all blocks: 80 quarter rounds and 16 sums for 8 words of a single user."""
        n_blocks = n_users * -(-N_WORDS // n_users // 8)
        operations = n_blocks * (80 * (8 + ROTATIONS[instruction_set]) + 16)
        return operations / integer_operations_per_second(instruction_set) / fastest(_fastfedrec, n_users)

    track_floor_share.unit = "share of floor"
    track_words_per_second.unit = "words/s"
    track_times_numpy.unit = "times faster"


@core("time_permutation", impl=["fastfedrec"])
class Permutation:
    param_names = ("impl", "size")
    params = (["fastfedrec", "numpy_pcg64"], [1_000_000])

    def setup(self, impl, size):
        if (np.sort(self._run(impl, size)) != np.arange(size)).any():
            raise AssertionError(f"{impl} gives no permutation")

    def time_permutation(self, impl, size):
        self._run(impl, size)

    def _run(self, impl, size):
        if impl == "fastfedrec":
            return Key.from_seed(0).permutation("bench", size=size)
        return np.random.default_rng(0).permutation(size)


class OneWord:
    """The first word of a stream in a call; NumPy seeds a generator by the stream's name, without security."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy"),)

    def setup(self, impl):
        key = Key.from_seed(0)
        self.draw = (lambda: key.words("bench", user=3, size=1)) if impl == "fastfedrec" else self._numpy

    def time_words(self, impl):
        self.draw()

    def track_microseconds(self, impl):
        return microseconds(self.draw)[0]

    track_microseconds.unit = "us"

    @staticmethod
    def _numpy():
        return np.random.Generator(np.random.Philox(key=3)).integers(0, 2**64, size=1, dtype=np.uint64)
