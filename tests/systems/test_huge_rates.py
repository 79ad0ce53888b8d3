"""An update that is not finite neither fails a fit nor warns, so that a sampled user's data stay hidden."""

import warnings

import pytest

from fastfedrec import DPALS, DPFMF, FMFLDP, DPSubspace, FedGNN, FedRec, Interactions, Key, PrivRec
from fastfedrec.rounds.system import DivergenceError

FEDGNN = {"n_rounds": 2, "n_factors": 2, "cohort_size": 10}
FEDREC = {"divisor": 5.0, "clip_norm": 0.5, "noise_multiplier": 2.0, "n_rounds": 2, "n_factors": 2}
PRIVREC = {
    "n_rounds": 2, "cohort_size": "all", "clip_norm": 0.1, "noise_multiplier": 1.0, "n_factors": 16, "hidden": (16,)
}  # fmt: skip
MODELS = {
    "FedGNN": lambda rate: FedGNN(user_learning_rate=rate, **FEDGNN),
    "FedGNN start": lambda rate: FedGNN(user_learning_rate=rate, init_scale=1e6, **FEDGNN),
    "FedGNN published": lambda rate: FedGNN(
        "published", user_learning_rate=rate, negatives=1, n_pseudo_items=2, grid=(1.0, 3.0, 5.0), **FEDGNN
    ),
    "PrivRec": lambda rate: PrivRec(learning_rate=rate, **PRIVREC),
    "PrivRec maml": lambda rate: PrivRec(learning_rate=rate, meta="maml", **PRIVREC),
    "PrivRec meta-sgd": lambda rate: PrivRec(learning_rate=rate, meta="meta-sgd", **PRIVREC),
    "FedRec": lambda rate: FedRec(learning_rate=rate, **FEDREC),
    "FedRec local": lambda rate: FedRec(learning_rate=rate, t_predict=0, t_local=3, **FEDREC),
    "DPALS": lambda rate: DPALS(n_factors=3, confidence_weight=rate),
    "DPALS ridge": lambda rate: DPALS(n_factors=3, regularization=1 / rate),
    "DPFMF": lambda rate: DPFMF(n_factors=3, n_rounds=3, regularization=1 / rate),
    "DPSubspace": lambda rate: DPSubspace(ridge=1 / rate),
    "FMFLDP": lambda rate: FMFLDP(n_rounds=2, confidence_weight=rate, use_values=True),
    "FMFLDP server": lambda rate: FMFLDP(n_rounds=2, learning_rate=rate),
}


def outcome(model, values):
    """Return the outcome of a fit of ten users, one with these values."""
    data = Interactions.from_arrays(
        [1] * len(values), list(range(len(values))), values or None, user_ids=range(10), item_ids=range(8)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(data, key=Key.from_seed(1))
        except (DivergenceError, ValueError) as error:  # depends on released parameters, or on the rate itself
            return str(error).partition(":")[0]
    return ["a model", *(str(warning.message).partition(":")[0] for warning in caught)]


@pytest.mark.parametrize("rate", [1e80, 1e154, 1e300])
@pytest.mark.parametrize("name", MODELS)
def test_a_huge_rate_does_not_show_whether_a_user_has_data(name, rate):
    first, *other_outcomes = (
        outcome(MODELS[name](rate), values_of_user) for values_of_user in ([], [3.0], [3.0, 5.0, 5.0, 1.0])
    )
    assert other_outcomes == [first, first]
