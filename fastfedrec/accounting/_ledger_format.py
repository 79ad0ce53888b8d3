"""The ledger's JSON: its schema, which is docs/reference/ledger.schema.json, and a reader that takes nothing else."""

import hashlib
import json
import math
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import Field, asdict, fields
from typing import Any, Literal

from fastfedrec.accounting.events import (
    ZCDP,
    CentralRelease,
    DiscreteGaussianRelease,
    Event,
    Gaussian,
    Laplace,
    LocalReports,
    ShuffledReports,
    Unprotected,
)
from fastfedrec.accounting.views import VIEWS, seen_event
from fastfedrec.core.check import LARGEST_INTEGER
from fastfedrec.core.numbers import show
from fastfedrec.core.text import epsilon_from_json

FORMAT = "fastfedrec ledger 2"  # 1 is that of 0.1.0, which did not say so

#: Elementary events by name.
KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        LocalReports,
        ShuffledReports,
        Gaussian,
        Laplace,
        CentralRelease,
        ZCDP,
        DiscreteGaussianRelease,
        Unprotected,
    )
}

#: Names under which a later version may state what neighbours and third parties see, beside `VIEWS`; none does yet.
RESERVED_VIEWS = ("neighbours", "third_party")

_MOST_DIGITS = 400  # of a whole number: floats end at 309
_ROOM = 1e-6  # relative, for the last digits of another machine's mathematical functions

_Schema = dict[str, Any]


def _object(properties: Mapping[str, _Schema], optional: Mapping[str, _Schema] | None = None) -> _Schema:
    return {
        "type": "object",
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
        "additionalProperties": False,
    }


def _is_optional(field: Field[Any]) -> bool:
    return "optional" in field.metadata


def event_fields(event: Event) -> dict[str, Any]:
    """The fields of an event as a document holds them: optional ones only where they differ from their default.

    Parameters
    ----------
    event : event
        An elementary one.

    Returns
    -------
    dict
        Values by name.
    """
    optional = {field.name: field.default for field in fields(event) if _is_optional(field)}
    return {name: value for name, value in asdict(event).items() if name not in optional or value != optional[name]}


def _field(annotation: Any) -> _Schema:
    """The schema of one field of an event, from its type; its range is checked by the event itself."""
    parts = typing.get_args(annotation)
    if isinstance(annotation, types.UnionType):
        return {"anyOf": [_field(part) for part in parts]}
    if typing.get_origin(annotation) is Literal:
        return {"enum": list(parts)}
    names = {str: "string", bool: "boolean", int: "integer", float: "number", types.NoneType: "null"}
    return {"type": names[annotation]}


_COST = {"anyOf": [{"type": "number", "minimum": 0}, {"const": "infinite"}]}
_COSTS = _object(dict.fromkeys(VIEWS, _COST), dict.fromkeys(RESERVED_VIEWS, _COST))


def _event(kind: type) -> _Schema:
    hints = typing.get_type_hints(kind)
    return _object(
        {
            "kind": {"const": kind.__name__},
            "fields": _object(
                {field.name: _field(hints[field.name]) for field in fields(kind) if not _is_optional(field)},
                {field.name: _field(hints[field.name]) for field in fields(kind) if _is_optional(field)},
            ),
            "times": {"type": "integer", "minimum": 1, "maximum": LARGEST_INTEGER},
            "epsilon_per_round": _COSTS,
            "epsilon_whole_run": _COSTS,
        }
    )


#: What `Ledger.to_dict` writes and `Ledger.from_dict` reads, as a JSON Schema (2020-12).
SCHEMA: _Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Privacy ledger of fastfedrec",
    "description": "Epsilons are in nats, upper bounds for replacing all data of one user, by whom it is protected "
    'from; "infinite" is no guarantee. "epsilon" holds at "delta" for events that were not chosen by releases; '
    '"pure_epsilon" is the sum of pure epsilons, which holds at delta 0 for any events. '
    'What an event says of itself, in "fields", is for fields.neighboring. '
    f"Reserved names, which no version writes yet: {', '.join(RESERVED_VIEWS)}, beside the views of every cost.",
    **_object(
        {
            "format": {"const": FORMAT},
            "epsilon_unit": {"const": "nats"},
            "neighboring": {"const": "replace"},
            "privacy_unit": {"const": "user"},
            "delta": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "is_simulation": {"type": "boolean"},
            "events": {"type": "array", "items": {"anyOf": [_event(kind) for kind in KINDS.values()]}},
            "epsilon": _COSTS,
            "notes": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        },
        # Documents of earlier versions have neither.
        {"pure_epsilon": _COSTS, "digest": {"type": "string"}},
    ),
}

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float), "null": (types.NoneType,),
}  # fmt: skip


