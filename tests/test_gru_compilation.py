"""The recurrent encoder where Numba compiles nothing, where it has compiled before, and where it can keep nothing."""

from child_case import run_python


def test_without_a_compiler():
    code = """if True:
        import numpy as np
        from gru_case import Case, naive
        from fastfedrec._kernels import gru as kernel
        assert not hasattr(kernel.train_clients, "py_func")
        case = Case(n_clients=1, n_examples=2, longest=3)
        case.options["n_epochs"] = 1
        np.testing.assert_allclose(case.spread(case.train(), 0), case.expected(0), rtol=0, atol=1e-11)
        state = naive.encode(*naive.unpack(case.parameters, 16), [3, 1])[0]
        np.testing.assert_allclose(case.encoder.encode_sequences(case.parameters, [3, 1], [0, 2])[0], state)
        """
    run_python(code, NUMBA_DISABLE_JIT="1")


def test_the_cache_serves_the_next_process(tmp_path):
    code = """if True:
        from gru_case import Case
        from fastfedrec._kernels import gru as kernel
        case = Case(n_clients=1)
        case.train()
        case.encoder.encode_sequences(case.parameters, [0], [0, 1])
        kernels = kernel.train_clients, kernel.encode
        print(sum(sum(k.stats.cache_misses.values()) for k in kernels),
              sum(sum(k.stats.cache_hits.values()) for k in kernels))
        """
    first, second = (run_python(code, NUMBA_CACHE_DIR=str(tmp_path)).split() for _ in range(2))
    assert (first, second) == (["2", "0"], ["0", "2"])


def test_kernels_compile_where_no_cache_can_be_written(monkeypatch):
    from fastfedrec._kernels import _layers as kernel

    njit = kernel.njit

    def without_folder(function, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(function, **options)

    monkeypatch.setattr(kernel, "njit", without_folder)
    assert kernel.compile_kernel(lambda x: x + 1)(1) == 2
