import os
import warnings
from pathlib import Path

# Before NumPy is loaded, and for the processes that tests start.  Small products gain nothing from a second thread,
# which waits by spinning, on the core where another worker of pytest-xdist tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Threads of OpenMP that wait sleep at once.  Where a process has no more of them than processors, GNU's spin for
# milliseconds first, at every loop: on cores that another worker of pytest-xdist needs, whose threads wait likewise.
# A call of every kernel by each of two processes on two cores takes five times as long so.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
from hypothesis import HealthCheck, settings

# Helpers that assert, beside the tests: a failure shows what was compared.
pytest.register_assert_rewrite("support")

# `ci` repeats the same examples on every run, where more would find nothing new; `dev` explores; `nightly` explores
# long.  No profile measures time, so that a busy machine fails no test.
settings.register_profile("any", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("any"), derandomize=True, max_examples=25)
settings.register_profile("dev", settings.get_profile("any"))
settings.register_profile("nightly", settings.get_profile("any"), max_examples=1000)


#: What tests import beside the package's own requirements.  Where one is missing, what needs it is skipped and
#: test_dependencies.py alone fails.
PACKAGES = (
    "dask", "distributed", "dp_accounting", "hypothesis", "matplotlib", "mpmath", "numpydoc", "pandas", "polars",
    "pyarrow", "sklearn", "tqdm", "zstandard",
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


# What a model without a guarantee says where values vary and it looks at items alone.
VALUES_IGNORED = "ignore:.* ignores values, which vary here:UserWarning"


def pytest_collection_modifyitems(config, items):
    """Let tests that say so be told nothing of values that are ignored.

    With --instruction-set, leave out the tests that force one themselves: they would do the same once more.
    """
    for item in items:
        # Statistics and studies compare models of both kinds on one set of ratings.
        is_study = "studies" in item.path.parts
        if is_study or any(item.get_closest_marker(name) for name in ("ignores_values", "slow", "nightly")):
            item.add_marker(pytest.mark.filterwarnings(VALUES_IGNORED))
    if config.getoption("--instruction-set") is None:
        return
    again = {
        item
        for item in items
        if "instruction_set" in getattr(item, "fixturenames", ()) or item.get_closest_marker("every_instruction_set")
    }
    config.hook.pytest_deselected(items=list(again))
    items[:] = [item for item in items if item not in again]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """What several tests share is made for whichever asks first, whether or not it is one that says so."""
    if fixturedef.scope == "function":
        return (yield)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", VALUES_IGNORED.split(":")[1], UserWarning)
        return (yield)


def is_missing(error):
    """Whether an exception is the import of one of these packages that failed, itself or by its cause."""
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
    """A file that is skipped if it imports what is not installed."""

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
    """Real data beside the checkout, by file name; skips where it is absent."""
    path = Path(__file__).resolve().parents[1].parent / "shared" / "data" / name
    if not path.exists():
        pytest.skip(f"needs the real data file {name} in ../shared/data, which no wheel or repository carries")
    return path


@pytest.fixture
def data_path():
    return find_data
