"""One complete run of each system on data of the size of MovieLens 1M, for profiles and peaks of memory."""

import importlib

import numpy as np

from fastfedrec import Key, datasets, systems

N_USERS, N_ITEMS, N_ENTITIES = 6_040, 3_706, 10
MODELS = {
    "FMF-LDP": ("fmf.fmf_ldp.FMFLDP", {}),
    "FMF-LDP, norm 1, rotated": ("fmf.fmf_ldp.FMFLDP", {"normalize": "l2", "rotate": True}),
    "Laplace-RR-SVD": ("rating_svd.laplace_rr_svd.LaplaceRRSVD", {"max_ratings": 100}),
    "FedRec": ("fedrec.model.FedRec", {}),
    "FedRec++": ("fedrec.plus_plus.FedRecPlusPlus", {"n_denoisers": 30, "min_clients_per_denoiser": 10}),
    "SDCF": ("sdcf.model.SDCF", {}),
    "FedGNN": ("fedgnn.model.FedGNN", {}),
    "FedGNN, published": ("fedgnn.model.FedGNN", {"variant": "published"}),
    "DMF": ("dmf.model.DMF", {"n_factors": 2}),  # a model for each user: 360 MB
    "NCF": ("ncf.model.NCF", {"n_epochs": 1, "pretrain": False}),
    "private prototypes": ("private_prototypes.model.PrivatePrototypes", {"epsilon": 5.0}),
    "PrivRec": ("privrec.model.PrivRec", {"preset": "recommended"}),
    "PrivRec, second order": ("privrec.model.PrivRec", {"preset": "recommended", "meta": "maml"}),
    "DP-PrivRec": (
        "privrec.model.PrivRec",
        {"n_rounds": 25, "cohort_size": 400, "local_epochs": 3, "clip_norm": 0.3, "target_epsilon": 2.0},
    ),
    "DPGram": ("gram.dp_gram.DPGram", {"epsilon": 8.0}),
    "ShuffledSketchGram": ("gram.shuffled_sketch.ShuffledSketchGram", {"epsilon": 8.0}),
    "DPSubspace": ("subspace.model.DPSubspace", {"epsilon": 8.0}),
    "DP-ALS": ("dp_als.model.DPALS", {"epsilon": 8.0}),
    "DP-FMF": ("fmf.dp_fmf.DPFMF", {"epsilon": 8.0}),
    "DPLCF": ("dplcf.DPLCF", {"epsilon": 2.5}),
    "EASE": ("baselines.item_models.EASE", {}),
    "item-kNN": ("baselines.item_models.ItemKNN", {}),
    "biased MF": ("rating_svd.baselines.BiasedMF", {}),
}


def ratings(n_users, n_items):
    """Return generated interactions with the ratings and features that some systems require."""
    data = datasets.generate_implicit(n_users, n_items, key=Key.from_seed(1), ratings=True)
    return data.with_features(
        user_features={"gender": np.arange(n_users) % 2, "age": np.arange(n_users) % 7},
        item_features={"genre": np.arange(n_items) % 18},
    )


# Systems with runs of a minute or more.  All rounds of a system take the same time, so a short run has few of them.
SHORT = {
    "FedRec": {"n_rounds": 3},
    "FedRec++": {"n_rounds": 3},
    "SDCF": {"n_rounds": 3},
    "FedGNN": {"n_rounds": 3},
    "FedGNN, published": {"n_rounds": 3, "expansion_round": 1},
    "DMF": {"n_rounds": 2},
    "PrivRec": {"n_rounds": 2},
    "PrivRec, second order": {"n_rounds": 2},
    "DP-PrivRec": {"n_rounds": 2},
}


def run(name, data, *, short=False):
    """Fit a system and recommend ten items to every user; `short` limits the rounds of slow systems."""
    path, parameters = MODELS[name]
    module, _, kind = path.rpartition(".")
    parameters = parameters | (SHORT.get(name, {}) if short else {})
    model = getattr(importlib.import_module(f"{systems.__name__}.{module}"), kind)(**parameters)
    # Prototypes belong to entities, which hold several users each.
    named = {"entities": np.arange(data.n_users) % N_ENTITIES} if name == "private prototypes" else {}
    model.fit(data, key=Key.from_seed(2), **named)
    model.recommend(data.user_ids, n=10)
