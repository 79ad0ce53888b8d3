"""Numbers of threads: their limits, forked and spawned children, and other libraries with threads."""

import importlib.util
import json
import multiprocessing
import re

import pytest
import threadpoolctl
from support import parallel_calls
from support.interruptions import Interrupt
from support.patience import HANG
from support.thread_case import TESTS, needs_fork, needs_linux, needs_openmp, needs_two, run_python

from fastfedrec._kernels.core import hardware as kernel
from fastfedrec.core import threads
from fastfedrec.core.threads import default_threads, resolve_n_threads, thread_limits, threads_for_rows

KERNELS = TESTS.parent / "_kernels"
START_METHODS = multiprocessing.get_all_start_methods()


# ---- invariants: n_threads=0 ------------------------------------------------------------------------------------


def test_zero_is_the_least_of_all_limits(monkeypatch):
    monkeypatch.setattr(threads, "_affinity", lambda: 6)
    monkeypatch.setattr(threads, "_cgroup_share", lambda: 4)
    monkeypatch.setattr(kernel, "max_threads", lambda: 5)
    assert thread_limits() == {"affinity": 6, "openmp": 5, "cgroup": 4}
    assert resolve_n_threads(0) == 4
    assert resolve_n_threads(9) == 9
    for many in (2**15 + 1, 2**31, 2**63 - 1):
        with pytest.raises(ValueError, match=f"n_threads must be at most 32768, got {many}"):
            resolve_n_threads(many)
    monkeypatch.setattr(threads, "_cgroup_share", lambda: None)
    assert resolve_n_threads(0) == 5
    monkeypatch.setattr(kernel, "max_threads", lambda: 0)  # a build without OpenMP
    assert resolve_n_threads(0) == 1


def test_an_interrupt_before_any_line_restores_what_zero_means():
    def use(line=None):
        with Interrupt(line) as lines, default_threads(3):
            assert resolve_n_threads(0) == 3
        return lines.n_lines

    outside = resolve_n_threads(0)
    n_lines = use()
    assert n_lines > 5
    for line in range(1, n_lines + 1):
        with pytest.raises(KeyboardInterrupt):
            use(line)
        assert resolve_n_threads(0) == outside


SMALL_CALLS = """
import os
import numpy as np
import scipy.sparse
from fastfedrec import Key, als, clustering, hadamard, nmf, ranking, row_sums
from fastfedrec.compute import ranks
from fastfedrec.mechanisms import GRR, BinaryResponse, DiscreteLaplace, Piecewise, SubsetSelection, clip_rows_l2
key, one, items = Key.from_seed(1), np.ones((1, 40)), np.random.default_rng(1).normal(size=(40, 3))
how = {"regularization": 0.1, "confidence_weight": 2.0}
calls = [
    lambda: als.solve_users(one, items, n_threads=4, **how),
    lambda: als.HalfStep(items, solver="cg", **how).solve(one, n_threads=4),
    lambda: clustering.assign_rows(one, one, n_threads=4),
    lambda: hadamard.hadamard_transform(one[0, :32], n_threads=4),
    lambda: nmf.solve_rows_nonnegative(one, abs(items), regularization=0.1, n_threads=4),
    lambda: ranking.recommend_factors(items[:1], items, 5, n_threads=4),
    lambda: ranking.sample_unseen(one[:, :2], [0], 0, key=key, purpose="t", n_threads=4),
    lambda: ranking.top_k(one, 5, n_threads=4),
    lambda: ranks.rank_counts_factors(items[:1], items, ([0, 1], [3]), n_threads=4),
    lambda: row_sums.sum_rows(one, items, n_threads=4),
    lambda: row_sums.sum_rows(one, scipy.sparse.csr_array(items), n_threads=4),
    lambda: BinaryResponse(1.0).privatize([0.5], key=key, n_threads=4),
    lambda: DiscreteLaplace(2).sample(1, key=key, purpose="t", n_threads=4),
    lambda: GRR(1.0, 5).privatize([3], key=key, n_threads=4),
    lambda: SubsetSelection(1.0, 5).privatize([3], key=key, n_threads=4),
    lambda: clip_rows_l2(one, 1.0, n_threads=4),
    lambda: Piecewise(1.0).privatize([0.5], key=key, n_threads=4),
]
before = len(os.listdir("/proc/self/task"))
for number, call in enumerate(calls):
    call()
    assert len(os.listdir("/proc/self/task")) == before, f"call {number} started threads"
ranking.top_k(np.tile(one, (4, 1)), 5, n_threads=4)
assert len(os.listdir("/proc/self/task")) == before + 3  # which the calls above would have seen
print("done")
"""


