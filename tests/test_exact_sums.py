"""Every exact sum of private systems: at its bound it is accepted, beyond it is refused before any data are read."""

import contextlib
import csv
import sys
from pathlib import Path
from types import CodeType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.exact_sums import SUMS, Touched, fit, prototypes, table

from fastfedrec import Interactions, Key, PrivatePrototypes
from fastfedrec.core.exact_sums import DOUBLE_LIMIT, INT64_LIMIT, check_summands, max_summands
from fastfedrec.systems.private_prototypes.prototypes import Recovery, recover_prototypes

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "accounting" / "exact-sums.md"
CHECKS = {function.__name__: function.__code__ for function in (check_summands, max_summands)}
IDS = [case.where for case in SUMS]


@given(st.integers(1, 2**70), st.sampled_from([DOUBLE_LIMIT, INT64_LIMIT]), st.integers(0, 2**62))
def test_the_largest_number_of_summands(bound, limit, noise):
    maximum = max_summands(bound, limit, noise)
    assert maximum == 0 or maximum * bound + noise < limit
    assert (maximum + 1) * bound + noise >= limit


@pytest.mark.parametrize("case", SUMS, ids=IDS)
def test_sums_at_the_bound_stay_below_the_limit(case):
    assert case.max_summands * case.bound + case.noise < case.limit
    if case.is_tight:
        assert (case.max_summands + 1) * case.bound + case.noise >= case.limit


@pytest.mark.parametrize("case", SUMS, ids=IDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_bound_is_accepted_and_one_more_is_refused_unread(case):
    if case.is_refused:
        with pytest.raises(
            ValueError, match=rf"must keep sums exact, which holds for at most {case.max_summands} summands"
        ):
            case.call(case.max_summands + 1)
    else:
        case.call(case.max_summands + 1)
    with pytest.raises(Touched):
        case.call(case.max_summands)


def functions_of(code):
    """Yield the code of all functions in a module's code."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from functions_of(part)


def functions_with_a_check():
    """Return the functions of the package that check sums."""
    return {
        f"{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}.{function.co_qualname}"
        for path in (ROOT / "fastfedrec").rglob("*.py")
        for function in functions_of(compile(path.read_text(), path, "exec"))
        if CHECKS.keys() & {*function.co_names}
    }


def functions_that_check(cases):
    """Return the functions with checks that these cases run."""
    callers = set()

    def record(frame, event, _):
        if event == "call" and frame.f_code in CHECKS.values():
            callers.add(f"{frame.f_back.f_globals['__name__']}.{frame.f_back.f_code.co_qualname}")

    sys.setprofile(record)
    try:
        for case in cases:
            with contextlib.suppress(Touched):
                case.call(case.max_summands)
    finally:
        sys.setprofile(None)
    return callers


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_check_of_a_sum_is_run_by_a_case():
    missing = functions_with_a_check() - functions_that_check(SUMS)
    assert missing == set(), "each has a row of SUMS in tests/support/exact_sums.py"
    others = functions_with_a_check() - functions_that_check(case for case in SUMS if "DPLCF" not in case.where)
    assert others == {"fastfedrec.systems.dplcf.sum_answers"}


def test_a_sum_beyond_its_limit_is_not_exact():
    """Negative control: with one summand more, a user changes a sum by more than the user's part."""
    parts = np.array([2.0**53, 1.0])
    assert np.bincount([0, 0], weights=parts)[0] - np.bincount([0], weights=parts[:1])[0] != 1


# ---- private prototypes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["masked", "zero_filled"])
@pytest.mark.parametrize("n", [9_223, 9_224])
def test_sums_of_nanoseconds_are_refused_by_the_range(kind, n):
    """Without the check one user changes the sign of an item's noisy sum."""
    data = Interactions.from_arrays(range(n), ["i0"] * n, [1e15] * n, item_ids=["i0", "i1", "i2"])
    model = PrivatePrototypes(
        1, 1, epsilon=1.0, max_entries=1, value_range=(0.0, 1e15), prototypes=kind, grouping="one"
    )
    with pytest.raises(ValueError, match=rf"value_range must keep sums exact.*got \(0.0, 10+\.0\) with {n}"):
        model.fit(data, key=Key.from_seed(1))


def test_a_range_that_no_double_holds_is_refused_without_users():
    with pytest.raises(ValueError, match="value_range must keep sums exact, which holds for at most 0 summands"):
        fit(prototypes((0.0, 1e300)))(0)


def test_a_recovery_at_its_bound_has_exact_sums():
    """With the largest values for n users, the sum equals the sum of Python's integers."""
    n, steps = 1000, 1
    # An even value with an n-fold sum just below the limit of doubles.
    high = float(2 * (DOUBLE_LIMIT // n // 2 - 1))
    rule = Recovery("masked", 1, (0.0, high), steps_per_unit=steps, epsilon=1e9)
    assert rule.max_users >= n
    data = Interactions.from_arrays(range(n), [0] * n, [high] * n, item_ids=[0])
    recovered = recover_prototypes(data, np.zeros(n, dtype=int), 1, rule, key=Key.from_seed(1))
    noise = recover_prototypes(
        data.select_users(range(0)), np.zeros(0, dtype=int), 1, rule, key=Key.from_seed(1)
    )  # of the same stream
    assert int(recovered.sums[0, 0]) - int(noise.sums[0, 0]) == n * rule.largest
    with pytest.raises(ValueError, match="value_range must keep sums exact"):
        rule.check_users(rule.max_users + 1)


def test_scores_that_choose_items_are_bounded_too():
    options = {"max_entries": 1, "support_size": 1, "support_epsilon": 1.0, "epsilon": 1.0}
    Recovery("zero_filled", value_range=(0.0, 2.0**32 - 1), **options)
    with pytest.raises(ValueError, match=r"value_range must end below 4\.29497e\+09 where sums choose the items"):
        Recovery("zero_filled", value_range=(0.0, 2.0**32), **options)


# ---- bad inputs and the page -----------------------------------------------------------------------------------------


def test_a_refusal_names_argument_value_and_remedy():
    with pytest.raises(ValueError, match=r"x must keep sums exact, .* at most 3 summands, got 7 with 4; y"):
        check_summands("x", 7, 4, 3, "y")
    check_summands("x", 7, 3, 3, "y")


def test_the_page_has_the_table():
    with PAGE.with_suffix(".csv").open(newline="") as file:
        assert list(csv.reader(file)) == table()
    assert ":file: exact-sums.csv" in PAGE.read_text()
