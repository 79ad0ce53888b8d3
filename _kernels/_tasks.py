"""Tasks of one Numba kernel, on threads of our own, that wait for each other: a barrier inside the compiled code.

Through Python's threads the same took a twelfth of a 4 ms epoch of `sgd`: a thread that sleeps on a virtual machine
wakes after some 50 us.
"""

import os
import time

from numba import types
from numba.extending import intrinsic, overload, register_jitable

LINE = 8  # int64 on a line of cache

_TURNS_BEFORE_YIELD = 10_000  # some 10 us


def tell(arrivals, task, phase):
    """Say that this task has done so many phases."""
    arrivals[task, 0] = phase


def wait_for_all(arrivals, phase):
    """Wait until every task has done so many phases."""
    while arrivals[:, 0].min() < phase:
        time.sleep(0)


def _line(context, builder, arrivals, value, task):
    data = context.make_array(arrivals)(context, builder, value).data
    return builder.gep(data, [builder.mul(task, task.type(LINE))])


@intrinsic
def _store_release(typing_context, arrivals, task, phase):
    def codegen(context, builder, signature, args):
        pointer = _line(context, builder, arrivals, args[0], args[1])
        builder.store_atomic(args[2], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(arrivals, types.intp, types.int64), codegen


@intrinsic
def _load_acquire(typing_context, arrivals, task):
    def codegen(context, builder, signature, args):
        return builder.load_atomic(_line(context, builder, arrivals, args[0], args[1]), "acquire", 8)

    return types.int64(arrivals, types.intp), codegen


_yield_processor = (
    types.ExternalFunction("sched_yield", types.intc()) if hasattr(os, "sched_yield") else register_jitable(lambda: 0)
)


@overload(tell)
def _compile_tell(arrivals, task, phase):
    return lambda arrivals, task, phase: _store_release(arrivals, task, phase)


@overload(wait_for_all)
def _compile_wait_for_all(arrivals, phase):
    def wait(arrivals, phase):
        for task in range(arrivals.shape[0]):
            turns = 0
            while _load_acquire(arrivals, task) < phase:
                turns += 1
                if turns > _TURNS_BEFORE_YIELD:
                    _yield_processor()

    return wait
