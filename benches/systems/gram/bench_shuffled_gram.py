"""ShuffledGram: a complete fit of 20,000 users and 1,000 items with short rows; two threads."""

from fastfedrec import Key, ShuffledGram, datasets

N_THREADS = 2
KEY = Key.from_seed(2)


class Fit:
    """Calibration, messages of all users and their fakes, counts, the decision, the spectrum and the factors."""

    param_names = ("n_users", "epsilon")
    params = ((20_000,), (2.0, 4.0))

    def setup(self, n_users, epsilon):
        self.data = datasets.generate_implicit(n_users, 1_000, key=Key.from_seed(1), preset="check-ins")

    def time_fit(self, n_users, epsilon):
        ShuffledGram(epsilon).fit(self.data, key=KEY, n_threads=N_THREADS)

    peakmem_fit = time_fit
