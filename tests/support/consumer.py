"""A user's program under a strict type checker; `tests/test_types.py` checks and runs it."""

import datetime
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import fastfedrec
from fastfedrec import (
    DPALS,
    EASE,
    FMFLDP,
    BiasedMF,
    DPGram,
    DPPopularity,
    ImplicitALS,
    Interactions,
    ItemKNN,
    Key,
    Popularity,
    ShuffledSketchGram,
    als,
    audit,
    choose_items,
    clustering,
    datasets,
    hadamard,
    hardware,
    load,
    nmf,
    ranking,
    row_sums,
    sgd,
)
from fastfedrec.accounting import (
    DiscreteGaussianRelease,
    Gaussian,
    Ledger,
    PLDAccountant,
    RDPAccountant,
    calibrate_noise_multiplier,
    shuffled_epsilon,
)
from fastfedrec.data.store import StoredInteractions, open_interactions, store_interactions
from fastfedrec.evaluation import (
    Comparison,
    Evaluation,
    KFold,
    LeaveOneOut,
    RandomHoldout,
    Sampled,
    Split,
    TemporalSplit,
    UserHoldout,
    compare,
    evaluate,
)
from fastfedrec.mechanisms import GRR, BinaryResponse, DiscreteGaussian, DiscreteLaplace, PoissonSampling, clip_rows_l2
from fastfedrec.systems.recommender import Recommender

Floats = NDArray[np.float32] | NDArray[np.float64]

key = Key.from_seed(1)
assert_type(key, Key)
assert_type(key.uniform("example", size=3), NDArray[np.float64])
assert_type(fastfedrec.__version__, str)
assert_type(hardware.instruction_set(), str)

# ---- data: ids may be of any type ------------------------------------------------------------------------------------

table = Path("table.csv")
table.write_text(
    "user,item,value\n" + "".join(f"{u},{i},{1 + u * i % 5}\n" for u in range(30) for i in range(u % 7, 20, 3))
)
ratings = datasets.load_table(table)
assert_type(ratings, Interactions)
assert_type(ratings.n_users, int)
when = [datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 2)]
assert_type(Interactions.from_arrays(np.array([1, 2]), range(2), (1.0, 2.0), when), Interactions)
assert_type(ratings.indptr, NDArray[np.int64])
assert_type(ratings.item_ids, NDArray[Any])
assert_type(ratings.values, Floats | None)
assert_type(ratings.values_or_ones(), NDArray[np.float64])
assert_type(ratings.values_or_ones(np.float32), NDArray[np.float32])
assert_type(ratings.item_index([2, 3]), NDArray[np.int64])
assert_type(ratings.interactions_per_item(), NDArray[np.int64])
data = datasets.generate_implicit(60, 40, key=key, timestamps=True)
assert_type(data.shard(2), list[Interactions])
assert_type(
    Interactions.from_arrays(["ann", "bob"], [1, 2]).filter_core(
        min_interactions_per_user=1, min_interactions_per_item=1
    ),
    Interactions,
)
store_interactions(data, "store")
assert_type(open_interactions("store"), StoredInteractions)

# ---- splits ----------------------------------------------------------------------------------------------------------

[split] = LeaveOneOut().split(data, key=key)
assert_type(split, Split)
assert_type(split.train, Interactions)
assert_type(split.given, Interactions | None)
assert_type(list(KFold(n_folds=3).split(data, key=key)), list[Split])
assert_type(next(RandomHoldout(share=0.2).split(data, key=key)).test, Interactions)
assert_type(next(TemporalSplit(share=0.2).split(data)).test, Interactions)
assert_type(next(UserHoldout(share=0.2).split(data, key=key)).test, Interactions)

# ---- models ----------------------------------------------------------------------------------------------------------

ledger = Ledger()
model = DPGram(epsilon=2.0)
assert_type(model, DPGram)
assert_type(model.fit(split.train, key=key, ledger=ledger), DPGram)
assert_type(model.epsilon, float)
assert_type(model.recommend(), tuple[NDArray[Any], NDArray[np.float64]])
assert_type(model.recommend([0, 1], n=5, exclude=[3]), tuple[NDArray[Any], NDArray[np.float64]])
assert_type(model.recommend_for([1, 2]), tuple[NDArray[Any], NDArray[np.float64]])
assert_type(model.score([0], [1]), NDArray[np.float64])
assert_type(model.score_items([0]), NDArray[np.float64])
assert_type(model.with_users(split.train), DPGram)
assert_type(model.get_params(), dict[str, Any])
assert_type(model.item_factors_, NDArray[np.float64])
assert_type(DPALS(n_factors=4).fit(split.train, key=key), DPALS)
assert_type(DPALS(n_factors=4).fit(split.train, key=key).item_counts_, NDArray[np.float64])
assert_type(FMFLDP(n_rounds=1).fit(split.train, key=key), FMFLDP)
assert_type(FMFLDP(n_rounds=1).fit(split.train, key=key).factors([0], [1]), tuple[Floats, Floats])
assert_type(ShuffledSketchGram(epsilon=20.0).fit(split.train, key=key), ShuffledSketchGram)
assert_type(DPPopularity().fit(split.train, key=key), DPPopularity)
assert_type(ImplicitALS(n_factors=4, n_epochs=2).fit(split.train, key=key), ImplicitALS)
biased = BiasedMF(n_factors=2, n_epochs=2).fit(ratings, key=key)
assert_type(biased.predict([0], [0]), NDArray[np.float64])
assert_type(biased.mean_, NDArray[np.float64])
assert_type(biased.user_factors_, NDArray[np.float64])
assert_type(EASE().fit(split.train).item_weights_, NDArray[np.float64])
neighbors = ItemKNN().fit(split.train)
assert_type(neighbors, ItemKNN)
assert_type(neighbors.neighbor_items_, NDArray[np.int32])
assert_type(neighbors.neighbor_similarities_, NDArray[np.float64])
assert_type(neighbors.similar_items([1]), tuple[NDArray[Any], NDArray[np.float64]])
assert_type(neighbors.explain(split.train.user_ids[0], 1), tuple[NDArray[Any], NDArray[np.float64]])
model.save("model.npz", include_users=False)
assert_type(load("model.npz"), Recommender)
assert_type(choose_items(data, 5, 1.0, key=key), Interactions)

