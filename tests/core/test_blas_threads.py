"""One thread of BLAS inside of blocks, and its own number again behind them: of threads, errors and forked children."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
import threadpoolctl
from support import parallel_calls
from support.interruptions import Interrupt
from support.patience import HANG
from support.thread_case import needs_fork, needs_linux, needs_openmp, needs_two, run_python

from fastfedrec import als
from fastfedrec._kernels.core import hardware as kernel
from fastfedrec.core import threads
from fastfedrec.core.threads import one_blas_thread


def blas_threads():
    """Return the thread numbers of the libraries that the package limits."""
    return {library["num_threads"] for library in threads._blas_libraries()[0].info()}


@pytest.fixture
def three_blas_threads():
    """Set three threads, so that a limit of one is visible even on one processor."""
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        if blas_threads() != {3}:
            pytest.skip("no BLAS here that takes a number of threads for the whole process")
        yield


# ---- invariants: BLAS -------------------------------------------------------------------------------------------


def test_numpys_blas_is_among_those_that_are_held(three_blas_threads):
    code = (
        "import threadpoolctl; from fastfedrec.core.threads import one_blas_thread\n"
        "def threads(): return [x['num_threads'] for x in threadpoolctl.threadpool_info() if x['user_api'] == 'blas']\n"
        "threadpoolctl.threadpool_limits(3, user_api='blas')\n"
        "with one_blas_thread(): print(threads())\n"
        "print(threads())"
    )
    assert run_python("-c", code) == "[1]\n[3]\n"


def test_blas_is_held_at_one_thread_and_then_has_its_own_again(three_blas_threads):
    with one_blas_thread():
        assert blas_threads() == {1}
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {3}


def test_blas_has_its_own_again_after_an_error(three_blas_threads):
    with pytest.raises(KeyError), one_blas_thread(), one_blas_thread():
        raise KeyError
    assert blas_threads() == {3}
    with pytest.raises(ValueError, match="must be small enough"):
        als.solve_users(parallel_calls.data(), np.full((60, 2), 1e200), regularization=1.0, confidence_weight=1.0)
    assert blas_threads() == {3}


@contextmanager
def entered_before_the_try():
    """Open a block before the `try`, and close it once: an interrupt in either leaves it open."""
    block = object()
    threads._blas_limit.enter(block)
    try:
        yield
    finally:
        threads._blas_limit.leave(block)


def lines_with_a_lasting_interrupt(make_block):
    """Return the number of lines of the package, and those before which an interrupt leaves BLAS limited."""

    def use(line=None):
        with Interrupt(line) as lines, make_block():
            pass
        return lines.n_lines

    def take_the_lock():
        is_free.append(threads._blas_limit._lock.acquire(blocking=False))
        if is_free[-1]:
            threads._blas_limit._lock.release()

    use()  # the libraries are found
    n_lines, lasting = use(), []
    for line in range(1, n_lines + 1):
        is_free = []
        with pytest.raises(KeyboardInterrupt):
            use(line)
        other = threading.Thread(target=take_the_lock)
        other.start()
        other.join()
        if blas_threads() != {3} or is_free != [True]:
            lasting.append(line)
        for block in [None, *threads._blas_limit._process_limit.blocks]:  # None, since a limit may last without a block
            threads._blas_limit.leave(block)
    return n_lines, lasting


def test_an_interrupt_before_any_line_leaves_blas_as_it_was(three_blas_threads):
    n_lines, lasting = lines_with_a_lasting_interrupt(one_blas_thread)
    assert n_lines > 50
    assert lasting == []


def test_the_interrupt_test_sees_a_block_that_is_entered_before_its_try(three_blas_threads):
    assert len(lines_with_a_lasting_interrupt(entered_before_the_try)[1]) > 10


def overlap(make_block):
    """BLAS's threads while two blocks overlap: both in, the first one out, both out; each in a thread of its own."""
    seen = []
    second_in, first_out = threading.Event(), threading.Event()

    def second():
        with make_block():
            second_in.set()
            first_out.wait(HANG)
            seen.append(blas_threads())

    other = threading.Thread(target=second)
    with make_block():
        other.start()
        second_in.wait(HANG)
        seen.append(blas_threads())
    first_out.set()
    other.join()
    return [*seen, blas_threads()]


def test_blocks_of_two_threads_that_overlap_leave_blas_as_it_was(three_blas_threads):
    assert overlap(one_blas_thread) == [{1}, {1}, {3}]


def test_the_overlap_test_sees_limits_that_do_not_know_of_each_other(three_blas_threads):
    held, after_the_first, _ = overlap(lambda: threadpoolctl.threadpool_limits(1, user_api="blas"))
    assert held == {1}
    assert after_the_first == {3}


def test_a_limit_that_another_thread_set_for_good_does_not_stop_ours(three_blas_threads):
    # The fixture's thread has the control of threadpoolctl, so a limit of another thread alone has no effect.
    seen = []

    def work():
        with one_blas_thread():
            seen.append(blas_threads())
        seen.append(blas_threads())
        with threadpoolctl.threadpool_limits(2, user_api="blas"):  # and control is free again
            seen.append(blas_threads())
        seen.append(blas_threads())

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert seen == [{1}, {3}, {2}, {3}]


