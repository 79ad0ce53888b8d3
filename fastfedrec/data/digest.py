"""Digests of the inputs of a run, which bind a key of random noise to one data set."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastfedrec.core.model_files import objects_to_json
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog

__all__ = ["data_parts", "digests"]

_SIZE = 32  # bytes, for resistance to collisions
_PERSON = b"fastfedrec-run"  # BLAKE2 personalization: separates these digests from other uses


def digests(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return the BLAKE2b digest of each part as 64 hexadecimal digits, or raise a TypeError for unknown types."""
    # Separate digests let an error message name the part that differs.
    hex_digests = {}
    for name, value in parts.items():
        digest = hashlib.blake2b(digest_size=_SIZE, person=_PERSON)
        _add(digest, name, value)
        hex_digests[name] = digest.hexdigest()
    return hex_digests


def data_parts(data: Interactions | InteractionLog | None, prefix: str = "") -> dict[str, Any]:
    """Return all fields of interactions or of a log by name, as arguments of `digests`, without copies."""
    if data is None:
        return {f"{prefix}data": None}
    visited = data.interactions if isinstance(data, InteractionLog) else data
    parts: dict[str, Any] = {
        "rows": [visited.indptr, visited.indices],
        "values": visited.values,
        "timestamps": visited.timestamps,
        "users": [visited.user_ids, visited.global_user_ids],
        "catalogue": visited.item_ids,
        "features of users": visited.user_features,
        "features of items": visited.item_features,
    }
    if isinstance(data, InteractionLog):
        parts |= {"log": [data.users, data.items], "contexts": data.contexts}
    return {f"{prefix}{name}": part for name, part in parts.items()}


def _add(digest: Any, name: str, value: Any) -> None:
    """Add a value to a digest."""
    # The kind and length precede each value, so that two different values never give the same bytes.
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            _add(digest, name, json.dumps(objects_to_json(name, value.reshape(-1))))
            _add_bytes(digest, "objects", str(value.shape).encode())
            return
        # The header with dtype and shape distinguishes arrays with equal bytes.
        _add_bytes(digest, f"array {value.dtype.str} {value.shape}", b"")
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))  # dtype and shape determine the length
        return
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        _add_bytes(digest, "constant", str(value).encode())
    elif isinstance(value, int | float):  # 1 and 1.0 are equal parameters
        whole = isinstance(value, int) or value.is_integer()
        _add_bytes(digest, "number", (str(int(value)) if whole else float(value).hex()).encode())
    elif isinstance(value, str):
        _add_bytes(digest, "text", value.encode())
    elif isinstance(value, Mapping):
        _add_bytes(digest, "mapping", str(len(value)).encode())
        for key in value:  # without sorting, because the order of features matters
            _add(digest, name, key)
            _add(digest, name, value[key])
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        _add_bytes(digest, "sequence", str(len(value)).encode())
        for part in value:
            _add(digest, name, part)
    else:
        raise TypeError(
            f"{name} must hold arrays, text, numbers, None, mappings or sequences, got {value!r} "
            f"({type(value).__name__}), which has no digest; convert it"
        )


def _add_bytes(digest: Any, kind: str, content: bytes) -> None:
    for part in (kind.encode(), content):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
