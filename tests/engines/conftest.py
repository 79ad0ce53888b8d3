"""What all tests of engines share."""

import pytest

from fastfedrec import Key
from fastfedrec.datasets import generate_implicit


@pytest.fixture(scope="session")
def data():
    """Ratings of 300 people; a number's parity is the node that has it where there are two."""
    return generate_implicit(300, 60, key=Key.from_seed(7), ratings=True)
