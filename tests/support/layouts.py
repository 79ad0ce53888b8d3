"""Time one call in processes with different layouts of memory: run as a program, with a case, calls and a seed.

The address of a table or an input changes the time of a call by nanoseconds, which a million calls would show as a
leak.  A leak of the input exists in each layout.  The parent runs no kernel, because threads do not survive a fork.
"""

import json
import os
import sys

import numpy as np

from support.timed_calls import find_case
from support.timing import interleaved_times, layout_t, mean_differences, median_difference

N_LAYOUTS = 64


def measure_layout(case, n_calls, seed):
    """Return the differences of the means of both inputs, of their medians, and the median, in a new layout."""
    random = np.random.default_rng(seed)
    # Objects between the others move them to other addresses.
    between = [np.empty(size, np.uint8) for size in random.integers(16, 8192, 256)]
    call, inputs = case.make(), tuple(case.copy(values) for values in case.inputs)
    times, classes = interleaved_times(call, inputs, n_calls, seed)
    del between
    return [mean_differences(times, classes), median_difference(times, classes), float(np.median(times))]


def in_a_process(case, n_calls, seed):
    """Return the figures of `measure_layout` from a forked process."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            with os.fdopen(writer, "w") as file:
                json.dump(measure_layout(case, n_calls, seed), file)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(text)


def main(name, n_calls, seed):
    """Print t over all layouts, and the medians over them of the difference and the time, in nanoseconds."""
    case = find_case(name)
    figures = [in_a_process(case, n_calls // N_LAYOUTS, seed * N_LAYOUTS + k) for k in range(N_LAYOUTS)]
    means, differences, medians = zip(*figures, strict=True)
    print(json.dumps([layout_t(means), float(np.median(differences)), float(np.median(medians))]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
