"""The ledger's JSON: its schema, which the documentation publishes, and a reader of such documents."""

import functools
import hashlib
import json
import math
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import Field, asdict, fields, is_dataclass
from typing import Any, Literal

from fastfedrec.accounting import events
from fastfedrec.accounting.events import Composed, Event
from fastfedrec.accounting.filters import BUDGET_FILTERS, BUDGET_VIEWS
from fastfedrec.accounting.notes import NOTE_SCHEMA
from fastfedrec.accounting.views import VIEWS, seen_event
from fastfedrec.core.check import LARGEST_INTEGER
from fastfedrec.core.interface import choose_words
from fastfedrec.core.numbers import show
from fastfedrec.core.text import epsilon_from_json, unique_fields

# Format 1 is the format of 0.1.0, which does not state its number.
FORMAT = "fastfedrec ledger 2"

#: Elementary events by name: all dataclasses that the folder of events exports, except a composition.
KINDS: dict[str, Any] = {
    name: kind for name in events.__all__ if is_dataclass(kind := getattr(events, name)) and kind is not Composed
}

#: Names that a later version may use for the views of neighbours and third parties, in addition to `VIEWS`.
RESERVED_VIEWS = ("neighbours", "third_party")

# Maximum number of digits of a whole number in a document; the largest float has 309.
_MAX_DIGITS = 400
# Relative tolerance of a stated figure, for the last digits of another machine's mathematical functions.
_TOLERANCE = 1e-6

_Schema = dict[str, Any]


def _object(properties: Mapping[str, _Schema], optional: Mapping[str, _Schema] | None = None) -> _Schema:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
        "additionalProperties": False,
    }


def _is_optional(field: Field[Any]) -> bool:
    """Return whether a document may lack a field."""
    return "optional" in field.metadata


def event_fields(event: Event) -> dict[str, Any]:
    """Return the fields of an elementary event for a document; optional ones only if they differ from their default."""
    optional = {field.name: field.default for field in fields(event) if _is_optional(field)}
    return {name: value for name, value in asdict(event).items() if name not in optional or value != optional[name]}


def _field(annotation: Any) -> _Schema:
    """Return the schema of one field of an event, from its type."""
    # The schema states types only: each event checks the ranges of its fields.
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
    """Return the schema of one kind of event."""
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


_BUDGET = _object(
    {
        "epsilon": {"type": "number", "exclusiveMinimum": 0},
        "view": {"enum": list(BUDGET_VIEWS)},
        "filter": {"enum": list(BUDGET_FILTERS)},
    }
)

_RUN = _object(
    {
        "run": {"type": "string"},
        "times": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": LARGEST_INTEGER}},
    }
)

#: Schema of the documents of `Ledger.to_dict` and `Ledger.from_dict`, as a JSON Schema (2020-12).
SCHEMA: _Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Privacy ledger of fastfedrec",
    "description": "Epsilons are in nats: upper bounds for replacing all data of one user, one for each adversary; "
    '"infinite" is no guarantee. "epsilon" holds at "delta" for events that were not chosen by releases; '
    '"pure_epsilon" is the sum of pure epsilons, which holds at delta 0 for any events. '
    '"budget" bounds the epsilon at "delta" of all events that the ledger accepts, also if releases choose them. '
    '"runs" has the times of each event in each run with a checkpoint, so that a resumed run is charged once. '
    'The "fields" of an event are for the relation in fields.neighboring. A note that is a string has no stated kind. '
    f"Names reserved for later versions, in addition to the views of every cost: {', '.join(RESERVED_VIEWS)}.",
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
            "notes": {"type": "array", "items": NOTE_SCHEMA, "uniqueItems": True},
        },
        # Documents of earlier versions have none of these, and a ledger without a budget has no "budget".
        {
            "pure_epsilon": _COSTS,
            "digest": {"type": "string"},
            "budget": _BUDGET,
            "runs": {"type": "array", "items": _RUN},
        },
    ),
}

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float), "null": (types.NoneType,),
}  # fmt: skip


