"""SGD matrix factorisation at the size of MovieLens 1M, against LIBMF, cornac and surprise.

All packages fit the same ratings in one random order.  A fit includes the preparation of the input, such as our blocks.
LIBMF's package is built without vector instructions for any CFLAGS.  For figures to publish, put ``-O3 -march=native
-DUSEAVX`` into the compiler arguments of its setup.py.  LIBMF has AdaGrad's steps and no biases, so it is compared with
ours with biases, as all other packages here, and without.
"""

import concurrent.futures
import contextlib
import multiprocessing
import time
import warnings

import numpy as np

from benches.core_suite import core
from benches.floors import few, floor_seconds, turns
from benches.ratios import peer
from fastfedrec import Key, hardware, sgd
from fastfedrec.datasets import generate_implicit

N_USERS, N_ITEMS, N_EPOCHS, RATE, REGULARIZATION = 6_040, 3_706, 20, 0.01, 0.02
N_PROCESSES = 5


def _rmse(predicted, ratings):
    return float(np.sqrt(np.mean((predicted - ratings) ** 2)))


def _fastfedrec(users, items, ratings, n_factors, n_threads, biases=True, loss="squared"):
    def fit(n_epochs, schedule="constant"):
        return sgd.fit_factors(
            users, items, ratings, n_users=N_USERS, n_items=N_ITEMS, n_factors=n_factors, n_epochs=n_epochs,
            learning_rate=RATE, regularization=REGULARIZATION, schedule=schedule, biases=biases, loss=loss,
            key=Key.from_seed(1), n_threads=n_threads,
        )  # fmt: skip

    return fit, lambda model: model.predict(users, items)


def _cornac(users, items, ratings, n_factors, n_threads):
    with peer("cornac"), warnings.catch_warnings(action="ignore"):
        from cornac.models.mf import backend_cpu

    def fit(n_epochs):
        rng = np.random.default_rng(0)
        p, q = (rng.normal(0, 0.1, (n, n_factors)).astype(np.float32) for n in (N_USERS, N_ITEMS))
        b, c = np.zeros(N_USERS, np.float32), np.zeros(N_ITEMS, np.float32)
        mean = float(ratings.mean())
        rates = RATE, REGULARIZATION, mean
        backend_cpu.fit_sgd(users, items, ratings, p, q, b, c, *rates, n_epochs, n_threads, True, False, False)
        return mean + b[users] + c[items] + np.einsum("ij,ij->i", p[users], q[items])

    return fit, lambda predicted: predicted


def _surprise(users, items, ratings, n_factors, n_threads):
    if n_threads > 1:
        raise NotImplementedError("surprise has one thread")
    with peer("scikit-surprise"):
        from surprise import SVD, Trainset
    by_user, by_item = {u: [] for u in range(N_USERS)}, {i: [] for i in range(N_ITEMS)}
    for u, i, r in zip(users.tolist(), items.tolist(), ratings.tolist(), strict=True):
        by_user[u].append((i, r))
    # surprise maps raw ids to inner ids; here both are equal.
    same = {u: u for u in range(N_USERS)}, {i: i for i in range(N_ITEMS)}
    data = Trainset(by_user, by_item, N_USERS, N_ITEMS, len(ratings), (1, 5), *same)

    def fit(n_epochs):
        return SVD(n_factors, n_epochs=n_epochs, lr_all=RATE, reg_all=REGULARIZATION, random_state=0).fit(data)

    def predict(model):
        factors = np.einsum("ij,ij->i", model.pu[users], model.qi[items])
        return data.global_mean + model.bu[users] + model.bi[items] + factors

    return fit, predict


def _libmf(users, items, ratings, n_factors, n_threads):
    with peer("libmf"), warnings.catch_warnings(action="ignore"):
        from libmf import mf
    triples = np.column_stack([users, items, ratings]).astype(np.float32)

    def fit(n_epochs):
        options = {"lambda_p1": 0, "lambda_q1": 0, "lambda_p2": REGULARIZATION, "lambda_q2": REGULARIZATION}
        model = mf.MF(fun=0, k=n_factors, nr_iters=n_epochs, nr_threads=n_threads, quiet=True, **options)
        model.fit(triples)
        return model

    def predict(model):
        return np.einsum("ij,ij->i", model.p_factors()[users], model.q_factors()[items])

    return fit, predict


