"""Parameters of a fitted model do not change with attributes that are set after its fit."""

import copy
import pickle

import numpy as np
import pytest
from support.data import rated
from support.models import MODELS, gather, new

from fastfedrec import FMFLDP, FedRec, Key, load

pytestmark = pytest.mark.ignores_values

KEY = Key.from_seed(2)


@pytest.fixture(scope="module")
def data():
    return rated(40, 50, 1)


@pytest.mark.parametrize(("name", "changes"), gather("changes").items(), ids=gather("changes"))
def test_methods_and_files_go_by_the_parameters_of_the_fit(name, changes, data, tmp_path):
    model = MODELS[name]
    fitted = new(model).fit(data, key=KEY)

    def answers(model):
        yield model.recommend(data.user_ids, 3)
        yield model.score(data.user_ids, data.item_ids[:40])
        if hasattr(model, "predict"):
            yield model.predict(data.user_ids, data.item_ids[:40])
        for name in ("with_users", "serve"):
            if hasattr(model, name) and (name == "serve" or model.serves_others):
                yield getattr(model, name)(data).score(data.user_ids, data.item_ids[:40])
        if hasattr(model, "personalize"):
            yield model.personalize(data, key=KEY).score(data.user_ids, data.item_ids[:40])

    expected = list(answers(fitted))

    def assign(model):
        for name, value in changes.items():
            setattr(model, model._attributes.get(name, name), value)

    for change in (lambda model: model.set_params(**changes), assign):
        changed = copy.copy(fitted)
        change(changed)
        changed.save(tmp_path / "model")
        loaded = load(tmp_path / "model")
        assert loaded.get_params() == model.get_params()
        for one in (changed, loaded, loaded.set_params(**changes), pickle.loads(pickle.dumps(changed))):
            for now, then in zip(answers(one), expected, strict=True):
                np.testing.assert_array_equal(now, then)


def test_the_next_fit_has_the_new_parameters(data):
    model = FMFLDP(n_rounds=2).fit(data, key=KEY)
    model.set_params(n_factors=3)
    assert model.item_factors_.shape[1] == 5
    assert model.fit(data, key=KEY).item_factors_.shape[1] == 3


def test_a_list_that_is_changed_later_changes_no_model(data):
    grid = [1.0, 2.0, 3.0, 4.0, 5.0]
    model = FedRec(n_rounds=2, grid=grid).fit(data, key=KEY)
    before = model.predict(data.user_ids, data.item_ids[:40])
    grid[-1] = 1.5
    np.testing.assert_array_equal(model.predict(data.user_ids, data.item_ids[:40]), before)


def test_refused_parameters_do_not_change_the_model():
    model = FMFLDP()
    with pytest.raises(ValueError, match="n_rounds"):
        model.set_params(n_factors=7, n_rounds=0)
    assert model.n_factors == 5
