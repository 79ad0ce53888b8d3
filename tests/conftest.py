"""What every test file shares."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def data_path():
    """``data_path(name)``: a publisher's file beside the repository, or a skip with the reason."""

    def find(name):
        path = DATA / name
        if not path.exists():
            pytest.skip(f"{name} is not in {DATA.parent.name}/{DATA.name} beside the repository; it is never committed")
        return path

    return find
