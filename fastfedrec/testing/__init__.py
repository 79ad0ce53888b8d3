"""Tools for the test suites of other projects: random data, assertions about mechanisms, and verified privacy claims.

Strategies and `verify` need hypothesis, which ``pip install 'fastfedrec[testing]'`` installs.
"""

from fastfedrec.testing.assertions import ALPHA, assert_clipped, assert_epsilon, assert_unbiased
from fastfedrec.testing.strategies import interactions, mechanism_inputs, neighbours, shards
from fastfedrec.testing.verification import verify

__all__ = [
    "ALPHA",
    "assert_clipped",
    "assert_epsilon",
    "assert_unbiased",
    "interactions",
    "mechanism_inputs",
    "neighbours",
    "shards",
    "verify",
]

__dir__ = __all__.copy  # dir() lists only the public names
