"""The machine's peak rates on one core, which give a lower bound (floor) on every kernel's time in the same run.

A benchmark counts the necessary operations and bytes of its task.  `track_floor_share` is the larger of their two
times over the measured time, so that 1 is the floor.  Instruction sets are named as in the package: "x86-64-v4" has
vectors of 16 floats, "x86-64-v3" of 8, and "plain" is any x86-64, with vectors of 4 and no fused multiply-add.
"""

import concurrent.futures
import functools
import hashlib
import math
import os
import time

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

WIDTHS = {"x86-64-v4": 16, "x86-64-v3": 8, "plain": 4}
# Set by `make bench` and `bench-smoke`: asv's --quick does not reach functions that measure their own time.
QUICK = "FASTFEDREC_BENCH_QUICK"
N_CHAINS = 12  # independent accumulators, more than the 8 that a latency of 4 and two units need
PATIENCE = 4  # limit on the turns taken while a processor is busy, as a multiple of the requested turns
BETWEEN_LOOKS = 0.5  # seconds of turns between two checks of the processors
SIZES = {"first-level cache": 2**15, "second-level cache": 2**19, "memory": 2**28}


def _chains(width, number, step):
    """Return a function that takes n steps of all N_CHAINS vectors."""
    # Vectors are explicit, so that no compiler chooses their width.  `number` is the type of a lane, and `step` builds
    # the next vector from the current one and a vector filled with a.
    scalar = types.float32 if number is ir.FloatType() else types.int32

    @numba.extending.intrinsic
    def run(typing_context, n, a):
        def codegen(context, builder, signature, arguments):
            n, a = arguments
            vector = ir.VectorType(number, width)
            zero, lanes = ir.Constant(vector, ir.Undefined), ir.VectorType(ir.IntType(32), width)
            filled = builder.shuffle_vector(
                builder.insert_element(zero, a, ir.IntType(32)(0)), zero, ir.Constant(lanes, [0] * width)
            )
            kind = float if scalar is types.float32 else int
            # Each chain has a different start, since the compiler would merge equal ones.
            starts = [ir.Constant(vector, [kind(k)] * width) for k in range(N_CHAINS)]
            chains = [cgutils.alloca_once_value(builder, start) for start in starts]
            with cgutils.for_range(builder, n):
                for chain in chains:
                    builder.store(step(builder, builder.load(chain), filled), chain)
            add = builder.fadd if scalar is types.float32 else builder.add
            total = functools.reduce(add, [builder.load(chain) for chain in chains])
            return builder.extract_element(total, ir.IntType(32)(0))

        return scalar(types.int64, scalar), codegen

    @numba.njit(scalar(types.int64, scalar))
    def chained(n, a):
        return run(n, a)

    return chained


def _fused(builder, x, a):
    fma = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(x.type, [x.type] * 3), f"llvm.fma.v{x.type.count}f32"
    )
    return builder.call(fma, [x, a, a])


def _in_two(builder, x, a):
    return builder.fadd(builder.fmul(x, a), a)


def _add_and_flip(builder, x, a):
    """Build two operations that no compiler can merge."""
    return builder.xor(builder.add(x, a), a)


@numba.njit("void(float32[::1], float32[::1], float32[::1])", fastmath={"contract", "nsz"})
def _triad(out, x, y):
    for i in range(len(out)):
        out[i] = x[i] + np.float32(3.0) * y[i]


@numba.njit("int64(int64[::1], int64)")
def _read(x, times):
    total = 0
    for turn in range(times):
        part = 0
        for i in range(x.size):
            part += x[i]
        total += part
        x[0] = turn  # the write keeps the compiler from removing the next pass
    return total


def fastest(function, *arguments, repetitions=7):
    """Return the seconds of the fastest of `repetitions` calls, or of more calls if they are short."""
    (seconds,) = in_turns(lambda: function(*arguments), repetitions=repetitions)
    return seconds


def is_quick():
    """Return whether this run only shows that the benchmarks work; its figures have no repetitions."""
    return bool(os.environ.get(QUICK))


def few(repetitions):
    """Return the number of repetitions, or 1 in a quick run."""
    return 1 if is_quick() else repetitions


