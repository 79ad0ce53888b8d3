"""Errors for calls with wrong arguments, with a remedy."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from fastfedrec.core.text import did_you_mean

__all__ = ["explains_calls"]

Explained = TypeVar("Explained", bound=Callable[..., Any])

_A_KEY = "pass a random key to fit, fit(data, key=Key.from_seed(1)), or none for the noise of a private release"
#: Remedies for names that other libraries use: the parameter here, or a sentence.
_USUAL_NAMES = {
    "k": "n", "top_k": "n", "topk": "n", "top_n": "n", "N": "n", "metric": "metrics", "test_size": "share",
    "random_state": "key", "seed": "key", "rng": "key",
}  # fmt: skip


def explains_calls(target: Explained) -> Explained:
    """Wrap a function, or the constructor of a class, so that a call with wrong arguments names a remedy."""
    if isinstance(target, type):
        target.__init__ = _wrap(target.__init__)  # type: ignore[misc]
        return target
    return cast(Explained, _wrap(target))


def _wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except TypeError as error:
            # An error of the call itself has no frame of the function.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            message = _explain(function, arguments, options)
            if message is None:
                raise
        raise TypeError(message)

    return call


def _explain(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    """Return the error for a call that does not fit the signature, or None if it fits."""
    parameters = {name: p for name, p in inspect.signature(function).parameters.items() if name != "self"}
    is_constructor = function.__name__ == "__init__"
    name = type(arguments[0]).__name__ if is_constructor else function.__name__
    names = ", ".join(parameters) or "none"
    for option, value in options.items():
        if option in parameters:
            continue
        usual = _USUAL_NAMES.get(option)
        if usual in parameters:
            remedy = f"pass {usual}={_example(usual, value)}"
        elif usual == "key":
            remedy = _A_KEY
        else:
            remedy = f"its parameters are {names}"
        return f"{name}() has no parameter {option!r}{did_you_mean(option, parameters)}; {remedy}"
    given = arguments[1:] if is_constructor or "self" in inspect.signature(function).parameters else arguments
    positional = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(given) > len(positional):
        value, by_name = given[len(positional)], [p for p in parameters if p not in positional]
        is_list = len(positional) == 1 and "Sequence[" in str(parameters[positional[0]].annotation)
        if is_list and type(value) is type(given[0]):
            return f"{name}() takes {positional[0]} as one argument; pass a list, {name}([first, second])"
        is_share = "share" in by_name and isinstance(value, float) and 0 < value < 1
        usual = "share" if is_share else by_name[0] if by_name else None
        example = f"{name}({usual}={value!r})" if usual and isinstance(value, int | float | str) else "NAME=VALUE"
        return f"{name}() takes this argument by its name only; pass {example}, and its parameters are {names}"
    present = {*positional[: len(given)], *options}
    missing = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.name not in present and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if missing and is_constructor and hasattr(type(arguments[0]), "from_arrays"):
        return f"{name}() takes prepared rows; pass users and items to {name}.from_arrays(users, items)"
    if missing:
        return f"{name}() needs {' and '.join(missing)}; pass {', '.join(f'{p}={_example(p)}' for p in missing)}"
    return None


def _example(parameter: str, value: Any = ...) -> str:
    """Return a value to pass for a parameter: the given one, or a usual one."""
    if parameter == "key":
        return f"Key.from_seed({value if isinstance(value, int) else 1})"
    return "..." if value is ... else repr(value)
