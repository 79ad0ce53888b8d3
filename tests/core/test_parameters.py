"""Tests of declared parameters: of a small class, and of every system by its own declarations."""

import inspect
import math
import re

import numpy as np
import pytest

from fastfedrec import DPALS, Key, datasets
from fastfedrec.core.names import SYSTEMS, find
from fastfedrec.core.parameters import (
    choice,
    declared_parameters,
    declares_parameters,
    flag,
    integer,
    is_same,
    parameter,
    real,
)

KINDS = [find(path.rpartition(".")[2]) for path in SYSTEMS.values()]
DECLARED = [
    pytest.param(kind, entry, id=f"{kind.__name__}-{name}")
    for kind in KINDS
    for name, entry in declared_parameters(kind).items()
]


@declares_parameters
class Small:
    """A small class.

    Notes
    -----
    After the parameters.
    """

    steps: int = integer(3, low=1, high=5, also=["auto", None]).doc("Number of steps.")
    rate: float = real(0.5, above=0.0, high=1.0).doc("""
        Step size,
        in two lines.""")
    words: str = choice("one", ("one", "two"), argument="words").doc("Words.")
    switch: bool = flag(False).doc("Whether.")
    pair: tuple = parameter((1, 2), "tuple", lambda name, value: tuple(map(int, value))).doc("A pair.")


@declares_parameters
class Larger(Small):
    """A class with another parameter, and another range."""

    rate: float = real(5.0, low=0.0).doc("Another rate.")
    more: int | None = integer(None, also=[None]).doc("More.")


@declares_parameters
class TwoChoices(Small):
    """A class with two arguments that accept one word."""

    other: str = choice("two", ("two", "three")).doc("Others.")


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_the_docstring_has_every_declaration_in_order():
    assert inspect.getdoc(Small) == (
        "A small class.\n\nParameters\n----------\n"
        'steps : int, "auto" or None\n    Number of steps.\n'
        "rate : float\n    Step size,\n    in two lines.\n"
        'words : {"one", "two"}\n    Words.\n'
        "switch : bool\n    Whether.\n"
        "pair : tuple\n    A pair.\n\n"
        "Notes\n-----\nAfter the parameters."
    )
    assert list(declared_parameters(Larger)) == ["steps", "rate", "words", "switch", "pair", "more"]
    assert "rate : float\n    Another rate." in inspect.getdoc(Larger)
    assert str(inspect.signature(Larger)).startswith("(steps: int = 3, rate: float = 5.0, words: str = 'one', ")


def test_values_are_converted_and_checked_at_each_assignment():
    model = Small(np.int8(2), rate=1)
    assert type(model.steps) is int
    assert type(model.rate) is float
    with pytest.raises(ValueError, match="rate must be greater than 0"):
        model.rate = 0
    with pytest.raises(ValueError, match="steps must be one of 'auto', got 'all'"):
        Small(steps="all")
    assert (model.rate, Small("auto").steps, Small(None).steps) == (1.0, "auto", None)
    assert (Larger(rate=7).rate, Small.rate, Larger.rate) == (7.0, 0.5, 5.0)


def test_a_word_of_another_argument_is_named():
    with pytest.raises(TypeError, match=r"^rate must be a real number, got 'two' \(str\); pass words='two' by name$"):
        Small(3, "two")
    with pytest.raises(TypeError, match=r"^rate must be .*; pass steps='auto' by name$"):
        Small(3, "auto")
    # No argument or more than one accepts the word.
    for arguments, remedy in ((("three",), "pass a float"), ((None, "two"), "pass a float")):
        with pytest.raises(TypeError, match=rf"^rate must be a real number, .*; {remedy}$"):
            (TwoChoices if arguments[0] is None else Small)(3, arguments[-1])


def test_an_equal_value_is_stored_as_it_was_given():
    pair = (3, 4)
    assert Small(pair=pair).pair is pair
    assert Small(pair=[3, 4]).pair == pair
    assert is_same({"a": (1, 2.0)}, {"a": (1, 2.0)})
    for one, other in ((1, 1.0), ((1,), (1, 2)), ({"a": 1}, {"b": 1}), (object(), object())):
        assert not is_same(one, other)


