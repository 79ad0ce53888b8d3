"""Requirements for every model, tested for each of them."""

import inspect
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from support.data import of_dense, rated
from support.models import CASES, MODELS, case_of, gather, held, new

from fastfedrec import (
    FMFLDP,
    NCF,
    SDCF,
    BiasedMF,
    DPGram,
    FedGNN,
    FedRec,
    FedRecPlusPlus,
    Key,
    LaplaceRRSVD,
    Popularity,
    PrivatePrototypes,
    PrivRec,
    load,
)
from fastfedrec.accounting import Unprotected
from fastfedrec.engines import LocalEngine
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.systems.private_prototypes.baselines import CentralNMF, IndividualNMF
from fastfedrec.systems.recommender import Recommender
from fastfedrec.systems.registry import SYSTEMS

pytestmark = pytest.mark.ignores_values

#: Classes that can be instantiated, but are never fitted.
BASES = {"Baseline", "RatingModel"}

# Attributes that are specific to one fit, or compared separately.
NOT_COMPARED = {"interactions_", "ledger_", "features_", "n_epochs_", "model_"}


@pytest.fixture(scope="module")
def data():
    users, items = [f"user {u}" for u in range(80)], [(i, "film") for i in range(50)]
    return rated(80, 50, 1, user_ids=users, item_ids=items)


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def model(request, data):
    return request.param.fit(data, key=Key.from_seed(2))


def test_every_model_is_here_and_has_a_name_for_the_command_line_and_for_load():
    classes = {
        name
        for name, kind in Recommender._registry.items()
        if kind.__module__.startswith("fastfedrec.")
        and not (name.startswith("_") or name in BASES or inspect.isabstract(kind))
    }
    assert classes == set(SYSTEMS.values()), "each class has a line of SYSTEMS in core/names.py, or of BASES here"
    assert set(CASES) == classes, "each class has a case in tests/systems/NAME/case.py"


def test_scores_are_of_pairs_and_do_not_depend_on_the_batch(model, data):
    users, items = data.user_ids[[3, 3, 0, 7]], data.item_ids[[1, 2, 1, 49]]
    batch = model.score(users, items)
    assert batch.shape == (4,)
    assert np.isfinite(batch).all()
    for n in range(4):
        assert model.score(users[n : n + 1], items[n : n + 1])[0] == pytest.approx(batch[n], rel=1e-12)


def test_recommend_is_the_order_of_score(model, data):
    user = data.user_ids[[4]]
    ids, scores = model.recommend(user, n=50, filter_seen=False)
    assert ids.shape == scores.shape == (1, 50)
    assert (np.diff(scores[0]) <= 0).all()
    assert sorted(ids[0]) == sorted(data.item_ids)
    np.testing.assert_allclose(model.score(np.repeat(user, 50), ids[0]), scores[0], rtol=1e-5, atol=1e-7)
    unseen, _ = model.recommend(user, n=5)
    seen = {data.item_ids[i] for i in data.indices[data.indptr[4] : data.indptr[5]]}
    assert not seen & set(unseen[0])
    assert list(unseen[0]) == [i for i in ids[0] if i not in seen][:5]


def test_a_user_with_nearly_all_items_gets_padded_recommendations(model):
    full = of_dense([[1.0, 2, 4, 0], [0, 5, 0, 0]])
    fitted = new(model).fit(full, key=Key.from_seed(0))
    ids, scores = fitted.recommend([0], n=3)
    assert ids[0, 0] == 3
    assert np.isneginf(scores[0, 1:]).all()


def test_one_user_may_be_requested_twice(model, data):
    ids, _ = model.recommend(data.user_ids[[2, 2]], n=3)
    assert list(ids[0]) == list(ids[1])


def test_saved_models_serve_the_same(model, data, tmp_path):
    path = tmp_path / "model.fastfedrec"
    model.save(path)
    loaded = load(path)
    assert type(loaded) is type(model)
    assert loaded.get_params() == model.get_params()
    assert loaded.ledger_.to_dict() == model.ledger_.to_dict()
    for name, value in vars(model).items():
        if name.endswith("_") and name not in NOT_COMPARED:
            np.testing.assert_equal(getattr(loaded, name), value, err_msg=name)
    for a, b in zip(loaded.recommend(data.user_ids, n=7), model.recommend(data.user_ids, n=7), strict=True):
        np.testing.assert_array_equal(a, b)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    # These are a pickle's first bytes.
    assert all(content[:2] != b"\x80\x04" for content in members.values())
    secret = Key.from_seed(2)._secret
    assert all(secret not in content and secret.hex().encode() not in content for content in members.values())


