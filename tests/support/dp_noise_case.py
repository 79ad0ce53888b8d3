"""Systems with a trusted server, their claimed bounds, and recorded fits of them."""

import contextlib
import math
from typing import NamedTuple

import numpy as np
import pytest

from fastfedrec import DPALS, DPFMF, DPGram, DPSubspace, Key, PrivRec
from support.data import of_dense
from support.decision_case import prefer
from support.noise_case import RecordingEngine

N_USERS, N_ITEMS, MAX_ITEMS = 20, 600, 10
EPSILON, DELTA = 2.0, 1e-5  # differs from the default delta of a ledger
PUBLIC = 1000  # public number of users, independent of the data
CLIP, MULTIPLIER, RATE, COHORT = 0.5, 2.0, 0.01, 5  # settings of PrivRec
UNIT = 2**36  # L2 bound of one user's part in one row of sums, in DPGram, DPALS and DPFMF
FINER = 2**40  # the same in DPSubspace, and in DPGram's columns
COARSER = 2**28  # the same in DPGram's measurements


class Case(NamedTuple):
    """A system and its claimed L2 bound of a user's contribution to each field of a round."""

    model: object
    n_fits: int  # enough for 5,000 draws of every field
    sensitivities: dict


PRIVREC = {
    "n_rounds": 3, "cohort_size": COHORT, "local_epochs": 1, "learning_rate": 0.5, "server_learning_rate": RATE,
    "clip_norm": CLIP, "noise_multiplier": MULTIPLIER, "delta": DELTA, "n_factors": 16, "hidden": (16,),
}  # fmt: skip


OF_DPGRAM = {"item_shares": UNIT, "item_pairs": UNIT, "item_projections": FINER, "hits": COARSER}
OF_SUBSPACE = {"item_shares": FINER, "item_projections": FINER, "hits": COARSER}
METAS = {"first-order MAML": "first-order-maml", "MAML": "maml", "Meta-SGD": "meta-sgd"}


CASES = {
    "DPGram": Case(DPGram(EPSILON, DELTA, n_users=PUBLIC), 9, OF_DPGRAM),
    "DPSubspace": Case(
        DPSubspace(EPSILON, DELTA, n_columns=8, n_rounds=3, n_users=PUBLIC),
        9,
        OF_SUBSPACE,
    ),
    "DPSubspace, popularity": Case(DPSubspace(EPSILON, DELTA, n_columns=8, n_users=PUBLIC), 9, OF_SUBSPACE),
    "DPGram, popularity": Case(DPGram(EPSILON, DELTA, n_users=PUBLIC), 9, OF_DPGRAM),
    "DPALS": Case(
        DPALS(EPSILON, DELTA, n_factors=34, n_rounds=2, n_start_rounds=2, max_items=MAX_ITEMS),
        9,
        {"all_products": UNIT}
        | dict.fromkeys(("item_counts", "item_projections", "item_products", "item_sums"), UNIT * math.sqrt(MAX_ITEMS)),
    ),
    "DPALS, adaptive": Case(
        DPALS(EPSILON, DELTA, n_factors=34, max_items=MAX_ITEMS, weights="adaptive", frequency_exponent=1.0),
        9,
        dict.fromkeys(("all_products", "item_projections", "item_products", "item_sums"), UNIT)
        | {"item_counts": UNIT * math.sqrt(MAX_ITEMS)},
    ),
    "DPFMF": Case(DPFMF(EPSILON, DELTA, n_factors=5, n_rounds=3), 2, {"gradients": UNIT}),
    "PrivRec": Case(PrivRec(**PRIVREC), 2, {"total": 2 * CLIP}),
} | {
    # Gradients are shorter than updates, so their bound is smaller.
    f"PrivRec, {name}": Case(PrivRec(**(PRIVREC | {"clip_norm": CLIP / 10}), meta=meta), 2, {"total": CLIP / 5})
    for name, meta in METAS.items()
}  # fmt: skip


SYSTEMS = list(CASES)
CENTRAL = [name for name, case in CASES.items() if not isinstance(case.model, PrivRec)]
SUMS = [name for name, case in CASES.items() if isinstance(case.model, DPGram | DPSubspace)]  # one noisy field a round


def small_data(*, without=None):
    """Return random users, then one with every item and one with one item; `without` empties the rows of a user."""
    rows = (Key.from_seed(1).uniform("test.dp_noise", size=N_USERS * N_ITEMS) < 0.15).reshape(N_USERS, N_ITEMS)
    rows[-2:] = np.ones(N_ITEMS, bool), np.arange(N_ITEMS) == 3
    if without is not None:
        rows[without] = False
    return of_dense(rows.astype(np.float32))


@contextlib.contextmanager
def deciding(name):
    """Return a model with a fixed plan, since random rows share no structure; rounds do not vary."""
    with pytest.MonkeyPatch.context() as patch:
        prefer(patch, personal=name in ("DPGram", "DPSubspace"))
        yield


def record_model(name, key, data=None):
    engine = RecordingEngine(n_shards=2)
    model = type(CASES[name].model)(**CASES[name].model.get_params())
    with deciding(name):
        model.fit(small_data() if data is None else data, key=key, engine=engine)
    return model, engine.rounds
