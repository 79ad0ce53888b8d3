"""Every model that can be fitted, in small size, with the data of its fit."""

import numpy as np

from fastfedrec import (
    DMF,
    DPALS,
    DPFMF,
    DPLCF,
    EASE,
    FMFLDP,
    SDCF,
    BiasedMF,
    DPGram,
    DPPopularity,
    DPSubspace,
    FedGNN,
    FedRec,
    FedRecPlusPlus,
    GlobalMean,
    ImplicitALS,
    Interactions,
    ItemKNN,
    ItemMean,
    Key,
    LaplaceRRSVD,
    OwnHistory,
    Popularity,
    PrivatePrototypes,
    PrivateRecommender,
    PrivRec,
    Random,
    RatingItemKNN,
    ShuffledSketchGram,
    UserKNN,
    UserMean,
    datasets,
)
from fastfedrec.systems.ncf.model import NCF
from fastfedrec.systems.private_prototypes.baselines import CentralNMF, IndividualNMF

MODELS = [
    FMFLDP(n_rounds=2, n_reports=10),
    FMFLDP(n_rounds=2, n_reports=10, normalize="l2", rotate=True),
    FMFLDP(n_rounds=2, epsilon=None),
    Random(),
    Popularity(),
    DPPopularity(1.0),
    DPPopularity(5.0, trust="local"),
    DPLCF(2.5),
    DPALS(8.0, n_factors=3),
    DPFMF(8.0, n_factors=3, n_rounds=2),
    DPGram(8.0),
    DPGram(1.0, score="knn"),
    DPGram(8.0, score="knn"),
    ShuffledSketchGram(8.0),
    ShuffledSketchGram(8.0, score="ridge"),
    OwnHistory(),
    ItemKNN(n_neighbors=5),
    EASE(20.0),
    LaplaceRRSVD(max_ratings=20, n_factors=3, n_epochs=2),
    LaplaceRRSVD(hide_items=True, n_reports=10, n_factors=3, n_epochs=2),
    FedRec(rho=1, n_rounds=3, n_factors=3),
    FedRecPlusPlus(2, min_clients_per_denoiser=1, n_rounds=3, n_factors=3),
    GlobalMean(2.0),
    UserMean(2.0),
    ItemMean(),
    BiasedMF(),
    RatingItemKNN(n_neighbors=5),
    PrivatePrototypes(n_factors=3, epsilon=5.0),
    PrivatePrototypes(2, 3, None, grouping="kmeans", refine=True),
    CentralNMF(3),
    IndividualNMF(3),
    NCF(n_epochs=2, n_factors=3, layers=(6, 3)),
    PrivRec(n_rounds=2, cohort_size=1, n_factors=16, hidden=(16,)),
    PrivRec(n_rounds=0, popularity_epsilon=2.0, n_factors=16, hidden=(16,)),
    PrivRec(
        n_rounds=2, cohort_size=1, n_factors=16, hidden=(16,), clip_norm=0.01, noise_multiplier=1.0, noise="laplace"
    ),
    ImplicitALS(3, 2),
    ImplicitALS(3, 2, regularization_scaling=0.5, use_values=True, solver="cg", dtype="float64"),
    UserKNN(n_neighbors=5),
    DPSubspace(8.0, n_columns=8),
    PrivateRecommender(4.0),
    SDCF(True, 2, min_clients_per_denoiser=1, n_rounds=3, n_factors=3),
    DMF(3, 2),
    FedGNN("published", n_pseudo_items=5, n_neighbors=2, expansion_round=1, n_rounds=3, n_factors=3, user_steps=1),
    FedGNN(epsilon=8.0, n_rounds=2, n_factors=3, cohort_size=20),
    DPALS(8.0, n_factors=3, weights="adaptive"),
]


def held(model):
    """Return the model with the released arrays; a recommender's is its chosen model."""
    return getattr(model, "model_", model)


def rated(n_users, n_items, seed, **ids):
    """Return generated interactions with values from 1 to 5."""
    matrix = datasets.generate_implicit(n_users, n_items, key=Key.from_seed(seed)).to_scipy()
    matrix.data[:] = 1 + np.arange(matrix.nnz) % 5
    return Interactions.from_scipy(matrix, **ids)