def _is_type(value: Any, name: str) -> bool:
    """Return whether a value has a type of JSON."""
    # JSON has no infinity, and a number beyond the largest float is refused.  True is not a number here.
    is_finite = name != "number" or abs(value) <= sys.float_info.max if type(value) in (int, float) else True
    return type(value) in _TYPES[name] and is_finite


def violation(value: Any, schema: _Schema, path: str) -> str | None:
    """Return in words where a value of JSON departs from a schema with the keywords of `SCHEMA`, or None."""
    if "anyOf" in schema:
        violations = [violation(value, part, path) for part in schema["anyOf"]]
        return None if None in violations else f"{path} must be {_in_words(schema)}, got {show(value)}"
    if "const" in schema or "enum" in schema:
        allowed = schema.get("enum", [schema.get("const")])
        is_one = any(type(value) is type(one) and value == one for one in allowed)
        return None if is_one else f"{path} must be {_in_words(schema)}, got {show(value)}"
    is_number = type(value) in _TYPES["number"]
    is_out_of_range = is_number and not schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
    is_out_of_open_range = is_number and not (
        schema.get("exclusiveMinimum", -math.inf) < value < schema.get("exclusiveMaximum", math.inf)
    )
    if not _is_type(value, schema["type"]) or is_out_of_range or is_out_of_open_range:
        return f"{path} must be {_in_words(schema)}, got {show(value)}"
    return next(_find_violations(value, schema, path), None)


def _find_violations(value: Any, schema: _Schema, path: str) -> Iterator[str]:
    """Yield the violations within an object or an array."""
    if schema["type"] == "object":
        properties = schema["properties"]
        if missing := sorted(set(schema["required"]) - set(value)):
            yield f"{path} must have {missing[0]!r}, got none"
        unknown = [] if schema.get("any") else sorted(map(str, set(value) - set(properties)))
        if unknown:
            yield f"{path} holds {unknown[0]!r}, which this version does not know; read it with a later version"
        for name in value:
            if name in properties and (problem := violation(value[name], properties[name], f"{path}.{name}")):
                yield problem
    if schema["type"] == "array":
        seen = set()
        for position, entry in enumerate(value):
            if problem := violation(entry, schema["items"], f"{path}[{position}]"):
                yield problem
            if schema.get("uniqueItems"):
                text = json.dumps(entry, sort_keys=True)
                if text in seen:
                    yield f"{path}[{position}] repeats an earlier entry, {show(entry)}"
                seen.add(text)