# ---- evaluation ------------------------------------------------------------------------------------------------------

results = {name: evaluate(one, split.train, split.test) for name, one in {"knn": neighbors, "gram": model}.items()}
assert_type(results, dict[str, Evaluation])
result = evaluate(
    EASE().fit(split.train), split.train, split.test, metrics=["recall@20"], candidates=Sampled(9), key=key
)
assert_type(result, Evaluation)
assert_type(result["recall@20"], float)
assert_type(result.intervals(key=key), dict[str, tuple[float, float]])
assert_type(result.to_markdown(), str)
assert_type(result.dropped, dict[str, int])
comparison = compare(results, n_permutations=99, n_resamples=99, key=key)
assert_type(comparison, Comparison)
assert_type(comparison.tests[0].p_holm, float)

# ---- accounts --------------------------------------------------------------------------------------------------------

assert_type(model.ledger_, Ledger)
assert_type(ledger.epsilon("public"), float)
assert_type(ledger.summary(), str)
assert_type(ledger.to_json(), str)
assert_type(Ledger.from_json(ledger.to_json()), Ledger)
assert_type(ledger.digest(), str)
ledger.report(Path("ledger.html"), about="a model")
noise = Gaussian(1.0, neighboring="add_remove", sampling="none")
assert_type(PLDAccountant().compose(noise, 3), PLDAccountant)
assert_type(RDPAccountant().compose(noise).get_epsilon(1e-6), float)
assert_type(calibrate_noise_multiplier(noise, epsilon=1.0, delta=1e-6), float)
assert_type(shuffled_epsilon(1.0, 1, 10_000, 1, 1e-6), float)
ledger.record(DiscreteGaussianRelease(4.0, 1, neighboring="add_remove", sampling="none"))

# ---- mechanisms ------------------------------------------------------------------------------------------------------

response = BinaryResponse(1.0)
assert_type(response.epsilon, float)
reports = response.privatize(np.array([1.0, -1.0]), key=key)
assert_type(reports, NDArray[np.int8])
assert_type(response.estimate(reports), NDArray[np.float64])
assert_type(GRR(1.0, 4).privatize(np.array([1, 3]), key=key), NDArray[np.uint8])
assert_type(DiscreteLaplace(2.0).sample(3, key=key, purpose="example"), NDArray[np.int64])
assert_type(DiscreteGaussian(2.0).variance, float)
assert_type(PoissonSampling(0.5).sample(10, key=key), NDArray[np.int64])
assert_type(audit.audit(response, 0, 1, response.epsilon, 1000, key=key).lower_bound, float)

# ---- kernels ---------------------------------------------------------------------------------------------------------

factors = np.ones((data.n_items, 3), dtype=np.float32)
solved = als.solve_users(data, factors, regularization=1.0, confidence_weight=2.0)
assert_type(solved, Floats)
als.solve_users(data.to_scipy(), factors, regularization=1.0, confidence_weight=2.0)
als.solve_users(np.eye(4, data.n_items), factors, regularization=1.0, confidence_weight=2.0)
assert_type(als.regularized_gram(factors, 1.0, 2.0), NDArray[np.float64])
assert_type(clip_rows_l2(factors, 1.0), Floats)
assert_type(clustering.kmeans(data, 2, key=key).labels, NDArray[np.int32])
assert_type(hadamard.hadamard_transform(np.ones(4)), NDArray[np.int64] | NDArray[np.float64])
assert_type(nmf.fit_nmf(ratings, 2, regularization=1.0, key=key), nmf.NMF)
assert_type(ranking.sample_unseen(data, [0, 1], 3, key=key, purpose="example")[0], NDArray[np.int32])
assert_type(row_sums.sum_rows(data, np.eye(data.n_items)), NDArray[np.float64])
assert_type(sgd.fit_factors(ratings, n_factors=2, n_epochs=2, key=key).train_losses, NDArray[np.float64])


class OwnPopularity(Popularity):
    """Subclass that is typed, too."""

    def best(self, n: int) -> NDArray[np.float64]:
        """Return the largest scores."""
        return np.sort(self.score_items([self.interactions_.user_ids[0]]), axis=None)[-n:]


assert_type(OwnPopularity().fit(data), OwnPopularity)
assert_type(OwnPopularity().fit(data).best(3), NDArray[np.float64])