def _unbiased(*arguments):
    return _fastfedrec(*arguments, biases=False)


IMPLS = {"biased": _fastfedrec, "unbiased": _unbiased, "cornac": _cornac, "libmf": _libmf, "surprise": _surprise}


def _checked(impl, data, n_factors, n_threads):
    """Return a fit as a function of the number of epochs, after a check of its error after 20 epochs."""
    ours, predict_ours = _fastfedrec(*data, n_factors, n_threads)
    fit, predict = IMPLS[impl](*data, n_factors, n_threads)
    constant = _rmse(data[2].mean(), data[2])
    expected, got = _rmse(predict_ours(ours(N_EPOCHS)), data[2]), _rmse(predict(fit(N_EPOCHS)), data[2])
    # A fit must explain the ratings, and the packages must explain them about equally well.
    if not (expected < 0.9 * constant and abs(got - expected) < 0.12 * constant):
        raise AssertionError(
            f"{impl} leaves an error of {got:.3f}, fastfedrec {expected:.3f}, a constant {constant:.3f}"
        )
    return fit


def _seconds(fit, n_epochs):
    start = time.perf_counter()
    fit(n_epochs)
    return time.perf_counter() - start


def setup_cache():
    """Return the data, which asv passes to every benchmark of this file."""
    data = generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(1), ratings=True)
    users = np.repeat(np.arange(N_USERS), np.diff(data.indptr))
    order = np.random.default_rng(0).permutation(len(users))
    return users[order], data.indices[order].astype(np.int64), data.values[order].astype(np.float32)


@core("time_fit", model=["biased"], n_factors=[20], n_threads=[1])
class FitFactors:
    """A complete fit of 20 epochs; `RatioToPeers` compares it with peers."""

    param_names = ("model", "n_factors", "n_threads")
    params = (["biased", "unbiased"], [20, 64], [1, 2])

    def setup(self, data, model, n_factors, n_threads):
        self.fit = _checked(model, data, n_factors, n_threads)

    def time_fit(self, data, model, n_factors, n_threads):
        self.fit(N_EPOCHS)


def seconds_of_one_process(impls):
    """Return (name, kind, n_factors, n_threads, seconds) of installed packages, the minimum of three turns."""
    data, seconds = setup_cache(), []
    for n_factors in (20, 64):
        for n_threads in (1, 2):
            fits = {}
            for impl in impls:
                with contextlib.suppress(NotImplementedError):
                    fits[impl] = _checked(impl, data, n_factors, n_threads)
            turns = [[[_seconds(fit, n) for n in (N_EPOCHS, 5)] for fit in fits.values()] for _ in range(few(3))]
            for impl, (long, short) in zip(fits, np.min(turns, axis=0).tolist(), strict=True):
                size = n_factors, n_threads
                seconds += (impl, "fit", *size, long), (impl, "epochs", *size, long - short)
    return seconds


