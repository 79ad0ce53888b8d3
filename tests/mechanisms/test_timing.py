"""The time of randomizers, integer noise and clipping does not depend on the input.

Nightly tests measure it, with a planted leak as their control; the others check the statistic, and the record of the
page.  ``PYTHONPATH=tests python -P tests/mechanisms/test_timing.py`` measures everything again for the record, in about
half an hour, on a machine without other work.
"""

import json
import sys

import numpy as np
import pytest
from support.mechanism_table import NOISES, OTHERS, RANDOMIZERS
from support.records import read, store
from support.thread_case import TESTS, run_python
from support.timed_calls import CONSTANT, CONTROLS, LEAKS, SMALL
from support.timing import CERTAIN, LIMIT, interleaved_times, layout_t, mean_differences, median_difference

N_CALLS = 1_000_000
KINDS = {"constant": CONSTANT, "small": SMALL, "leak": LEAKS, "control": CONTROLS}


def measure(name, n_calls=N_CALLS, seed=1):
    """Return t of a case over layouts of memory, the difference of its medians, and its median, in nanoseconds."""
    return json.loads(run_python(str(TESTS / "support" / "layouts.py"), name, str(n_calls), str(seed)))


def skewed_times(n, delay, seed):
    """Return times with a long tail, longer by `delay` in class 1, and their classes."""
    generator = np.random.default_rng(seed)
    classes = generator.integers(2, size=n)
    return 1000 + 200 * generator.standard_exponential(n) ** 2 + delay * classes, classes


# ---- invariants -----------------------------------------------------------------------------------------------------


def t_of_layouts(n_layouts, delay, seed, shift=0.0):
    """Return t over layouts, each of which shifts class 1 by a random time of this size."""
    shifts = shift * np.random.default_rng(seed).standard_normal(n_layouts)
    samples = [skewed_times(4_000, delay + shifts[k], seed * n_layouts + k) for k in range(n_layouts)]
    return layout_t([mean_differences(*sample) for sample in samples])


@pytest.mark.parametrize("shift", [0.0, 20.0])
def test_equal_times_have_no_t_beyond_the_limit_in_any_layouts(shift):
    beyond = [abs(t_of_layouts(16, 0, seed, shift)) > LIMIT for seed in range(100)]
    assert sum(beyond) <= 1  # chance exceeds the limit once in hundreds of cases, and both tries are never beyond it


@pytest.mark.parametrize("delay", [-20, 20])
def test_a_small_delay_is_found_below_a_long_tail(delay):
    times, classes = skewed_times(64_000, delay, seed=1)
    assert np.std(times) > 20 * abs(delay)
    assert t_of_layouts(16, delay, seed=1) * np.sign(delay) > CERTAIN
    assert np.sign(median_difference(times, classes)) == np.sign(delay)


def test_a_leak_that_only_long_times_show_is_found():
    means = []
    for seed in range(16):
        times, classes = skewed_times(4_000, 0, seed)
        times[np.flatnonzero(classes == 1)[::50]] += 20_000
        means.append(mean_differences(times, classes))
    assert layout_t(means) > LIMIT


def test_both_inputs_are_measured_in_one_buffer_and_in_random_order():
    seen = []
    inputs = np.zeros(3), np.ones(3)
    times, classes = interleaved_times(lambda x, number: seen.append((id(x), x[0], number)), inputs, 1000)
    buffers, values, numbers = zip(*seen, strict=True)
    assert len(set(buffers)) == 1
    assert list(values) == classes.tolist()
    assert list(numbers) == list(range(1000))
    assert 400 < classes.sum() < 600
    assert len(times) == 1000
    assert (times >= 0).all()


def test_every_local_randomizer_and_every_noise_has_a_case():
    names = {name.rpartition(", ")[0] for name in CONSTANT}
    assert {*RANDOMIZERS, *OTHERS, *NOISES, "LargestResponse"} - names == {"PublishedLaplaceRR"}


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("name", CONSTANT)
def test_the_time_does_not_depend_on_the_input(name):
    # A leak exceeds the limit each time, and chance does so once in thousands of cases.
    assert any(abs(measure(name, seed=seed)[0]) <= LIMIT for seed in (1, 2))


@pytest.mark.nightly
@pytest.mark.parametrize("n_outputs", [2, 4, 16, 17])
def test_the_time_of_a_channel_does_not_depend_on_the_input_for_any_search(n_outputs):
    """The kernel has separate code for tables of up to 2, 4, 8 and 16 outputs, and for larger ones."""
    name = f"channel, {n_outputs} outputs"
    assert any(abs(measure(name, seed=seed)[0]) <= LIMIT for seed in (1, 2))


@pytest.mark.nightly
@pytest.mark.parametrize("name", SMALL)
def test_a_small_difference_stays_small(name):
    _, difference, median = measure(name)
    assert abs(difference) < median / 100


@pytest.mark.nightly
@pytest.mark.parametrize("name", CONTROLS | LEAKS)
def test_a_leak_is_found(name):
    assert abs(measure(name)[0]) > CERTAIN


# ---- the record of the page -----------------------------------------------------------------------------------------


def test_the_record_of_the_page_has_every_case_on_its_side_of_the_limit():
    rows = read("timing")["rows"]
    remedy = "run PYTHONPATH=tests python -P tests/mechanisms/test_timing.py"
    stated = [(row["kind"], row["call"]) for row in rows]
    assert stated == [(kind, name) for kind, cases in KINDS.items() for name in cases], remedy
    wrong = {
        row["call"]: row["t"]
        for row in rows
        if (row["kind"] == "constant" and abs(row["t"]) > LIMIT)
        or (row["kind"] == "small" and abs(row["difference_ns"]) >= row["median_ns"] / 100)
        or (row["kind"] in ("leak", "control") and abs(row["t"]) <= CERTAIN)
    }
    assert wrong == {}, remedy


def record(n_calls=N_CALLS):
    """Measure all cases, and write the record of docs/explanation/hardening.md."""
    rows = []
    for kind, cases in KINDS.items():
        for name in cases:
            figures = measure(name, n_calls)
            if kind == "constant" and abs(figures[0]) > LIMIT:  # as in the test
                figures = measure(name, n_calls, seed=2)
            t, difference, median = (round(figure, 2) for figure in figures)
            rows.append({"kind": kind, "call": name, "t": t, "difference_ns": difference, "median_ns": median})
            print(rows[-1], flush=True)
    store("timing", n_calls=n_calls, rows=rows)


if __name__ == "__main__":
    record(*map(int, sys.argv[1:]))
