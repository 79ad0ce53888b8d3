"""Whole fits by SGD: finite results, the selected epoch, errors, and accuracy."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sgd_case import ARRAYS, assert_same_bits, biased_square, fit, rating_list
from support.strategies import seeds

from fastfedrec import Key, sgd


def fit_quietly(data, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return fit(data, **arguments)


def assert_finite(model, users, items):
    assert math.isfinite(model.mean)
    for name in ARRAYS:
        assert np.isfinite(getattr(model, name)).all(), name
    pairs = np.meshgrid(np.arange(users), np.arange(items))
    assert np.isfinite(model.predict(pairs[0].ravel(), pairs[1].ravel())).all()


# ---- invariants -------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    seed=seeds(),
    exponent=st.integers(-6, 6),
    dtype=st.sampled_from([np.float32, np.float64]),
    loss=st.sampled_from([*sgd.LOSSES, biased_square]),
    n_epochs=st.integers(0, 12),
    regularization=st.sampled_from([0.0, 0.1, 1e3]),
    schedule=st.sampled_from(["constant", "inverse"]),
    validation=st.sampled_from([None, 0.2]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    zeros=st.booleans(),
)
def test_no_learning_rate_gives_a_number_that_is_not_one(
    seed, exponent, dtype, loss, n_epochs, regularization, schedule, validation, scale, zeros
):
    users, items, ratings = rating_list(9, 7, 30, seed, high=1 if loss == "logistic" else 5)
    ratings = ratings if loss == "logistic" else scale * ratings
    weights = np.ones(30)
    weights[:5] = 0 if zeros else 1  # fewer than the six that are held out: no side has these alone
    model = fit_quietly(
        (users, items, ratings),
        n_users=9,
        n_items=7,
        n_factors=3,
        n_epochs=n_epochs,
        learning_rate=10.0**exponent,
        regularization=regularization,
        schedule=schedule,
        validation=validation,
        weights=weights,
        loss=loss,
        dtype=dtype,
        key=Key.from_seed(seed),
    )
    assert_finite(model, 9, 7)
    assert model.epoch <= len(model.train_losses) <= n_epochs
    # Only the last epoch of a diverged run may have a loss that is not finite.
    losses = model.train_losses[:-1] if model.stopped == "diverged" else model.train_losses
    assert np.isfinite(losses).all()
    if model.stopped == "epochs":
        assert len(model.train_losses) == n_epochs
    if model.stopped == "diverged" and validation is None:
        assert model.epoch < len(model.train_losses) or not np.isfinite(model.train_losses[-1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_divergence_is_told_and_undone(dtype):
    data = rating_list(30, 20, 400)

    def late(epoch):
        return 1.0 if epoch < 4 else 1e4

    with pytest.warns(RuntimeWarning, match=r"diverged in epoch 4 at learning_rate=0\.01; .* after epoch 3\. Lower"):
        model = fit(data, learning_rate=0.01, schedule=late, dtype=dtype)
    assert (model.stopped, model.epoch, len(model.train_losses)) == ("diverged", 3, 4)
    # The returned model equals a run that ends before the diverged epoch.
    good = fit(data, learning_rate=0.01, schedule="constant", n_epochs=3, dtype=dtype)
    assert all((getattr(model, name) == getattr(good, name)).all() for name in ARRAYS)


def test_a_model_that_only_its_last_epoch_ruined_is_undone():
    # With one rating the loss before the only step equals the loss of the start.
    with pytest.warns(RuntimeWarning, match="diverged in epoch 1"):
        model = fit(([0], [0], [3.0]), learning_rate=1e3, n_epochs=1, biases=False)
    assert (model.stopped, model.epoch) == ("diverged", 0)
    # Two epochs: the second finds it out, and the state after the first is no good either.
    with pytest.warns(RuntimeWarning, match="diverged in epoch 2"):
        model = fit(([0], [0], [3.0]), learning_rate=1e3, n_epochs=5, biases=False)
    assert (model.stopped, model.epoch) == ("diverged", 0)


def test_an_exact_start_is_no_divergence():
    users, items, _ = rating_list(30, 20, 200)
    for rating in (0.1, 3.7, 1e4):
        model = fit((users, items, np.full(200, rating)), init_scale=0.0, dtype=np.float32, learning_rate=0.1)
        assert model.stopped == "epochs"


@pytest.mark.parametrize("loss", sgd.LOSSES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_of_one_are_no_weights(loss, dtype):
    data = rating_list(30, 20, 400, high=1)
    options = {"loss": loss, "dtype": dtype, "n_factors": 5, "n_blocks": 4, "n_epochs": 3}
    assert_same_bits(fit(data, **options), fit(data, weights=np.ones(400), **options))
    with pytest.raises(AssertionError):
        assert_same_bits(fit(data, **options), fit(data, weights=np.full(400, 1.5), **options))


def test_weights_multiply_the_loss_alone():
    users, items, ratings = rating_list(30, 20, 200)
    weights = np.random.default_rng(0).integers(0, 3, 200).astype(float)
    # Ratings of weight 0 have no effect, and doubled weights equal a doubled learning rate with half the penalty.
    changed = np.where(weights == 0, ratings + 100, ratings)
    assert_same_bits(fit((users, items, ratings), weights=weights), fit((users, items, changed), weights=weights))
    scaled = fit((users, items, ratings), weights=2 * np.ones(200), learning_rate=0.01, regularization=0.2)
    plain = fit((users, items, ratings), learning_rate=0.02, regularization=0.1)
    np.testing.assert_allclose(scaled.user_factors, plain.user_factors, rtol=1e-10)
    np.testing.assert_allclose(scaled.train_losses, plain.train_losses, rtol=1e-10)


def test_ids_without_ratings_keep_their_start():
    data = [2, 2], [1, 3], [1.0, 5.0]
    start, end = fit(data, n_epochs=0), fit(data, n_epochs=5)
    seen_users, seen_items = np.arange(30) == 2, np.isin(np.arange(20), [1, 3])
    assert ((start.user_factors == end.user_factors).all(axis=1) == ~seen_users).all()
    assert ((start.item_factors == end.item_factors).all(axis=1) == ~seen_items).all()
    assert ((end.user_biases == 0) == ~seen_users).all()
    assert ((end.item_biases == 0) == ~seen_items).all()


def test_unbiased_factors_stand_alone():
    model = fit(rating_list(30, 20, 200), biases=False)
    assert model.mean == 0
    assert not model.user_biases.any()
    np.testing.assert_allclose(model.predict([3], [4]), model.user_factors[3] @ model.item_factors[4], rtol=1e-12)


def test_predictions_are_the_sum_of_the_parts():
    model = fit(rating_list(30, 20, 200), dtype=np.float32)
    users, items = np.divmod(np.arange(600), 20)
    factors = (model.user_factors @ model.item_factors.T).ravel()
    expected = model.mean + model.user_biases[users] + model.item_biases[items] + factors
    got = model.predict(users, items)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert model.predict([], []).shape == (0,)


def test_the_key_and_the_blocks_name_the_result():
    data = rating_list(30, 20, 300)
    model = fit(data)
    assert_same_bits(fit(data), model)
    for other in (fit(data, key=Key.from_seed(2)), fit(data, n_blocks=4)):
        assert (other.user_factors != model.user_factors).any()


def test_patience_stops_and_the_best_epoch_is_kept():
    data = rating_list(30, 20, 300)
    held_out = tuple(x[:50] for x in rating_list(30, 20, 300, seed=9))
    model = fit(data, validation=held_out, n_epochs=500, learning_rate=0.05, regularization=0.0, patience=4)
    assert model.stopped == "patience"
    assert len(model.validation_losses) == len(model.train_losses) == model.epoch + 4
    # The returned model belongs to the best epoch and not to the last one.
    best = np.mean((model.predict(*held_out[:2]) - held_out[2]) ** 2) / 2
    if model.epoch:
        assert best == pytest.approx(model.validation_losses[model.epoch - 1], rel=1e-12)
    assert (model.validation_losses >= best * (1 - 1e-12)).all()
    repeated = fit(data, n_epochs=model.epoch, learning_rate=0.05, regularization=0.0)
    assert (repeated.user_factors == model.user_factors).all()


def test_a_share_is_held_out_with_its_weights():
    users, items, ratings = rating_list(30, 20, 300)
    weights = np.random.default_rng(3).random(300)
    held_out = np.sort(Key.from_seed(1).permutation("sgd.validation", size=300)[:60])
    train_rows = np.setdiff1d(np.arange(300), held_out)
    model = fit((users, items, ratings), validation=0.2, weights=weights, n_epochs=3)
    same = fit((users[train_rows], items[train_rows], ratings[train_rows]), weights=weights[train_rows], n_epochs=3)
    np.testing.assert_array_equal(model.train_losses, same.train_losses)
    errors = (same.predict(users[held_out], items[held_out]) - ratings[held_out]) ** 2 / 2
    assert model.validation_losses[-1] == pytest.approx(np.average(errors, weights=weights[held_out]), rel=1e-12)


def test_input_is_left_alone_and_may_be_read_only():
    data = rating_list(30, 20, 100)
    expected = fit(data)
    frozen = [np.repeat(x, 2)[::2] for x in data]
    for x in frozen:
        x.flags.writeable = False
    assert_same_bits(fit(frozen), expected)
    assert_same_bits(fit([x.tolist() for x in data]), expected)
    assert_same_bits(fit([data[0].astype(np.uint8), data[1].astype(np.int32), data[2]]), expected)


# ---- bad inputs -------------------------------------------------------------------------------------------------


def of_nothing(prediction, rating):
    return prediction


def of_text(prediction, rating):
    return prediction.upper()


@pytest.mark.parametrize("sizes", [{}, {"n_users": 2}, {"n_items": 2}])
def test_columns_without_sizes_are_refused_with_what_has_them(sizes):
    missing = "n_items" if "n_users" in sizes else "n_users"
    with pytest.raises(TypeError, match=rf"{missing} must be an integer if users, items .* got None; pass it, or pass"):
        sgd.fit_factors([0, 1], [0, 1], [1.0, 2.0], key=Key.from_seed(1), **sizes)
    fitted = sgd.fit_factors(np.diag([1.0, 2.0]), key=Key.from_seed(1), n_epochs=1, **sizes)  # a matrix has them
    assert len(fitted.user_factors) == len(fitted.item_factors) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_users": 0}, "n_users must be at least 1"),
        ({"n_items": 2}, r"items must be from 0 to 1, got 0 to 2"),
        ({"n_factors": 0}, "n_factors must be at least 1"),
        ({"n_epochs": -1}, "n_epochs must be at least 0"),
        ({"learning_rate": 0.0}, "learning_rate must be greater than 0"),
        ({"learning_rate": math.nan}, "learning_rate must be finite"),
        ({"regularization": -1.0}, "regularization must be at least 0"),
        ({"bias_regularization": -1.0}, "bias_regularization must be at least 0"),
        ({"biases": 1}, "biases must be True or False"),
        ({"weights": [1.0, 1.0]}, r"weights must have shape \(3,\)"),
        ({"weights": [1.0, -1.0, 1.0]}, "weights must be at least 0 and not all 0, got -1"),
        ({"weights": [0.0, 0.0, 0.0]}, "not all 0, got 0"),
        ({"loss": "cubic"}, "loss must be one of 'squared', 'absolute', 'huber', 'logistic', got 'cubic'"),
        ({"loss": "logistic"}, "ratings must be from 0 to 1 under the logistic loss, got 1 to 5"),
        ({"loss": of_nothing}, r"loss must return \(loss, derivative\), got 0.5"),
        ({"loss": of_text}, "two floats that Numba compiles; it failed on"),
        ({"schedule": "cosine"}, "schedule must be one of 'constant', 'inverse'"),
        ({"schedule": lambda epoch: -1.0}, r"schedule\(1\) must be at least 0"),
        ({"validation": 1.0}, "validation must be less than 1"),
        ({"validation": 0.01}, "validation=0.01 must leave ratings on both sides, got 3"),
        ({"validation": ([0], [0])}, r"validation must be \(users, items, ratings\), got 2 arrays"),
        ({"validation": ([9], [0], [1.0])}, "validation users must be from 0 to 2, got 9"),
        ({"validation": ([], [], np.empty(0))}, "validation ratings must hold at least one rating"),
        ({"validation": 0.34, "weights": [0.0, 0.0, 1.0]}, "must leave a weight above 0 on both sides"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"init_scale": -0.1}, "init_scale must be at least 0"),
        ({"dtype": np.int32}, "dtype must be float32 or float64, got int32"),
        ({"key": 7}, "key must be Key"),
        ({"n_blocks": 12}, "n_blocks must be a power of two, got 12"),
        ({"n_blocks": 512}, "n_blocks must be at most 256"),
        ({"n_threads": -1}, "n_threads must be at least 0"),
        ({"users": [0.5, 1.0, 2.0]}, "users must be integers, got float64"),
        ({"users": [-1, 0, 1]}, "users must be from 0 to 2, got -1 to 1"),
        ({"items": [0, 1]}, r"items must have shape \(3,\), one entry for each rating"),
        ({"users": [[0, 1, 2]]}, "users must have 1 dimension"),
        ({"ratings": [1.0, math.nan, 2.0]}, r"ratings must be finite, got nan at \(1,\)"),
        ({"ratings": [1.0, 1e300, 2.0]}, "ratings must fit float32, got 1e"),
        ({"users": [], "items": [], "ratings": np.empty(0)}, "ratings must hold at least one rating, got none"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = {"users": [0, 1, 2], "items": [0, 1, 2], "ratings": [1.0, 3.0, 5.0], "n_users": 3, "n_items": 3}
    with pytest.raises((TypeError, ValueError), match=message):
        sgd.fit_factors(**(arguments | {"key": Key.from_seed(1)} | change))


def test_predict_checks_its_pairs():
    model = fit(rating_list(30, 20, 100), n_epochs=1)
    with pytest.raises(ValueError, match="users must be from 0 to 29, got 30 to 30"):
        model.predict([30], [0])
    with pytest.raises(ValueError, match=r"items must have shape \(1,\)"):
        model.predict([0], [0, 1])


# ---- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_planted_factors_are_found():
    rng = np.random.default_rng(0)
    p, q = rng.standard_normal((600, 3)), rng.standard_normal((400, 3))
    users, items = rng.integers(0, 600, 60_000), rng.integers(0, 400, 60_000)
    truth = (p[users] * q[items]).sum(axis=1)
    ratings = truth + 0.3 * rng.standard_normal(60_000)
    options = {"n_users": 600, "n_items": 400, "n_factors": 3, "n_epochs": 60, "learning_rate": 0.05}
    model = fit((users, items, ratings), regularization=0.01, **options)
    error = np.sqrt(np.mean((model.predict(users, items) - truth) ** 2))
    assert error < 0.1
    # The instrument sees a rank too few.
    short = fit((users, items, ratings), regularization=0.01, **(options | {"n_factors": 2}))
    assert np.sqrt(np.mean((short.predict(users, items) - truth) ** 2)) > 0.5


@pytest.mark.slow
def test_inverse_variance_weights_help():
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 300, 30_000), rng.integers(0, 200, 30_000)
    truth = rng.standard_normal(300)[users] + rng.standard_normal(200)[items]
    stddev = np.where(rng.random(30_000) < 0.5, 0.2, 3.0)
    data = users, items, truth + stddev * rng.standard_normal(30_000)
    weights = stddev**-2 / np.mean(stddev**-2)

    def error(**options):
        model = fit(data, n_users=300, n_items=200, n_factors=1, init_scale=0.0, regularization=0.01, **options)
        return np.sqrt(np.mean((model.predict(users, items) - truth) ** 2))

    assert error(weights=weights) < 0.5 * error()


@pytest.mark.nightly
def test_movielens_100k_on_the_published_folds(data_path):
    import io
    import zipfile

    errors = []
    with zipfile.ZipFile(data_path("ml-100k.zip")) as archive:
        for fold in range(1, 6):
            train, test = (
                np.loadtxt(io.BytesIO(archive.read(f"ml-100k/u{fold}.{part}")), dtype=np.int64)[:, :3].T
                for part in ("base", "test")
            )
            model = sgd.fit_factors(
                train[0] - 1, train[1] - 1, train[2], n_users=943, n_items=1682, key=Key.from_seed(1)
            )
            predicted = np.clip(model.predict(test[0] - 1, test[1] - 1), 1, 5)
            errors.append(np.sqrt(np.mean((predicted - test[2]) ** 2)))
    assert np.mean(errors) <= 0.93
