"""Systems tested on Flower: systems with a server in addition to `fit`, and systems with `fit` as server."""

import numpy as np

from fastfedrec import (
    DPALS,
    DPFMF,
    FMFLDP,
    SDCF,
    DPGram,
    DPSubspace,
    FedGNN,
    FedRec,
    FedRecPlusPlus,
    LaplaceRRSVD,
    PrivatePrototypes,
    PrivateRecommender,
    PrivRec,
    ShuffledSketchGram,
)
from support.models import ON_ENGINES, case_of

FMF = {
    "reports": FMFLDP(n_rounds=3),
    "turned": FMFLDP(n_rounds=2, normalize="l2", rotate=True),
    "published": FMFLDP(n_rounds=2, variant="published"),
    "values": FMFLDP(n_rounds=2, use_values=True),
    "gradients": FMFLDP(n_rounds=2, epsilon=None),
}

PROTOTYPES = {
    "masked": PrivatePrototypes(n_prototypes=2),
    "zero_filled": PrivatePrototypes(n_prototypes=2, prototypes="zero_filled", delta=1e-6),
    "support": PrivatePrototypes(epsilon=4.0, support="gumbel", n_support_items=20),
    "clusters": PrivatePrototypes(n_prototypes=3, grouping="kmeans"),
    "published": PrivatePrototypes(2, prototypes="zero_filled", grouping="kmeans", variant="published"),
    "exact": PrivatePrototypes(n_prototypes=3, epsilon=None),
}

SMALL = {"n_rounds": 2, "cohort_size": 50, "local_epochs": 1, "n_factors": 16, "hidden": (16,)}

CENTRAL = {
    "dp_gram": DPGram(8.0),
    "dp_gram popularity": DPGram(0.01),  # the releases choose popularity
    "private_recommender": PrivateRecommender(4.0),
    "dp_subspace": DPSubspace(8.0, n_columns=4),
    "dp_subspace fewer columns": DPSubspace(8.0),  # than planned, in later rounds
    "dp_als": DPALS(1.0, n_factors=4),
    "dp_als adaptive": DPALS(1.0, n_factors=4, weights="adaptive"),
    "dp_fmf": DPFMF(1.0, n_factors=4, n_rounds=2),
}

RATINGS = {
    "laplace_rr_svd": LaplaceRRSVD(max_ratings=20, n_factors=2, n_epochs=2),
    "laplace_rr_svd hidden": LaplaceRRSVD(hide_items=True, n_reports=10),
    "laplace_rr_svd exact": LaplaceRRSVD(None, max_ratings=100, n_factors=2, n_epochs=2),
}

SIMULATED = {
    "shuffled_sketch": ShuffledSketchGram(1.0),
    "privrec": PrivRec(**SMALL, clip_norm=0.1, noise_multiplier=1.0),
    "privrec laplace": PrivRec(**SMALL, clip_norm=0.01, noise_multiplier=1.0, noise="laplace"),
    "privrec exact": PrivRec(**SMALL),
    "fedrec": FedRec(1, n_rounds=4, t_predict=2, n_factors=4),
    "fedrec central": FedRec(0, n_rounds=2, n_factors=4, client_share=0.5, clip_norm=1.0, divisor=9.0),
    "fedrec_plus_plus": FedRecPlusPlus(n_rounds=3, n_factors=4),
    "fedgnn": FedGNN(n_rounds=2, n_factors=4, cohort_size=10),
    "sdcf": SDCF(n_rounds=3, n_factors=4),
    "sdcf denoised": SDCF(True, prior="wishart", n_rounds=3, n_factors=4),
    "fedrec_plus_plus published": FedRecPlusPlus(2, "published", n_rounds=3, n_factors=4),
}

_LISTED = {type(model) for models in (FMF, PROTOTYPES, CENTRAL, RATINGS, SIMULATED) for model in models.values()}
#: Every other system with a guarantee that runs on an engine.
OTHERS = {
    name: model
    for name, model in ON_ENGINES.items()
    if type(model) not in _LISTED and case_of(model).trust != ("none",)
}

SYSTEMS = CENTRAL | RATINGS | SIMULATED | OTHERS


def fitted(model):
    """Return all state fitted by a server, which never has FedRec users' factors or FedGNN's neighbours."""
    # A recommender's state is the state of its chosen model.
    model = getattr(model, "model_", model)
    theirs = "user_factors_" if isinstance(model, FedRec | FedRecPlusPlus | SDCF) else "user_neighbors_"
    names = [name for name in model._saved if name != theirs]
    return {name: getattr(model, name) for name in names}


def assert_same(one, other):
    for name, array in fitted(one).items():
        np.testing.assert_array_equal(fitted(other)[name], array, err_msg=name)
