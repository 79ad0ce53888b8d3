import os
from pathlib import Path

import pytest
from hypothesis import settings

# No deadlines: the time of one example says nothing on a shared machine.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture
def data_path():
    """Real data beside the checkout, by file name; the test skips where it is absent."""

    def find(name):
        path = Path(__file__).resolve().parents[1].parent / "shared" / "data" / name
        if not path.exists():
            pytest.skip(f"needs the real data file {name} in ../shared/data, which no wheel or repository carries")
        return path

    return find
