"""Growth of time with interactions, users and reports, and its decrease with threads."""

import math

import numpy as np

from benches.evaluation.bench_splits import FactorModel
from benches.floors import in_turns
from fastfedrec import FMFLDP, DPGram, FedRec, Key, LaplaceRRSVD, als, datasets, sgd
from fastfedrec.compute.clustering import assign_rows
from fastfedrec.compute.nmf import fit_nmf
from fastfedrec.compute.ranking import recommend_factors, sample_unseen
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.mechanisms import DiscreteLaplace, LargestResponse
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchRound
from fastfedrec.systems.private_prototypes.private_kmeans import private_kmeans

N_ITEMS, KEY = 1_000, Key.from_seed(1)
GROWTH = (1, 2, 4, 8)
# Growing quantities and their smallest sizes, where every case takes milliseconds.
STARTS = {"users": 5_000, "interactions a user": 30, "reports a user": 100, "numbers": 50_000}


def _data(axis, size):
    """Return interactions with ratings 1 to 5, for `size` users or with `size` interactions for each user."""
    n_users, mean = (size, 50) if axis == "users" else (4_000, size if axis == "interactions a user" else 50)
    data = datasets.generate_implicit(n_users, N_ITEMS, key=KEY, mean_interactions=float(mean))
    return data._replace(values=(1 + np.arange(data.n_interactions) % 5).astype(np.float32))


def _factors(n, n_factors):
    return np.random.default_rng(0).normal(size=(n, n_factors)).astype(np.float32)


def _als(data, size, n_threads):
    item_factors = _factors(N_ITEMS, 5)
    return lambda: als.solve_users(data, item_factors, regularization=0.1, confidence_weight=2.0, n_threads=n_threads)


def _round_of(make, source=lambda data: data):
    """Return a case with one round of the model `make(size)`, with the initial state from `source(data)`."""

    def case(data, size, n_threads):
        model = make(size)
        state = model.initial_state(source(data), KEY)
        return lambda: model.local_round(state, data, KEY, 0, n_threads=n_threads)

    return case


def _fmf_ldp(make):
    return _round_of(make, lambda data: data.n_items)


def _fedrec(data, size, n_threads):
    rounds = FedRec(rho=1, t_predict=0, n_factors=5)._rounds(data, KEY)
    state = rounds.initial_state(data)
    return lambda: rounds.local_round(state, data, KEY, 0, n_threads=n_threads)


def _sketch(data, size, n_threads):
    system = SketchRound(LargestResponse(2.5), N_ITEMS, size if size in _sizes("reports a user") else 100, 8, True)
    state = system.initial_state(KEY)
    return lambda: system.local_round(state, data, KEY, 0, n_threads=n_threads)


def _dp_gram(data, size, n_threads):
    return lambda: DPGram(8.0).fit(data, key=KEY, n_threads=n_threads)


def _sgd(data, size, n_threads):
    users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    sizes = {"n_users": data.n_users, "n_items": N_ITEMS, "n_epochs": 2}
    return lambda: sgd.fit_factors(users, data.indices, data.values_or_ones(), **sizes, key=KEY, n_threads=n_threads)


def _nmf(data, size, n_threads):
    return lambda: fit_nmf(data, 10, regularization=0.1, n_epochs=1, key=KEY, n_threads=n_threads)


def _clustering(data, size, n_threads):
    centers = np.abs(_factors(20, N_ITEMS))
    return lambda: assign_rows(data, centers, n_threads=n_threads)


def _evaluate(data, size, n_threads):
    train, test = next(LeaveOneOut().split(data, key=KEY))
    model = FactorModel(data)
    return lambda: evaluate(model, train, test, metrics=["hr@10"], candidates=Sampled(99), key=KEY, n_threads=n_threads)


def _recommend(data, size, n_threads):
    users, items = _factors(data.n_users, 16), _factors(N_ITEMS, 16)
    return lambda: recommend_factors(users, items, 10, seen=data, n_threads=n_threads)


def _unseen(data, size, n_threads):
    rows = np.arange(data.n_users)
    return lambda: sample_unseen(data, rows, 99, key=KEY, purpose="bench", n_threads=n_threads)


def _private_kmeans(data, size, n_threads):
    points, candidates = np.clip(_factors(data.n_users, 4) / 4, -0.5, 0.5), np.clip(_factors(400, 4) / 4, -0.5, 0.5)
    options = {"radius": 1.0, "n_swaps": 20, "epsilon": 0.1, "key": KEY, "n_threads": n_threads}
    return lambda: private_kmeans(points.astype(float), candidates.astype(float), 50, **options)


def _noise(data, size, n_threads):
    values, noise = np.arange(size), DiscreteLaplace(8.0, sampler="table")
    return lambda: noise.privatize(values, key=KEY, n_threads=n_threads)


_BOTH = ("users", "interactions a user")
CASES = {
    "als.solve_users": (_als, _BOTH),
    "FMFLDP.local_round": (_fmf_ldp(lambda size: FMFLDP()), _BOTH),
    "FMFLDP.local_round, reports": (_fmf_ldp(lambda size: FMFLDP(n_reports=size)), ("reports a user",)),
    "ShuffledSketchGram, reports": (_sketch, ("users", "reports a user")),
    # No user exceeds the limit, since otherwise the number of trimmed users would vary with the size.
    "LaplaceRRSVD.local_round": (_round_of(lambda size: LaplaceRRSVD(max_ratings=N_ITEMS)), _BOTH),
    "FedRec.local_round": (_fedrec, _BOTH),
    "sgd.fit_factors": (_sgd, _BOTH),
    "nmf.fit_nmf": (_nmf, _BOTH),
    "clustering.assign_rows": (_clustering, _BOTH),
    "evaluate": (_evaluate, ("users",)),
    "recommend_factors": (_recommend, ("users",)),
    "sample_unseen": (_unseen, ("users",)),
    "private_kmeans": (_private_kmeans, ("users",)),
    "DiscreteLaplace": (_noise, ("numbers",)),
    "DPGram.fit": (_dp_gram, ("users",)),
}


def _sizes(axis):
    return [STARTS[axis] * growth for growth in GROWTH]


class Exponents:
    """Exponent of the growth: 1 is linear, and constant costs make it smaller."""

    param_names = ("case",)
    params = ([f"{what} over {axis}" for what, (_, axes) in CASES.items() for axis in axes],)
    unit = "power"

    def setup(self, case):
        what, axis = case.split(" over ")
        make, self.sizes = CASES[what][0], _sizes(axis)
        self.runs = [make(_data(axis, size), size, 1) for size in self.sizes]
        for run in self.runs:
            run()

    def track_exponent(self, case):
        # The exponent is the slope of a line through the logarithms.
        seconds = in_turns(*self.runs, min_seconds=4.0)  # other load may last for a second
        return float(np.polyfit(np.log(self.sizes), np.log(seconds), 1)[0])


class Threads:
    """Time of one thread over the time of two at the largest size, for calls of 10 ms or more."""

    param_names = ("what",)
    params = (list(CASES),)
    unit = "times"

    def setup(self, what):
        make, axes = CASES[what]
        size = _sizes(axes[0])[-1]
        data = _data(axes[0], size)
        self.runs = [make(data, size, n_threads) for n_threads in (1, 2)]
        for run in self.runs:
            run()

    def track_two_threads(self, what):
        one, two = in_turns(*self.runs, min_seconds=10.0, max_turns=5000, processors=2)
        return one / two if one >= 0.01 else math.nan
