"""The recurrent encoder without Numba's compiler, and without a cache (with a cache: test_first_call)."""

from support.child_case import run_python


def test_without_a_compiler():
    code = """if True:
        import numpy as np
        from support.gru_case import Case, naive
        from fastfedrec._kernels.compute.networks import gru as kernel
        assert not hasattr(kernel.train_clients, "py_func")
        case = Case(n_clients=1, n_examples=2, longest=3)
        case.options["n_epochs"] = 1
        np.testing.assert_allclose(case.spread(case.train(), 0), case.expected(0), rtol=0, atol=1e-11)
        state = naive.encode(*naive.unpack(case.parameters, 16), [3, 1])[0]
        np.testing.assert_allclose(case.encoder.encode_sequences(case.parameters, [3, 1], [0, 2])[0], state)
        """
    run_python(code, NUMBA_DISABLE_JIT="1")


def test_kernels_compile_where_no_cache_can_be_written(monkeypatch):
    from fastfedrec._kernels.compute.networks import _layers as kernel

    njit = kernel.njit

    def without_folder(function, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(function, **options)

    monkeypatch.setattr(kernel, "njit", without_folder)
    assert kernel.compile_kernel(lambda x: x + 1)(1) == 2
