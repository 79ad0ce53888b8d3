"""Tests of warnings: they name the caller's line, for every number of package functions in between."""

import functools
import warnings
from pathlib import Path

import numpy as np
import pytest

import fastfedrec
from fastfedrec import BiasedMF, FedGNN, FedRec, FedRecPlusPlus, Interactions, ItemMean, Key, LaplaceRRSVD
from fastfedrec.core.warn import warn

# Ratings above the end of the grid, for fits without a guarantee.
DATA = Interactions.from_arrays(np.repeat(np.arange(6), 2), np.arange(12) % 4, np.full(12, 9.0))
MODELS = {
    "BiasedMF": BiasedMF(n_factors=2),
    "ItemMean": ItemMean(),
    "FedRec": FedRec(n_rounds=1, n_factors=2),
    "FedRecPlusPlus": FedRecPlusPlus(n_rounds=1, n_factors=2),
    "LaplaceRRSVD": LaplaceRRSVD(variant=None, n_factors=2),
    "FedGNN": FedGNN("published", n_rounds=1, n_factors=2, cohort_size=2),
}


def places(call):
    """Return the category and the file of each warning of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [(warning.category, warning.filename) for warning in caught]


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_warns_at_the_line_that_calls_it(name):
    seen = places(lambda: MODELS[name].fit(DATA, key=Key.from_seed(1)))
    assert seen
    assert set(seen) == {(UserWarning, __file__)}


def test_functions_of_other_packages_count_as_callers():
    def call():
        functools.reduce(lambda *_: warn("text", RuntimeWarning), [1, 2])

    assert places(call) == [(RuntimeWarning, __file__)]


def test_all_warnings_are_given_in_this_way():
    root = Path(fastfedrec.__file__).parent
    others = [path for path in root.rglob("*.py") if "warnings.warn(" in path.read_text(encoding="utf-8")]
    assert [path.relative_to(root).as_posix() for path in others] == ["core/warn.py"]
