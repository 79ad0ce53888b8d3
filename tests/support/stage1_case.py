"""Small runs of PrivRec with a stage one."""

from fastfedrec import Key, PrivRec
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.datasets import generate_sequences
from fastfedrec.systems.privrec.stage1 import OPTIONS, PretrainingRounds, Stage1Settings

KEY = Key.from_seed(3)
SMALL = {"n_factors": 16, "hidden": (16,), "n_rounds": 2, "cohort_size": 5, "local_epochs": 1, "learning_rate": 0.1}
FEW = {"n_rounds": 3, "cohort_size": 7, "length": 6, "server_learning_rate": 2.0}
PRIVATE = {"clip_norm": 0.01, "noise_multiplier": 2.0, "delta": 1e-5}
NUMBERS = OPTIONS | FEW | {"noise_multiplier": None}


def people(seed=1, n_users=40):
    return generate_sequences(n_users, 60, key=Key.from_seed(seed), n_topics=3, length=14)


def model_of(kind, **parameters):
    return PrivRec(**(SMALL | {"stage1": kind, "stage1_options": FEW} | (PRIVATE if kind == "dp" else {}) | parameters))


def fit(kind, data=None, key=KEY, parameters=None, **options):
    public = {"public": people(seed=2, n_users=20)} if kind == "public" else {}
    data = people() if data is None else data
    return model_of(kind, **(parameters or {})).fit(data, key=key, **(public | options))


def rounds(data, *, noise=None, clip_norm=None, **changes):
    settings = Stage1Settings(**(NUMBERS | {"clip_norm": clip_norm} | changes))
    encoder = GRUEncoder(data.n_items, n_factors=16)
    return PretrainingRounds(encoder, data.global_user_ids, settings, noise, KEY, 1)


def item_rows(model):
    """Return the network's embeddings of the items' ids."""
    table = model.parameters_[model._network.n_dense :].reshape(-1, model.n_factors)
    first = model.features_.user.n_values + model.features_.context.n_values
    return table[first : first + model.interactions_.n_items]
