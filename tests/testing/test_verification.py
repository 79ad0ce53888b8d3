"""Verified claims pass or fail by their worst pair, and the pytest plugin splits alpha and lists them."""

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from support import broken

from fastfedrec.audit import search as searching
from fastfedrec.mechanisms import GRR
from fastfedrec.testing import ALPHA, neighbours, verify

ROOT = Path(__file__).resolve().parents[2]
COUNTS = neighbours("counts", "add_remove")


def noisy_sum(rng, scale):
    """Return a noisy sum of rows of 0 or 1."""

    def mechanism(x, n):
        p = -np.expm1(-1 / scale)
        return int(np.sum(x)) + rng.geometric(p, n) - rng.geometric(p, n)

    return mechanism


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["replace", "add_remove", "zero_out"])
def test_a_claim_is_verified_on_pairs_that_hypothesis_draws(relation):
    rng, pairs = np.random.default_rng(1), neighbours("rows", relation, low=0, high=1)
    sound = verify(claim=1.0, pairs=pairs, n=60_000)(noisy_sum(rng, 1.0))
    assert sound() is None
    pair = sound.privacy_claim.pair
    assert abs(int(pair.x0.sum()) - int(pair.x1.sum())) == 1
    assert pair.n_pairs >= 5
    with pytest.raises(AssertionError, match=r"VIOLATED: epsilon is at least 1[^$]*inputs: array\("):
        verify(claim=1.0, pairs=pairs, n=60_000)(noisy_sum(rng, 0.5))()


@pytest.mark.parametrize("max_examples", [1, 7])
def test_hypothesis_draws_no_more_pairs_than_stated(max_examples, monkeypatch):
    sizes = []
    monkeypatch.setattr(searching, "_MIN_PILOT", 100)
    test = verify(claim=1.0, pairs=COUNTS, n=2000, max_examples=max_examples, control=None)(
        noisy_sum(np.random.default_rng(1), 1.0)
    )
    test()
    sizes.append(test.privacy_claim.pair.n_pairs)
    assert 1 <= sizes[0] <= max_examples


def test_a_control_refuses_tests_that_cannot_fail():
    rng = np.random.default_rng(2)
    with pytest.raises(AssertionError, match=r"control: a claim of 0\.9 would pass too, because only 0\.4"):
        verify(claim=1.0, pairs=COUNTS, n=60_000)(noisy_sum(rng, 2.0))()
    verify(claim=1.0, pairs=COUNTS, n=10_000, control=None)(noisy_sum(rng, 2.0))()
    verify(claim=1.0, pairs=COUNTS, n=60_000, control=0.6)(noisy_sum(rng, 2.0))()


def test_pairs_of_an_iterator_serve_every_run():
    test = verify(claim=0.5, pairs=iter([(0, 1)]))(GRR(1.0, 3).channel())
    for _ in range(2):
        with pytest.raises(AssertionError, match="VIOLATED"):
            test()


def test_tables_and_listed_pairs_are_verified():
    test = verify(claim=1.0, pairs=[(0, 0), (0, 1)])(GRR(1.0, 3).channel())
    test()
    assert test.privacy_claim.pair.result.method == "exact"
    with pytest.raises(AssertionError, match="VIOLATED"):
        verify(claim=1.0, pairs=[(0, 1)])(GRR(1.01, 3).channel())()


def test_each_test_has_the_alpha_of_the_suite_and_no_arguments():
    @verify(claim=1.0, pairs=[(0, 1)], n=1000, control=None)
    def test_bits(x, n):
        """Answer a bit."""
        return broken.response(np.random.default_rng(), 0.6)(x, n)

    assert (test_bits.__name__, test_bits.__doc__) == ("test_bits", "Answer a bit.")
    assert test_bits.__code__.co_argcount == 0
    test_bits()
    assert test_bits.privacy_claim.pair.result.alpha == ALPHA


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"claim": -1.0}, "claim must be at least 0"),
        ({"max_examples": 0}, "max_examples must be at least 1"),
        ({"alpha": 0.0}, "alpha must be greater than 0"),
        ({"alpha": 0.5}, r"alpha must be at most 0\.25"),
        ({"control": 1.0}, "control must be less than 1"),
        ({"pairs": []}, "pairs must have at least one pair"),
        ({"pairs": [(0, 1), 5]}, r"pairs must have at least one pair \(x0, x1\), and no other entries, got 5"),
    ],
)
def test_bad_values(options, message):
    with pytest.raises(ValueError, match=message):
        verify(**({"claim": 1.0, "pairs": COUNTS} | options))


