"""The argument `out` of every function of `compute` that returns arrays, for arrays of any library on the CPU."""

import importlib.util
import inspect
import pkgutil
import re

import numpy as np
import pytest
import scipy.sparse
from support.array_kinds import Exported, OlderExported, OnGPU
from support.data import of_dense

from fastfedrec import Key, als, clustering, compute, gru, nmf, ranking, row_sums, sgd, two_tower
from fastfedrec.compute import hadamard, pair_sums, ranks
from fastfedrec.core.arrays import check_out, check_outs
from fastfedrec.data.features import Features

KEY = Key.from_seed(1)
RNG = np.random.default_rng(1)
DENSE = np.where(RNG.random((9, 7)) < 0.5, RNG.integers(1, 6, (9, 7)), 0).astype(np.float32)
DATA = of_dense(DENSE)
USERS, ITEMS = (RNG.normal(size=(n, 3)).astype(np.float32) for n in (9, 7))
SCORES = USERS @ ITEMS.T
HELD_OUT = np.arange(10), np.arange(9, dtype=np.int32) % 7
OTHERS = np.arange(18, dtype=np.int32).reshape(9, 2) % 7
MODEL = sgd.fit_factors(DATA, n_factors=3, n_epochs=1, key=KEY)
NETWORK = two_tower.TwoTower(Features.from_interactions(DATA, user=[], item=["item id"]))
ENCODER = gru.GRUEncoder(7, n_factors=16)
ALS = {"regularization": 0.5, "confidence_weight": 2.0}
PAIRS = RNG.integers(-1, 2, (9, 7)).astype(np.float32)

#: Each function with an array that it reads, and a call with this array and `out`.
CASES = {
    "als.HalfStep.solve": (DENSE, lambda x, out: als.HalfStep(ITEMS, **ALS).solve(x, out=out)),
    "als.regularized_gram": (ITEMS, lambda x, out: als.regularized_gram(x, 0.5, 2.0, out=out)),
    "als.solve_own_users": (ITEMS, lambda x, out: als.solve_own_users(DATA, x, out=out, **ALS)),
    "als.solve_users": (ITEMS, lambda x, out: als.solve_users(DATA, x, out=out, **ALS)),
    "clustering.assign_rows": (DENSE, lambda x, out: clustering.assign_rows(x, DENSE[:3], out=out)),
    "hadamard.hadamard_transform": (DENSE[:8].T, lambda x, out: hadamard.hadamard_transform(x, out=out)),
    "networks.gru.GRUEncoder.encode_items": (
        ENCODER.initial_parameters(KEY), lambda x, out: ENCODER.encode_items(x, out=out)),
    "networks.gru.GRUEncoder.encode_sequences": (
        ENCODER.initial_parameters(KEY), lambda x, out: ENCODER.encode_sequences(x, [0, 1, 2], [0, 1, 3], out=out)),
    "networks.two_tower.TwoTower.score": (
        NETWORK.initial_parameters(KEY), lambda x, out: NETWORK.score(x, [0, 3], out=out)),
    "nmf.solve_rows_nonnegative": (
        abs(ITEMS), lambda x, out: nmf.solve_rows_nonnegative(DENSE, x, regularization=0.5, out=out)),
    "pair_sums.sum_products": (PAIRS, lambda x, out: pair_sums.sum_products([x], 7, np.float64, out=out)),
    "ranking.held_out_rank_counts_factors": (
        USERS,
        lambda x, out: ranking.held_out_rank_counts_factors(x, ITEMS, HELD_OUT[1], OTHERS, np.full(9, 2), out=out)),
    "ranking.held_out_ranks": (
        SCORES, lambda x, out: ranking.held_out_ranks(SCORES[:, 0].copy(), x, np.full(9, 7), out=out)),
    "ranking.held_out_ranks_factors": (
        USERS, lambda x, out: ranking.held_out_ranks_factors(x, ITEMS, HELD_OUT[1], OTHERS, np.full(9, 2), out=out)),
    "ranking.recommend_factors": (USERS, lambda x, out: ranking.recommend_factors(x, ITEMS, 3, seen=DATA, out=out)),
    "ranking.sample_unseen": (
        np.arange(9), lambda x, out: ranking.sample_unseen(DATA, x, 3, key=KEY, purpose="t", out=out)),
    "ranking.top_k": (SCORES, lambda x, out: ranking.top_k(x, 3, seen=DATA, out=out)),
    "ranks.rank_counts": (SCORES, lambda x, out: ranks.rank_counts(x, HELD_OUT, out=out)),
    "ranks.rank_counts_factors": (USERS, lambda x, out: ranks.rank_counts_factors(x, ITEMS, HELD_OUT, out=out)),
    "row_sums.sum_rows": (ITEMS.astype(np.float64), lambda x, out: row_sums.sum_rows(DATA, x, out=out)),
    "sgd.FactorModel.predict": (np.arange(7), lambda x, out: MODEL.predict(x, x, out=out)),
}  # fmt: skip

