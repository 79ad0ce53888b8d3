"""Fixtures that all tests of engines share."""

import pytest

from fastfedrec import Key
from fastfedrec.datasets import generate_implicit


@pytest.fixture(scope="session")
def data():
    """Return ratings of 300 users; with two nodes, a user's parity decides the node."""
    return generate_implicit(300, 60, key=Key.from_seed(7), ratings=True)