# ---- invariants: every system ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_argument_is_declared_with_its_default(kind):
    declared = declared_parameters(kind)
    arguments = inspect.signature(kind).parameters
    assert list(declared) == list(arguments)
    for name, entry in declared.items():
        assert is_same(entry.default, arguments[name].default)
        assert entry.attribute == kind._attributes.get(name, name)
        assert re.fullmatch(r".*[.?!)]", entry.text, re.DOTALL)


@pytest.mark.parametrize(("kind", "entry"), DECLARED)
def test_values_within_the_range_are_kept(kind, entry):
    model = kind()
    accepted = [entry.default, *entry.also, *entry.limits.get("choices", ())]
    accepted += [entry.limits[end] for end in ("low", "high") if entry.limits.get(end) is not None]
    for value in accepted:
        setattr(model, entry.attribute, value)
        assert getattr(model, entry.attribute) == value


def values_beyond(entry):
    """Yield values that are just beyond each limit, and the end of their messages."""
    words = {"low": "at least", "high": "at most", "above": "greater than", "below": "less than"}
    directions = {"low": -math.inf, "high": math.inf}
    for name, limit in entry.limits.items():
        if limit is None or name == "choices":
            continue
        if entry.kind.startswith("int"):
            value = limit + (1 if name == "high" else -1)
        else:
            value = math.nextafter(limit, directions[name]) if name in directions else limit
        yield value, f"must be {words[name]} {limit}, got"


@pytest.mark.parametrize(("kind", "entry"), [case for case in DECLARED if case.values[1].limits])
def test_values_beyond_the_range_and_of_other_types_are_refused_at_once(kind, entry):
    model = kind()
    is_number = "choices" not in entry.limits
    refused = [*values_beyond(entry), *((value, "must be") for value in (object(), [1], {}, "nonsense"))]
    refused += [(value, "must be") for value in (math.nan, math.inf, True) if is_number]
    refused += [(None, "must be")] * (None not in entry.also)
    refused += [(1.5, "must be an integer")] * entry.kind.startswith("int")
    for value, message in refused:
        for assign in (
            lambda value: setattr(model, entry.attribute, value),
            lambda value: kind(**{entry.argument: value}),
            lambda value: model.set_params(**{entry.argument: value}),
        ):
            with pytest.raises((ValueError, TypeError), match=re.escape(f"{entry.argument} {message}")):
                assign(value)
    assert model.get_params() == kind().get_params()


@pytest.mark.parametrize(("kind", "entry"), [case for case in DECLARED if "low" in case.values[1].limits])
def test_the_description_states_the_declared_range(kind, entry):
    limits, sentence = entry.limits, entry.text.split(". ")[0]
    if stated := re.search(r"from (\d+) to (\d+)", sentence):
        assert (limits["low"], limits["high"]) == tuple(map(int, stated.groups()))
    if stated := re.search(r"at least (\d+)\b", sentence):
        assert limits["low"] == int(stated[1])
    if re.search(r"\babove 0\b", sentence):
        assert limits["above"] == 0 or limits["low"] > 0
    if re.search(r"\(0, 1\)|between 0 and 1", sentence):
        assert (limits["above"], limits["below"]) == (0, 1)


@pytest.mark.parametrize(("kind", "entry"), DECLARED)
def test_privacy_parameters_are_positive(kind, entry):
    limits = entry.limits
    if re.search(r"epsilon|noise_multiplier|clip_norm", entry.argument):
        assert limits["above"] == 0 or limits["low"] > 0
    if entry.argument == "delta":
        assert (limits["above"], limits["below"]) == (0, 1)


def test_a_fit_checks_its_parameters_together_once(monkeypatch):
    model, checks = DPALS(8.0, n_factors=2), []
    monkeypatch.setattr(DPALS, "_check_parameters", lambda model: checks.append(model))
    model.fit(datasets.generate_implicit(30, 40, key=Key.from_seed(1)), key=Key.from_seed(2))
    assert len(checks) == 1
