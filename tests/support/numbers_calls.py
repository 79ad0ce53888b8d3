"""Calls with numbers that every type holds exactly (`numbers_case`)."""

import functools

from fastfedrec import Key

KEY = Key.from_seed(1)
# These are exact in half precision, as are all floats below.
ONE, HALF, SMALL = 1.0, 0.5, 2.0**-10


def call(**arguments):
    """Return a call of a function or a constructor."""
    return lambda target: target, arguments


def on(make, **arguments):
    """Return a call of a method of the object that `make` returns."""
    return lambda target: functools.partial(target, make()), arguments


def to(make, **arguments):
    """Return a call of the function or method that `make` returns with the non-numeric arguments."""
    return lambda target: make(), arguments
