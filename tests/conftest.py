import os
import warnings
from pathlib import Path

# Set before NumPy is loaded, and for processes that tests start. A second thread does not speed up small products,
# and it waits by spinning, on the core of another worker of pytest-xdist.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Waiting threads of OpenMP sleep at once. By default GNU's threads spin for milliseconds at every loop, on cores that
# another worker of pytest-xdist needs. Two processes that call every kernel on two cores take five times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
from hypothesis import HealthCheck, settings

# Failures of assertions in helpers show the compared values.
pytest.register_assert_rewrite("support")

# `ci` repeats the same examples on every run; `dev` draws new examples; `nightly` draws many. No profile measures
# time, so a busy machine fails no test.
settings.register_profile("any", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("any"), derandomize=True, max_examples=25)
settings.register_profile("dev", settings.get_profile("any"))
settings.register_profile("nightly", settings.get_profile("any"), max_examples=1000)


#: Packages that tests import in addition to the requirements. If one is missing, tests that need it are skipped, and
#: only test_dependencies.py fails.
PACKAGES = (
    "Crypto", "cryptography", "dask", "distributed", "dp_accounting", "fastapi", "httpx", "hypothesis", "matplotlib",
    "mpmath", "numpydoc", "pandas", "polars", "prometheus_client", "pyarrow", "sklearn", "tqdm", "uvicorn", "zstandard",
)  # fmt: skip


def pytest_addoption(parser):
    parser.addoption("--profile", default="ci", choices=["ci", "dev", "nightly"], help="hypothesis profile")
    parser.addoption("--instruction-set", default=None, metavar="NAME", help="run all kernels on this one")


def pytest_configure(config):
    settings.load_profile(config.getoption("--profile"))
    if (name := config.getoption("--instruction-set")) is not None:
        from fastfedrec import hardware

        forced = hardware.use_instruction_set(name)
        forced.__enter__()
        config.add_cleanup(lambda: forced.__exit__(None, None, None))


# Warning of a model without a guarantee that uses items only although values vary.
VALUES_IGNORED = "ignore:.* ignores? values, which vary here:UserWarning"


def pytest_collection_modifyitems(config, items):
    """Silence warnings of ignored values in tests that are marked for it.

    With --instruction-set, deselect tests that force an instruction set: they would repeat the same work.
    """
    for item in items:
        # Statistics and studies compare models of both kinds on one set of ratings.
        is_study = "studies" in item.path.parts
        if is_study or any(item.get_closest_marker(name) for name in ("ignores_values", "slow", "nightly")):
            item.add_marker(pytest.mark.filterwarnings(VALUES_IGNORED))
    if config.getoption("--instruction-set") is None:
        return
    redundant = {
        item
        for item in items
        if "instruction_set" in getattr(item, "fixturenames", ()) or item.get_closest_marker("every_instruction_set")
    }
    config.hook.pytest_deselected(items=list(redundant))
    items[:] = [item for item in items if item not in redundant]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """Silence the warning in shared fixtures, because the first test that requests one may have no mark."""
    if fixturedef.scope == "function":
        return (yield)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", VALUES_IGNORED.split(":")[1], UserWarning)
        return (yield)


def is_missing(error):
    """Return whether an exception or one of its causes is a failed import of one of these packages."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    return error is not None and error.name in PACKAGES


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call():
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if is_missing(error):
            pytest.skip(f"needs {error.name}, which is not installed")
        raise


class ModuleOfTests(pytest.Module):
    """File that is skipped if it imports a package that is not installed."""

    def _getobj(self):
        try:
            return super()._getobj()
        except self.CollectError as error:
            if is_missing(error):
                pytest.skip("needs a package that is not installed", allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path, parent):
    return ModuleOfTests.from_parent(parent, path=module_path)


def find_data(name):
    """Return the path of a real data file next to the checkout, or skip the test."""
    path = Path(__file__).resolve().parents[1].parent / "shared" / "data" / name
    if not path.exists():
        pytest.skip(f"needs the real data file {name} in ../shared/data, which no wheel or repository carries")
    return path


@pytest.fixture
def data_path():
    return find_data
