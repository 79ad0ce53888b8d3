"""SGD over blocks: the twin's steps in its order, the same bits on any threads, and how its kernels are compiled."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import sgd as naive
from sgd_case import ARRAYS, assert_same_bits, biased_square, fit, rating_list
from significance import counts_are, tilted
from strategies import seeds

from fastfedrec import Key, sgd

TOLERANCE = {np.float32: 3e-5, np.float64: 1e-10}


# ---- oracle -----------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    seed=seeds(),
    n_users=st.integers(1, 12),
    n_items=st.integers(1, 9),
    n_ratings=st.integers(1, 40),
    n_factors=st.sampled_from([1, 6, 7, 8, 9, 14, 15, 16, 17]),  # biases in rows with lanes to spare, and beside them
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
    for value, wanted in zip((got.mean, *(getattr(got, name) for name in ARRAYS)), expected, strict=False):
        np.testing.assert_allclose(value, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    np.testing.assert_allclose(got.train_losses, expected[-1], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert all(getattr(got, name).dtype == dtype for name in ARRAYS)


def test_a_function_is_the_loss_it_computes():
    data = rating_list(30, 20, 200)

    def half_square(prediction, rating):
        error = prediction - rating
        return error * error / 2, error

    import numba

    expected = fit(data)
    for loss in (half_square, numba.njit(half_square)):
        got = fit(data, loss=loss)
        np.testing.assert_allclose(got.user_factors, expected.user_factors, rtol=1e-10)
        np.testing.assert_allclose(got.train_losses, expected.train_losses, rtol=1e-12)


@pytest.mark.parametrize("loss", sgd.LOSSES)
@pytest.mark.parametrize("prediction", [-40.0, -1.7, 0.0, 0.3, 2.6, 40.0])
def test_derivatives_are_those_of_the_losses(loss, prediction):
    from fastfedrec import _sgd_training as training
    from fastfedrec._kernels import sgd as kernel

    def value(s):
        return kernel.loss_and_slope(training._LOSSES[loss], s, 0.4)

    numeric = (value(prediction + 1e-5)[0] - value(prediction - 1e-5)[0]) / 2e-5
    assert value(prediction)[1] == pytest.approx(numeric, rel=1e-6, abs=1e-8)


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


def test_without_a_compiler():
    code = """if True:
        import numpy as np
        from naive import sgd as naive
        from sgd_case import biased_square, rating_list
        from fastfedrec import Key, sgd
        from fastfedrec._kernels import sgd as kernel
        assert not hasattr(kernel.run_epoch, "py_func")
        cases = [(loss, 9, True) for loss in sgd.LOSSES] + [("squared", 8, True), ("squared", 9, False)]
        for loss, n_factors, biases in cases:
            data = rating_list(5, 4, 30, high=1)
            shared = dict(n_users=5, n_items=4, n_factors=n_factors, regularization=.03, bias_regularization=.01,
                          biases=biases, weights=np.linspace(.5, 1.5, 30), loss=loss, init_scale=.3,
                          key=Key.from_seed(2), n_blocks=2)
            want = naive.fit_factors(*(x.tolist() for x in data), rates=[.02] * 2, **shared)
            model = sgd.fit_factors(*data, n_epochs=2, learning_rate=.02, schedule="constant", dtype=np.float64,
                                    validation=tuple(x[:3] for x in data), **shared)
            np.testing.assert_allclose(model.user_factors, want[3], rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(model.train_losses, want[5], rtol=1e-10)
            s = model.predict(data[0][:3], data[1][:3])
            held_out = [naive.FORMULAS[loss][0](*x) for x in zip(s, data[2][:3])]
            np.testing.assert_allclose(model.validation_losses[-1], np.mean(held_out), rtol=1e-10)
        sgd.fit_factors(*data, n_users=5, n_items=4, n_epochs=1, loss=biased_square, key=Key.from_seed(2))
        """
    run_python(code, NUMBA_DISABLE_JIT="1")


def run_python(code, timeout=None, **environment):
    environment = os.environ | {"PYTHONPATH": os.path.dirname(__file__)} | environment
    command = [sys.executable, "-P", "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


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


def test_tasks_of_a_phase_share_no_row():
    import numba

    from fastfedrec._kernels import _rating_blocks as blocks
    from fastfedrec._kernels import sgd as kernel

    train_phase = numba.njit(kernel.train_phase)
    n_blocks = 8
    starts = np.arange(n_blocks**2 + 1, dtype=np.uint64)  # one rating a block, of the row of the block's own number
    records = np.empty(n_blocks**2, dtype=blocks.record_type(np.float64))
    records["user"], records["item"] = np.divmod(np.arange(n_blocks**2), n_blocks)
    records["rating"], records["weight"] = 9.0, 1.0
    seen = []
    for n_tasks in (1, 2, 4, 8):
        for phase in range(n_tasks):
            touched = []
            for task in range(n_tasks):
                rows = [np.full((8, 8), 0.5), np.full((8, 8), 0.5), np.zeros(8), np.zeros(8)]
                losses = np.zeros((n_blocks, n_blocks))
                rest = (losses, kernel.BiasesBeside((0,)), kernel.Squared(), 0.0, 0.1, 0.0, 0.0, phase, task, n_tasks)
                aligned = [in_lines(x) for x in rows]
                train_phase(records, starts, *aligned, *rest)
                touched.append((set(np.flatnonzero(aligned[2])), set(np.flatnonzero(aligned[3]))))
                seen.append((n_tasks, np.count_nonzero(losses)))
            for side in (0, 1):
                assert sum(len(rows[side]) for rows in touched) == len(set.union(*(rows[side] for rows in touched)))
    for n_tasks in (1, 2, 4, 8):
        assert sum(count for n, count in seen if n == n_tasks) == n_blocks**2


@pytest.mark.parametrize("late", [0, 1], ids=["the other waits already", "the other has not begun"])
def test_an_interrupted_epoch_leaves_no_thread_waiting(late):
    code = f"""if True:
        import time
        from sgd_case import fit, rating_list
        from fastfedrec import _sgd_training
        build = _sgd_training.Training.__init__
        def build_interrupted(self, *args, **kwargs):
            build(self, *args, **kwargs)
            run = self._run_epoch
            def interrupted(*args):
                time.sleep(args[-1] == {late})
                if args[-1] == 0:  # the calling thread's task; the other waits for it between phases
                    raise KeyboardInterrupt
                return run(*args)
            self._run_epoch = interrupted
        _sgd_training.Training.__init__ = build_interrupted
        try:
            fit(rating_list(30, 20, 200), n_threads=2)
        except KeyboardInterrupt:
            print("interrupted")
        """
    assert run_python(code, timeout=120) == "interrupted\n"


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


# ---- compilation ------------------------------------------------------------------------------------------------


def test_the_cache_serves_the_next_process(tmp_path):
    code = """if True:
        from sgd_case import fit, rating_list
        from fastfedrec._kernels import sgd as kernel
        for loss, n_factors in (("squared", 20), ("huber", 20), ("squared", 16)):
            fit(rating_list(9, 9, 20), n_users=9, n_items=9, loss=loss, n_factors=n_factors).predict([0], [0])
        kernels = kernel.run_epoch, kernel.sum_losses, kernel.predict
        print(sum(sum(k.stats.cache_misses.values()) for k in kernels),
              sum(sum(k.stats.cache_hits.values()) for k in kernels))
        """
    first, second = (run_python(code, NUMBA_CACHE_DIR=str(tmp_path)).split() for _ in range(2))
    assert first == ["7", "0"]
    assert second == ["0", "7"]


def test_kernels_compile_where_no_cache_can_be_written(monkeypatch):
    from fastfedrec._kernels import sgd as kernel

    njit = kernel.njit

    def without_folder(function, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(function, **options)

    monkeypatch.setattr(kernel, "njit", without_folder)
    assert kernel.compile_kernel(lambda x: x + 1)(1) == 2


# ---- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_orders_within_a_block_are_uniform():
    from fastfedrec._kernels import _rating_blocks as blocks

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