def test_models_with_new_users_serve_fitted_users_as_before(model, data, tmp_path):
    if not model.serves_others:
        remedy = r"use serve\(" if hasattr(model, "serve") else "fit it again"
        with pytest.raises(TypeError, match=f"{type(model).__name__} serves only the users .*; {remedy}"):
            model.with_users(data)
        return
    rows = np.array([7, 3, 60])
    ids, fitted = data.user_ids[rows], model.interactions_
    served = model.with_users(data.select_users(rows))
    for user in ids:
        pairs = [user] * data.n_items, data.item_ids
        # FedRec's own devices only approximate the solution here, LaplaceRRSVD's users had sent noise, and the factors
        # of BiasedMF's users were trained.  FedGNN's users have neighbours.
        has_neighbors = isinstance(model, FedGNN) and model.user_neighbors_.any()
        if isinstance(model, FedRec | FedRecPlusPlus | SDCF | LaplaceRRSVD | BiasedMF) or has_neighbors:
            assert np.isfinite(served.score(*pairs)).all()
        else:
            np.testing.assert_allclose(served.score(*pairs), model.score(*pairs), rtol=1e-6, atol=1e-9)
    assert model.interactions_ is fitted
    assert served.ledger_ is model.ledger_
    served.save(tmp_path / "model", include_users=False)
    loaded = load(tmp_path / "model").with_users(data.select_users(rows))
    for ours, theirs in zip(served.recommend(ids), loaded.recommend(ids), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="interactions must have the 50 items the model was fitted on"):
        model.with_users(data.select_items(np.arange(20)))


def test_systems_that_claim_no_guarantee_have_unprotected_events(model):
    if set(case_of(model).trust) != {"none"} or type(model).__name__ == "Random":
        return
    assert {type(event) for event in model.ledger_.events} == {Unprotected}
    assert {model.ledger_.epsilon(), model.ledger_.epsilon("public")} == {float("inf")}


def test_refit_forgets_the_first_fit(model, data):
    other = rated(40, 45, 5)
    fitted = new(model).fit(data, key=Key.from_seed(2)).fit(other, key=Key.from_seed(2))
    fresh = new(model).fit(other, key=Key.from_seed(2))
    np.testing.assert_array_equal(fitted.recommend(other.user_ids, n=4)[1], fresh.recommend(other.user_ids, n=4)[1])
    assert fitted.ledger_.to_dict() == fresh.ledger_.to_dict()


def test_models_can_be_evaluated(model, data):
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(0)))
    fitted = new(model).fit(train, key=Key.from_seed(0))
    result = evaluate(fitted, train, test, candidates=Sampled(5), metrics=("hr@1",), key=Key.from_seed(0))
    assert 0 <= result["hr@1"] <= 1


def test_parameters_as_scikit_learn_knows_them(model):
    copy = new(model)
    # The repr of a recommender contains the parameter's repr.
    assert repr(copy) in repr(model)
    with pytest.raises(ValueError, match="unknown parameters"):
        copy.set_params(nonsense=1)


def test_scikit_learns_clone_takes_every_model(model):
    """Check that a constructor stores the objects that it receives, as scikit-learn requires."""
    clone = pytest.importorskip("sklearn.base").clone
    for given in (model, type(model)(**spelled_otherwise(model.get_params()))):
        copy = clone(given)
        assert copy is not given
        assert type(copy) is type(model)
        for name, value in copy.get_params().items():
            assert value == given.get_params()[name] == model.get_params()[name]


def spelled_otherwise(parameters):
    """Return the same parameters, with sequences as arrays and numbers of NumPy's types."""
    spell = {int: np.int32, float: np.float64, bool: np.bool_, tuple: np.array}
    return {name: spell.get(type(value), lambda value: value)(value) for name, value in parameters.items()}


@pytest.mark.parametrize("kind", [tuple, list, np.array])
@pytest.mark.parametrize(
    ("make", "name", "numbers"),
    [
        (LaplaceRRSVD, "grid", [1, 2, 4]),
        (LaplaceRRSVD, "prior", [0.1, 0.2, 0.4, 0.2, 0.1]),
        (NCF, "layers", [8, 4]),
        (PrivRec, "hidden", [32, 16]),
        (PrivatePrototypes, "value_range", [0, 4]),
    ],
)
def test_clones_of_models_with_sequences(make, name, numbers, kind):
    clone = pytest.importorskip("sklearn.base").clone
    model = make(**{name: kind(numbers)})
    assert clone(clone(model)).get_params() == model.get_params()
    assert model.get_params()[name] == tuple(numbers)
    assert isinstance(model.get_params()[name], tuple)
    # A tuple that holds the values used by the model is the given one.
    parameter = model.get_params()[name]
    assert make(**{name: parameter}).get_params()[name] is parameter
    assert model.set_params(**{name: kind(numbers)}).get_params()[name] == tuple(numbers)


