"""What this machine can do at most, on one core: the floor under every kernel's time, measured in the same run.

A benchmark counts the operations and the bytes that its task cannot do without, and divides the longer of the two
times by its own: `track_floor_share`.  1 is the floor itself.  Instruction sets are named as in the package:
"x86-64-v4" has vectors of 16 floats, "x86-64-v3" of 8, and "plain" is what any x86-64 has, 4 and no fused multiply-add.
"""

import concurrent.futures
import functools
import hashlib
import math
import time

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

WIDTHS = {"x86-64-v4": 16, "x86-64-v3": 8, "plain": 4}
N_CHAINS = 12  # independent accumulators: latency 4, two units, and some to spare
PATIENCE = 4  # how many times the turns that are wanted may be taken until both processors are there
BETWEEN_LOOKS = 0.5  # seconds of turns
SIZES = {"first-level cache": 2**15, "second-level cache": 2**19, "memory": 2**28}


def _chains(width, number, step):
    """n steps of all N_CHAINS vectors; as explicit vectors, so that no compiler chooses their width.

    `number` is the type of a lane, and `step` builds what a vector becomes from itself and one that is filled with a.
    """
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
            starts = [ir.Constant(vector, [kind(k)] * width) for k in range(N_CHAINS)]  # equal ones would be merged
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
    """Two operations, which no compiler can take together."""
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
        x[0] = turn  # the next pass cannot be left out
    return total


def fastest(function, *arguments, repetitions=7):
    """Seconds of the fastest of some calls; of more where they are short, see `turns`."""
    (seconds,) = in_turns(lambda: function(*arguments), repetitions=repetitions)
    return seconds


def in_turns(*functions, repetitions=5, least=0.2, most=100, processors=1):
    """Seconds of the fastest call of each function, called in turns: the figures that a ratio may be made of."""
    best = [np.inf] * len(functions)
    for _ in turns(repetitions, least, most, processors=processors):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def turns(repetitions, least, most=math.inf, *, processors=1):
    """Yield once a turn: `repetitions` times, and while all turns took less than `least` seconds, `most` times at most.

    A neighbour that takes a processor for a few ms would otherwise be in every one of few short calls.  Two threads
    need both processors at once: with two `processors` only those turns count before and after which both were there,
    until `PATIENCE` times the turns and the seconds are over.  It is looked twice a second, so half a second more of
    turns may be taken.  That depends on nothing that a turn measures, and no turn's figure is dropped.
    """
    began, taken, counted, seconds = time.perf_counter(), 0, 0, 0.0
    there = processors == 1 or both_processors()
    while counted < repetitions or (counted < most and seconds < least):
        if taken >= PATIENCE * repetitions and time.perf_counter() - began > PATIENCE * least:
            return
        before, start, number = there, time.perf_counter(), 0
        while number == 0 or (processors > 1 and time.perf_counter() - start < BETWEEN_LOOKS):
            yield
            number += 1
        took = time.perf_counter() - start
        there = processors == 1 or both_processors()
        taken += number
        if before and there:
            counted, seconds = counted + number, seconds + took


def both_processors():
    """Whether two threads have a processor each just now: work that needs no memory takes both hardly longer than one.

    The work is the standard library's, so that no kernel of ours is judged by itself.
    """
    alone, pool = _alone()
    for _ in range(12):  # threads of OpenMP and of BLAS wait busily for up to 30 ms, and would be taken for neighbours
        start = time.perf_counter()
        list(pool.map(_work, range(2)))
        if time.perf_counter() - start < 1.15 * alone:
            return True
    return False


@functools.cache
def _alone():
    """Seconds of one thread that does the work by itself, at best, and two threads."""
    return fastest(_work, 0, repetitions=30), concurrent.futures.ThreadPoolExecutor(2)


def _work(_):
    """Some 7 ms: a thread that has slept may have a processor for 3 before another gets it back."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 30_000)


@functools.cache
def flops_per_second(instruction_set):
    """Single-precision operations of one core, a multiplication and an addition counted as two."""
    step = _in_two if instruction_set == "plain" else _fused
    return _rate(WIDTHS[instruction_set], ir.FloatType(), step, 0.5, N_CHAINS)  # x = x / 2 + 1 / 2 ends at 1


@functools.cache
def integer_operations_per_second(instruction_set):
    """Additions and exclusive ors of 32 bits on one core."""
    expected = range(N_CHAINS)
    for _ in range(100):
        expected = [(x + 5) ^ 5 for x in expected]
    return _rate(WIDTHS[instruction_set], ir.IntType(32), _add_and_flip, 5, sum(expected))


def _rate(width, number, step, a, expected):
    """Operations a second of chains that give what is expected after 100 steps."""
    chained = _chains(width, number, step)
    if chained(100, a) != expected:
        raise AssertionError("the chains do not compute what they should")
    return 2 * width * N_CHAINS * 1_000_000 / fastest(chained, 1_000_000, a)


@functools.cache
def triad_bytes_per_second():
    """Bytes read and written by out = x + 3 * y far beyond every cache, without what the write itself fetches."""
    out, x, y = np.ones((3, SIZES["memory"] // 12), dtype=np.float32)
    rate = 3 * out.nbytes / fastest(_triad, out, x, y)
    np.testing.assert_array_equal(out, 4.0)
    return rate


@functools.cache
def read_bytes_per_second(n_bytes):
    """Bytes of an array of `n_bytes` read again and again."""
    x = np.ones(n_bytes // 8, dtype=np.int64)
    times = max(1, 2**28 // n_bytes)
    if _read(x, 1) != len(x):
        raise AssertionError("the sum is not the sum")
    return times * x.nbytes / fastest(_read, x, times)


def floor_seconds(instruction_set, *, flops=0, bytes_read=0, working_set=SIZES["memory"]):
    """The least time of one core for so many operations and bytes, read from data of `working_set` bytes."""
    reading = bytes_read / read_bytes_per_second(working_set) if bytes_read else 0.0
    return max(flops / flops_per_second(instruction_set) if flops else 0.0, reading)


class Floors:
    """The floors themselves, for the results page."""

    def track_flops_per_second(self, instruction_set):
        return flops_per_second(instruction_set)

    def track_integer_operations_per_second(self, instruction_set):
        return integer_operations_per_second(instruction_set)

    for _method, _unit in ((track_flops_per_second, "flop/s"), (track_integer_operations_per_second, "op/s")):
        _method.params, _method.param_names, _method.unit = (tuple(WIDTHS),), ("instruction_set",), _unit

    def track_read_bytes_per_second(self, where):
        return read_bytes_per_second(SIZES[where])

    track_read_bytes_per_second.params = (tuple(SIZES),)
    track_read_bytes_per_second.param_names = ("where",)
    track_read_bytes_per_second.unit = "B/s"

    def track_triad_bytes_per_second(self):
        return triad_bytes_per_second()

    track_triad_bytes_per_second.unit = "B/s"