@needs_linux
@needs_openmp
def test_a_call_for_one_row_starts_no_thread():
    # A thread that waits for work takes a processor for some time, which a server would pay in each call.
    assert "done" in run_python("-c", SMALL_CALLS)


def test_few_rows_take_few_threads():
    assert [threads_for_rows(n, 4) for n in (0, 1, 255, 256, 383, 384, 511, 512, 10**6)] == [1, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [threads_for_rows(n, 4, min_rows=10) for n in (0, 19, 20, 100)] == [1, 1, 2, 4]


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "max 100000\n", "cpu/cpu.cfs_quota_us": "1\n", "cpu/cpu.cfs_period_us": "1\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n"}, None),
        ({}, None),
    ],
)
def test_the_share_of_a_container_is_read(tmp_path, files, share):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert threads._cgroup_share(tmp_path) == share


@needs_linux
def test_affinity_is_respected():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from fastfedrec.core import threads; print(threads.thread_limits()['affinity'], threads.resolve_n_threads(0))"
    )
    assert run_python("-c", code) == "1 1\n"


@needs_openmp
def test_openmp_settings_are_respected():
    code = "from fastfedrec.core import threads; print(threads.thread_limits()['openmp'])"
    assert run_python("-c", code, OMP_NUM_THREADS="1") == "1\n"
    assert run_python("-c", code, OMP_NUM_THREADS="7") == "7\n"


@needs_openmp
def test_a_limit_of_threadpoolctl_is_respected():
    with threadpoolctl.threadpool_limits(1):
        assert resolve_n_threads(0) == 1
        assert resolve_n_threads(3) == 3
    with threadpoolctl.threadpool_limits(7):
        assert thread_limits()["openmp"] == 7


@needs_openmp
def test_a_parallel_loop_around_is_respected():
    import ctypes

    runtimes = {library["filepath"] for library in threadpoolctl.threadpool_info() if library["prefix"] == "libgomp"}
    if len(runtimes) != 1:
        pytest.skip(f"needs GNU OpenMP, once; found {len(runtimes)}")
    limits = []
    body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: limits.append(thread_limits()["openmp"]))
    # A compiler generates this call for "omp parallel num_threads(2)" around the function.
    ctypes.CDLL(runtimes.pop()).GOMP_parallel(body, None, 2, 0)
    assert limits == [1, 1]


@needs_linux
@needs_openmp
@pytest.mark.parametrize(("limit", "more"), [(1, False), (2, True)])
def test_kernels_start_no_thread_beyond_the_limit(limit, more):
    code = (
        "import threadpoolctl; from support import parallel_calls as calls\n"
        "calls.data(), calls.np.ones((2, 2)) @ calls.np.ones((2, 2))\n"
        "calls.start_thread_of_scipy()\n"
        f"with threadpoolctl.threadpool_limits({limit}):\n"
        "    before = calls.count_threads()\n"
        # "evaluation" always takes 0; the other calls take 0 or the limit.
        f"    calls.run_all({0 if limit == 1 else 2})\n"
        "print(calls.count_threads() > before)"
    )
    assert run_python("-c", code) == f"{more}\n"


# ---- invariants: children of this process -----------------------------------------------------------------------


def test_every_kernel_with_a_parallel_loop_has_a_call():
    parallel = {
        path.relative_to(KERNELS).with_suffix("").as_posix().replace("/", ".")
        for path in KERNELS.rglob("*.pyx")
        if re.search(r"^from cython.parallel cimport .*(prange|parallel)", path.read_text(), re.MULTILINE)
    }
    assert parallel == set(parallel_calls.CALLS)


@needs_fork
@needs_openmp
@needs_two
def test_a_forked_child_runs_every_kernel_and_none_hangs():
    outcomes = json.loads(run_python(TESTS / "support" / "parallel_calls.py", str(HANG)))
    assert outcomes == dict.fromkeys(parallel_calls.CALLS, "same")


@needs_fork
@needs_openmp
@needs_two
def test_the_fork_test_sees_children_hang_without_the_precaution():
    outcomes = json.loads(run_python(TESTS / "support" / "parallel_calls.py", "5", "--bypass"))
    if set(outcomes.values()) == {"same"}:
        pytest.skip("this OpenMP runtime survives a fork by itself")
    assert outcomes == dict.fromkeys(parallel_calls.CALLS, "hangs")


