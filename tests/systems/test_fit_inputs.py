"""Data that every `fit` accepts, and its treatment of values: `fit` is the only entry point."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from support.data import rated
from support.models import MODELS, case_of, held, new

from fastfedrec import (
    EASE,
    FMFLDP,
    FedRec,
    Interactions,
    Key,
    LaplaceRRSVD,
    Popularity,
    PrivatePrototypes,
    PrivRec,
)
from fastfedrec.data.log import InteractionLog
from fastfedrec.systems.baselines.popularity import Random
from fastfedrec.systems.ncf.model import NCF
from fastfedrec.systems.private_prototypes.baselines import CentralNMF, IndividualNMF
from fastfedrec.systems.rating_model import RatingModel
from fastfedrec.systems.rating_svd.baselines import GlobalMean, ItemMean, RatingItemKNN, UserMean

KEY = Key.from_seed(3)
IGNORED = r"\w+ ignores values, which vary here"


def fitted(model, data, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", IGNORED)
        return new(model).fit(data, key=KEY, **options)


def assert_equal_models(one, other):
    for name in held(one)._saved:
        np.testing.assert_array_equal(getattr(held(one), name), getattr(held(other), name), err_msg=name)
    assert one.ledger_.to_dict() == other.ledger_.to_dict()


def frame_of(data):
    users = np.repeat(data.user_ids, data.interactions_per_user())
    return {"user": users, "item": data.item_ids[data.indices], "value": data.values_or_ones()}


@pytest.fixture(scope="module")
def data():
    return rated(80, 50, 1)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_every_fit_takes_a_matrix_or_a_frame(model, data):
    expected = fitted(model, data)
    matrix = data.to_scipy()
    for given in (matrix, scipy.sparse.coo_array(matrix)):
        assert_equal_models(fitted(model, given), expected)
    # A frame has no item without a user.
    whole = data.select_items(np.unique(data.indices))
    of_frame = [fitted(model, library(frame_of(whole))) for library in (pd.DataFrame, pl.LazyFrame, pa.table)]
    expected = fitted(model, whole._replace(catalogue="data"))
    for one in of_frame:
        assert_equal_models(one, expected)
    assert "The list of items was taken from the data." in of_frame[0].ledger_.summary()


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_new_users_have_the_same_entry_point(model, data):
    if not model.serves_others:
        pytest.skip("it answers only for the users it was fitted on")
    served = fitted(model, data)
    new_users = data.select_users(np.arange(5, 12))
    expected = served.with_users(new_users).recommend(new_users.user_ids, n=4)
    by_frame = served.with_users(pd.DataFrame(frame_of(new_users))).recommend(new_users.user_ids, n=4)
    by_matrix = served.with_users(new_users.to_scipy()).recommend(np.arange(7), n=4)
    # Random scores depend on a user's position.
    if not isinstance(served, Random):
        np.testing.assert_array_equal(by_frame[0], expected[0])
        np.testing.assert_array_equal(by_matrix[0], expected[0])


# ---- values ---------------------------------------------------------------------------------------------------------


def signed(data):
    values = data.values.astype(np.float64) - 3  # from -2 to 2
    return data._replace(values=values)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_values_below_0_are_ratings_or_refused_by_the_models_name(model, data):
    below = signed(data)
    if getattr(model, "hide_items", False):
        with pytest.raises(ValueError, match="grid must be above 0, which means 'not rated', got -2"):
            type(model)(**model.get_params() | {"grid": (-2.0, 2.0)}).fit(below, key=KEY)
    elif isinstance(model, RatingModel) and not isinstance(model, PrivatePrototypes | CentralNMF | IndividualNMF):
        parameters = model.get_params() | {"grid": (-2.0, -1.0, 0.0, 1.0, 2.0)}
        of_signed = type(model)(**parameters).fit(below, key=KEY)
        predictions = of_signed.predict([0, 1, 2], [0, 1, 2])
        assert (abs(predictions) <= 2).all()
        # The offset of the scale does not matter to these models.
        if isinstance(model, GlobalMean | UserMean | ItemMean | RatingItemKNN):
            np.testing.assert_allclose(predictions, fitted(model, data).predict([0, 1, 2], [0, 1, 2]) - 3, atol=1e-6)
    elif isinstance(model, PrivatePrototypes):
        at_the_end = np.clip(below.values, *model.value_range)
        clipped = fitted(model, below._replace(values=at_the_end))
        np.testing.assert_array_equal(fitted(model, below).item_factors_, clipped.item_factors_)
    else:
        name = type(model).__name__
        message = f"{name} (is for implicit feedback|has no factor below 0): values .* at least 0, got -2; "
        with pytest.raises(ValueError, match=message):
            fitted(model, below)
        fitted(model, below.positive() if isinstance(model, CentralNMF | IndividualNMF) else below.binarize())


def test_jester_and_thumbs_are_ratings():
    users, items = np.divmod(np.arange(400), 10)
    thumbs = np.where((users + items) % 3 == 0, -1.0, 1.0)
    data = Interactions.from_arrays(users, items, thumbs)
    model = LaplaceRRSVD(None, grid=(-1.0, 1.0), n_factors=2).fit(data, key=KEY)
    assert set(np.sign(model.predict(users, items))) == {-1.0, 1.0}
    # The maximum is 400.
    assert np.sign(model.predict(users, items)) @ thumbs > 300
    jester = data._replace(values=(9.5 * thumbs).astype(np.float32))
    model_of_jester = FedRec(1, n_rounds=2, n_factors=2, grid=(-10.0, 10.0)).fit(jester, key=KEY)
    assert np.isfinite(model_of_jester.predict(users, items)).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_without_a_guarantee_warns_if_it_ignores_varying_values(name, data):
    model = new(MODELS[name])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(data, key=KEY)
    said = [warning for warning in said if "ignores values" in str(warning.message)]
    label = name.partition(", ")[2]
    assert len(said) == (label in case_of(model).ignores_values)
    for warning in said:
        assert warning.filename == __file__
        assert str(warning.message).startswith(f"{type(model).__name__} ignores values, which vary here")


def test_there_is_no_warning_if_values_are_constant_or_used(data):
    entries = np.arange(data.n_interactions)
    alike = data._replace(values=np.where(entries % 2, 4.0, 0.0))
    late = data._replace(values=np.where(entries == data.n_interactions - 1, 2.0, 1.0))
    # Each interaction has its own entry, so that counts are not ignored.
    log = InteractionLog.from_arrays([1, 1, 2], [1, 1, 2])
    tiny = {"n_rounds": 1, "n_factors": 16, "hidden": (16,)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Popularity().fit(alike)
        EASE().fit(data.binarize())
        FMFLDP(n_rounds=1, epsilon=None, use_values=True).fit(data, key=KEY)
        NCF(n_epochs=1, threshold=2.0, n_factors=3).fit(data, key=KEY)
        PrivRec(cohort_size=1, threshold=2.0, **tiny).fit(data, key=KEY)
        PrivRec(cohort_size=1, **tiny).fit(log, key=KEY)
    with pytest.warns(UserWarning, match=IGNORED):
        Popularity().fit(late)