def _is_type(value: Any, name: str) -> bool:
    # JSON has no infinity, nor have we a number beyond the largest float; and True is no number.
    is_finite = name != "number" or abs(value) <= sys.float_info.max if type(value) in (int, float) else True
    return type(value) in _TYPES[name] and is_finite


def violation(value: Any, schema: _Schema, path: str) -> str | None:
    """Where a value of JSON departs from a schema of the kind above, in words.

    Parameters
    ----------
    value : object
        As `json.loads` gives it.
    schema : dict
        Of the few words that `SCHEMA` uses.
    path : str
        Names the value.

    Returns
    -------
    str or None
        None where nothing is wrong.
    """
    if "anyOf" in schema:
        found = [violation(value, part, path) for part in schema["anyOf"]]
        return None if None in found else f"{path} must be {_in_words(schema)}, got {show(value)}"
    if "const" in schema or "enum" in schema:
        allowed = schema.get("enum", [schema.get("const")])
        is_one = any(type(value) is type(one) and value == one for one in allowed)
        return None if is_one else f"{path} must be {_in_words(schema)}, got {show(value)}"
    is_number = type(value) in _TYPES["number"]
    beyond = is_number and not schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
    outside = is_number and not (
        schema.get("exclusiveMinimum", -math.inf) < value < schema.get("exclusiveMaximum", math.inf)
    )
    if not _is_type(value, schema["type"]) or beyond or outside:
        return f"{path} must be {_in_words(schema)}, got {show(value)}"
    return next(_inside(value, schema, path), None)


def _inside(value: Any, schema: _Schema, path: str) -> Iterator[str]:
    if schema["type"] == "object":
        properties = schema["properties"]
        if missing := sorted(set(schema["required"]) - set(value)):
            yield f"{path} must have {missing[0]!r}, got none"
        unknown = [] if schema.get("any") else sorted(map(str, set(value) - set(properties)))
        if unknown:
            yield f"{path} holds {unknown[0]!r}, which this version does not know; it may be of a later one"
        for name in value:
            if name in properties and (found := violation(value[name], properties[name], f"{path}.{name}")):
                yield found
    if schema["type"] == "array":
        seen = set()
        for place, entry in enumerate(value):
            if found := violation(entry, schema["items"], f"{path}[{place}]"):
                yield found
            if schema.get("uniqueItems") and entry in seen:
                yield f"{path}[{place}] repeats an earlier entry, {show(entry)}"
            if schema.get("uniqueItems"):
                seen.add(entry)


def _in_words(schema: _Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_in_words, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return " or ".join(repr(one) for one in schema.get("enum", [schema.get("const")]))
    words = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    limits = " and ".join(f"{text} {schema[word]}" for word, text in words.items() if word in schema)
    return f"of type {schema['type']}" + (f", {limits}" if limits else "")


def read(document: Any) -> tuple[dict[str, Any], list[tuple[Event, int]]]:
    """Check a document and build its events; costs are not looked at beyond their type.

    Parameters
    ----------
    document : object
        As from `Ledger.to_dict`, of this version or of 0.1.0.

    Returns
    -------
    document : dict
        In this version's format.
    events : list of (event, int)
        Each with how many times it happened.

    Raises
    ------
    ValueError
        Names the field at fault.
    """
    if not isinstance(document, dict):
        raise ValueError(f"ledger must be an object of JSON, got {show(document)}")
    if "format" not in document and not _states_infinite(document.get("epsilon")):
        document = _from_first(document)
    if found := violation(document, _WITHOUT_EVENTS, "ledger"):
        raise ValueError(found)
    for name in ("epsilon", "pure_epsilon"):
        _refuse_reserved(document.get(name, {}), f"ledger.{name}")
    places: dict[Event, int] = {}
    for place, entry in enumerate(document["events"]):
        event = _read_event(entry, f"ledger.events[{place}]")
        if event in places:
            raise ValueError(f"ledger.events[{place}] repeats ledger.events[{places[event]}]; add up their times")
        places[event] = place
    return document, [(event, document["events"][place]["times"]) for event, place in places.items()]


# Events are looked at one by one, by their kind, for messages that say what is wrong with this kind.
_WITHOUT_EVENTS = {
    **SCHEMA,
    "properties": {
        **SCHEMA["properties"],
        "events": {"type": "array", "items": {"type": "object", "properties": {}, "required": [], "any": True}},
    },
}


def _refuse_reserved(costs: Mapping[str, Any], path: str) -> None:
    for view in RESERVED_VIEWS:
        if view in costs:
            raise ValueError(f"{path} states what {view!r} see, which this version cannot account for; use a later one")


def _read_event(entry: dict[str, Any], path: str) -> Event:
    kind = KINDS.get(entry.get("kind", "")) if isinstance(entry.get("kind"), str) else None
    if kind is None:
        raise ValueError(
            f"{path}.kind must be one of {sorted(KINDS)}, got {show(entry.get('kind'))}, which this version cannot "
            "account for"
        )
    if found := violation(entry, _event(kind), path):
        raise ValueError(found)
    for name in ("epsilon_per_round", "epsilon_whole_run"):
        _refuse_reserved(entry[name], f"{path}.{name}")
    try:
        event: Event = kind(**entry["fields"])
        for view in VIEWS:
            seen_event(event, view)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}.fields: {error}") from None
    if event_fields(event) != entry["fields"]:
        raise ValueError(f"{path}.fields must be as written, {event_fields(event)}, got {show(entry['fields'])}")
    return event