#: Functions that return arrays without `out`.
EXEMPT = {
    "views of the parameters": (
        "networks.gru.GRUEncoder.embeddings", "networks.joint_loss.JointNetwork.network_part",
        "networks.meta_learning.MetaNetwork.network_part", "networks.meta_learning.MetaNetwork.rates_part",
    ),
    "parameters, which are made once for each fit": (
        "networks.gru.GRUEncoder.initial_parameters", "networks.joint_loss.JointNetwork.initial_parameters",
        "networks.joint_loss.JointNetwork.join", "networks.meta_learning.MetaNetwork.initial_parameters",
        "networks.meta_learning.MetaNetwork.join", "networks.two_tower.TwoTower.initial_parameters",
    ),
    "sums and examples, which are computed once for a round": (
        "networks.client_updates.ClientUpdates.total", "networks.meta_learning.split_examples",
    ),
}  # fmt: skip


def arrays_of(result):
    return result if isinstance(result, tuple) else (result,)


def outs(expected, wrap=lambda array: array, change=lambda array: array):
    """Return arguments `out` of other content, and their arrays."""
    arrays = [change(np.full_like(array, 77)) for array in arrays_of(expected)]
    wrapped = tuple(map(wrap, arrays))
    return wrapped if isinstance(expected, tuple) else wrapped[0], arrays


#: Libraries by name, with the conversion of an array of NumPy in place.
LIBRARIES = {"NumPy": lambda array: array, "DLPack before version 1": OlderExported}
if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # before it, all memory of DLPack is read-only
    LIBRARIES["DLPack"] = Exported
if importlib.util.find_spec("torch"):
    LIBRARIES["PyTorch"] = lambda array: importlib.import_module("torch").from_numpy(array)


# ---- oracle: the result without `out` -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_results_are_written_to_out(name, library):
    given, call = CASES[name]
    expected = call(given, None)
    out, arrays = outs(expected, LIBRARIES[library])
    assert call(given, out) is out
    for array, right in zip(arrays, arrays_of(expected), strict=True):
        np.testing.assert_array_equal(array, right)


def test_every_function_that_returns_arrays_has_a_case():
    found = dict(functions())
    returning = {name for name, function in found.items() if returns_arrays(function)}
    with_out = {name for name, function in found.items() if "out" in inspect.signature(function).parameters}
    exempt = {name for names in EXEMPT.values() for name in names}
    assert sorted(with_out) == sorted(CASES)
    assert sorted(returning - with_out) == sorted(exempt)


def functions():
    """Yield the public functions of the modules of `compute`, and the methods of their public classes."""
    for info in pkgutil.walk_packages(compute.__path__, f"{compute.__name__}."):
        if info.ispkg or "._" in info.name:
            continue
        module = importlib.import_module(info.name)
        for name in module.__all__:
            value = getattr(module, name)
            below = f"{info.name.removeprefix('fastfedrec.compute.')}.{name}"
            if inspect.isfunction(value):
                yield below, value
            elif inspect.isclass(value):
                methods = inspect.getmembers(value, inspect.isfunction)
                yield from ((f"{below}.{method}", f) for method, f in methods if not method.startswith("_"))


def returns_arrays(function):
    section = re.search(r"Returns\n-+\n(.*?)(\n\n|\Z)", inspect.getdoc(function) or "", re.DOTALL)
    return section is not None and re.search(r"^(\w+ : )?ndarray", section[1], re.MULTILINE) is not None


# ---- bad outputs ----------------------------------------------------------------------------------------------------


def read_only(array):
    array.flags.writeable = False
    return array


