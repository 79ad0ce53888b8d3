import pytest
from support.data import generated


@pytest.fixture(scope="module")
def data():
    return generated(200, 60, seed=11)