class RatioToPeers:
    """Each peer's time over ours: the median of five processes with alternating calls."""

    # The figures are for complete fits of 20 epochs, and for epochs alone (20 minus 5 epochs).  A peer's time depends
    # on its process: LIBMF's epoch at 64 factors took 38.3 to 50 ns for a rating on an idle Zen 4, so that the ratio of
    # one process would be random.  Surprise takes hundreds of ns and runs in the first process alone.  The time of a
    # rating is a figure for all packages, because a peer without its vector code passes every check.  LIBMF would then
    # take two to three times as long.

    param_names = ("peer", "model", "what", "n_factors", "n_threads")
    params = (["cornac", "libmf", "surprise"], ["biased", "unbiased"], ["fit", "epochs"], [20, 64], [1, 2])
    unit = "times faster"

    def setup_cache(self):
        seconds = {"ratings of the epochs": (N_EPOCHS - 5) * len(setup_cache()[0])}
        for process in range(few(N_PROCESSES)):
            impls = [name for name in IMPLS if name != "surprise" or process == 0]
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                taken = pool.submit(seconds_of_one_process, impls).result()
            for *case, value in taken:
                seconds.setdefault(tuple(case), []).append(value)
        return seconds

    def setup(self, seconds, name, *case):
        if (name, "epochs", *case[-2:]) not in seconds:
            raise NotImplementedError(f"{name} is not installed, or has one thread")

    def track_times(self, seconds, peer, model, *what):
        ratios = [theirs / ours for theirs, ours in zip(seconds[peer, *what], seconds[model, *what], strict=False)]
        return float(np.median(ratios))

    def track_ns_a_rating(self, seconds, name, *size):
        return float(1e9 * np.median(seconds[name, "epochs", *size]) / seconds["ratings of the epochs"])

    track_ns_a_rating.param_names = ("name", "n_factors", "n_threads")
    track_ns_a_rating.params = (list(IMPLS), [20, 64], [1, 2])
    track_ns_a_rating.unit = "ns"


class Threads:
    """Time of one thread over the time of two, for the fastest complete fits and the fastest single epochs."""

    # On a shared host a fit of many epochs seldom has both processors for its whole duration.

    param_names = ("what", "n_factors")
    params = (["fit", "epochs"], [20, 64])
    unit = "times faster"

    def setup_cache(self):
        data, ratios = setup_cache(), {}
        for n_factors in (20, 64):
            fits = [_checked("biased", data, n_factors, n_threads) for n_threads in (1, 2)]
            taken = [[_fit_and_epoch_seconds(fit) for fit in fits] for _ in turns(10, 10.0, processors=2)]
            one, two = np.min(taken, axis=0)
            ratios["fit", n_factors], ratios["epochs", n_factors] = (one / two).tolist()
        return ratios

    def track_two_threads(self, ratios, *what):
        return ratios[what]


class Epochs:
    """Floor of an epoch over the time of the fastest one."""

    param_names = ("n_factors", "n_threads")
    params = ([20, 64], [1])

    def track_floor_share(self, data, n_factors, n_threads):
        """Count a rating's prediction, and a multiplication and a fused operation for each entry of both vectors."""
        # A multiplication takes as long as a fused operation, so it counts as two operations too.
        fit, _ = _fastfedrec(*data, n_factors, n_threads)
        fastest = min(_fit_and_epoch_seconds(fit)[1] for _ in range(few(3)))
        return floor_seconds(hardware.instruction_set(), flops=10 * n_factors * len(data[0])) / fastest

    track_floor_share.unit = "share of floor"


def _custom_squared(prediction, rating):
    error = prediction - rating
    return error * error / 2, error


class OwnLoss:
    """Time of an epoch with a user-defined loss over that with the same built-in loss."""

    param_names = ("n_factors", "n_threads")
    params = ([20, 64], [1, 2])
    unit = "times as long"

    def setup(self, data, n_factors, n_threads):
        self.fits = []
        for loss in (_custom_squared, "squared"):
            fit, predict = _fastfedrec(*data, n_factors, n_threads, loss=loss)
            self.fits.append((fit, predict(fit(N_EPOCHS))))
        np.testing.assert_allclose(*(predicted for _, predicted in self.fits), rtol=1e-3)

    def track_times_the_builtin(self, data, n_factors, n_threads):
        turns = [[_fit_and_epoch_seconds(fit)[1] for fit, _ in self.fits] for _ in range(few(5))]
        custom, built_in = np.min(turns, axis=0)
        return float(custom / built_in)


def _fit_and_epoch_seconds(fit):
    """Return the seconds of a complete fit, and of its fastest epoch with the work between epochs."""
    begun = []

    def schedule(epoch):  # is called at the beginning of each epoch
        begun.append(time.perf_counter())
        return 1.0

    start = time.perf_counter()
    fit(N_EPOCHS, schedule)
    return time.perf_counter() - start, np.diff(begun).min()
