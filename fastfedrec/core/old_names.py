"""Errors for names of the last release that have changed: each error gives the new name, for one release."""

import functools
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

__all__ = ["OldAttribute", "refuse_old_keywords", "refuse_old_names"]

P = ParamSpec("P")
R = TypeVar("R")


class OldAttribute:
    """Former name of an attribute or a method, which raises an error at each access and assignment."""

    def __init__(self, new_name: str):
        self._new_name = new_name

    def __set_name__(self, owner: type, name: str) -> None:
        self._old_name = f"{owner.__name__}.{name}"

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise AttributeError(f"{self._old_name} is now called {self._new_name}")

    def __set__(self, instance: object, value: object) -> NoReturn:
        self.__get__(instance)


def refuse_old_names(module: str, **new_names: str) -> None:
    """Make former names of a module raise an error at each access."""

    def refuse(name: str) -> NoReturn:
        if name in new_names:
            raise AttributeError(f"{module}.{name} is now called {new_names[name]}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    # A type checker would accept every name of a module that defines `__getattr__` in its source.
    vars(sys.modules[module])["__getattr__"] = refuse


def refuse_old_keywords(**new_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that makes former names of parameters raise an error."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in new_names.keys() & kwargs.keys():
                raise TypeError(f"{function.__qualname__}: argument {name} is now called {new_names[name]}")
            return function(*args, **kwargs)

        return checked

    return decorate