def _states_infinite(costs: Any) -> bool:
    return isinstance(costs, dict) and "infinite" in costs.values()


def _from_first(document: dict[str, Any]) -> dict[str, Any]:
    """A ledger of 0.1.0, which wrote null where nothing is guaranteed, in today's format."""

    def costs(of: Any) -> Any:
        return {view: "infinite" if cost is None else cost for view, cost in of.items()} if isinstance(of, dict) else of

    def part_of(name: str, part: Any, kind: Any) -> Any:
        if name == "fields" and kind == "ShuffledReports" and isinstance(part, dict):
            return {"n_candidates": 1} | part
        return costs(part) if name.startswith("epsilon_") else part

    events = document.get("events")
    if isinstance(events, list):
        events = [
            {name: part_of(name, part, entry.get("kind")) for name, part in entry.items()}
            if isinstance(entry, dict)
            else entry
            for entry in events
        ]
    return {**document, "format": FORMAT, "epsilon": costs(document.get("epsilon")), "events": events}


def digest(document: Mapping[str, Any]) -> str:
    """The SHA-256 of a document's content, without the figures that are computed from it.

    Parameters
    ----------
    document : mapping
        As `Ledger.to_dict` writes it; costs may be missing.

    Returns
    -------
    str
        In hexadecimal, of JSON with sorted names.
    """
    content = {name: document[name] for name in ("format", "delta", "is_simulation", "notes")}
    content["events"] = [[entry["kind"], entry["fields"], entry["times"]] for entry in document["events"]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def refuse_understatement(document: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise where a document states less than its own events cost, or has the digest of other content.

    Parameters
    ----------
    document : mapping
        As `read` returned it.
    own : mapping
        The document of its events, with costs computed anew.

    Raises
    ------
    ValueError
        Names the figure and its cost, or the digest.
    """
    pairs = [(document, own, "ledger", name) for name in ("epsilon", "pure_epsilon") if name in document]
    for place, (entry, mine) in enumerate(zip(document["events"], own["events"], strict=True)):
        pairs += [(entry, mine, f"ledger.events[{place}]", name) for name in ("epsilon_per_round", "epsilon_whole_run")]
    for stated, found, path, name in pairs:
        for view, cost in found[name].items():
            least, figure = epsilon_from_json(cost), epsilon_from_json(stated[name][view])
            if figure < least * (1 - _ROOM):
                raise ValueError(
                    f"{path}.{name}.{view} states {figure:g}, and its events cost {least:g}: the file was changed, or "
                    "the version that wrote it erred; check_costs=False reads it with the cost of its events"
                )
    if document.get("digest", expected := digest(document)) != expected:
        raise ValueError(
            f"ledger.digest must be that of the content, {expected}, got {document['digest']}: an event, delta or "
            "remark was changed after the ledger was written. Pass check_costs=False to read it all the same."
        )


def parse(text: str) -> Any:
    """JSON text as `json.loads`, without what JSON does not have and without two fields of one name.

    Parameters
    ----------
    text : str
        A document.

    Returns
    -------
    object
        Plain values.

    Raises
    ------
    TypeError
        Not text.
    ValueError
        Not JSON, or ambiguous.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"ledger holds a field twice: {next(name for name in names if names.count(name) > 1)!r}")
        return found

    def whole(digits: str) -> int:
        if len(digits) > _MOST_DIGITS:
            raise ValueError(f"ledger holds a whole number of {len(digits):,} digits, got {digits[:20]}...")
        return int(digits)

    def refuse(constant: str) -> Any:
        raise ValueError(f"ledger holds {constant}, which is no number of JSON")

    if not isinstance(text, str | bytes | bytearray):
        raise TypeError(f"ledger must be JSON text as written by to_json, got {show(text)} ({type(text).__name__})")
    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse, parse_int=whole)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"ledger must be JSON text as written by to_json: {error}") from None
