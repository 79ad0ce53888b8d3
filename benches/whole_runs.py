"""One complete run of each system on data of the size of MovieLens 1M, for profiles and peaks of memory."""

import numpy as np

from fastfedrec import Key, datasets
from fastfedrec.core.names import SYSTEMS, find

N_USERS, N_ITEMS, N_ENTITIES = 6_040, 3_706, 10
MODELS = {
    "FMF-LDP": ("FMFLDP", {}),
    "FMF-LDP, norm 1, rotated": ("FMFLDP", {"normalize": "l2", "rotate": True}),
    "Laplace-RR-SVD": ("LaplaceRRSVD", {"max_ratings": 100}),
    "FedRec": ("FedRec", {}),
    "FedRec++": ("FedRecPlusPlus", {"n_denoisers": 30, "min_clients_per_denoiser": 10}),
    "SDCF": ("SDCF", {}),
    "FedGNN": ("FedGNN", {}),
    "FedGNN, published": ("FedGNN", {"variant": "published"}),
    "DMF": ("DMF", {"n_factors": 2}),  # a model for each user: 360 MB
    "NCF": ("NCF", {"n_epochs": 1, "pretrain": False}),
    "private prototypes": ("PrivatePrototypes", {"epsilon": 5.0}),
    "PrivRec": ("PrivRec", {"preset": "recommended"}),
    "PrivRec, second order": ("PrivRec", {"preset": "recommended", "meta": "maml"}),
    "DP-PrivRec": (
        "PrivRec",
        {"n_rounds": 25, "cohort_size": 400, "local_epochs": 3, "clip_norm": 0.3, "target_epsilon": 2.0},
    ),
    "DPGram": ("DPGram", {"epsilon": 8.0}),
    "ShuffledGram": ("ShuffledGram", {"epsilon": 4.0}),
    "ShuffledSketchGram": ("ShuffledSketchGram", {"epsilon": 8.0}),
    "DPSubspace": ("DPSubspace", {"epsilon": 8.0}),
    "DP-ALS": ("DPALS", {"epsilon": 8.0}),
    "DP-FMF": ("DPFMF", {"epsilon": 8.0}),
    "DPLCF": ("DPLCF", {"epsilon": 2.5}),
    "EASE": ("EASE", {}),
    "item-kNN": ("ItemKNN", {}),
    "biased MF": ("BiasedMF", {}),
}
_listed = {kind for kind, _ in MODELS.values()}
# Every other system with rounds, with its default parameters.
MODELS |= {
    kind: (kind, {})
    for kind in (path.rpartition(".")[2] for path in SYSTEMS.values())
    if kind not in _listed and hasattr(find(kind), "local_round")
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
    kind, parameters = MODELS[name]
    model = find(kind)(**parameters | (SHORT.get(name, {}) if short else {}))
    # Prototypes belong to entities, which hold several users each.
    named = {"entities": np.arange(data.n_users) % N_ENTITIES} if name == "private prototypes" else {}
    model.fit(data, key=Key.from_seed(2), **named)
    model.recommend(data.user_ids, n=10)