def _in_words(schema: _Schema) -> str:
    """Return a schema in words, for messages."""
    if "anyOf" in schema:
        return " or ".join(map(_in_words, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return " or ".join(repr(one) for one in schema.get("enum", [schema.get("const")]))
    words = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    limits = " and ".join(f"{text} {schema[word]}" for word, text in words.items() if word in schema)
    return f"of type {schema['type']}" + (f", {limits}" if limits else "")


def read(document: Any) -> tuple[dict[str, Any], list[tuple[Event, int]]]:
    """Check a document without its costs, and return it in this version's format with its events and their times."""
    if not isinstance(document, dict):
        raise ValueError(f"ledger must be an object of JSON, got {show(document)}")
    if "format" not in document and not _states_infinite(document.get("epsilon")):
        document = _from_first(document)
    if problem := violation(document, _WITHOUT_EVENTS, "ledger"):
        raise ValueError(problem)
    for name in ("epsilon", "pure_epsilon"):
        _refuse_reserved(document.get(name, {}), f"ledger.{name}")
    # Two entries for one event would be ambiguous, since a ledger counts each event in one entry.
    positions: dict[Event, int] = {}
    for position, entry in enumerate(document["events"]):
        event = _read_event(entry, f"ledger.events[{position}]")
        if event in positions:
            raise ValueError(f"ledger.events[{position}] repeats ledger.events[{positions[event]}]; add up their times")
        positions[event] = position
    return document, [(event, document["events"][position]["times"]) for event, position in positions.items()]


# Each event is checked by the schema of its kind, so that messages name the fault of this kind.
_WITHOUT_EVENTS = {
    **SCHEMA,
    "properties": {
        **SCHEMA["properties"],
        "events": {"type": "array", "items": {"type": "object", "properties": {}, "required": [], "any": True}},
    },
}


def _refuse_reserved(costs: Mapping[str, Any], path: str) -> None:
    """Raise if costs state a view that only later versions can account for."""
    for view in RESERVED_VIEWS:
        if view in costs:
            raise ValueError(
                f"{path} states the cost against {view!r}, which this version cannot account for; use a later one"
            )


def _read_event(entry: dict[str, Any], path: str) -> Event:
    """Build one event from its entry, and check that the entry is as this version writes it."""
    kind = KINDS.get(entry.get("kind", "")) if isinstance(entry.get("kind"), str) else None
    if kind is None:
        raise ValueError(
            f"{path}.kind must be one of {sorted(KINDS)}, got {show(entry.get('kind'))}, which this version cannot "
            "account for"
        )
    if problem := violation(entry, _event(kind), path):
        raise ValueError(problem)
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
    """Return whether costs have the word of formats after 0.1.0 for no guarantee."""
    return isinstance(costs, dict) and "infinite" in costs.values()


def _from_first(document: dict[str, Any]) -> dict[str, Any]:
    """Return a ledger of 0.1.0, which has null for no guarantee, in this version's format."""

    def costs(of: Any) -> Any:
        return {view: "infinite" if cost is None else cost for view, cost in of.items()} if isinstance(of, dict) else of

    def part_of(name: str, part: Any, kind: Any) -> Any:
        # Version 0.1.0 has binary responses only, which have one candidate.
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
    """Return the SHA-256, in hexadecimal, of a document's content without the figures that are computed from it."""
    names = ("format", "delta", "is_simulation", "notes", *({"budget", "runs"} & document.keys()))
    content = {name: document[name] for name in names}
    content["events"] = [[entry["kind"], entry["fields"], entry["times"]] for entry in document["events"]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def refuse_understatement(document: Mapping[str, Any], recomputed: Mapping[str, Any]) -> None:
    """Raise if a document states less than its events cost in `recomputed`, or has the digest of other content."""
    pairs = [(document, recomputed, "ledger", name) for name in ("epsilon", "pure_epsilon") if name in document]
    for position, (entry, expected_entry) in enumerate(zip(document["events"], recomputed["events"], strict=True)):
        pairs += [
            (entry, expected_entry, f"ledger.events[{position}]", name)
            for name in ("epsilon_per_round", "epsilon_whole_run")
        ]
    for stated, expected_costs, path, name in pairs:
        for view, cost in expected_costs[name].items():
            smallest, figure = epsilon_from_json(cost), epsilon_from_json(stated[name][view])
            if figure < smallest * (1 - _TOLERANCE):
                raise ValueError(
                    f"{path}.{name}.{view} states {figure:g}, and its events cost {smallest:g}: the file was changed, "
                    f"or the version that wrote it was wrong. {_way_to_read()}"
                )
    if document.get("digest", expected := digest(document)) != expected:
        raise ValueError(
            f"ledger.digest must be the digest of the content, {expected}, got {document['digest']}: an event, delta "
            f"or remark was changed after the ledger was written. {_way_to_read()}"
        )


def _way_to_read() -> str:
    """Return how to read a refused document, in the words of the interface in use."""
    return choose_words(
        "Pass check_costs=False to read it with its events' cost.", "Get the file from its author again."
    )


def parse(text: str) -> Any:
    """Return the values of JSON text; refuse constants that JSON does not have, and repeated names of fields."""

    def parse_integer(digits: str) -> int:
        # Python refuses or takes long for integers of thousands of digits.
        if len(digits) > _MAX_DIGITS:
            raise ValueError(f"ledger holds a whole number of {len(digits):,} digits, got {digits[:20]}...")
        return int(digits)

    def refuse(constant: str) -> Any:
        raise ValueError(f"ledger holds {constant}, which is no number of JSON")

    if not isinstance(text, str | bytes | bytearray):
        raise TypeError(f"ledger must be JSON text as written by to_json, got {show(text)} ({type(text).__name__})")
    try:
        return json.loads(
            text,
            object_pairs_hook=functools.partial(unique_fields, "ledger holds"),
            parse_constant=refuse,
            parse_int=parse_integer,
        )
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"ledger must be JSON text as written by to_json: {error}") from None
