"""Non-negative factorisation at the size of MovieLens 1M, 20 factors, one thread, against cornac and surprise.

`track_times_cornac` compares the time to the error on the ratings that cornac reaches in 50 epochs, including set-up.
`track_times_cornac_same_update` compares epochs of multiplicative updates on both sides, after a check that 50 of ours
reach no larger error.  `track_times_*_epoch` compares different epochs: ours, of the default solver, moves every factor
to its optimum.
"""

import time

import numpy as np
import threadpoolctl

from benches.core_suite import core
from benches.floors import fastest, floor_seconds, in_turns
from benches.ratios import nan_without_peers, peer
from fastfedrec import Interactions, Key, hardware, nmf
from fastfedrec.datasets import generate_implicit

N_USERS, N_ITEMS, N_FACTORS, PEER_EPOCHS = 6_040, 3_706, 20, 50


def setup_cache():
    """Return generated interactions with rounded ratings of rank 4, which asv passes to every benchmark."""
    data = generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(1))
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    # Factors of rank 4 are positive, so that the ratings have a non-negative factorisation.
    u, v = rng.gamma(1.0, 1.0, (data.n_users, 4)), rng.gamma(1.0, 1.0, (data.n_items, 4))
    ratings = np.clip(np.rint(1 + np.einsum("nf,nf->n", u[users], v[data.indices]) / 2), 1, 5)
    return Interactions.from_arrays(users, data.indices, ratings)


def _error(data, row_factors, item_factors):
    users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    products = np.einsum("nf,nf->n", row_factors[users], item_factors[data.indices])
    return float(np.sqrt(np.mean((data.values_or_ones() - products) ** 2)))


def _fit(data, n_epochs, solver="cd", regularization=0.1):
    return nmf.fit_nmf(
        data, N_FACTORS, regularization=regularization, n_epochs=n_epochs, solver=solver, n_sweeps=1,
        key=Key.from_seed(1), n_threads=1,
    )  # fmt: skip


@core("time_epoch")
@nan_without_peers
class Epochs:
    unit = "times faster"

    def setup(self, data, *_):
        threadpoolctl.threadpool_limits(1)

    def time_epoch(self, data):
        _fit(data, 1)

    def time_multiplicative_epoch(self, data):
        _fit(data, 1, "mu")

    def track_floor_share(self, data, solver):
        """Count three fused operations for each factor of each rating, for users and then for items."""
        # A multiplicative update has the prediction and both sums.  A sweep of coordinates that stores all errors has
        # both sums and the errors' change.
        flops = 2 * 3 * 2 * N_FACTORS * data.n_interactions
        one, eleven = in_turns(lambda: _fit(data, 1, solver), lambda: _fit(data, 11, solver))
        return floor_seconds(hardware.instruction_set(), flops=flops) / ((eleven - one) / 10)

    track_floor_share.params, track_floor_share.param_names = (("cd", "mu"),), ("solver",)
    track_floor_share.unit = "share of floor"

    def track_times_cornac_same_update(self, data):
        model = _cornac(data, PEER_EPOCHS)()
        theirs = _error(data, model.u_factors, model.i_factors)
        ours = _error(data, *vars(_fit(data, PEER_EPOCHS, "mu")).values())
        if ours > 1.01 * theirs:
            raise AssertionError(f"the error is {ours}, and cornac's is {theirs}")
        one, eleven, their_one, their_eleven = in_turns(
            lambda: _fit(data, 1, "mu"), lambda: _fit(data, 11, "mu"), _cornac(data, 1), _cornac(data, 11)
        )
        return (their_eleven - their_one) / (eleven - one)

    def track_times_cornac_epoch(self, data):
        one, six = _cornac(data, 1), _cornac(data, 6)
        return (fastest(six, repetitions=3) - fastest(one, repetitions=3)) / 5 / self._epoch(data)

    def track_times_surprise_epoch(self, data):
        one, three = _surprise(data, 1), _surprise(data, 3)
        return (fastest(three, repetitions=2) - fastest(one, repetitions=2)) / 2 / self._epoch(data)

    def track_times_cornac(self, data):
        """Return cornac's time over ours to its final error."""
        fit = _cornac(data, PEER_EPOCHS)
        start = time.perf_counter()
        model = fit()
        theirs = time.perf_counter() - start
        target, n_epochs = _error(data, model.u_factors, model.i_factors), 1
        # The number of our epochs is the smallest one with an error of at most cornac's.
        while _error(data, *vars(_fit(data, n_epochs)).values()) > target:
            n_epochs += 1
            if n_epochs > PEER_EPOCHS:
                raise AssertionError(f"the error is above {target} after {PEER_EPOCHS} epochs")
        return theirs / fastest(_fit, data, n_epochs, repetitions=3)

    def _epoch(self, data):
        return (fastest(_fit, data, 6, repetitions=3) - fastest(_fit, data, 1, repetitions=3)) / 5


def _cornac(data, n_epochs):
    with peer("cornac"):
        from cornac.data import Dataset
        from cornac.models import NMF
    users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    # cornac numbers users and items by first appearance, so its factors are sorted back after the fit.
    dataset = Dataset.from_uir(zip(users.tolist(), data.indices.tolist(), data.values_or_ones().tolist(), strict=True))

    def fit():
        model = NMF(k=N_FACTORS, max_iter=n_epochs, verbose=False, seed=1).fit(dataset)
        model.u_factors = model.u_factors[[dataset.uid_map[u] for u in range(data.n_users)]]
        model.i_factors = model.i_factors[[dataset.iid_map[i] for i in range(data.n_items)]]
        return model

    return fit


def _surprise(data, n_epochs):
    with peer("surprise"):
        import pandas as pd
        from surprise import NMF, Dataset, Reader
    users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    frame = pd.DataFrame({"user": users, "item": data.indices, "rating": data.values_or_ones()})
    trainset = Dataset.load_from_df(frame, Reader(rating_scale=(1, 5))).build_full_trainset()
    return lambda: NMF(n_factors=N_FACTORS, n_epochs=n_epochs, random_state=1).fit(trainset)