@needs_fork
def test_a_forked_child_and_its_child_get_one_thread_whatever_is_asked():
    code = (
        "import os\n"
        "from fastfedrec.core.threads import resolve_n_threads\n"
        "print([resolve_n_threads(3)], flush=True)\n"
        "for _ in range(2):\n"
        "    if child := os.fork():\n"
        "        os.waitpid(child, 0)\n"
        "        os._exit(0)\n"
        "    print([resolve_n_threads(n) for n in (0, 1, 3)], flush=True)\n"
        "try:\n"
        "    resolve_n_threads(-1)\n"
        "except ValueError as error:\n"
        "    print(error)"
    )
    assert run_python("-c", code).splitlines()[:3] == ["[3]", "[1, 1, 1]", "[1, 1, 1]"]
    assert "n_threads must be at least 0" in run_python("-c", code).splitlines()[3]


# Both kinds start their children by the same code of `multiprocessing`: each method once, the other kind at night.
@pytest.mark.parametrize(
    ("kind", "method"),
    [*(("pool", each) for each in START_METHODS), pytest.param("executor", "spawn", marks=pytest.mark.nightly)],
)
def test_a_worker_of_any_kind_gives_the_same_results(method, kind):
    code = (
        "import concurrent.futures, multiprocessing; from support import parallel_calls as calls\n"
        "if __name__ == '__main__':\n"
        "    expected, _ = calls.run_all(2)\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        + (
            "    with context.Pool(1) as pool:\n        found, forked = pool.apply_async(calls.run_all, (2,)).get()\n"
            if kind == "pool"
            else "    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:\n"
            "        found, forked = pool.submit(calls.run_all, 2).result()\n"
        )
        + "    print(calls.same(expected, found), forked)"
    )
    assert run_python("-c", code) == f"True {method == 'fork'}\n"


# ---- invariants: beside other libraries -------------------------------------------------------------------------

BESIDE = {
    "torch": (
        "import torch\n"
        "matrix = torch.ones((300, 300))\n"
        "def other(): matrix @ matrix; (matrix + 1).sum(); return torch.get_num_threads()\n"
    ),
    "sklearn": (
        "import numpy, sklearn.cluster\n"
        "rows = numpy.sin(numpy.arange(2000.0)).reshape(500, 4)\n"
        "def other(): return sklearn.cluster.KMeans(3, n_init=1, random_state=0).fit(rows).inertia_\n"
    ),
}


@needs_linux
@needs_openmp
@pytest.mark.parametrize("first", ["other", pytest.param("ours", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", BESIDE)
def test_another_library_with_threads_is_left_alone_and_leaves_us_alone(name, first):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    code = (
        f"import json, threadpoolctl; from support import parallel_calls as calls\n{BESIDE[name]}"
        "expected, _ = calls.run_all(1)\n"
        "def settings(): return [library['num_threads'] for library in threadpoolctl.threadpool_info()]\n"
        f"{'other(); calls.run_all(0)' if first == 'other' else 'calls.run_all(0); other()'}\n"
        "before, answer = settings(), other()\n"
        "found, _ = calls.run_all(0)\n"
        "same = calls.same(expected, found) and other() == answer and settings() == before\n"
        "threads = calls.count_threads()\n"
        "for _ in range(3): calls.run_all(0); other()\n"
        # Two pools of threads live side by side and take turns: none grows by the other's use.
        "grown = calls.count_threads() - threads\n"
        "with threadpoolctl.threadpool_limits(1):\n"
        "    limited = [calls.threads.resolve_n_threads(0), *settings()]\n"
        "    calls.run_all(0)\n"
        "    limited += settings()\n"
        "print(json.dumps([same, grown, sorted(set(limited)), settings() == before]))"
    )
    assert json.loads(run_python("-c", code)) == [True, 0, [1], True]


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_threads", "error"), [(-1, ValueError), (1.0, TypeError), (True, TypeError)])
def test_a_wrong_number_of_threads_is_refused(n_threads, error):
    with pytest.raises(error, match="n_threads must be"):
        resolve_n_threads(n_threads)


# ---- threads ----------------------------------------------------------------------------------------------------


def test_bits_do_not_depend_on_threads():
    one, _ = parallel_calls.run_all(1)
    four, _ = parallel_calls.run_all(4)
    assert parallel_calls.same(one, four)
    assert all(len(result) for result in one.values())
