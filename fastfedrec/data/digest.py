"""Digests of what a run depends on: a key whose noise was made for one set of data is kept for no other."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastfedrec.core.model_files import objects_to_json
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog

__all__ = ["data_parts", "digests"]

_SIZE = 32  # bytes: nobody finds two inputs with one digest
_PERSON = b"fastfedrec-run"


def digests(parts: Mapping[str, Any]) -> dict[str, str]:
    """The digest of each part, so that a message can say which one is another.

    Parameters
    ----------
    parts : mapping of str to object
        Arrays, text, numbers, None, and mappings and sequences of these.

    Returns
    -------
    dict of str to str
        64 hexadecimal digits each (BLAKE2b).

    Raises
    ------
    TypeError
        A value of another kind, whose contents are not known here.
    """
    found = {}
    for name, value in parts.items():
        digest = hashlib.blake2b(digest_size=_SIZE, person=_PERSON)
        _add(digest, name, value)
        found[name] = digest.hexdigest()
    return found


def data_parts(data: Interactions | InteractionLog | None, what: str = "") -> dict[str, Any]:
    """Everything that is in somebody's data, for `digests`.

    Parameters
    ----------
    data : Interactions, InteractionLog or None
        Of users, features and contexts too.
    what : str
        Begins the names of the parts.

    Returns
    -------
    dict of str to object
        No array is copied.
    """
    if data is None:
        return {f"{what}data": None}
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
    return {f"{what}{name}": part for name, part in parts.items()}


def _add(digest: Any, name: str, value: Any) -> None:
    """Each value with its kind and length before it, so that no two values are the same bytes."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            _add(digest, name, json.dumps(objects_to_json(name, value.reshape(-1))))
            _add_bytes(digest, "objects", str(value.shape).encode())
            return
        _add_bytes(digest, f"array {value.dtype.str} {value.shape}", b"")
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))  # as many bytes as type and shape say
        return
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        _add_bytes(digest, "constant", str(value).encode())
    elif isinstance(value, int | float):  # 1 and 1.0 are the same parameter
        whole = isinstance(value, int) or value.is_integer()
        _add_bytes(digest, "number", (str(int(value)) if whole else float(value).hex()).encode())
    elif isinstance(value, str):
        _add_bytes(digest, "text", value.encode())
    elif isinstance(value, Mapping):
        _add_bytes(digest, "mapping", str(len(value)).encode())
        for key in value:  # in their order, on which the order of features depends
            _add(digest, name, key)
            _add(digest, name, value[key])
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        _add_bytes(digest, "sequence", str(len(value)).encode())
        for part in value:
            _add(digest, name, part)
    else:
        raise TypeError(f"{name} holds {value!r} ({type(value).__name__}), which a run that is kept cannot depend on")


def _add_bytes(digest: Any, kind: str, content: bytes) -> None:
    for part in (kind.encode(), content):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
