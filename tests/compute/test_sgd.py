"""SGD over blocks: the twin's steps in its order, the same bits on any threads, and a loss of the user's own."""

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.compute import sgd as naive
from support.child_case import run_python
from support.patience import HANG
from support.sgd_case import ARRAYS, assert_same_bits, biased_square, fit, rating_list, refuses_fives
from support.significance import counts_are, tilted
from support.strategies import seeds

from fastfedrec import Key, hardware, sgd
from fastfedrec._kernels.compute import _sgd_blocks as blocks
from fastfedrec._kernels.compute import sgd as kernel

TOLERANCE = {np.float32: 3e-5, np.float64: 1e-10}


# ---- oracle -----------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    seed=seeds(),
    n_users=st.integers(1, 12),
    n_items=st.integers(1, 9),
    n_ratings=st.integers(1, 40),
    # Biases in rows with lanes to spare, and beside them; one line of cache and more than the four that are unrolled.
    n_factors=st.sampled_from([1, 6, 7, 8, 9, 14, 15, 16, 17, 24, 32, 33, 40, 70, 80]),
    n_blocks=st.sampled_from([1, 2, 4, 16]),
    dtype=st.sampled_from([np.float32, np.float64]),
    loss=st.sampled_from(sgd.LOSSES),
    biases=st.booleans(),
    weighted=st.booleans(),
    schedule=st.sampled_from(["constant", "inverse", "halves"]),
    n_threads=st.integers(1, 3),
)
def test_fit_factors_equals_the_twin(
    seed, n_users, n_items, n_ratings, n_factors, n_blocks, dtype, loss, biases, weighted, schedule, n_threads
):
    users, items, ratings = rating_list(n_users, n_items, n_ratings, seed, high=1 if loss == "logistic" else 5)
    weights = np.random.default_rng(seed).integers(1, 8, n_ratings) / 4 if weighted else None
    factor = {"constant": lambda e: 1, "inverse": lambda e: 10 / (9 + e), "halves": lambda e: 0.5**e}[schedule]
    shared = {
        "n_users": n_users,
        "n_items": n_items,
        "n_factors": n_factors,
        "regularization": 0.03,
        "bias_regularization": 0.01,
        "biases": biases,
        "weights": weights,
        "loss": loss,
        "init_scale": 0.3,
        "key": Key.from_seed(seed),
        "n_blocks": n_blocks,
    }
    rates = [0.02 * factor(epoch) for epoch in (1, 2, 3)]
    expected = naive.fit_factors(users.tolist(), items.tolist(), ratings.tolist(), rates=rates, **shared)
    schedule = factor if schedule == "halves" else schedule
    got = fit(
        (users, items, ratings),
        n_epochs=3,
        learning_rate=0.02,
        schedule=schedule,
        dtype=dtype,
        n_threads=n_threads,
        **shared,
    )
    assert got.stopped == "epochs"
    for value, expected_value in zip((got.mean, *(getattr(got, name) for name in ARRAYS)), expected, strict=False):
        np.testing.assert_allclose(value, expected_value, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    np.testing.assert_allclose(got.train_losses, expected[-1], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert all(getattr(got, name).dtype == dtype for name in ARRAYS)


def one_rating(loss, prediction, rating, rate=0.0, end=kernel.USABLE):
    """The loss of one rating that a user's bias alone predicts, and that bias after a step."""
    arrays = [in_lines(np.zeros(shape)) for shape in ((8, 8), (8, 8), 8, 8)]
    arrays[2][0] = prediction
    backup = [np.empty_like(x) for x in arrays]
    records = np.array([(0, 0, rating, 1)], dtype=blocks.record_type(np.float64)).view(np.uint8)
    model = *arrays, kernel.SEPARATE_BIASES, kernel.LOSSES[loss], 0, 0.0
    losses, failed = np.empty(1), np.zeros(2)
    arrivals = np.zeros((1, kernel.COUNTERS_PER_LINE), dtype=np.int64)
    starts = np.array([0, 1], dtype=np.uint64)
    rates = rate, 0.0, 0.0
    assert kernel.run_epoch(records, starts, *model, True, losses, *rates, *backup, 1e9, arrivals, 0, 0, failed) == end
    return losses[0], arrays[2][0]


@pytest.mark.parametrize("loss", sgd.LOSSES)
@pytest.mark.parametrize("prediction", [-40.0, -1.7, 0.0, 0.3, 2.6, 40.0])
def test_derivatives_are_those_of_the_losses(loss, prediction):
    high, low = (one_rating(loss, prediction + h, 0.4)[0] for h in (1e-5, -1e-5))
    value, after = one_rating(loss, prediction, 0.4, rate=0.5)
    assert value == pytest.approx(naive.FORMULAS[loss][0](prediction, 0.4), rel=1e-12)
    assert (prediction - after) / 0.5 == pytest.approx((high - low) / 2e-5, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("loss", sgd.LOSSES)
def test_what_is_not_a_number_stays_so_and_is_reported(loss):
    value, after = one_rating(loss, np.nan, 0.4, rate=0.5, end=kernel.UNUSABLE)
    assert np.isnan(value)
    assert np.isnan(after)


def test_a_step_goes_down_the_gradient():
    rate, regularization, bias_regularization, weight, rating = 1e-3, 0.3, 0.2, 1.7, 4.0
    options = {"n_users": 1, "n_items": 1, "n_factors": 3, "init_scale": 0.5, "learning_rate": rate, "n_blocks": 1}
    options |= {"regularization": regularization, "bias_regularization": bias_regularization, "weights": [weight]}
    start, end = (fit(([0], [0], [rating]), loss=biased_square, n_epochs=n, **options) for n in (0, 1))

    def objective(x):
        b, c, p, q = x[0], x[1], x[2:5], x[5:8]
        s = start.mean + b + c + p @ q
        penalty = regularization * (p @ p + q @ q) + bias_regularization * (b * b + c * c)
        return weight * (s - rating + 1) ** 2 / 2 + penalty / 2

    before, after = (np.concatenate([getattr(m, name).ravel() for name in ARRAYS]) for m in (start, end))
    gradient = [(objective(before + h) - objective(before - h)) / 2e-5 for h in 1e-5 * np.eye(8)]
    np.testing.assert_allclose((before - after) / rate, gradient, rtol=1e-6, atol=1e-8)
    assert np.abs(gradient).min() > 0.01


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_instruction_sets_agree(instruction_set, dtype):
    data = rating_list(60, 50, 2000)
    for n_factors in (3, 16, 20, 70):
        options = {"n_users": 60, "n_items": 50, "n_factors": n_factors, "dtype": dtype, "n_epochs": 3}
        expected = fit(data, **options)
        with hardware.use_instruction_set(instruction_set):
            got = fit(data, **options)
            predicted = got.predict(*data[:2])
        for name in (*ARRAYS, "train_losses"):
            tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
            np.testing.assert_allclose(getattr(got, name), getattr(expected, name), **tolerance)
        products = np.einsum("ij,ij->i", got.user_factors[data[0]], got.item_factors[data[1]])
        sums = got.mean + got.user_biases[data[0]] + got.item_biases[data[1]] + products
        np.testing.assert_allclose(predicted, sums, rtol=TOLERANCE[dtype])


# ---- threads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_blocks", [1, 2, 16])
def test_bits_do_not_depend_on_threads(dtype, n_blocks):
    data = rating_list(400, 300, 20_000)
    weights = np.random.default_rng(0).random(20_000)
    options = {"dtype": dtype, "n_blocks": n_blocks, "weights": weights, "validation": 0.1, "n_epochs": 4}
    models = [fit(data, n_users=400, n_items=300, n_threads=n, **options) for n in (1, 2, 3, 4, 0)]
    for model in models[1:]:
        assert_same_bits(model, models[0])
        assert (model.validation_losses == models[0].validation_losses).all()


def visits(n_tasks, n_blocks, waits):
    """Return (task, users' block, items' block) in the order of an epoch's visits, with a slow first task."""
    # If tasks do not wait for each other, all other tasks end before the second visit of the first one.
    starts = np.arange(n_blocks**2 + 1, dtype=np.uint64)  # one rating for each pair, which is its value
    records = np.empty(n_blocks**2, dtype=blocks.record_type(np.float64))
    length = 8  # rows of a block, so that biases too are whole lines of cache
    for j, k in np.ndindex(n_blocks, n_blocks):
        records[naive.morton(j ^ k, j)] = length * j, length * k, n_blocks * j + k, 1.0
    n_rows = length * n_blocks
    arrays = [in_lines(np.zeros(shape)) for shape in ((n_rows, 8), (n_rows, 8), n_rows, n_rows)]
    backup = [np.empty_like(x) for x in arrays]
    losses, failed = np.empty(n_blocks**2), np.zeros((n_tasks, 2))
    arrivals = np.zeros((n_tasks, kernel.COUNTERS_PER_LINE), dtype=np.int64)
    met, of_others, deadline = [], n_blocks**2 - n_blocks**2 // n_tasks, time.monotonic() + HANG

    def record(prediction, rating, out):
        task = int(rating) // n_blocks // (n_blocks // n_tasks)
        met.append((task, *divmod(int(rating), n_blocks)))
        time.sleep(0.002 * (task == 0))
        while task == 0 and not waits and len(met) <= of_others and time.monotonic() < deadline:
            time.sleep(0.001)
        out[0] = out[1] = out[2] = 0.0

    called = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_double, ctypes.POINTER(ctypes.c_double))(record)
    model = *arrays, kernel.SEPARATE_BIASES, kernel.CUSTOM_LOSS, ctypes.cast(called, ctypes.c_void_p).value, 0.0

    def run(task):
        arguments = *backup, 1e9, arrivals, 0 if waits else -1000, task, failed[task]
        return kernel.run_epoch(records.view(np.uint8), starts, *model, True, losses, 0.1, 0.0, 0.0, *arguments)

    with ThreadPoolExecutor(n_tasks) as pool:
        assert list(pool.map(run, range(n_tasks))) == [kernel.USABLE] * n_tasks
    return met


@pytest.mark.parametrize("n_tasks", [1, 2, 4, 8])
def test_tasks_of_a_phase_share_no_row(n_tasks):
    n_blocks = 8
    met = visits(n_tasks, n_blocks, waits=True)
    assert sorted(met) == sorted((j * n_tasks // n_blocks, j, k) for j in range(n_blocks) for k in range(n_blocks))
    assert phases_share_nothing(met, n_tasks)


def phases_share_nothing(met, n_tasks):
    """Return whether each phase of n_tasks visits has no row in two tasks."""
    length = len(met) // n_tasks
    for first in range(0, len(met), length):
        phase = met[first : first + length]
        for side in (1, 2):
            owners = [{x[0] for x in phase if x[side] == block} for block in {x[side] for x in phase}]
            if any(len(tasks) > 1 for tasks in owners):
                return False
    return True


@pytest.mark.parametrize("n_tasks", [1, 2, 4, 8])
def test_every_row_meets_the_strata_in_order(n_tasks):
    """On which every bit depends."""
    assert strata_are_in_order(visits(n_tasks, 8, waits=True))


@pytest.mark.parametrize("n_tasks", [2, 4, 8])
def test_both_checks_see_tasks_that_race(n_tasks):
    """Tasks that do not wait share rows; `make sanitize` leaves this test out, because it is a race."""
    assert not phases_share_nothing(visits(n_tasks, 8, waits=False), n_tasks)
    assert not strata_are_in_order(visits(n_tasks, 8, waits=False))


def strata_are_in_order(met):
    """Return whether every block of users and of items is visited in stratum 0, then 1, and so on."""
    strata = [[x[1] ^ x[2] for x in met if x[side] == block] for side in (1, 2) for block in range(8)]
    return strata == [list(range(8))] * 16


@pytest.mark.parametrize("n_tasks", [1, 2])
def test_four_strata_of_four_blocks_meet_four_blocks(n_tasks):
    """This is less than a stratum of all blocks, so that a cache may hold it."""
    met = [x for x in visits(n_tasks, 8, waits=True) if x[0] == 0]
    for first in range(0, len(met), 16):
        assert [len({x[side] for x in met[first : first + 16]}) for side in (1, 2)] == [4, 4]


@pytest.mark.parametrize("late", [0, 1], ids=["the other waits already", "the other has not begun"])
def test_an_interrupted_epoch_leaves_no_thread_waiting(late):
    code = f"""if True:
        import time
        from support.sgd_case import fit, rating_list
        from fastfedrec.compute import _sgd_training
        run = _sgd_training._kernel.run_epoch
        def interrupted(*args):
            task = args[-2]
            time.sleep(task == {late})
            if task == 0:  # the calling thread's; the other waits for it between phases
                raise KeyboardInterrupt
            return run(*args)
        _sgd_training._kernel.run_epoch = interrupted
        try:
            fit(rating_list(30, 20, 200), n_threads=2)
        except KeyboardInterrupt:
            print("interrupted")
        """
    assert run_python(code) == "interrupted\n"


def in_lines(array):
    """A copy that begins on a line of cache, as the kernels want it."""
    memory = np.zeros(array.nbytes + 64, dtype=np.uint8)
    first = -memory.ctypes.data % 64
    copy = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def test_a_forked_child_can_train():
    code = """if True:
        import os
        from fastfedrec import Key, sgd
        def fit():
            data = [0, 1, 2] * 100, [0, 1, 2, 3] * 75, [1., 2., 3., 4., 5.] * 60
            model = sgd.fit_factors(*data, n_users=3, n_items=4, key=Key.from_seed(1), n_threads=2)
            return model.user_factors.tobytes()
        before = fit()
        child = os.fork()
        if child == 0:
            os._exit(0 if fit() == before else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    run_python(code)


# ---- a loss of the user's own -----------------------------------------------------------------------------------


def test_a_function_is_the_loss_it_computes():
    data = rating_list(30, 20, 200)

    def half_square(prediction, rating):
        error = prediction - rating
        return error * error / 2, error

    import numba

    expected = fit(data)
    for loss in (half_square, numba.njit(half_square)):
        for n_threads in (1, 2):
            got = fit(data, loss=loss, n_threads=n_threads)
            np.testing.assert_allclose(got.user_factors, expected.user_factors, rtol=1e-10)
            np.testing.assert_allclose(got.train_losses, expected.train_losses, rtol=1e-12)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_what_a_loss_raises_is_raised(n_threads):
    # Two blocks of one user or item each: whichever task and phase the rating is met in, no task waits for ever.
    code = f"""if True:
        import numpy as np
        from support.sgd_case import fit
        from support.sgd_case import refuses_fives
        users, items = np.array([[0, 0], [0, 0], [0, 0], [0, 1], [1, 0], [1, 1]]).T
        options = dict(n_users=2, n_items=2, n_blocks=2, n_epochs=500, learning_rate=.1, biases=False,
                       loss=refuses_fives, regularization=.001, n_threads={n_threads})
        for user, item in np.ndindex(2, 2):
            ratings = np.where((users == user) & (items == item), 5.0, 1.0)
            assert fit((users, items, np.minimum(ratings, 4)), **options).stopped == "epochs"
            try:
                fit((users, items, ratings), **options)
            except ArithmeticError as error:
                print(user, item, error)
        """
    assert run_python(code) == "0 0 five\n0 1 five\n1 0 five\n1 1 five\n"


@pytest.mark.parametrize("n_threads", [1, 2])
def test_what_a_loss_raises_of_ratings_held_out_is_raised(n_threads):
    data = [0, 0, 1], [0, 1, 0], [4.0, 4.0, 4.0]
    options = {"n_users": 2, "n_items": 2, "n_epochs": 500, "learning_rate": 0.1, "n_threads": n_threads}
    with pytest.raises(ArithmeticError, match="five"):
        fit(data, loss=refuses_fives, validation=([1], [1], [5.0]), **options)


def test_without_a_compiler():
    code = """if True:
        import numpy as np
        from support.sgd_case import biased_square, fit, rating_list
        from support.sgd_case import refuses_fives
        data = rating_list(5, 4, 60)
        shift = {"n_users": 5, "n_items": 4, "n_threads": 2, "biases": False}
        model = fit(data, loss=biased_square, **shift)
        want = fit((data[0], data[1], data[2] - 1), **shift)
        np.testing.assert_allclose(model.user_factors, want.user_factors, rtol=1e-10)
        def interrupted(prediction, rating):  # what the function's wrapper lets pass, as an interrupt at the keyboard
            try:
                return refuses_fives(prediction, rating)
            except ArithmeticError as error:
                raise KeyboardInterrupt from error
        for loss, expected in ((refuses_fives, ArithmeticError), (interrupted, KeyboardInterrupt)):
            try:
                fit(data, loss=loss, learning_rate=0.1, n_epochs=500, **shift)
            except expected as error:
                print(type(error).__name__)
        """
    assert run_python(code, NUMBA_DISABLE_JIT="1") == "ArithmeticError\nKeyboardInterrupt\n"


def test_losses_by_name_need_no_compiler():
    code = """if True:
        import sys
        from support.sgd_case import fit, rating_list
        from fastfedrec import sgd
        for loss in sgd.LOSSES:
            fit(rating_list(9, 9, 20, high=1), n_users=9, n_items=9, loss=loss).predict([0], [0])
        print("numba" in sys.modules)
        fit(rating_list(9, 9, 20), n_users=9, n_items=9, loss=lambda s, r: (0.0, 0.0))
        print("numba" in sys.modules)
        """
    assert run_python(code) == "False\nTrue\n"


def shares_a_row_with_the_three_before(records):
    return [
        any(x[name] == y[name] for y in records[max(0, k - 3) : k] for name in ("user", "item"))
        for k, x in enumerate(records)
    ]


def test_neighbours_share_no_row():
    rng = np.random.default_rng(1)
    records = np.zeros(700, dtype=blocks.record_type(np.float32))
    records["user"], records["item"] = rng.integers(30, size=(2, 700))
    records["rating"] = range(700)
    records["user"][500:] = 7  # the second block has one user, so no split is possible
    assert sum(shares_a_row_with_the_three_before(records[:500])) > 50  # as they came
    starts, words = np.array([0, 500, 700, 700, 700], dtype=np.uint64), Key.from_seed(1).words("test", size=700)
    blocks.shuffle_blocks(words, starts, records, 0, 1)
    assert not any(shares_a_row_with_the_three_before(records[:436]))  # of the last 64 there may be no other left
    for first, end in (0, 500), (500, 700):
        np.testing.assert_array_equal(np.sort(records["rating"][first:end]), np.arange(first, end))


# ---- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_orders_within_a_block_are_uniform():
    n = 30_000
    random = Key.from_seed(5).words("test", size=3 * n).reshape(n, 3)
    records = np.zeros(3, dtype=blocks.record_type(np.float64))
    starts = np.array([0, 3], dtype=np.uint64)
    counts = {}
    for words in random:
        records["rating"] = range(3)
        blocks.shuffle_blocks(words, starts, records, 0, 1)
        order = tuple(records["rating"])
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    uniform = np.full(6, 1 / 6)
    assert counts_are(list(counts.values()), uniform)
    for factor in (0.9, 1.1):
        assert not counts_are(np.random.default_rng(1).multinomial(n, tilted(uniform, factor)), uniform)
