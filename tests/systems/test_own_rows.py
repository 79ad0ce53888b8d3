"""Users absent from the fit are served from their own rows alone."""

import numpy as np
import pytest

from fastfedrec import FMFLDP, FedRec, ItemKNN, Key, LaplaceRRSVD, OwnHistory, Popularity, load
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import RandomHoldout

RATINGS = {
    "optimal": LaplaceRRSVD(epsilon_1=2.0, epsilon_2=2.0, n_factors=4, n_epochs=10),
    "serial": LaplaceRRSVD("serial", epsilon_1=3.0, epsilon_2=3.0, n_factors=4, n_epochs=10),
    "hidden": LaplaceRRSVD(hide_items=True, epsilon_1=4.0, epsilon_2=4.0, n_reports=60),
    "published": LaplaceRRSVD("published", n_factors=4),
    "exact": LaplaceRRSVD(None, n_factors=4, n_epochs=10),
}
MODELS = RATINGS | {
    "fmf_ldp": FMFLDP(n_rounds=2),
    "fmf_ldp values": FMFLDP(n_rounds=2, epsilon=None, use_values=True),
    "fedrec": FedRec(n_rounds=3, n_factors=4),
    "popularity": Popularity(),
    "item_knn": ItemKNN(),
    "own_history": OwnHistory(),
}


@pytest.fixture(scope="module")
def people():
    """Return the users of the fit, and other users."""
    data = generate_implicit(1200, 80, key=Key.from_seed(3), ratings=True)
    return data.select_users(np.arange(900)), data.select_users(np.arange(900, 1200))


@pytest.fixture(scope="module")
def fitted(people):
    return {name: model.fit(people[0], key=Key.from_seed(4)) for name, model in MODELS.items()}


# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.ignores_values
@pytest.mark.parametrize("name", RATINGS)
def test_a_device_solves_for_its_users_factors(fitted, people, name):
    model, new_users = fitted[name], people[1]
    served = model.with_users(new_users)
    spread, remaining = model.bias_prior_
    ridge = 0.02 if name == "published" else 0.13
    for row in (0, 17, 299):
        span = slice(*new_users.indptr[row : row + 2])
        items, n = new_users.indices[span], span.stop - span.start
        residuals = new_users.values[span] - model.mean_ - model.item_biases_[items]
        bias = residuals.sum() / (n + remaining / spread) if spread else 0.0
        assert served.user_biases_[row] == pytest.approx(bias, abs=1e-12)
        factors = model.item_factors_[items]
        solution = np.linalg.solve(
            factors.T @ factors + (ridge * n + 1e-12) * np.eye(factors.shape[1]), factors.T @ (residuals - bias)
        )
        np.testing.assert_allclose(served.user_factors_[row], solution, rtol=1e-6, atol=1e-9)


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_an_answer_does_not_depend_on_other_served_users(fitted, people, name):
    model, new_users = fitted[name], people[1]
    single, batch = model.with_users(new_users.select_users([17])), model.with_users(new_users)
    pairs = [new_users.user_ids[17]] * 80, new_users.item_ids
    np.testing.assert_allclose(single.score(*pairs), batch.score(*pairs), rtol=1e-6, atol=1e-9)
    assert batch.ledger_ is model.ledger_
    assert model.interactions_.n_users == 900


# These models claim no guarantee.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "fmf_ldp values"])
@pytest.mark.parametrize("value", [1.7e308, 5e-324])
def test_no_value_of_one_user_affects_others_in_the_batch(fitted, people, name, value):
    model, new_users = fitted[name], people[1].select_users([3, 17])
    values = new_users.values.astype(np.float64)
    values[: new_users.indptr[1]] = value
    odd, usual = (model.with_users(data) for data in (new_users._replace(values=values), new_users))
    scores = [served.recommend(new_users.user_ids, 80, filter_seen=False)[1] for served in (odd, usual)]
    assert np.isfinite(scores[0]).all()
    np.testing.assert_array_equal(scores[0][1], scores[1][1])


@pytest.mark.parametrize("name", RATINGS)
def test_released_parameters_suffice_to_serve(fitted, people, tmp_path, name):
    fitted[name].save(tmp_path / "model", include_users=False)
    there, here = (model.with_users(people[1]) for model in (load(tmp_path / "model"), fitted[name]))
    np.testing.assert_array_equal(there.user_biases_, here.user_biases_)
    np.testing.assert_array_equal(there.user_factors_, here.user_factors_)


def rmse(model, test):
    return model.evaluate(test, metrics=["rmse"])["rmse"]


@pytest.mark.parametrize("name", ["optimal", "serial", "exact"])
def test_new_users_are_served_better_than_by_items_alone(fitted, people, name):
    """Check that another user's ratings, the control, serve a user worse than its own."""
    model = fitted[name]
    train, test = next(RandomHoldout(share=0.2).split(people[1], key=Key.from_seed(5)))
    other_rows = train.select_users(np.roll(np.arange(300), 1))._replace(user_ids=train.user_ids)
    correct, wrong = (rmse(model.with_users(data), test) for data in (train, other_rows))
    by_items = np.sqrt(np.mean((np.clip(model.mean_ + model.item_biases_[test.indices], 1, 5) - test.values) ** 2))
    assert correct < by_items - 0.01
    assert wrong > correct + 0.02


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_a_value_below_0_is_refused_by_models_of_counts_alone(fitted, people):
    new_users = people[1].select_users([3])
    below = new_users._replace(values=np.where(np.arange(new_users.n_interactions), 1.0, -2.0))
    for model in fitted.values():
        if hasattr(model, "predict"):
            assert np.isfinite(model.with_users(below).score_items(below.user_ids)).all()
        else:
            with pytest.raises(ValueError, match=r"is for implicit feedback: .* at least 0, got -2"):
                model.with_users(below)


def test_unknown_items_and_no_users_are_refused(fitted, people):
    with pytest.raises(ValueError, match="interactions must have at least one user"):
        fitted["optimal"].with_users(people[1].select_users([]))
    with pytest.raises(ValueError, match="must have the 80 items the model was fitted on"):
        fitted["optimal"].with_users(people[1].select_items(np.arange(20)))
