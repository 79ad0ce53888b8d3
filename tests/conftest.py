from pathlib import Path

import pytest
from hypothesis import settings

# Helpers that assert, beside the tests: a failure shows what was compared.
pytest.register_assert_rewrite(
    "als_case", "child_case", "interaction_case", "laplace_rr_svd_case", "noise_case", "sgd_case"
)

# `ci` repeats the same examples on every run; `dev` explores; `nightly` explores long.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=1000)


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


def find_data(name):
    """Real data beside the checkout, by file name; skips where it is absent."""
    path = Path(__file__).resolve().parents[1].parent / "shared" / "data" / name
    if not path.exists():
        pytest.skip(f"needs the real data file {name} in ../shared/data, which no wheel or repository carries")
    return path


@pytest.fixture
def data_path():
    return find_data