FAULTS = {
    "another type": (lambda a: a.astype(np.complex64), TypeError, "out must be an array of "),
    "another shape": (lambda a: np.resize(a, (2, *a.shape)), ValueError, r"out must have shape \("),
    "read-only": (read_only, ValueError, "out must be C-contiguous and writable"),
    "strided": (lambda a: np.repeat(a, 2, axis=-1)[..., ::2], ValueError, "out must be C-contiguous and writable"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fault", FAULTS)
def test_an_out_that_does_not_fit_is_refused(name, fault):
    given, call = CASES[name]
    change, error, message = FAULTS[fault]
    expected = call(given, None)
    out, _ = outs(expected, change=change)
    with pytest.raises(error, match=message):
        call(given, out)
    for wrong in ([0.0], object()):
        with pytest.raises(TypeError, match="out must be "):
            call(given, wrong)


@pytest.mark.parametrize("name", CASES)
def test_an_out_over_an_input_is_refused_or_right(name):
    given, call = CASES[name]
    expected = call(given, None)
    for position in range(len(arrays_of(expected))):
        _, arrays = outs(expected)
        memory = np.zeros(max(given.nbytes, arrays[position].nbytes), dtype=np.uint8)
        shared = memory[: given.nbytes].view(given.dtype).reshape(given.shape)
        shared[:] = given
        over = memory[: arrays[position].nbytes].view(arrays[position].dtype).reshape(arrays[position].shape)
        arrays[position] = over
        try:
            call(shared, tuple(arrays) if isinstance(expected, tuple) else over)
        except ValueError as error:
            assert re.search("out must not share memory with", str(error))  # noqa: PT017
        else:
            np.testing.assert_array_equal(over, arrays_of(expected)[position])


@pytest.mark.parametrize("part", ["indptr", "indices", "data"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: als.HalfStep(np.eye(7), **ALS).solve(x, out=out),
        lambda x, out: als.solve_own_users(x, np.eye(7), out=out, **ALS),
        lambda x, out: als.solve_users(x, np.eye(7), use_values=True, out=out, **ALS),
        lambda x, out: als.solve_users(x, np.eye(7), solver="cg", out=out, **ALS),
        lambda x, out: nmf.solve_rows_nonnegative(x, np.eye(7), regularization=0.5, out=out),
        lambda x, out: row_sums.sum_rows(x, np.eye(7), out=out),
        lambda x, out: row_sums.sum_rows(x, scipy.sparse.csr_array(np.eye(7)), out=out),
        lambda x, out: row_sums.sum_rows(np.ones((9, 9)), x, out=out),
    ],
)
def test_an_out_over_the_indices_of_rows_is_refused_or_right(call, part):
    # A kernel that read indices which it has overwritten would stop the process.
    rows, memory = scipy.sparse.csr_array(DENSE.astype(np.float64)), np.zeros((9, 7))
    expected = call(rows, None)
    numbers = getattr(rows, part).astype({"indptr": np.int64, "indices": np.int32, "data": np.float64}[part])
    shared = memory.reshape(-1).view(numbers.dtype)[: len(numbers)]
    shared[:] = numbers
    setattr(rows, part, shared)
    try:
        call(rows, memory)
    except ValueError as error:
        assert re.search("out must not share memory with", str(error))  # noqa: PT017
    else:
        np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("part", ["indptr", "indices"])
def test_labels_over_the_indices_of_rows_are_refused(part):
    rows = scipy.sparse.csr_array(DENSE)
    kind = {"indptr": np.int64, "indices": np.int32}[part]
    shared = getattr(rows, part).astype(kind)
    setattr(rows, part, shared)
    labels = shared.view(np.int32)[: rows.shape[0]]
    with pytest.raises(ValueError, match="labels of out must not share memory"):
        clustering.assign_rows(rows, np.eye(3, rows.shape[1]), out=(labels, np.empty(rows.shape[0])))


def test_an_out_of_a_subclass_is_an_array_without_a_mask():
    matrix = np.zeros((9, 3), dtype=np.float32).view(np.matrix)
    assert als.solve_users(DATA, ITEMS, out=matrix, **ALS) is matrix
    np.testing.assert_array_equal(matrix, als.solve_users(DATA, ITEMS, **ALS))
    assert type(check_out(matrix, (9, 3), np.float32)) is np.ndarray
    with pytest.raises(TypeError, match=r"out must be an array without a mask, got MaskedArray; pass its \.data"):
        als.solve_users(DATA, ITEMS, out=np.ma.masked_array(np.zeros((9, 3), dtype=np.float32), mask=True), **ALS)


def test_outs_of_one_call_must_be_separate():
    one = np.zeros((9, 3), dtype=np.int32)
    with pytest.raises(ValueError, match="scores of out must not share memory"):
        ranking.top_k(SCORES, 3, out=(one, one.view(np.float32)))
    with pytest.raises(TypeError, match=r"out must be a tuple of 2 arrays \(items, scores\), got 1 arrays"):
        ranking.top_k(SCORES, 3, out=(one,))
    with pytest.raises(TypeError, match=r"out must be a tuple of 2 arrays \(items, scores\), got ndarray"):
        ranking.top_k(SCORES, 3, out=one)


def test_memory_that_cannot_be_written_is_refused():
    array = np.zeros(3)
    with pytest.raises(TypeError, match="out must be in the memory of the CPU, got OnGPU on a CUDA GPU"):
        check_out(OnGPU(array), (3,), np.float64)
    constant = Exported(array)
    constant.array = read_only(constant.array.copy())
    for wrapped in (constant, OlderExported(constant.array)):
        with pytest.raises((TypeError, ValueError), match=r"out must be .*writ"):
            check_out(wrapped, (3,), np.float64)
    hidden = OlderExported(array)
    hidden.__class__ = type("Copied", (OlderExported,), {"__array__": lambda self, **_: self.array.copy()})
    with pytest.raises(ValueError, match="out must be C-contiguous and writable"):  # a copy would be written in vain
        check_out(hidden, (3,), np.float64)
    assert check_outs(None, ("a", (2,), np.int32), ("b", (3,), np.float64))[1].shape == (3,)
