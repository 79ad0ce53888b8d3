"""Test for time that depends on an input, as dudect does: a t test over interleaved calls of two inputs.

Reparaz, Balasch, Verbauwhede, "Dude, is my code constant time?", DATE 2017.
"""

import gc
import time

import numpy as np

#: Limit of |t| without a leak, and of a leak without doubt (dudect's limits).
LIMIT, CERTAIN = 4.5, 10.0
#: Shares of the shortest times that are compared, since interrupts make the longest ones.
KEPT = (1.0, 0.99, 0.95, 0.9, 0.75, 0.5)


def mean_differences(times, classes):
    """Return the mean time of class 1 minus the mean time of class 0 for each crop, in nanoseconds."""
    times, classes = np.asarray(times, dtype=np.float64), np.asarray(classes, dtype=bool)
    differences = []
    for share in KEPT:
        # One threshold for both classes: under equal distributions the cropped ones are equal as well.
        kept = times <= np.quantile(times, share)
        differences.append(float(times[kept & classes].mean() - times[kept & ~classes].mean()))
    return differences


def layout_t(differences):
    """Return the t with the largest absolute value over all crops of differences, (n_layouts, n_crops)."""
    differences = np.asarray(differences)
    errors = differences.std(axis=0, ddof=1) / np.sqrt(len(differences))
    values = np.divide(differences.mean(axis=0), errors, out=np.zeros(len(errors)), where=errors > 0)
    return float(max(values, key=abs))


def median_difference(times, classes):
    """Return the median time of class 1 minus the median time of class 0, in nanoseconds."""
    times, classes = np.asarray(times), np.asarray(classes, dtype=bool)
    return float(np.median(times[classes]) - np.median(times[~classes]))


def interleaved_times(call, inputs, n_calls, seed=1):
    """Return the nanoseconds of each call, and the class of its input, which is drawn at random.

    `call(values, number)` gets arrays in one buffer for both classes, so that no address depends on the class.
    """
    classes = np.random.default_rng(seed).integers(2, size=n_calls)
    are_arrays = all(isinstance(values, np.ndarray) for values in inputs)
    buffer, times, clock = np.empty_like(inputs[0]) if are_arrays else None, [], time.perf_counter_ns
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        for number, side in enumerate(classes.tolist()):
            values = inputs[side]
            if are_arrays:
                buffer[...] = values
                values = buffer
            start = clock()
            call(values, number)
            times.append(clock() - start)
    finally:
        if is_enabled:
            gc.enable()
    return np.array(times), classes
