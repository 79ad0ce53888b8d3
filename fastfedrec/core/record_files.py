"""JSON with one record a line, the form of every file of figures that is kept."""

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["format_records"]


def format_records(document: Mapping[str, Any]) -> str:
    """Return a JSON object with a line for each of its values, and for each record of a value that has several."""
    # JSON itself turns tuples into lists, and all names into strings.
    return _expand(json.loads(json.dumps(document, allow_nan=False)), depth=0) + "\n"


def _expand(value: Any, depth: int) -> str:
    entries = list(value.values() if isinstance(value, dict) else value) if isinstance(value, dict | list) else []
    # Records are no deeper than an object's values, so that a change of one record changes one line.
    if depth > 1 or not any(isinstance(entry, dict | list) for entry in entries):
        return json.dumps(value)
    lines = [_expand(entry, depth + 1) for entry in entries]
    if isinstance(value, dict):
        lines = [f"{json.dumps(name)}: {line}" for name, line in zip(value, lines, strict=True)]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return start + "\n" + ",\n".join(lines) + "\n" + end