def in_turns(*functions, repetitions=5, min_seconds=0.2, max_turns=100, processors=1):
    """Return the seconds of the fastest call of each function, with alternating calls, for use in ratios."""
    best = [np.inf] * len(functions)
    for _ in turns(repetitions, min_seconds, max_turns, processors=processors):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def turns(repetitions, min_seconds, max_turns=math.inf, *, processors=1):
    """Yield `repetitions` times, and up to `max_turns` times while all turns took less than `min_seconds`."""
    # Another process that takes a processor for a few ms would otherwise affect each of a few short calls.  Two threads
    # need both processors at once.  With two `processors`, a turn counts if both were free before and after it, until
    # `PATIENCE` times the turns and the seconds are over.  The check runs twice a second, so up to half a second of
    # additional turns may be taken.  It does not depend on the measurements of a turn, and no turn's figure is dropped.
    if is_quick():
        yield
        return
    began, taken, counted, seconds = time.perf_counter(), 0, 0, 0.0
    are_free = processors == 1 or both_processors()
    while counted < repetitions or (counted < max_turns and seconds < min_seconds):
        if taken >= PATIENCE * repetitions and time.perf_counter() - began > PATIENCE * min_seconds:
            return
        were_free, start, number = are_free, time.perf_counter(), 0
        while number == 0 or (processors > 1 and time.perf_counter() - start < BETWEEN_LOOKS):
            yield
            number += 1
        took = time.perf_counter() - start
        are_free = processors == 1 or both_processors()
        taken += number
        if were_free and are_free:
            counted, seconds = counted + number, seconds + took


def both_processors():
    """Return whether two threads have a free processor each at this moment."""
    # Work without memory access takes two threads hardly longer than one.  The work is the standard library's, so that
    # no kernel of the package is its own reference.
    seconds, pool = _one_thread()
    for _ in range(12):  # threads of OpenMP and BLAS wait actively for up to 30 ms, which looks like other load
        start = time.perf_counter()
        list(pool.map(_work, range(2)))
        if time.perf_counter() - start < 1.15 * seconds:
            return True
    return False


@functools.cache
def _one_thread():
    """Return the smallest seconds of the work on one thread, and a pool of two threads."""
    return fastest(_work, 0, repetitions=30), concurrent.futures.ThreadPoolExecutor(2)


def _work(_):
    # It takes about 7 ms: a thread that has slept may hold a processor for 3 ms before another one gets it back.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 30_000)


@functools.cache
def flops_per_second(instruction_set):
    """Return single-precision operations a second of one core; a multiplication and an addition count as two."""
    step = _in_two if instruction_set == "plain" else _fused
    return _rate(WIDTHS[instruction_set], ir.FloatType(), step, 0.5, N_CHAINS)  # x = x / 2 + 1 / 2 converges to 1


@functools.cache
def integer_operations_per_second(instruction_set):
    """Return additions and exclusive ors of 32 bits a second on one core."""
    expected = range(N_CHAINS)
    for _ in range(100):
        expected = [(x + 5) ^ 5 for x in expected]
    return _rate(WIDTHS[instruction_set], ir.IntType(32), _add_and_flip, 5, sum(expected))


def _rate(width, number, step, a, expected):
    """Return operations a second of chains, after a check of their sum after 100 steps."""
    chained = _chains(width, number, step)
    if (total := chained(100, a)) != expected:
        raise AssertionError(f"the sum of the chains must be {expected}, got {total}")
    return 2 * width * N_CHAINS * 1_000_000 / fastest(chained, 1_000_000, a)


@functools.cache
def triad_bytes_per_second():
    """Return bytes a second of out = x + 3 * y far beyond every cache, without the bytes that a write fetches."""
    out, x, y = np.ones((3, SIZES["memory"] // 12), dtype=np.float32)
    # Two arrays are read and one is written.
    rate = 3 * out.nbytes / fastest(_triad, out, x, y)
    np.testing.assert_array_equal(out, 4.0)
    return rate


@functools.cache
def read_bytes_per_second(n_bytes):
    """Return bytes a second of repeated reads of an array of `n_bytes`."""
    x = np.ones(n_bytes // 8, dtype=np.int64)
    times = max(1, 2**28 // n_bytes)
    if _read(x, 1) != len(x):
        raise AssertionError("the sum of the ones differs from their number")
    return times * x.nbytes / fastest(_read, x, times)


def floor_seconds(instruction_set, *, flops=0, bytes_read=0, working_set=SIZES["memory"]):
    """Return a lower bound on one core's seconds for these operations and bytes, read from `working_set` bytes."""
    reading = bytes_read / read_bytes_per_second(working_set) if bytes_read else 0.0
    return max(flops / flops_per_second(instruction_set) if flops else 0.0, reading)


class Floors:
    """Peak rates of the machine, for the results page."""

    def track_flops_per_second(self, instruction_set):
        return flops_per_second(instruction_set)

    def track_integer_operations_per_second(self, instruction_set):
        return integer_operations_per_second(instruction_set)

    for _method, _unit in ((track_flops_per_second, "flop/s"), (track_integer_operations_per_second, "op/s")):
        _method.params, _method.param_names, _method.unit = (tuple(WIDTHS),), ("instruction_set",), _unit

    def track_read_bytes_per_second(self, level):
        return read_bytes_per_second(SIZES[level])

    track_read_bytes_per_second.params = (tuple(SIZES),)
    track_read_bytes_per_second.param_names = ("where",)
    track_read_bytes_per_second.unit = "B/s"

    def track_triad_bytes_per_second(self):
        return triad_bytes_per_second()

    track_triad_bytes_per_second.unit = "B/s"