def test_clones_of_models_with_dictionaries_and_item_features():
    clone = pytest.importorskip("sklearn.base").clone
    options = {"stage1": "published", "stage1_options": {"n_rounds": np.int64(2)}, "features": {"user": ["age"]}}
    for model in (PrivRec(**options), DPGram(1.0, item_features={"genres": [["a"], ["b"]]})):
        copy = clone(clone(model))
        assert repr(copy.get_params()) == repr(model.get_params())
    assert type(PrivRec(**options).stage1_options["n_rounds"]) is int


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"interactions": np.eye(3)}, TypeError, "interactions must be Interactions, a SciPy .* got ndarray"),
        ({"key": 7}, TypeError, "key must be Key, got int"),
        ({"n_threads": -1}, ValueError, "n_threads must be at least 0"),
        ({"show_progress": "no"}, TypeError, "show_progress must be True or False"),
        ({"ledger": {}}, TypeError, "ledger must be Ledger"),
    ],
)
def test_bad_arguments_of_fit_are_named(model, data, arguments, error, message):
    fresh = new(model)
    with pytest.raises(error, match=message):
        fresh.fit(**({"interactions": data} | arguments))


def test_bad_use_of_a_model_is_named(model, data):
    user, item = data.user_ids[:1], data.item_ids[:1]
    for call, error, message in [
        (lambda: model.score(["nobody"], item), KeyError, "user id 'nobody' is unknown"),
        (lambda: model.score(data.user_ids[:2], item), ValueError, "item_ids must have one entry per user id"),
        (lambda: model.recommend(user, n=0), ValueError, "n must be at least 1"),
        (lambda: model.recommend(user, filter_seen="yes"), TypeError, "filter_seen must be True or False"),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_an_entropy_key_serves_one_fit_of_every_system(model, data):
    if isinstance(model, CentralNMF | IndividualNMF):
        pytest.skip("its draws hide nothing")
    key, name = Key.from_entropy(), type(model).__name__
    new(model).fit(data, key=key)
    with pytest.raises(ValueError, match=rf"key is single-use and was already used by {name}\.fit"):
        new(model).fit(data, key=key)


def test_an_unfitted_model_raises_not_fitted(model):
    fresh = new(model)
    for call in (lambda: fresh.score(["u"], ["i"]), lambda: fresh.recommend(["u"]), lambda: fresh.save("x")):
        with pytest.raises(RuntimeError, match="not fitted yet; call fit"):
            call()


def test_a_model_is_loaded_in_a_process_that_never_imported_its_class(tmp_path, data):
    Popularity().fit(data, key=Key.from_seed(0)).save(tmp_path / "model")
    code = f"from fastfedrec import load; print(type(load({str(tmp_path / 'model')!r})).__name__)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "Popularity"


def test_load_refuses_other_files(tmp_path, data):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent")
    (tmp_path / "text").write_text("hello")
    np.savez(tmp_path / "arrays.npz", a=np.arange(3))
    np.savez(tmp_path / "pickle.npz", json=np.array([{"format": 1}], dtype=object))
    (tmp_path / "pickle").write_bytes(pickle.dumps({"a": 1}))
    for name in ("text", "arrays.npz", "pickle.npz", "pickle"):
        with pytest.raises(ValueError, match="is not a model saved by fastfedrec"):
            load(tmp_path / name)


# ---- threads --------------------------------------------------------------------------------------------------------


ALL = gather("small", "other_work")


@pytest.fixture(scope="module")
def crowd():
    return rated(1500, 60, 3)


@pytest.mark.parametrize("name", ALL)
def test_threads_and_shards_do_not_change_the_model(name, crowd):
    model = ALL[name]
    one, four = (new(model).fit(crowd, key=Key.from_seed(2), n_threads=n) for n in (1, 4))
    fits = [four]
    if "engine" in inspect.signature(model.fit).parameters:
        options = {"n_threads": 4, "engine": LocalEngine(n_shards=7)}
        fits.append(new(model).fit(crowd, key=Key.from_seed(2), **options))
    for other in fits:
        assert other.ledger_.to_dict() == one.ledger_.to_dict()
        assert getattr(other, "decision_", None) == getattr(one, "decision_", None)
    rounded = isinstance(model, FMFLDP) and model.epsilon is None
    rounded |= isinstance(model, PrivRec) and model.clip_norm is None
    for name in held(one)._saved:
        array = getattr(held(one), name)
        for number, other in enumerate(map(held, fits)):
            # Float sums of seven shards are rounded in another order.
            if number and rounded:
                np.testing.assert_allclose(getattr(other, name), array, rtol=1e-3, atol=1e-4)
            else:
                np.testing.assert_array_equal(getattr(other, name), array)
