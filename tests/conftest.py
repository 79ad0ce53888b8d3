from pathlib import Path

import pytest


@pytest.fixture
def data_path():
    """Real data beside the checkout, by file name; the test skips where it is absent."""

    def find(name):
        path = Path(__file__).resolve().parents[1].parent / "shared" / "data" / name
        if not path.exists():
            pytest.skip(f"needs the real data file {name} in ../shared/data, which no wheel or repository carries")
        return path

    return find
