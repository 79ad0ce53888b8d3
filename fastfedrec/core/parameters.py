"""Declared parameters: a class attribute holds a default, a check that every assignment runs, and a description.

The declarations of a class are also the parameters of its docstring and of ``fastfedrec systems``.
"""

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Self, TypeVar, dataclass_transform

from fastfedrec.core.calls import explains_calls
from fastfedrec.core.check import LARGEST_INTEGER, check_choice, check_flag, check_integer, check_real
from fastfedrec.core.docstrings import complete_docstring

__all__ = [
    "Parameter",
    "choice",
    "declared_parameters",
    "declares_parameters",
    "flag",
    "integer",
    "is_same",
    "parameter",
    "real",
]

C = TypeVar("C", bound=type)


class Parameter:
    """A descriptor that checks each value of a constructor argument.

    Parameters
    ----------
    default : object
        Default of the argument.
    kind : str
        Type, for docstrings.
    check : callable
        Function of the argument's name and a value, which returns the value in its final type or raises.
    also : collection of str or None
        Words that are accepted as well, such as "auto", and None.
    argument : str or None
        Name of the argument; None for the name of the attribute.
    **limits : object
        Range or choices that `check` enforces, for tests: "low", "high", "above", "below" or "choices".
    """

    def __init__(
        self,
        default: Any,
        kind: str,
        check: Callable[[str, Any], Any],
        also: Collection[str | None] = (),
        argument: str | None = None,
        **limits: Any,
    ):
        self.default, self.also, self.limits, self.text = default, also, limits, ""
        self._check, self._argument = check, argument
        self._words = tuple(word for word in also if word is not None)
        *first, last = [kind, *("None" if word is None else f'"{word}"' for word in also)]
        self.kind = f"{', '.join(first)} or {last}" if first else last

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute, self.argument = name, self._argument or name

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        # The class attribute is the default, which `dataclass` reads.
        return self.default if model is None else vars(model).get(self.attribute, self.default)

    def __set__(self, model: Any, value: Any) -> None:
        try:
            checked = self.check(value)
        except TypeError as error:
            # Arguments without names in another order than the constructor's.
            named = [name for name, entry in declared_parameters(type(model)).items() if entry._knows_word(value)]
            if len(named) != 1:
                raise
            raise TypeError(f"{str(error).partition('; ')[0]}; pass {named[0]}={value!r} by name") from None
        # `sklearn.base.clone` requires the object that it passed, so an equal value is stored as it was given.
        vars(model)[self.attribute] = value if is_same(value, checked) else checked

    def doc(self, text: str) -> Self:
        """Set the description and return this declaration; ``fastfedrec systems`` prints the first sentence."""
        self.text = inspect.cleandoc(text).rstrip()
        return self

    def check(self, value: Any) -> Any:
        """Return a value in its final type, or raise."""
        if value is None and None in self.also:
            return None
        if isinstance(value, str) and self._words:
            return check_choice(self.argument, value, self._words)
        return self._check(self.argument, value)

    def _knows_word(self, value: Any) -> bool:
        """Return whether a value is one of the words that this parameter accepts."""
        return isinstance(value, str) and value in (*self._words, *self.limits.get("choices", ()))


# The functions return `Any`, so that type checkers accept the annotation of the attribute.


def parameter(
    default: Any,
    kind: str,
    check: Callable[[str, Any], Any],
    *,
    also: Collection[str | None] = (),
) -> Any:
    """Declare a parameter with its own check, a function of the argument's name and a value."""
    return Parameter(default, kind, check, also)


def integer(
    default: int | str | None,
    *,
    low: int | None = None,
    high: int | None = LARGEST_INTEGER,
    also: Collection[str | None] = (),
) -> Any:
    """Declare a whole number between `low` and `high` (inclusive), or one of the words or None in `also`."""
    limits: dict[str, Any] = {"low": low, "high": high}
    return Parameter(default, "int", lambda name, value: check_integer(name, value, **limits), also, **limits)


def real(
    default: float | str | None,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    also: Collection[str | None] = (),
) -> Any:
    """Declare a finite number from `low` to `high`, `above` and `below` bounds that are excluded, or one of `also`."""

    def check(name: str, value: Any) -> float:
        number = check_real(name, value, low=above, high=below, exclusive=True)
        return check_real(name, number, low=low, high=high)

    return Parameter(default, "float", check, also, low=low, high=high, above=above, below=below)


def choice(
    default: str | None, choices: Collection[str], *, also: Collection[str | None] = (), argument: str | None = None
) -> Any:
    """Declare one of some words, or None if `also` contains it."""
    kind = "{" + ", ".join(f'"{word}"' for word in choices) + "}"
    return Parameter(
        default, kind, lambda name, value: check_choice(name, value, choices), also, argument, choices=choices
    )


def flag(default: bool) -> Any:
    """Declare a switch, True or False."""
    return Parameter(default, "bool", check_flag, choices=(True, False))


def declared_parameters(kind: type) -> dict[str, Parameter]:
    """Return the declarations of a class by argument, in the order of its constructor."""
    declared = {
        entry.argument: entry
        for base in reversed(kind.__mro__)
        for entry in vars(base).values()
        if isinstance(entry, Parameter)
    }
    return {name: declared[name] for name in inspect.signature(kind).parameters if name in declared}


@dataclass_transform(eq_default=False)
def declares_parameters(kind: C) -> C:
    """Make a class a dataclass of its parameters, and complete its docstring with their declarations."""
    has_docstring = kind.__doc__ is not None  # `python -OO` removes docstrings, and `dataclass` writes one
    explains_calls(dataclass(repr=False, eq=False)(kind))
    if has_docstring:
        entries = [
            f"{name} : {entry.kind}\n    " + entry.text.replace("\n", "\n    ")
            for name, entry in declared_parameters(kind).items()
        ]
        kind.__doc__ = complete_docstring(kind, "\n".join(entries))
    return kind


def is_same(one: Any, other: Any) -> bool:
    """Return whether two parameters, and all entries of tuples and dictionaries, are equal and of one type."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    return isinstance(one, int | float | str) and one == other
