"""Words of ChaCha20 streams, one thread, beside NumPy's generators, which are no CSPRNG and have no names."""

import numpy as np

from fastfedrec import Key

N_WORDS = 4_000_000


def _fastfedrec(n_users):
    users = np.arange(n_users, dtype=np.uint64)
    return Key.from_seed(0).words_by_user("bench", users, size=N_WORDS // n_users, n_threads=1)


def _numpy(bit_generator):
    def words(n_users):
        return np.random.Generator(bit_generator(0)).integers(
            0, 2**64, size=(n_users, N_WORDS // n_users), dtype=np.uint64
        )

    return words


class Words:
    """Four million words, of one user or of many: a user's stream costs at least a batch of 32 words."""

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


class Permutation:
    param_names = ("impl", "size")
    params = (["fastfedrec", "numpy_pcg64"], [1_000_000])

    def setup(self, impl, size):
        if (np.sort(self._run(impl, size)) != np.arange(size)).any():
            raise AssertionError(f"{impl} lost a place")

    def time_permutation(self, impl, size):
        self._run(impl, size)

    def _run(self, impl, size):
        if impl == "fastfedrec":
            return Key.from_seed(0).permutation("bench", size=size)
        return np.random.default_rng(0).permutation(size)
