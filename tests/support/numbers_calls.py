"""Calls with numbers, and numbers that every type holds exactly (`numbers_case`)."""

import functools

from fastfedrec import Key

KEY = Key.from_seed(1)
ONE, HALF, SMALL = 1.0, 0.5, 2.0**-10  # exact in half precision, as all floats below


def call(**arguments):
    """A call of a function or a constructor."""
    return lambda target: target, arguments


def on(make, **arguments):
    """A call of a method of what `make` makes."""
    return lambda target: functools.partial(target, make()), arguments


def to(make, **arguments):
    """A call of what `make` makes: the function or method, with the arguments that are no numbers."""
    return lambda target: make(), arguments