def test_many_threads_at_once_leave_blas_as_it_was(three_blas_threads):
    held = []

    def work():
        for _ in range(200):
            with one_blas_thread():
                held.append(blas_threads() == {1})

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert held == [True] * 800
    assert blas_threads() == {3}


def test_a_blas_library_that_is_loaded_later_is_held_too():
    held = run_python("-c", """if True:
        import threadpoolctl
        from fastfedrec.core import threads as _threads

        def blas_threads():
            return sorted({lib["num_threads"] for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"})

        with _threads.one_blas_thread():
            pass
        import scipy.linalg
        with threadpoolctl.threadpool_limits(3, user_api="blas"):
            with _threads._find_blas_libraries(False)[0].limit(limits=1):  # what was found before
                print(blas_threads())
            with _threads.one_blas_thread():
                print(blas_threads())
        """).splitlines()  # fmt: skip
    if held[0] == "[1]":
        pytest.skip("NumPy and SciPy share one BLAS library here")
    assert held == ["[1, 3]", "[1]"]


@needs_openmp
@pytest.mark.parametrize("has_thread_limits", [False, True])
def test_limits_that_belong_to_a_thread_are_restored_in_that_thread(monkeypatch, has_thread_limits):
    # MKL and OpenBLAS with OpenMP have such limits; OpenMP itself replaces them in this test.
    shared, _ = threads._blas_libraries()
    libraries = threadpoolctl.ThreadpoolController().select(user_api="openmp" if has_thread_limits else "none")
    monkeypatch.setattr(threads, "_blas_libraries", lambda: (shared, libraries))
    entered, leave, seen = threading.Event(), threading.Event(), []

    def other():
        with threadpoolctl.threadpool_limits(5, user_api="openmp"):
            with one_blas_thread():
                seen.append(kernel.max_threads())
                entered.set()
                leave.wait(HANG)
            seen.append(kernel.max_threads())

    holder = threading.Thread(target=other)
    holder.start()
    entered.wait(HANG)
    with threadpoolctl.threadpool_limits(4, user_api="openmp"):
        with one_blas_thread(), one_blas_thread():
            seen.append(kernel.max_threads())
            leave.set()
            holder.join()
        seen.append(kernel.max_threads())
    assert seen == ([1, 1, 5, 4] if has_thread_limits else [5, 4, 5, 4])


def print_with_three_blas_threads(code):
    """Return the output of a new process with three BLAS threads, in which `t` is this module."""
    printed = run_python(
        "-c",
        "import os, threading, threadpoolctl, numpy, core.test_blas_threads as t\n"
        "threadpoolctl.threadpool_limits(3, user_api='blas')\n"
        f"if t.blas_threads() != {{3}}: print('no limit'); os._exit(0)\n{code}",
    )
    if printed == "no limit\n":
        pytest.skip("no BLAS here that takes a number of threads")
    return printed


@needs_fork
def test_a_child_forked_while_another_thread_was_inside_has_its_blas_again():
    printed = print_with_three_blas_threads(
        "inside, leave = threading.Event(), threading.Event()\n"
        "def other():\n"
        "    with t.one_blas_thread():\n"
        "        inside.set(); leave.wait(t.HANG)\n"
        "holder = threading.Thread(target=other); holder.start(); inside.wait(t.HANG)\n"
        "if child := os.fork():\n"
        "    print(os.waitpid(child, 0)[1], t.blas_threads()); leave.set(); holder.join()\n"
        "    print(t.blas_threads())\n"
        "else:\n"
        "    status = 0 if t.blas_threads() == {3} else 1\n"
        "    with t.one_blas_thread():\n"
        "        status += 0 if t.blas_threads() == {1} else 2\n"
        "    os._exit(status + (0 if t.blas_threads() == {3} else 4))"
    )
    assert printed == "0 {1}\n{3}\n"


@needs_fork
def test_a_child_forked_inside_a_block_is_still_inside():
    printed = print_with_three_blas_threads(
        "with t.one_blas_thread():\n"
        "    child = os.fork()\n"
        "    held = t.blas_threads()\n"
        "if not child: os._exit(0 if (held, t.blas_threads()) == ({1}, {3}) else 1)\n"
        "print(os.waitpid(child, 0)[1], held, t.blas_threads())"
    )
    assert printed == "0 {1} {3}\n"


@pytest.mark.slow  # half a minute
@needs_linux
@needs_two
def test_no_model_wakes_blas_threads_which_would_take_a_processor_from_the_next_kernel():
    printed = run_python("-W", "ignore", "-m", "support.blas_spins", OPENBLAS_NUM_THREADS="2").splitlines()
    times = {name: float(time) for time, name in (line.split(" ", 1) for line in printed)}
    if times.pop("free") == 0:
        pytest.skip("no BLAS here that has threads of its own")
    assert times.pop("held") == 0
    assert len(times) > 40
    assert {name: time for name, time in times.items() if time} == {}