def test_pairs_that_are_no_list_are_refused():
    with pytest.raises(TypeError, match=r"pairs must be a list of pairs \(x0, x1\), got 5 \(int\)"):
        verify(claim=1.0, pairs=5)


# ---- the plugin of pytest -------------------------------------------------------------------------------------------

SUITE = """
import numpy as np
import pytest
from fastfedrec.testing import verify

rng = np.random.default_rng(1)

def count(x, n, scale=1.0):
    p = -np.expm1(-1 / scale)
    return x + rng.geometric(p, n) - rng.geometric(p, n)

test_sound = verify(claim=1.0, pairs=[(0, 1), (3, 3)], n=40_000)(count)

@verify(claim=0.5, pairs=[(0, 1)], n=4000, control=None)
def test_faulty(x, n):
    return count(x, n)

@verify(claim=1.0, pairs=[(0, 1)], n=2000, control=None, alpha=ALPHA)
def test_with_its_alpha(x, n):
    return count(x, n)

def test_other():
    pass
"""


def run_pytest(folder, *options, suite=SUITE, ini=""):
    """Run pytest in another process on a suite, and return its output."""
    (folder / "test_suite.py").write_text(suite.replace("ALPHA", "1e-4"))
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers\n{ini}")
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "_fastfedrec_pytest"]
    done = subprocess.run(
        [*command, *options, "test_suite.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_plugin_lists_claims_and_splits_the_sessions_alpha(tmp_path):
    shown = run_pytest(tmp_path, "--verbosity=0", "--privacy-alpha=0.0021", "--no-header")
    assert "verified privacy claims" in shown
    assert "passed: test_suite.py::test_sound: epsilon 1, lower bound 0.9" in shown
    assert "on the worst of 2 pairs, 40,000 draws, alpha 0.001" in shown
    assert "failed: test_suite.py::test_faulty: epsilon 0.5, lower bound 0." in shown
    assert "2,000 draws, alpha 0.0001" in shown
    assert "probability of any false alarm: at most 0.0021" in shown
    assert "VIOLATED: epsilon is at least" in shown
    assert "1 failed, 3 passed" in shown


def test_the_marker_selects_claims_and_the_rest_of_the_session_is_as_without(tmp_path):
    selected = run_pytest(tmp_path, "--verbosity=0", "-m", "privacy_claim", ini="privacy_alpha = 0.0101")
    assert "1 failed, 2 passed, 1 deselected" in selected
    assert "alpha 0.005" in selected
    others = run_pytest(tmp_path, "--verbosity=0", "-m", "not privacy_claim")
    assert "1 passed, 3 deselected" in others
    assert "privacy claims" not in others


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--privacy-alpha=0.5", "privacy_alpha must be in (0, 0.25], got 0.5"),
        ("--privacy-alpha=0.00005", "privacy_alpha must exceed the sum of the alphas that tests state"),
        ("-oprivacy_alpha=much", "privacy_alpha must be a number, got 'much'"),
    ],
)
def test_the_plugin_refuses_bad_levels(option, message, tmp_path):
    assert message in run_pytest(tmp_path, option)


def test_the_metadata_name_the_plugin_as_its_module():
    # With another name, pytest would register the module twice if a session also names it by -p.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"_fastfedrec_pytest": "_fastfedrec_pytest"}


@pytest.mark.slow
def test_processes_of_xdist_report_their_claims(tmp_path):
    pytest.importorskip("xdist")
    shown = run_pytest(tmp_path, "--verbosity=0", "--privacy-alpha=0.0021", "-n", "2")
    assert "alpha 0.001\n" in shown
    assert "probability of any false alarm: at most 0.0021" in shown


def test_the_plugin_loads_no_module_of_the_package():
    code = "import sys, pytest, _fastfedrec_pytest; print([m for m in sys.modules if m in ('numpy', 'fastfedrec')])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
